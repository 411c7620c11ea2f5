"""A loop in plain PyTorch, on one process or with DistributedDataParallel: OUT FIRST."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import trainspec_record
from trainspec_record.adapters.pytorch import Loop, async_save, load, memory_counted, save

OUT, FIRST = Path(sys.argv[1]), int(sys.argv[2])
NUM_SAMPLES, BATCH, NUM_STEPS, SKIPPED, SAVED, LEFT = 32, 4, 10, 6, 4, 8


def value_of_all(value: torch.Tensor) -> float:
    """Mean over ranks."""
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def main() -> None:
    dist.init_process_group(
        "gloo", init_method=None if "RANK" in os.environ else f"file://{OUT}/store-{FIRST}", **alone()
    )
    torch.manual_seed(0)
    size = dist.get_world_size()
    inputs = torch.randn(NUM_SAMPLES, 4)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = DataLoader(data, BATCH // size, sampler=DistributedSampler(data, shuffle=False))
    model = torch.nn.Linear(4, 1)
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    truth: dict[str, list[float]] = {"losses": [], "norms": [], "rates": []}
    saves = dist.new_group(backend="gloo")  # saves that go on beside training do not share its group
    futures = []
    unsupported = {"train.gradient.variance": "not computed", "train.gradient.signal": "not computed"}
    with trainspec_record.run(unsupported=unsupported) as run, memory_counted(run):
        loop = Loop(run, optimizer, wrapped, size)
        number = FIRST
        if FIRST:
            load(run, {"model": model.state_dict()}, OUT / f"step-{FIRST}")
        while number < NUM_STEPS:
            for x, y in loop.batches(loader):
                loss = (wrapped(x) - y).square().mean()
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                if number == SKIPPED and "overflow" not in truth:
                    truth["overflow"] = []
                    loop.skip()
                    optimizer.zero_grad()
                    continue
                mean = value_of_all(loss.detach().clone())
                loop.log(loss=mean, gradient_norm=norm, clipped=norm.item() > 1)
                truth["rates"].append(schedule.get_last_lr()[0])
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                truth["losses"].append(mean)
                truth["norms"].append(norm.item())
                number += 1
                if number == SAVED:
                    save(run, {"model": model.state_dict()}, OUT / f"step-{number}")
                if number == LEFT:
                    state = {"model": model.state_dict()}
                    futures.append(async_save(run, state, OUT / f"step-{number}", process_group=saves))
                if number >= NUM_STEPS:
                    break
        for future in futures:
            future.result()
    if dist.get_rank() == 0:
        (OUT / "truth.json").write_text(json.dumps(truth))
    dist.barrier()
    dist.destroy_process_group()


def alone() -> dict[str, int]:
    """The process group of one process, where no launcher made another."""
    return {} if "RANK" in os.environ else {"rank": 0, "world_size": 1}


if __name__ == "__main__":
    main()
