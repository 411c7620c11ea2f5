"""The only place that knows the kinds of documents and turns plain values into typed ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from trainspec_validate.documents.base import Record, Reference
from trainspec_validate.documents.checkpoint import CheckpointPolicy
from trainspec_validate.documents.cluster import ClusterProfile
from trainspec_validate.documents.plan import TrainingPlan
from trainspec_validate.documents.waivers import Waiver, Waivers

API_VERSION = "trainspec/v1"

Document = ClusterProfile | TrainingPlan | CheckpointPolicy

KINDS: Mapping[str, type[Document]] = {
    "ClusterProfile": ClusterProfile,
    "TrainingPlan": TrainingPlan,
    "CheckpointPolicy": CheckpointPolicy,
}
SIDE_KINDS: Mapping[str, type[Record]] = {"Waivers": Waivers}
"""Kinds that steer the check itself; rules never see them."""

__all__ = [
    "API_VERSION",
    "KINDS",
    "SIDE_KINDS",
    "CheckpointPolicy",
    "ClusterProfile",
    "Document",
    "Record",
    "Reference",
    "TrainingPlan",
    "Waiver",
    "Waivers",
    "read",
    "read_waiver",
]


def read(kind: str, data: Any) -> Document:
    """Turn a plain value that satisfies the published schema into its typed document.

    Raises:
        KeyError: the kind is not one of `KINDS`.
        msgspec.ValidationError: the value does not satisfy the schema.
    """
    model = KINDS[kind]
    try:
        return msgspec.convert(data, model)
    except msgspec.ValidationError:
        # JSON Schema counts 8.0 as an integer, the converter does not: give it 8 before giving up.
        # https://json-schema.org/draft/2020-12/json-schema-core#section-4.2.3
        return msgspec.convert(_integral_floats_as_int(data), model)


def read_waiver(data: Any) -> Waiver:
    """Turn one entry of a waiver file that satisfies the published schema into its typed form."""
    return msgspec.convert(data, Waiver)


def _integral_floats_as_int(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _integral_floats_as_int(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_integral_floats_as_int(item) for item in value]
    return value
