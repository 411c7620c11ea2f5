"""The page of scenarios says of each criterion of the suite what it compares, and to which requirements it belongs."""

from __future__ import annotations

import re
from pathlib import Path

from trainspec_conformance.criteria import all_checks
from trainspec_conformance.formats.reasons import ACTS
from trainspec_conformance.processes import KEPT_VARIABLES

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import part
from trainspec_validate.documents.types.scenario import Scenario

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| `(?P<name>[a-z-]+)` \| (?P<words>[^|]+) \| (?P<requirements>[^|]+) \|$", re.MULTILINE)
LEAST_WORDS = 6


def rows() -> dict[str, re.Match[str]]:
    page = (ROOT / "spec" / "reference" / "scenarios.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Criteria$.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return {row["name"]: row for row in ROW.finditer(section)}


def test_each_criterion_has_a_row_that_says_what_it_compares() -> None:
    found = rows()
    assert set(found) == {ACTS, *all_checks()}
    assert [name for name, row in found.items() if len(row["words"].split()) < LEAST_WORDS] == []


def test_each_criterion_belongs_to_the_requirements_of_its_scenarios() -> None:
    found = rows()
    for path in sorted((ROOT / "conformance" / "scenarios").glob("*/scenario.yaml")):
        one = part(Scenario, load_file(path).data)
        for criterion in one.criteria:
            assert one.requirement in found[criterion.check]["requirements"], (criterion.check, one.requirement)


def test_no_criterion_belongs_to_nothing() -> None:
    assert [name for name, row in rows().items() if name != ACTS and "TS-CNF-" not in row["requirements"]] == []


def test_the_guide_lists_the_variables_that_reach_a_stack() -> None:
    guide = (ROOT / "spec" / "guide" / "conformance.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"none of the variables of the suite but ([^:]+):", guide)
    assert set(re.findall(r"`(\w+)`", listed)) == KEPT_VARIABLES
