"""What a stream tells is so: of steps that share a report, of losses that are no number, of time nobody took."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import trainspec_record

from .recorded import errors, records, values

LOSS = "train.loss.mean{train.loss.name=total}"
PHASE = "train.step.phase.time{train.phase=%s}"
STEP_SECONDS = 0.02


def recorded(numbers: list[int | None], losses: dict[int, float] | None = None, **settings: Any) -> None:
    """A run of some optimizer steps, which the script gives these numbers."""
    with trainspec_record.run(**settings) as run:
        for place, number in enumerate(numbers):
            with run.step(number):
                time.sleep(STEP_SECONDS)
                run.log(loss=(losses or {}).get(place, 2.0 + place % 7 / 100), samples=8)


def about(folder: Path, *requirements: str) -> list[str]:
    return [error for error in errors(folder) if error.startswith(requirements)]


def test_time_of_updates_that_share_a_report_adds_up(folder: Path) -> None:
    recorded(list(range(6)), report_interval_steps=3)
    assert values(folder / "job.0.jsonl", "train.step.count") == [0, 3, 6]
    assert about(folder, "TS-TEL-049", "TS-TEL-037") == []


def test_a_loss_that_is_no_number_is_applied_or_skipped(folder: Path) -> None:
    recorded(list(range(8)), {4: float("nan")})
    assert values(folder / "job.0.jsonl", LOSS)[4] == "NaN"
    (found,) = about(folder, "TS-TEL-042")
    assert found.startswith(f"TS-TEL-042: {LOSS} is not finite at ")
    assert about(folder, "TS-TEL-015") == []


def test_updates_that_are_not_recorded_are_missed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorded([2 * number for number in range(4)])
    assert values(folder / "job.0.jsonl", "train.step.count") == [0, 1, 3, 5, 7]
    assert values(folder / "rank-000000.0.jsonl", "train.rank.step")[-1] == 7
    (found,) = about(folder, "TS-TEL-031")
    assert found.startswith("TS-TEL-031: train.step.count jumps from 1 to 3")
    assert caplog.text.count("a step has a number beyond the count") == 1


@pytest.mark.parametrize("numbers", [[0, 1, 2, 3], [0, None, 2, None], [None, None, 2, 3], [5, 6, 7, 8]])
def test_updates_that_are_recorded_are_counted_one_by_one(folder: Path, numbers: list[int | None]) -> None:
    recorded(numbers)
    first = numbers[0] or 0
    assert values(folder / "job.0.jsonl", "train.step.count") == list(range(first, first + 5))
    assert about(folder, "TS-TEL-031") == []


def test_numbers_that_begin_again_are_told_and_not_taken(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorded([0, 1, 0, 1])
    assert values(folder / "job.0.jsonl", "train.step.count") == [0, 1, 2, 3, 4]
    assert caplog.text.count("a step has a number below the count") == 1


def test_a_phase_that_nobody_timed_has_no_time(folder: Path) -> None:
    with trainspec_record.run() as run:
        for number in range(4):
            with run.step(number), run.phase("optimizer"):
                time.sleep(STEP_SECONDS)
            if number == 1:
                with run.phase("forward_backward"):
                    time.sleep(STEP_SECONDS)
    rank = folder / "rank-000000.0.jsonl"
    told = [set(record["m"]) for record in records(rank) if PHASE % "optimizer" in record.get("m", {})]
    assert [PHASE % "forward_backward" in each for each in told] == [False, False, True, True]
    assert not set().union(*told) & {PHASE % "data_wait", PHASE % "communication_exposed", "train.data.wait.time"}
    assert values(rank, "train.data.wait.time") == []
    assert all(PHASE % "other" in each for each in told)
