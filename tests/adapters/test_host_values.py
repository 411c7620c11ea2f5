"""Adapters read what the host knows, count by shapes, and tell of a save before its future is done."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import trainspec_record
from tests.adapters.stacks import Recorded, need
from trainspec_record.identity import LAUNCHERS, VARIABLE


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    need("torch")
    for variable in {name for launcher in LAUNCHERS for name in launcher.rank}:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "r-1"))
    monkeypatch.setenv("TRAINSPEC_NODE_SAMPLER", "none")
    with trainspec_record.run() as run:
        yield run


def recorded(tmp_path: Path, run: Any) -> Recorded:
    run.end()
    return Recorded(tmp_path / "r-1", {}, 0, "")


@pytest.mark.slow
def test_a_tensor_on_a_device_is_not_read(tmp_path: Path, run: Any) -> None:
    import torch

    from trainspec_record.adapters.pytorch import Loop, host_number

    far = torch.empty((), device="meta")  # reading it raises
    assert host_number(far) is far
    assert host_number(torch.tensor([2.5])) == 2.5
    assert host_number(3) == 3
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.ones(1)
    loop = Loop(run, torch.optim.SGD([weight], lr=0.1))
    loop.log(loss=far, gradient_norm=torch.tensor(1.5))
    for group in loop.batches([0]):
        assert group == 0
    torch.optim.SGD([weight], lr=0.1).step()  # of another optimizer: no step
    found = recorded(tmp_path, run)
    assert found.values("train.step.count")[-1] == 0


def test_rates_of_groups_that_differ(tmp_path: Path, run: Any) -> None:
    import torch

    from trainspec_record.adapters.pytorch import Loop

    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    groups = [{"params": [weight], "lr": rate} for weight, rate in zip(weights, (0.1, 0.2), strict=True)]
    optimizer = torch.optim.SGD(groups)
    Loop(run, optimizer)
    optimizer.step()
    found = recorded(tmp_path, run)
    assert found.values("train.learning_rate{train.parameter.group=0}") == [0.1]
    assert found.values("train.learning_rate{train.parameter.group=1}") == [0.2]
    assert found.values("train.step.count")[-1] == 1


def test_batches_are_counted_by_their_shapes() -> None:
    need("torch")
    import torch

    from trainspec_record.adapters.pytorch import batch_sizes

    ids = torch.zeros(3, 5, dtype=torch.int64)
    assert batch_sizes({"input_ids": ids, "mask": None}) == (3, 15)
    assert batch_sizes([ids, torch.zeros(3)]) == (3, 0)
    assert batch_sizes([{"input_ids": ids}, 7]) == (3, 15)
    assert batch_sizes("words") == (0, 0)


@pytest.mark.parametrize("error", [None, OSError("the disk is full")])
def test_a_save_is_told_of_before_its_future_is_done(tmp_path: Path, run: Any, error: Exception | None) -> None:
    from trainspec_record.adapters.pytorch import recorded_save

    inner: Future[Any] = Future()
    outer = recorded_save(run, tmp_path / "step-0", lambda: inner)
    seen = []
    outer.add_done_callback(lambda _: seen.append(len(run.open_saves)))
    assert len(run.open_saves) == 1
    inner.set_exception(error) if error else inner.set_result("done")
    assert seen == [0]
    assert outer.exception() is error
    found = recorded(tmp_path, run)
    ends = [name for record in found.file() if (name := str(record.get("name"))).startswith("train.checkpoint.")]
    assert ends == ["train.checkpoint.begin", "train.checkpoint.fail" if error else "train.checkpoint.commit"]


def test_torchtitan_tells_no_loss_where_rank_0_has_none() -> None:
    need("torchtitan", "triton")
    from trainspec_record.adapters.torchtitan import Logger

    class Heard:
        def __init__(self) -> None:
            self.words: dict[str, float] = {}

        def log(self, *_: Any, **words: float) -> None:
            self.words = words

    metrics = {"loss_metrics/global_avg_loss": -1.0, "grad_norm": 2.0, "memory/num_ooms": 3}
    heard = Heard()
    logger = Logger(heard, heard, {"train.loss.mean", "train.loss.max"})  # type: ignore[arg-type]
    logger._hear(metrics)
    assert heard.words == {"gradient_norm": 2.0, "out_of_memory": 3}
    logger._hear(metrics)
    assert heard.words["out_of_memory"] == 0
