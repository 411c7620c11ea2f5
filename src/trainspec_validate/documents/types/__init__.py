"""Lists the kinds of documents and turns plain values into typed ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from trainspec_validate.documents.types.base import Record, Reference
from trainspec_validate.documents.types.checkpoint import CheckpointPolicy
from trainspec_validate.documents.types.cluster import ClusterProfile
from trainspec_validate.documents.types.conformance import StackDescriptor, Task
from trainspec_validate.documents.types.conformance_report import ConformanceReport
from trainspec_validate.documents.types.manifest import CheckpointManifest, SealedFile
from trainspec_validate.documents.types.partial import (
    Unknown,
    UnknownValueError,
    integral_floats_as_int,
    is_given,
    read_partial,
    without,
)
from trainspec_validate.documents.types.plan import TrainingPlan
from trainspec_validate.documents.types.scenario import Scenario
from trainspec_validate.documents.types.user_rules import UserRules
from trainspec_validate.documents.types.waivers import Waiver, Waivers
from trainspec_validate.system.structs import converted

API_VERSION = "trainspec/v1"

Part = TypeVar("Part", bound=Record)
Document = ClusterProfile | TrainingPlan | CheckpointPolicy

KINDS: Mapping[str, type[Document]] = {
    "ClusterProfile": ClusterProfile,
    "TrainingPlan": TrainingPlan,
    "CheckpointPolicy": CheckpointPolicy,
}
SIDE_KINDS: Mapping[str, type[Record]] = {
    "Waivers": Waivers,
    "UserRules": UserRules,
    "CheckpointManifest": CheckpointManifest,
    "StackDescriptor": StackDescriptor,
    "Scenario": Scenario,
    "ConformanceTask": Task,
    "ConformanceReport": ConformanceReport,
}
"""Kinds that steer a check or a conformance test or are in a checkpoint; rules never see them."""

__all__ = [
    "API_VERSION",
    "KINDS",
    "SIDE_KINDS",
    "CheckpointManifest",
    "CheckpointPolicy",
    "ClusterProfile",
    "ConformanceReport",
    "Document",
    "Record",
    "Reference",
    "Scenario",
    "SchemaMismatch",
    "SealedFile",
    "StackDescriptor",
    "Task",
    "TrainingPlan",
    "Unknown",
    "UnknownValueError",
    "UserRules",
    "Waiver",
    "Waivers",
    "changed",
    "is_given",
    "part",
    "plain",
    "read",
    "read_any",
    "read_manifest",
    "read_partial",
    "read_plain",
    "read_waiver",
    "without",
]

SchemaMismatch = msgspec.ValidationError
"""Raised where a value does not satisfy the schema, under a name for rooms that do not import the library."""


def read(kind: str, data: Any) -> Document:
    """Turn a plain value that satisfies the published schema into its typed document.

    Raises:
        KeyError: the kind is not one of `KINDS`.
        msgspec.ValidationError: the value does not satisfy the schema.
    """
    return _converted(KINDS[kind], kind, data)


def read_any(kind: str, data: Any) -> Record:
    """Turn a plain value into the typed document of any kind.

    Raises:
        KeyError: there is no such kind.
        msgspec.ValidationError: the value does not satisfy the schema.
    """
    return _converted(KINDS[kind] if kind in KINDS else SIDE_KINDS[kind], kind, data)


def _converted(model: type[Part], kind: str, data: Any) -> Part:
    if not _says(kind, data):
        raise msgspec.ValidationError(f"Object missing required field `kind` with the value {kind}")
    try:
        return converted(data, model)
    except msgspec.ValidationError:
        # JSON Schema counts 8.0 as an integer, the converter does not: give it 8 before giving up.
        # https://json-schema.org/draft/2020-12/json-schema-core#section-4.2.3
        return converted(integral_floats_as_int(data), model)


def plain(record: Record) -> dict[str, Any]:
    """The plain value of a document or of a part of it, without keys that have their default."""
    found: dict[str, Any] = msgspec.to_builtins(record)
    return found


def part(model: type[Part], data: Any) -> Part:
    """Turn a plain value into a part of a document.

    Raises:
        msgspec.ValidationError: the value does not satisfy the schema of the part.
    """
    return converted(data, model)


def changed(record: Part, **changes: Any) -> Part:
    """The record with other values of some keys."""
    return msgspec.structs.replace(record, **changes)


def read_waiver(data: Any) -> Waiver:
    """Turn one entry of a waiver file that satisfies the published schema into its typed form."""
    return converted(data, Waiver)


def read_manifest(data: Any) -> CheckpointManifest:
    """Turn a plain value into a checkpoint manifest.

    Raises:
        SchemaMismatch: the value does not satisfy the schema.
    """
    return _converted(CheckpointManifest, CheckpointManifest.__name__, data)


def read_plain(kind: str, data: Any) -> Document | None:
    """The typed document where the reader and the published schema cannot disagree, otherwise None.

    They come from one declaration and differ in three points only: a null, which the schema refuses; a whole
    number written as 8.0, which the reader refuses; and a line break at the end of a name, which Python's `$` lets by.
    """
    if not _says(kind, data) or _holds_null_or_line_end(data):
        return None
    try:
        return converted(data, KINDS[kind])
    except msgspec.ValidationError:
        return None


def _says(kind: str, data: Any) -> bool:
    # The converter lets the tag of a single type be absent: https://jcristharif.com/msgspec/structs.html#tagged-unions
    return isinstance(data, dict) and data.get("kind") == kind


def _holds_null_or_line_end(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_holds_null_or_line_end(item) for item in value.values())
    if isinstance(value, list):
        return any(_holds_null_or_line_end(item) for item in value)
    return value is None or (isinstance(value, str) and value.endswith("\n"))
