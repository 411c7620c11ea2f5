"""What Keras 3 trains is recorded, on each of its backends: optimizer steps, losses, rates, validations and saves."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from statistics import fmean

import pytest

from tests.adapters.stacks import LOSS, Recorded, clean, need, run

BATCH, NUM_BATCHES, NUM_EPOCHS = 4, 6, 3
EVALUATION = "train.evaluation.loss{train.evaluation.set=validation,train.loss.name=total}"


@pytest.fixture(params=["tensorflow", "jax", "torch"])
def backend(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    need("keras", found)
    return found


def fit(out: Path, backend: str, executions: int = 1, first: int = 0) -> Recorded:
    more = {"KERAS_BACKEND": backend, "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return run("keras_fit.py", out, str(executions), str(first), **more)


def test_fit_is_recorded(tmp_path: Path, backend: str) -> None:
    found = fit(tmp_path, backend)
    clean(found)
    assert found.values("train.step.count")[-1] == found.truth["iterations"] == NUM_EPOCHS * NUM_BATCHES
    losses = list(found.steps(LOSS).values())
    means = [fmean(losses[at : at + NUM_BATCHES]) for at in range(0, len(losses), NUM_BATCHES)]
    assert means == pytest.approx(found.truth["losses"], rel=1e-5)
    assert len(set(losses)) == len(losses)
    rates = list(found.steps("train.learning_rate").values())
    assert rates == pytest.approx([0.1 * 0.9**number for number in range(NUM_EPOCHS * NUM_BATCHES)], rel=1e-5)
    assert found.values("train.sample.count")[-1] == BATCH * NUM_BATCHES * NUM_EPOCHS
    ends = found.events("train.evaluation.end")
    assert [end["m"][EVALUATION] for end in ends] == pytest.approx(found.truth["validations"])
    commits = found.events("train.checkpoint.commit")
    assert [(each["id"], each["step"]) for each in commits] == [("model", 6), ("model", 12), ("model", 18)]
    assert all(each["m"]["train.checkpoint.size"] > 1000 for each in commits)


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])  # PyTorch executes one at a time
def test_several_updates_of_one_execution_are_counted(tmp_path: Path, backend: str) -> None:
    need("keras", backend)
    found = fit(tmp_path, backend, executions=3)
    clean(found)
    assert found.values("train.step.count")[-1] == NUM_EPOCHS * NUM_BATCHES
    losses = list(found.steps(LOSS).values())
    assert len(losses) == NUM_EPOCHS * NUM_BATCHES // 3
    assert fmean(losses[: NUM_BATCHES // 3]) == pytest.approx(found.truth["losses"][0], rel=1e-5)


def test_a_restored_model_goes_on(tmp_path: Path, backend: str) -> None:
    fit(tmp_path, backend)
    found = fit(tmp_path, backend, first=12)
    assert found.code == 0, found.output
    (started,) = found.events("train.attempt.start", attempt=1)
    assert started["a"]["train.restore.step"] == 12
    assert found.values("train.sample.count", attempt=1)[0] == 12 * BATCH


def test_a_worker_of_tensorflow_has_a_rank() -> None:
    if importlib.util.find_spec("keras") is None:
        need("keras")
    from trainspec_record.adapters import keras as adapter

    config = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'
    assert adapter._of_tensorflow(config) == (1, 2, 0)
    assert adapter._of_tensorflow("") == adapter._of_tensorflow('{"task": 3}') == (0, 1, 0)
