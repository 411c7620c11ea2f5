"""Requirements and checks cover each other, and the text of requirements keeps its form."""

from __future__ import annotations

import re

from tests.every import every
from trainspec_validate.model.requirements import Requirement, load_index
from trainspec_validate.pipeline.coverage import checks, holes, table

REQUIREMENTS = list(load_index().by_id.values())
LOWER_CASE_LEVEL = re.compile(r"\b(must|shall|should|may|required|recommended|optional)\b")


def test_no_requirement_without_its_check_and_no_check_without_its_requirement() -> None:
    assert holes() == []


def test_every_kind_of_check_is_in_use() -> None:
    counts = {kind: len(identifiers) for kind, identifiers in checks().items()}
    assert all(counts.values()), counts


def test_the_first_version_is_complete() -> None:
    assert len(REQUIREMENTS) >= 90
    assert sum(requirement.check == "rule" for requirement in REQUIREMENTS) >= 60
    areas = {area for area, _ in table()}
    assert areas >= {f"TS-{area}" for area in ("DOC", "CLU", "TOP", "PAR", "BAT", "PRC", "COM", "MEM", "NRG", "CKP")}


@every("requirement", REQUIREMENTS, ids=lambda r: r.id)
def test_sentence_has_no_lower_case_level(requirement: Requirement) -> None:
    assert LOWER_CASE_LEVEL.findall(f"{requirement.statement} {requirement.details}") == []


@every("requirement", REQUIREMENTS, ids=lambda r: r.id)
def test_sentence_and_reason_are_sentences(requirement: Requirement) -> None:
    assert requirement.statement.endswith(".")
    assert requirement.why.endswith(".")
    assert len(requirement.statement.split()) <= 40  # with the targets of links


def test_reasons_of_figures_name_a_source() -> None:
    without = [r.id for r in REQUIREMENTS if re.search(r"\d", r.why) and "Source" not in r.why]
    assert without == []
