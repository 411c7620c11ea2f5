"""Requests that the tests of the planner share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import ClusterProfile, read
from trainspec_validate.documents.types.model import Model
from trainspec_validate.model.catalog import models
from trainspec_validate.planner.request import Request, Wishes, request

CLUSTERS = Path(__file__).resolve().parents[1] / "examples" / "clusters"
Make = Callable[..., Request]


def profile(name: str) -> ClusterProfile:
    """An example cluster."""
    document = read("ClusterProfile", load_file(CLUSTERS / f"{name}.yaml").data)
    assert isinstance(document, ClusterProfile)
    return document


def model(name: str) -> Model:
    """A model of the catalog."""
    return msgspec.convert({"name": name, **models()[name].model}, Model)


def make(cluster: str, name: str, **wishes: object) -> Request:
    """A request from names and wishes."""
    return request(profile(cluster), model(name), Wishes(**wishes))  # type: ignore[arg-type]
