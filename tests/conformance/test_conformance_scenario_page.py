"""The page of scenarios has each of them once, in its level, with the trials that the suite runs."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from conformance_stacks import fake
from trainspec_conformance.diffing import read_report
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


def _sums(*levels: str) -> list[int]:
    """Trials of the core scenarios of these levels, by the table of each level."""
    mine = [numbers for heading, numbers in _rows().values() if heading in {f"{one}, core" for one in levels}]
    return [sum(column) for column in zip(*mine, strict=True)]


def test_a_level_needs_the_trials_of_its_rows_and_of_those_below() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for level, levels in (("observable", ("Observable",)), ("recoverable", ("Observable", "Recoverable"))):
        (row,) = re.findall(rf"^\| {level} \| .* \| \d+ \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
        assert list(map(int, row)) == _sums(*levels)


def test_the_guide_states_the_trials_of_the_scenarios() -> None:
    half, most, nearly_all = _sums("Observable", "Recoverable")
    guide = " ".join((PAGE.parents[1] / "guide" / "conformance.md").read_text(encoding="utf-8").split())
    assert f"{half} trials for half of the faults, {most} for 90 of 100 and {nearly_all} for 95 of 100" in guide
    questions = (PAGE.parents[1] / "questions.md").read_text(encoding="utf-8")
    assert f"{half}, {most} or {nearly_all} trials" in questions


def test_the_measured_times_name_the_suite_that_they_are_of() -> None:
    guide = " ".join((PAGE.parents[1] / "guide" / "conformance.md").read_text(encoding="utf-8").split())
    results = PAGE.parents[2] / "conformance" / "results"
    run = _trials_of(results / "minimal-torch" / "report.json")
    assert f"the {len(run)} trials that the level then had took {sum(run.values()) / 60:.0f} min" in guide
    names = {name for name, _ in _trials_of(results / "reference-torch" / "report.json")}
    core = {name for name, one in all_scenarios().items() if one.tier == "core"}
    assert f"of {len(names & core)} core scenarios" in guide
    assert f"the other {len(core - names)} of today's {len(core)}" in guide


def _trials_of(path: Path) -> dict[tuple[str, int], float]:
    """Seconds of each trial of a report, by scenario and number."""
    report = read_report(path)
    return {(one.scenario, trial.number): trial.seconds for one in report.scenarios for trial in one.trials}


def test_the_contract_states_the_scenarios_of_each_level() -> None:
    text = PAGE.read_text(encoding="utf-8")
    levels = ("observable", "recoverable", "efficient")
    rows = [re.findall(rf"^\| {level} \| .* \| (\d+)(?: \| \d+){{3}} \|$", text, re.MULTILINE) for level in levels]
    wanted = ", ".join(f"{number} for `{level}`" for level, (number,) in zip(levels, rows, strict=True))
    contract = " ".join((PAGE.parents[1] / "v1" / "00-contract.md").read_text(encoding="utf-8").split())
    assert f"in `core`, {wanted}, those of lower levels included" in contract
