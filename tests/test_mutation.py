"""The validator notices damage to valid documents, whichever kind of damage it is."""

from __future__ import annotations

import copy
import re
from collections import Counter
from functools import cache

import pytest
from mutation.__main__ import LEAST_SHARE, ROOT, document_sets, mutants, run, table
from mutation.judge import DocumentSet, changes_meaning, departures, notices
from mutation.operators import FREE_CHOICES, OPERATORS, Mutant, replaced

from tests.every import every
from trainspec_validate.documents.load import load_file

NAMES = {"delete", "retype", "scale by 1000", "swap units", "break products", "dangling references"}


@cache
def everything() -> tuple[Counter[str], Counter[str], list[str]]:
    return run(sample=None, seed=1)


@cache
def sets() -> tuple[DocumentSet, ...]:
    return tuple(document_sets())


@pytest.mark.slow
def test_damage_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    judged, noticed, survivors = everything()
    report = table(judged, noticed)
    with capsys.disabled():
        print(f"\n{report}")  # noqa: T201
    assert noticed.total() >= LEAST_SHARE * judged.total(), f"{report}\n" + "\n".join(survivors)
    low = [name for name in judged if noticed[name] < LEAST_SHARE * judged[name]]
    assert low == [], f"{report}\n" + "\n".join(line for line in survivors if line.startswith(tuple(low)))


@pytest.mark.slow
def test_every_operator_has_something_to_damage() -> None:
    judged, _, _ = everything()
    assert set(judged) == NAMES
    assert len(OPERATORS) == len(NAMES)
    assert min(judged.values()) >= 50
    assert judged.total() >= 8000


@every("documents", sets(), ids=lambda documents: documents.name)
def test_undamaged_documents_are_not_noticed(documents: DocumentSet) -> None:
    for path, data in documents.data.items():
        assert not notices(documents, path, copy.deepcopy(data))


@every("documents", sets(), ids=lambda documents: documents.name)
def test_departures_are_those_that_the_files_give_reasons_for(documents: DocumentSet) -> None:
    for requirement, path, _ in departures(documents):
        assert re.search(rf"trainspec: ignore\[[^\]]*{requirement}\b", load_file(ROOT / path).text)


@pytest.mark.slow
def test_every_kind_of_document_is_damaged() -> None:
    kinds = {documents.data[path]["kind"] for documents in sets() for path, _ in mutants(documents)}
    assert kinds == {"ClusterProfile", "TrainingPlan", "CheckpointPolicy"}


@pytest.mark.parametrize(("operator", "place"), FREE_CHOICES, ids=lambda value: value.replace(" ", "-"))
def test_free_choices_are_found_in_the_documents(operator: str, place: str) -> None:
    """Each entry leaves something out, so that none outlives its reason."""
    left_out = [
        mutant
        for documents in sets()
        for data in documents.data.values()
        for damage in OPERATORS
        for mutant in damage(data)
        if mutant.operator == operator and not changes_meaning(data["kind"], mutant)
    ]
    key = place.rsplit(".", 1)[1]
    assert any(mutant.pointer[-1] == key for mutant in left_out)


def test_facts_beside_free_choices_are_judged() -> None:
    base = next(documents for documents in sets() if documents.name == "base")
    plan = next(data for data in base.data.values() if data["kind"] == "TrainingPlan")
    steps = ("job", "num_steps")
    assert changes_meaning("TrainingPlan", Mutant("scale by 1000", steps, "", replaced(plan, steps, 20)))
    seed = ("job", "seed")
    assert not changes_meaning("TrainingPlan", Mutant("scale by 1000", seed, "", replaced(plan, seed, 1234000)))
    assert changes_meaning("TrainingPlan", Mutant("retype", seed, "", replaced(plan, seed, "1234 units")))
