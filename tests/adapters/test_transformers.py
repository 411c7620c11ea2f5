"""What the Trainer of Hugging Face Transformers does is recorded by one callback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.stacks import LOSS, TOKENS, clean, need, run

PROGRAM = "transformers_train.py"
NUM_SAMPLES, LENGTH, BATCH, ACCUMULATED, EPOCHS = 48, 16, 4, 2, 2


@pytest.fixture(autouse=True)
def installed() -> None:
    need("transformers", "accelerate")


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_training(tmp_path: Path, num_processes: int) -> None:
    found = run(PROGRAM, tmp_path, "steps", num_processes=num_processes)
    clean(found)
    num_steps = EPOCHS * NUM_SAMPLES // (BATCH * ACCUMULATED * num_processes)
    logs = [log for log in found.truth["logs"] if "loss" in log]
    assert found.steps(LOSS) == {log["step"]: log["loss"] for log in logs}
    assert found.steps("train.gradient.norm") == {log["step"]: log["grad_norm"] for log in logs}
    assert found.steps("train.learning_rate") == {log["step"]: log["learning_rate"] for log in logs}
    assert sorted(found.steps("train.step.count")) == [*range(num_steps + 1)]
    assert found.values("train.sample.count")[-1] == EPOCHS * NUM_SAMPLES
    assert found.values(TOKENS)[-1] == EPOCHS * NUM_SAMPLES * LENGTH
    evaluations = {event["step"]: next(iter(event["m"].values())) for event in found.events("train.evaluation.end")}
    assert evaluations == {log["step"]: log["eval_loss"] for log in found.truth["logs"] if "eval_loss" in log}
    commits = found.events("train.checkpoint.commit")
    assert [event["m"]["train.checkpoint.step"] for event in commits] == sorted(
        {*range(4, num_steps + 1, 4), num_steps}
    )
    assert all(event["m"]["train.checkpoint.size"] > 1000 for event in commits)
    assert found.values("train.data.wait.time", f"rank-{num_processes - 1:06}")[-1] > 0


def test_evaluations_at_the_end_of_epochs(tmp_path: Path) -> None:
    found = run(PROGRAM, tmp_path, "epochs")
    clean(found)
    assert [event["step"] for event in found.events("train.evaluation.end")] == [6, 12]


def test_means_over_updates_are_no_losses_of_updates(tmp_path: Path) -> None:
    found = run(PROGRAM, tmp_path, "rarely")
    clean(found)
    assert not found.steps(LOSS)
    assert "logging_steps=1" in found.file()[0]["unsupported"]["train.loss.mean"]
    assert len(found.steps("train.step.duration")) == EPOCHS * NUM_SAMPLES // (BATCH * ACCUMULATED)


def test_a_restore_goes_on_from_the_saved_counters(tmp_path: Path) -> None:
    run(PROGRAM, tmp_path, "steps")
    found = run(PROGRAM, tmp_path, "resume")
    assert found.code == 0, found.output
    (restored,) = found.events("train.checkpoint.restore.end", attempt=1)
    assert restored["a"]["train.restore.source"] == "checkpoint-8"
    assert found.values("train.sample.count", attempt=1)[0] == 8 * BATCH * ACCUMULATED
    assert found.values("train.step.count", attempt=1)[-1] == found.truth["steps"]


def test_a_run_that_is_given_tells_of_an_error(tmp_path: Path) -> None:
    found = run(PROGRAM, tmp_path, "fail")
    assert found.code != 0
    (fault,) = found.events("train.fault.detected")
    assert fault["a"]["train.reason"] == "ValueError ended the program"


def test_nothing_where_nothing_is_recorded(tmp_path: Path) -> None:
    found = run(PROGRAM, tmp_path, "steps", TRAINSPEC_RUN="")
    assert found.code == 0, found.output
    assert not found.folder.exists()
    assert not [*tmp_path.rglob("trainspec-record.json")]
