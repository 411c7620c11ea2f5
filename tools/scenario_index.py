"""Writes the index of scenarios that the validator carries instead of the suite."""

from __future__ import annotations

import json
from pathlib import Path

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import part
from trainspec_validate.documents.types.scenario import Scenario


def index(directory: Path) -> str:
    """Requirement, name and what else a reader of requirements wants to know of each scenario."""
    scenarios = [part(Scenario, load_file(path).data) for path in sorted(directory.glob("*/scenario.yaml"))]
    entries = [
        {
            "requirement": one.requirement,
            "name": one.metadata.name,
            "tier": one.tier,
            "level": one.level,
            "description": one.metadata.description,
        }
        for one in sorted(scenarios, key=lambda one: one.requirement)
    ]
    return json.dumps({"scenarios": entries}, indent=1) + "\n"
