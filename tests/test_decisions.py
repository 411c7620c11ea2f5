"""Compares the record of decided levels with the requirements that it is about."""

from __future__ import annotations

import re
from pathlib import Path

from trainspec_validate.model.requirements import load_index

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(
    r"^\| (TS-[A-Z]{3}-\d{3}) \| `[a-z0-9-]+` \| (\d{4}-\d\d-\d\d) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$",
    re.MULTILINE,
)
LEVELS = {"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY", "proposed"}


CHOICE = re.compile(r"[^.;:]*\ba choice of this specification")


def decisions() -> str:
    text = (ROOT / "spec" / "v1" / "97-rationale.md").read_text(encoding="utf-8")
    return text.partition("### Levels that were in doubt")[2].partition("\n## ")[0]


def test_decided_levels_are_those_of_the_requirements() -> None:
    section = decisions()
    rows = ROW.findall(section)
    assert len(rows) == section.count("\n| TS-") > 50
    by_id = load_index().by_id
    assert {i: (level, ground) for i, _, _, level, ground, _ in rows} == {
        i: (by_id[i].level, by_id[i].ground or "none") for i, *_ in rows
    }
    assert {was for _, _, was, *_ in rows} <= LEVELS
    assert len({i for i, *_ in rows}) == len(rows)


def test_a_must_that_rests_on_a_choice_was_decided() -> None:
    """A tolerance of an identity may be chosen; any other choice makes no MUST unless the record says why."""
    decided = {identifier for identifier, *_ in ROW.findall(decisions())}
    chosen = {
        requirement.id
        for requirement in load_index().by_id.values()
        for clause in CHOICE.findall(" ".join(requirement.why.split()))
        if requirement.level.startswith("MUST") and "tolerance" not in clause
    }
    assert len(chosen) > 5
    assert chosen - decided == set()
