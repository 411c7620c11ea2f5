"""A loop in plain PyTorch, on one process or with DistributedDataParallel: OUT FIRST."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import trainspec_record
from trainspec_record.adapters.pytorch import Loop, async_save, load, memory_counted, save

OUT, FIRST = Path(sys.argv[1]), int(sys.argv[2])
NUM_SAMPLES, BATCH, NUM_STEPS, SKIPPED, SAVED, LEFT = 32, 4, 10, 6, 4, 8
UNSUPPORTED = {f"train.gradient.{name}": "not computed" for name in ("variance", "signal")}


class Training:
    """A model, what trains it, and what it found."""

    def __init__(self, run: Any) -> None:
        torch.manual_seed(0)
        inputs = torch.randn(NUM_SAMPLES, 4)
        data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        self.loader = DataLoader(data, BATCH // dist.get_world_size(), sampler=DistributedSampler(data, shuffle=False))
        self.model = torch.nn.Linear(4, 1)
        self.wrapped = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.loop = Loop(run, self.optimizer, self.wrapped, dist.get_world_size())
        self.truth: dict[str, list[float]] = {"losses": [], "norms": [], "rates": []}
        self.is_skipped = False

    def update(self, number: int, x: torch.Tensor, y: torch.Tensor) -> bool:
        """One step; whether it was applied."""
        self.optimizer.zero_grad()
        loss = (self.wrapped(x) - y).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if number == SKIPPED and not self.is_skipped:
            self.is_skipped = True
            self.loop.skip()
            return False
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
        self.loop.log(loss=mean, gradient_norm=norm, clipped=norm.item() > 1)
        self.truth["losses"].append(mean.item())
        self.truth["norms"].append(norm.item())
        self.truth["rates"].append(self.schedule.get_last_lr()[0])
        self.optimizer.step()
        self.schedule.step()
        return True


def train(run: Any) -> dict[str, list[float]]:
    training = Training(run)
    state = {"model": training.model.state_dict()}
    saves = dist.new_group(backend="gloo")  # saves that go on beside training do not share its group
    number, future = FIRST, None
    if FIRST:
        load(run, state, OUT / f"step-{FIRST}")
    while number < NUM_STEPS:
        for x, y in training.loop.batches(training.loader):
            number += training.update(number, x, y)
            if number == SAVED:
                save(run, state, OUT / f"step-{number}")
            if number == LEFT and future is None:
                future = async_save(run, state, OUT / f"step-{number}", process_group=saves)
            if number == NUM_STEPS:
                break
    if future is not None:
        future.result()
    return training.truth


def main() -> None:
    alone = {"init_method": f"file://{OUT}/store-{FIRST}", "rank": 0, "world_size": 1}
    dist.init_process_group("gloo", **({} if "RANK" in os.environ else alone))
    with trainspec_record.run(unsupported=UNSUPPORTED) as run, memory_counted(run):
        truth = train(run)
    if dist.get_rank() == 0:
        (OUT / "truth.json").write_text(json.dumps(truth))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
