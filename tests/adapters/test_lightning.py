"""What Lightning's Trainer does is recorded, without a line of code and with the names of what the module logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.stacks import LOSS, OF_NODES, clean, need, run

PROGRAM = "lightning_fit.py"
NUM_SAMPLES, BATCH, ACCUMULATED, EPOCHS = 64, 4, 2, 2


@pytest.fixture(autouse=True)
def installed() -> None:
    need("lightning")


@pytest.mark.parametrize("mode", ["found", "alone"])
def test_without_a_line_of_code(tmp_path: Path, mode: str) -> None:
    need("pytorch_lightning")
    found = run(PROGRAM, tmp_path, "1", mode)
    clean(found)
    num_steps = EPOCHS * NUM_SAMPLES // (BATCH * ACCUMULATED)
    assert found.truth["steps"] == num_steps
    assert sorted(found.steps("train.step.count")) == [*range(num_steps + 1)]
    assert found.values("train.sample.count")[-1] == EPOCHS * NUM_SAMPLES
    assert list(found.steps("train.learning_rate").values()) == found.truth["rates"]
    unsupported = found.file()[0]["unsupported"]
    assert "TrainspecCallback(loss=...)" in unsupported["train.loss.mean"]
    assert found.values("train.data.wait.time", "rank-000000")[-1] > 0


@pytest.mark.parametrize("num_processes", [1, 2])
def test_with_the_names_of_what_is_logged(tmp_path: Path, num_processes: int) -> None:
    found = run(PROGRAM, tmp_path, str(num_processes), "told")
    clean(found)
    num_steps = EPOCHS * NUM_SAMPLES // (BATCH * ACCUMULATED * num_processes)
    assert sorted(found.steps(LOSS)) == [*range(1, num_steps + 1)]
    assert sorted(found.steps("train.gradient.norm")) == [*range(1, num_steps + 1)]
    assert found.values("train.sample.count")[-1] == EPOCHS * NUM_SAMPLES
    evaluations = [next(iter(event["m"].values())) for event in found.events("train.evaluation.end")]
    assert evaluations == pytest.approx(found.truth["losses"][-EPOCHS:])  # the first is the sanity check
    saved = [event["m"]["train.checkpoint.step"] for event in found.events("train.checkpoint.commit")]
    assert saved == [*range(4, num_steps + 1, 4)]
    assert found.truth["profiler"] == "PassThroughProfiler"
    assert {path.name for path in found.folder.iterdir()} == {
        "job.0.jsonl",
        *(f"rank-{rank:06}.0.jsonl" for rank in range(num_processes)),
    }


def test_processes_of_torchrun(tmp_path: Path) -> None:
    found = run(PROGRAM, tmp_path, "2", "found", num_processes=2)
    clean(found)
    assert found.file("rank-000001")[0]["rank"] == 1
    assert found.file()[0]["world_size"] == 2


def test_a_restore_goes_on_from_the_saved_counters(tmp_path: Path) -> None:
    run(PROGRAM, tmp_path, "1", "told")
    found = run(PROGRAM, tmp_path, "1", "resume")
    assert found.code == 0, found.output
    (restored,) = found.events("train.checkpoint.restore.end", attempt=1)
    assert restored["a"]["train.restore.source"] == "step-8"
    assert found.values("train.step.count", attempt=1)[0] == 8
    assert found.values("train.sample.count", attempt=1)[0] == 8 * BATCH * ACCUMULATED


def test_an_error_ends_the_attempt(tmp_path: Path) -> None:
    found = run(PROGRAM, tmp_path, "1", "fail")
    assert found.code != 0
    (fault,) = found.events("train.fault.detected")
    assert fault["a"]["train.reason"] == "OutOfMemoryError ended the program"
    assert found.values("train.memory.oom", "rank-000000")[-1] == 1
    assert found.values("train.step.count")[-1] == 3
    assert found.findings <= OF_NODES | {"TS-TEL-043", "TS-TEL-048"}  # nobody starts it again, so that the fault stays


def test_nothing_where_nothing_is_recorded(tmp_path: Path) -> None:
    found = run(PROGRAM, tmp_path, "1", "told", TRAINSPEC_RUN="")
    assert found.code == 0, found.output
    assert not found.folder.exists()
