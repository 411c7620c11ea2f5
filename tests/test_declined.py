"""Every proposal that was collected has one row on the page of decisions, and each decision holds what it says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.every import every
from trainspec_validate.model.requirements import load_index

PAGE = Path(__file__).resolve().parent.parent / "spec" / "v1" / "90-declined.md"
COLLECTED = {
    "Topology": {"T": range(1, 43)},
    "Compute": {
        "PAR-": range(1, 5),
        "BAT-": range(1, 8),
        "GNS-": range(1, 7),
        "CMP-": range(1, 6),
        "PRC-": range(1, 7),
        "MEM-": range(1, 4),
        "FLP-": range(1, 5),
        "DAT-": range(1, 2),
        "NRG-": range(1, 5),
    },
    "Reliability": {"CP-": range(1, 19)},
}
DIGITS = {"Topology": 2, "Compute": 3, "Reliability": 2}
DECISIONS = {"adopted", "adopted in part", "deferred", "declined"}
IDENTIFIER = re.compile(r"\bTS-[A-Z]{3}-\d{3}\b")


def rows() -> list[tuple[str, str, str, str, str]]:
    """Area, proposal, what it asks, decision and reason of each row."""
    found, area = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            area = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| proposal "):
            proposal, asks, decision, reason = (cell.strip() for cell in line.strip("|").split("|"))
            found.append((area, proposal, asks, decision, reason))
    return found


def test_every_collected_proposal_has_exactly_one_row() -> None:
    named = [(area, proposal) for area, proposal, *_ in rows()]
    wanted = [
        (area, f"{prefix}{number:0{DIGITS[area]}}")
        for area, lists in COLLECTED.items()
        for prefix, numbers in lists.items()
        for number in numbers
    ]
    assert len(wanted) == 42 + 40 + 18
    assert {place: named.count(place) for place in wanted if named.count(place) != 1} == {}
    assert len(named) == len(set(named))


def test_no_row_has_the_form_of_an_identifier_that_nobody_collected() -> None:
    pattern = re.compile(r"T\d{2}|[A-Z]{2,3}-\d{2,3}")
    identifiers = [proposal for _, proposal, *_ in rows() if pattern.fullmatch(proposal)]
    assert len(identifiers) == 100


@every("row", rows(), ids=lambda row: f"{row[0]}-{row[1]}")
def test_a_decision_holds_what_it_says(row: tuple[str, str, str, str, str]) -> None:
    _, _, asks, decision, reason = row
    named = IDENTIFIER.findall(reason)
    assert asks
    assert decision in DECISIONS
    assert [identifier for identifier in named if identifier not in load_index().by_id] == []
    assert len(named) == len(set(named))
    if decision.startswith("adopted"):
        assert named
    if decision != "adopted":
        words = IDENTIFIER.sub("", reason).split()
        assert len([word for word in words if re.search(r"[a-z]", word)]) >= 5


def test_the_page_tells_the_decisions_apart() -> None:
    used = {decision for _, _, _, decision, _ in rows()}
    assert used == DECISIONS


def test_every_open_question_has_its_day_and_what_would_decide_it() -> None:
    lines = PAGE.with_name("99-open-questions.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    questions = [row for row in rows if row[0] != "question"]
    assert len(questions) >= 20
    assert [row[0] for row in questions if len(row) != 4 or not all(row)] == []
    assert [row[0] for row in questions if not re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", row[3])] == []
