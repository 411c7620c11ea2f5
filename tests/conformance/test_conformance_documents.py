"""Scenarios, chapters and mutants fit together: what one names, the others have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from trainspec_conformance.criteria import all_checks
from trainspec_conformance.numerics import all_cases
from trainspec_conformance.reading import all_scenarios, read

from tests.every import every
from trainspec_validate.documents.types.conformance import StackDescriptor
from trainspec_validate.documents.types.scenario import Probe
from trainspec_validate.model.requirements import load_index

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "conformance" / "mutants"))
from registry import all_mutants  # noqa: E402

RUNTIME = {one.id: one for one in load_index().by_id.values() if one.check == "runtime"}


@every("name", all_scenarios())
def test_a_scenario_uses_what_there_is(name: str) -> None:
    one = all_scenarios()[name]
    assert {criterion.check for criterion in one.criteria} <= all_checks().keys()
    assert {act.case for act in one.acts if isinstance(act, Probe)} <= all_cases().keys()
    assert RUNTIME[one.requirement].name == name
    assert (RUNTIME[one.requirement].profile == "core") == (one.tier == "core")


def test_every_check_is_used() -> None:
    used = {criterion.check for one in all_scenarios().values() for criterion in one.criteria}
    assert all_checks().keys() == used


@every("identifier", RUNTIME)
def test_bad_examples_are_mutants_and_good_ones_stacks(identifier: str) -> None:
    one, mutants = RUNTIME[identifier], all_mutants()
    for example in one.bad:
        lie = example.text.partition("  # <--")[0].strip()
        assert mutants[example.file].lie == lie
        assert identifier == mutants[example.file].requirement or identifier in mutants[example.file].also
    assert any(mutants[example.file].requirement == identifier for example in one.bad) or all(
        identifier in mutants[example.file].also for example in one.bad
    )
    for example in one.good:
        read(ROOT / "conformance" / "stacks" / f"{example.file}.yaml", StackDescriptor)


@every("name", all_mutants())
def test_a_mutant_breaks_a_requirement_and_is_shown(name: str) -> None:
    one = all_mutants()[name]
    assert one.requirement in RUNTIME
    assert one.also.keys() <= RUNTIME.keys()
    assert one.requirement not in one.also
    assert name in {example.file for requirement in RUNTIME.values() for example in requirement.bad}


def test_there_are_as_many_mutants_as_promised() -> None:
    assert len(all_mutants()) >= 25


@pytest.mark.parametrize("path", sorted((ROOT / "conformance" / "stacks").glob("*.yaml")), ids=lambda path: path.name)
def test_descriptors_can_be_read(path: Path) -> None:
    one = read(path, StackDescriptor)
    assert one.metadata.name == path.stem
    assert not {missing.capability for missing in one.missing} & set(one.capabilities)
