"""No check of checkpoints falls silent because there is one more checkpoint, series, shard or file next to a fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.test_spec_artifact_examples import ON_ARTIFACTS, TREE, written
from trainspec_validate.model.finding import Verdict
from trainspec_validate.model.requirements import Example
from trainspec_validate.pipeline.validation import Terms, examine

STEP = re.compile(r"^(step-|checkpoint-|global_step)(\d+)")
MARK = re.compile(r"  # <--.*")
ANSWERED = {
    (change, "TS-CKP-094"): "the policy keeps as many checkpoints as there are then"
    for change in ("an_earlier_one", "a_later_one")
}
"""Findings that one more of something answers, by change and requirement, with why."""
Lines = list[str]


def lines_of(examples: tuple[Example, ...]) -> Lines:
    text = next((example.text for example in examples if example.file == TREE), "")
    return [MARK.sub("", line) for line in text.splitlines() if line.strip()]


def of_step(lines: Lines, change: Callable[[int], int]) -> Lines:
    """The checkpoints as they would be at other steps, each with a save of its own."""
    found = []
    for line in lines:
        if match := STEP.match(line):
            step = change(int(match[2]))
            moved = f"{match[1]}{step}{line[match.end() :]}"
            moved = re.sub(r'("global_step": )\d+', lambda stated, step=step: f"{stated[1]}{step}", moved)
            found.append(re.sub(r"save_id=\w+", f"save_id={step:012d}", moved))
    return found


def elsewhere(lines: Lines, place: str) -> Lines:
    return [f"{place}/{line}" for line in lines if not line.startswith(". ")]


def with_file(lines: Lines, name: str) -> Lines:
    """Each checkpoint with one more file."""
    tops = sorted({match[0] for line in lines if (match := STEP.match(line))})
    return [*lines, *(f"{top}/{name}" for top in tops)]


def an_earlier_one(bad: Lines, other: Lines) -> Lines:
    return [*of_step(other, lambda step: max(step // 7, 1)), *bad]


def a_later_one(bad: Lines, other: Lines) -> Lines:
    return [*bad, *of_step(other, lambda step: 7 * step)]


def a_series_before(bad: Lines, other: Lines) -> Lines:
    return [*elsewhere(other, "a-other"), *bad]


def a_series_behind(bad: Lines, other: Lines) -> Lines:
    return [*bad, *elsewhere(other, "z-other")]


def a_shard_before(bad: Lines, _other: Lines) -> Lines:
    return with_file(bad, "aa-more.safetensors  safetensors other=F32[4]")


def a_shard_behind(bad: Lines, _other: Lines) -> Lines:
    return with_file(bad, "zz-more.safetensors  safetensors other=F32[4]")


def a_text(bad: Lines, _other: Lines) -> Lines:
    return with_file(bad, 'README.md  text "what it is"')


CHANGES = (an_earlier_one, a_later_one, a_series_before, a_series_behind, a_shard_before, a_shard_behind, a_text)


def more(bad: Lines, good: Lines) -> Iterator[tuple[str, Lines]]:
    """The *Bad:* example with one more of something: of the *Good:* example, or its own."""
    for change in CHANGES:
        found = {tuple(change(bad, other)) for other in (good, bad)} - {tuple(bad)}
        yield from ((change.__name__, list(lines)) for lines in sorted(found))


@pytest.mark.slow
def test_one_more_of_something_passes_no_bad_checkpoint(tmp_path: Path) -> None:
    """What was wrong is wrong next to a right or an equal checkpoint, series, shard or file."""
    num_tried, passed = 0, set()
    for requirement in ON_ARTIFACTS:
        for change, lines in more(lines_of(requirement.bad), lines_of(requirement.good)):
            place = tmp_path / str(num_tried)
            place.mkdir()
            num_tried += 1
            text = "".join(f"{line}\n" for line in lines)
            written(requirement, tuple(replace(e, text=text) if e.file == TREE else e for e in requirement.bad), place)
            outcomes = examine([place], Terms(values=True)).outcomes
            verdict = next(outcome.verdict for outcome in outcomes if outcome.requirement == requirement.id)
            if verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE):
                passed.add((change, requirement.id))
    assert num_tried > 300
    assert passed == set(ANSWERED)
