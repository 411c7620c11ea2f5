"""Compares requirements with checks and finds those without a counterpart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from trainspec_validate.checkpoints.checks import all_checks as artifact_checks
from trainspec_validate.documents.schema import load_schema
from trainspec_validate.documents.types import KINDS
from trainspec_validate.model.finding import Severity
from trainspec_validate.model.requirements import DATA_DIRECTORY, Index, Requirement, load_index
from trainspec_validate.rules import all_rules
from trainspec_validate.telemetry.checks import all_checks

LOAD = frozenset(f"TS-DOC-{number:03}" for number in (1, 2, 3, 4, 11, 12, 13, 14, 15, 16, 17, 20, 21, 22))
"""Requirements that the program which reads the files checks itself."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A requirement without its check, or a check without its requirement."""

    requirement: str
    message: str


def checks() -> Mapping[str, frozenset[str]]:
    """Requirement ids by the kind of check that really exists for them."""
    return {
        "load": LOAD,
        "schema": frozenset(schema_requirements()),
        "rule": frozenset(all_rules()),
        "stream": frozenset(all_checks()),
        "artifact": frozenset(artifact_checks()),
        "runtime": frozenset(scenarios()),
    }


@cache
def scenarios() -> Mapping[str, str]:
    """Names of the scenarios of the conformance suite, by the requirement that each tests."""
    index = json.loads((DATA_DIRECTORY / "scenarios.json").read_text(encoding="utf-8"))
    return {one["requirement"]: one["name"] for one in index["scenarios"]}


def schema_requirements() -> Iterator[str]:
    """Every requirement id that a published schema names."""
    for kind in KINDS:
        schema = load_schema(kind)
        yield from schema["x-requirements"].values()
        yield from _marked(schema)


def _marked(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("x-requirement"), str):
            yield node["x-requirement"]
        for value in node.values():
            yield from _marked(value)
    elif isinstance(node, list):
        for item in node:
            yield from _marked(item)


def holes(index: Index | None = None) -> list[Hole]:
    """Missing and surplus checks; empty when every requirement has exactly the check that its heading names."""
    index = index or load_index()
    real = checks()
    found = []
    for requirement in index.by_id.values():
        having = [kind for kind, identifiers in real.items() if requirement.id in identifiers]
        if requirement.check == "manual":
            if having or not requirement.checklist:
                found.append(Hole(requirement.id, f"says check=manual, has {having or 'no checklist'}"))
        elif requirement.check not in real:
            found.append(Hole(requirement.id, f"says check={requirement.check}, which this version cannot run"))
        elif having != [requirement.check]:
            found.append(Hole(requirement.id, f"says check={requirement.check}, has {having or 'none'}"))
    for kind, identifiers in real.items():
        found += [
            Hole(identifier, f"has a check ({kind}) but no heading") for identifier in identifiers - index.by_id.keys()
        ]
    for requirement in index.by_id.values():
        if (requirement.severity is Severity.ERROR) != bool(requirement.ground):
            found.append(Hole(requirement.id, f"is a {requirement.level}, and its ground is {requirement.ground!r}"))
    names = [
        *((identifier, one.name) for identifier, one in all_rules().items()),
        *((identifier, one.name) for identifier, one in all_checks().items()),
        *((identifier, one.name) for identifier, one in artifact_checks().items()),
        *scenarios().items(),
    ]
    for identifier, name in names:
        if identifier in index.by_id and index.by_id[identifier].name != name:
            found.append(Hole(identifier, f"is named {index.by_id[identifier].name!r}, its function {name!r}"))
    return sorted(found, key=lambda hole: hole.requirement)


def by_ground(index: Index | None = None) -> dict[str, list[Requirement]]:
    """Every MUST by the ground on which it is one, in reading order."""
    found: dict[str, list[Requirement]] = {}
    for requirement in (index or load_index()).by_id.values():
        if requirement.ground:
            found.setdefault(requirement.ground, []).append(requirement)
    return dict(sorted(found.items()))


def table(index: Index | None = None) -> list[tuple[str, Counter[str]]]:
    """Number of requirements by chapter prefix and way of checking, in reading order."""
    index = index or load_index()
    rows: dict[str, Counter[str]] = {}
    for requirement in index.by_id.values():
        rows.setdefault(requirement.area, Counter())[requirement.check] += 1
    return list(rows.items())
