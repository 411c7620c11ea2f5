"""What a stream tells is so: of updates that share a report, of losses that are no number, of time nobody took."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import trainspec_record

from .recorded import errors, values

LOSS = "train.loss.mean{train.loss.name=total}"
PHASE = "train.step.phase.time{train.phase=%s}"
STEP_SECONDS = 0.02


def recorded(numbers: list[int | None], losses: dict[int, float] | None = None, **settings: Any) -> None:
    """A run of some updates, which the script gives these numbers."""
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
