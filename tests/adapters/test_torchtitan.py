"""What the Trainer of torchtitan does is recorded by another name of its program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.stacks import LOSS, TOKENS, Recorded, clean, need, run

BATCH, LENGTH = 8, 32


@pytest.fixture(autouse=True)
def installed() -> None:
    need("torchtitan", "tokenizers", "triton")


def train(out: Path, num_steps: int, mode: str, num_processes: int, **more: str) -> Recorded:
    """Under torchrun at any rate: torchtitan reads the variables of it."""
    arguments = (str(num_steps), mode)
    return run("torchtitan_on_cpu.py", out, *arguments, num_processes=num_processes, torchrun=True, **more)


@pytest.mark.parametrize(("mode", "num_processes"), [("async", 1), ("disabled", 2)])
def test_a_training_and_a_restore(tmp_path: Path, mode: str, num_processes: int) -> None:
    first = train(tmp_path, 4, mode, num_processes)
    clean(first)
    logs = first.truth["logs"]
    assert first.steps(LOSS) == {log["step"]: log["loss_metrics/global_avg_loss"] for log in logs}
    assert first.steps("train.gradient.norm") == {log["step"]: log["grad_norm"] for log in logs}
    assert first.steps("train.learning_rate") == {log["step"]: log["lr"] for log in logs}
    assert first.values("train.sample.count")[-1] == 4 * BATCH
    assert first.values(TOKENS)[-1] == 4 * BATCH * LENGTH == logs[-1]["n_tokens_seen"]
    assert [event["id"] for event in first.events("train.checkpoint.commit")] == ["step-3", "step-4"]
    assert "no peak" in first.file()[0]["unsupported"]["train.flops.utilization"]
    assert first.values("train.data.wait.time", f"rank-{num_processes - 1:06}")[-1] > 0

    second = train(tmp_path, 5, mode, num_processes)
    assert second.code == 0, second.output
    (restored,) = second.events("train.checkpoint.restore.end", attempt=1)
    assert restored["a"]["train.restore.source"] == "step-4"
    assert second.values("train.sample.count", attempt=1)[0] == 4 * BATCH
    assert second.values("train.step.count", attempt=1)[-1] == 5


def test_nothing_where_nothing_is_recorded(tmp_path: Path) -> None:
    found = train(tmp_path, 2, "disabled", 1, TRAINSPEC_RUN="")
    assert found.code == 0, found.output
    assert not found.folder.exists()
