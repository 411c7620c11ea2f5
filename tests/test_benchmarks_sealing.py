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
def test_costs_with_and_without_a_seal_are_printed(
    make: Callable[[], sealing.Step], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "step-1"
    step, pairs = make(), []
    for _ in range(2):
        one = sealing.sealed(folder, CONTENT, step)
        assert (folder / MANIFEST).is_file()
        pairs.append((one, sealing.plain(folder, CONTENT, step, one.num_steps)))
        assert not (folder / MANIFEST).exists()
        assert one.seal is not None
        assert one.seal.num_bytes_read == sealing.NUM_FILES * len(CONTENT)
        assert one.stall_seconds > one.call_seconds > 0
    sealing.report(pairs, sealing.NUM_FILES * len(CONTENT))
    told = capsys.readouterr().out
    for words in (
        "stall of a save",
        "step while it is hashed",
        "processor time of a step",
        "the call that seals",
        "ms of training",
    ):
        assert words in told


def test_a_seal_that_fails_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seal = sealing.seal_in_background
    monkeypatch.setattr(sealing, "seal_in_background", lambda folder: seal(folder / "absent"))
    with pytest.raises(RuntimeError, match="FileNotFoundError"):
        sealing.sealed(tmp_path / "step-1", CONTENT, lambda: sealing.work(1000))
