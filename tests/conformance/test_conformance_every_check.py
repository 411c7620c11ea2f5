"""Every check of a history passes a sound run, fails a run that has what it is about, and never passes on nothing."""

from __future__ import annotations

import random

import msgspec
import pytest
from made_runs import UNITS
from made_stories import CLAIMS, calm, gone
from msgspec.structs import replace
from spoilt_answers import ANSWERS
from spoilt_runs import ROWS, Row
from trainspec_conformance.criteria import CannotJudgeError, Case, all_checks
from trainspec_conformance.criteria.trajectory import final_steps
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.records import Damaged, Ended, Entry, Streamed
from trainspec_conformance.view import View

from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import StepDone

IDS = [f"{row.check}-{number}" for number, row in enumerate(ROWS)]


def criterion_of(row: Row) -> Criterion:
    return next(one for one in all_scenarios()[row.scenario].criteria if one.check == row.check)


def messages(row: Row, entries: list[Entry], control: list[Entry] | None) -> list[str]:
    """What a check says; what it cannot judge is said too."""
    case = Case(all_scenarios()[row.scenario], CLAIMS, View(entries), None if control is None else View(control))
    try:
        return [problem.message for problem in all_checks()[row.check](case, criterion_of(row))]
    except CannotJudgeError as error:
        return [f"cannot be judged: {error}"]


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_check_passes_a_sound_run_and_fails_a_spoilt_one(row: Row) -> None:
    scenario = all_scenarios()[row.scenario]
    sound, control = row.maker(scenario), calm(scenario)
    assert messages(row, sound, control) == []
    found = messages(row, row.change(sound), control)
    assert any(row.words in message for message in found), found


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_check_never_passes_on_nothing(row: Row) -> None:
    nothing = [Entry(seconds=0.0, record=Ended(reason="done"))]
    assert messages(row, nothing, nothing)
    assert messages(row, nothing, None)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_check_says_something_of_any_part_of_a_run(row: Row) -> None:
    scenario, chance = all_scenarios()[row.scenario], random.Random(row.check)
    whole, control = row.maker(scenario), calm(scenario)
    kinds = sorted({type(one.record).__name__ for one in whole})
    for _ in range(8):
        left_out = set(chance.sample(kinds, chance.randint(1, len(kinds) - 1)))
        part = [one for one in whole if type(one.record).__name__ not in left_out]
        messages(row, part, chance.choice([None, control, part]))
        messages(row, chance.sample(whole, len(whole) // 3), control)


def test_the_order_in_which_files_are_read_is_not_the_order_of_updates() -> None:
    """On a busy machine several lines of one rank are read at once, before those of another."""
    scenario = all_scenarios()["ranks-in-step"]
    entries = calm(scenario)
    ranks = [[one for one in entries if isinstance(one.record, StepDone) and one.record.rank == n] for n in range(3)]
    read = [one for start in range(0, 40, 5) for rank in ranks for one in rank[start : start + 5]]
    seconds = sorted(one.seconds for one in read)
    rows = [row for row in ROWS if row.check == "in-step"]
    together = [msgspec.structs.replace(one, seconds=at) for one, at in zip(read, seconds, strict=True)]
    others = [one for one in entries if not isinstance(one.record, StepDone)]
    assert messages(rows[0], [*others, *together], None) == []
    assert len(final_steps(View(together))) == scenario.job.num_steps


def test_every_check_is_seen_to_fail() -> None:
    assert {row.check for row in ROWS} | {one.check for one in ANSWERS} == all_checks().keys()


@pytest.mark.parametrize(("later", "ok"), [(-1, False), (0, True), (1, True), (2, False)])
def test_readings_of_noise_may_be_told_one_step_early_and_no_other(later: int, ok: bool) -> None:
    """With norms that grow, the averages up to two steps differ."""
    row = next(row for row in ROWS if row.check == "noise-as-seen")
    scenario = all_scenarios()[row.scenario]
    last, half_life = scenario.job.num_steps, scenario.job.gradient_noise_half_life_steps
    assert half_life is not None

    def average(up_to: int) -> float:
        weights = {step: 0.5 ** ((up_to - step) / half_life) for step in range(1, up_to + 1)}
        return sum(weight * step**2 for step, weight in weights.items()) / sum(weights.values())

    def growing(entry: Entry) -> Entry:
        record = entry.record
        if isinstance(record, StepDone):
            return replace(entry, record=replace(record, gradient_norm=float(record.step)))
        if isinstance(record, Streamed) and "train.gradient.signal" in record.values:
            assert record.step is not None
            total = average(min(max(record.step + later, 1), last))
            parts = {"train.gradient.signal": total / 2, "train.gradient.variance": UNITS * total / 2}
            return replace(entry, record=replace(record, values={**record.values, **parts}))
        return entry

    found = messages(row, [growing(entry) for entry in row.maker(scenario)], None)
    assert (found == []) is ok, found


def test_of_a_checkpoint_of_one_file_that_is_gone_nothing_is_left_to_refuse() -> None:
    row = next(row for row in ROWS if row.check == "names-damage")
    told = gone(all_scenarios()["missing-or-stale-shard"])
    assert messages(row, told, None) == []
    one_of_many = [
        replace(one, record=replace(one.record, file="rank-0.pt")) if isinstance(one.record, Damaged) else one
        for one in told
    ]
    assert messages(row, one_of_many, None) == ["step-30 was damaged (delete-file) and was not refused by name"]
