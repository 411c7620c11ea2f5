"""The page of scenarios has each of them once, in its level, with the trials that the suite runs."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from conformance_stacks import fake
from trainspec_conformance.drawing import num_kinds
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.suite import num_trials

from trainspec_validate.documents.types.scenario import Scenario

PAGE = Path(__file__).parents[2] / "spec" / "reference" / "scenarios.md"
ROW = re.compile(r"^\| \[`(?P<name>[\w-]+)`\]\((?P<link>\S+)\) \| .* \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
QUANTILES = (0.5, 0.9, 0.95)


def _rows() -> dict[str, tuple[str, list[int]]]:
    """Of each scenario the heading that its row is below, and the three numbers of trials."""
    found: dict[str, tuple[str, list[int]]] = {}
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        for row in ROW.finditer(section):
            assert row["name"] not in found
            found[row["name"]] = section.splitlines()[0], [int(number) for number in row.groups()[2:]]
    return found


def test_the_page_has_every_scenario() -> None:
    assert sorted(_rows()) == sorted(all_scenarios())


@pytest.mark.parametrize("scenario", all_scenarios().values(), ids=lambda one: one.metadata.name)
def test_a_row_is_what_the_suite_does(scenario: Scenario) -> None:
    heading, numbers = _rows()[scenario.metadata.name]
    profile = "core" if scenario.tier == "core" else "full"
    assert heading == f"{scenario.level.capitalize()}, {profile}"
    claims = fake().claims
    stacks = [
        msgspec.structs.replace(fake(), claims=msgspec.structs.replace(claims, quantile=share)) for share in QUANTILES
    ]
    assert numbers == [num_trials(stack.claims, scenario) * num_kinds(scenario) for stack in stacks]
