"""A run that has ended can be taken up again in the same directory: its record stays valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from .recorded import errors, events, train, values


def starts(folder: Path) -> list[list[int]]:
    """Optimizer steps at which each attempt reports a start of the run."""
    return [[e["step"] for e in events(path, "train.run.start")] for path in sorted(folder.glob("job.*.jsonl"))]


def test_a_completed_run_is_given_more_updates(folder: Path) -> None:
    for first, last in ((0, 10), (10, 20), (20, 20)):
        train(first, last)
    assert starts(folder) == [[0], [10], [20]]
    assert [len(events(folder / f"job.{n}.jsonl", "train.run.end")) for n in range(3)] == [1, 1, 1]
    assert values(folder / "job.1.jsonl", "train.sample.count")[-1] == 80
    assert not errors(folder)


def test_a_run_that_was_not_over_starts_once(folder: Path) -> None:
    with pytest.raises(LookupError):
        train(0, 10, error=LookupError)
    train(10, 20)
    assert starts(folder) == [[0], []]
    assert not errors(folder)


def test_a_run_that_failed_for_good_is_taken_up_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as last_try:
        for name in ("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"):
            last_try.setenv(name, "0")
        with pytest.raises(LookupError):
            train(0, 10, error=LookupError)
    train(10, 20)
    assert starts(folder) == [[0], [10]]
    assert not errors(folder)
