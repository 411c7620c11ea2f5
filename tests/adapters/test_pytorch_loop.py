"""A loop in plain PyTorch is recorded: steps by the steps of its optimizer, waits by its loader, saves of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.stacks import LOSS, clean, need, run

PROGRAM = "plain_loop.py"
BATCH, NUM_STEPS = 4, 10


@pytest.fixture(autouse=True)
def installed() -> None:
    need("torch")


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_loop(tmp_path: Path, num_processes: int) -> None:
    found = run(PROGRAM, tmp_path, "0", num_processes=num_processes)
    clean(found)
    assert list(found.steps(LOSS).values()) == found.truth["losses"]
    assert list(found.steps("train.gradient.norm").values()) == pytest.approx(found.truth["norms"])
    assert list(found.steps("train.learning_rate").values()) == found.truth["rates"]
    assert found.values("train.sample.count")[-1] == BATCH * NUM_STEPS
    assert found.values("train.step.skipped{train.skip.reason=overflow}")[-1] == 1
    assert found.values("train.gradient.clip.count")[-1] == sum(norm > 1 for norm in found.truth["norms"])
    commits = found.events("train.checkpoint.commit")
    assert [event["id"] for event in commits] == ["step-4", "step-8"]
    assert all(event["m"]["train.checkpoint.size"] > 500 for event in commits)
    assert found.values("train.data.wait.time", f"rank-{num_processes - 1:06}")[-1] > 0
    assert found.values("train.memory.oom", "rank-000000")[-1] == 0


@pytest.mark.slow
def test_a_restore_goes_on_from_the_saved_counters(tmp_path: Path) -> None:
    run(PROGRAM, tmp_path, "0")
    found = run(PROGRAM, tmp_path, "8")
    assert found.code == 0, found.output
    (restored,) = found.events("train.checkpoint.restore.end", attempt=1)
    assert restored["a"]["train.restore.source"] == "step-8"
    assert found.values("train.sample.count", attempt=1)[0] == 8 * BATCH
    assert found.values("train.step.skipped{train.skip.reason=overflow}", attempt=1)[0] == 1


@pytest.mark.slow
def test_nothing_where_nothing_is_recorded(tmp_path: Path) -> None:
    found = run(PROGRAM, tmp_path, "0", TRAINSPEC_RUN="")
    assert found.code == 0, found.output
    assert not found.folder.exists()
