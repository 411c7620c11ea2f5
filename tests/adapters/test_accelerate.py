"""A loop with Hugging Face Accelerate is recorded by a tracker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.stacks import LOSS, clean, need, run

PROGRAM = "accelerate_loop.py"
BATCH, ACCUMULATED, NUM_STEPS = 4, 2, 8


@pytest.fixture(autouse=True)
def installed() -> None:
    need("accelerate")


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_loop(tmp_path: Path, num_processes: int) -> None:
    found = run(PROGRAM, tmp_path, "0", num_processes=num_processes)
    clean(found)
    assert list(found.steps(LOSS).values()) == pytest.approx(found.truth["losses"])
    assert list(found.steps("train.gradient.norm").values()) == pytest.approx(found.truth["norms"])
    assert found.values("train.learning_rate") == [0.1] * NUM_STEPS
    assert found.values("train.sample.count")[-1] == BATCH * ACCUMULATED * NUM_STEPS
    (commit,) = found.events("train.checkpoint.commit")
    assert commit["id"] == "step-4"
    assert found.values("train.data.wait.time", f"rank-{num_processes - 1:06}")[-1] > 0


def test_a_restore_goes_on_from_the_saved_counters(tmp_path: Path) -> None:
    run(PROGRAM, tmp_path, "0")
    found = run(PROGRAM, tmp_path, "4")
    assert found.code == 0, found.output
    (restored,) = found.events("train.checkpoint.restore.end", attempt=1)
    assert restored["a"]["train.restore.source"] == "step-4"
    assert found.values("train.sample.count", attempt=1)[0] == 4 * BATCH * ACCUMULATED


def test_nothing_where_nothing_is_recorded(tmp_path: Path) -> None:
    found = run(PROGRAM, tmp_path, "0", TRAINSPEC_RUN="")
    assert found.code == 0, found.output
    assert not found.folder.exists()
