"""Finds the scenarios that come with the suite."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from trainspec_conformance.reading import read
from trainspec_validate.documents.types.scenario import Scenario

DIRECTORIES = (Path(__file__).parent / "scenarios", Path(__file__).parents[1] / "scenarios")
"""In a wheel they lie in the package, in a clone beside it."""


@cache
def all_scenarios() -> dict[str, Scenario]:
    """Every scenario by its name, in the order of their requirements.

    Raises:
        DocumentError: one cannot be read, or its directory has another name than it.
    """
    directory = next(path for path in DIRECTORIES if path.is_dir())
    found = [read(path, Scenario) for path in sorted(directory.glob("*/scenario.yaml"))]
    return {one.metadata.name: one for one in sorted(found, key=lambda one: one.requirement)}
