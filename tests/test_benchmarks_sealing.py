"""The benchmark of seals: what it measures is sealed, and what it prints are the costs of both ways."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trainspec_record.checkpoints import MANIFEST

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import sealing

CONTENT = b"x" * 5000


@pytest.mark.parametrize("make", [lambda: lambda: sealing.work(1000), sealing.torch_step])
def test_steps_with_and_without_a_seal_take_turns(make: Callable[[], sealing.Step], tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    sealing.save(folder, CONTENT, is_sealed=False)
    pairs, seals = sealing.step_pairs(folder, make(), 0)
    assert len(pairs) == len(seals) == sealing.LEAST_PAIRS
    assert all(seal.num_bytes_read == sealing.NUM_FILES * len(CONTENT) for seal in seals)
    assert (folder / MANIFEST).is_file()


def test_a_save_is_sealed_where_it_should_be(tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    one = sealing.save(folder, CONTENT, is_sealed=True)
    assert (folder / MANIFEST).is_file()
    assert one.stall_seconds > one.call_seconds > 0
    sealing.save(folder, CONTENT, is_sealed=False)
    assert not (folder / MANIFEST).exists()


def test_costs_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sealing.report_stall(tmp_path / "step-1", 2, 20_000)
    sealing.report_steps(tmp_path / "step-2", lambda: sealing.work(1000), 0, 20_000)
    told = capsys.readouterr().out
    for words in ("stall of a save", "the call that seals", "step while it is hashed", "processor time of a step"):
        assert words in told


def test_a_difference_is_the_median_of_pairs() -> None:
    assert sealing.shares([1.1, 2.2, 3.0], [1.0, 2.0, 3.0]) == "+10.00 % +- 0.00 %"


def test_a_seal_that_fails_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seal = sealing.seal_in_background
    monkeypatch.setattr(sealing, "seal_in_background", lambda folder: seal(folder / "absent"))
    with pytest.raises(RuntimeError, match="FileNotFoundError"):
        sealing.save(tmp_path / "step-1", CONTENT, is_sealed=True)
    with pytest.raises(RuntimeError, match="FileNotFoundError"):
        sealing.step_pairs(tmp_path, lambda: sealing.work(1000), 0)
