"""What each rank of a small data-parallel job does, in PyTorch with gloo: gradients tapped, and their norms kept.

Run by torchrun as `noise_ranks.py OUT KIND...`, one kind after the other. The model is linear, so that the gradient of
each sample is known.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from trainspec_record.noise.pytorch import TorchNoise, ddp_hook, tap_parameters, tap_reduce_scatter

NUM_FEATURES, NUM_STEPS = 24, 12


class Kept:
    """Stands in for a meter: keeps the norms that it is given."""

    is_on = True

    def __init__(self, every: int = 1) -> None:
        self.settings = type("Settings", (), {"every": every})()
        self.norms: list[Any] = []

    def add(self, norms: Any) -> None:
        self.norms.append(list(norms))


def samples(step: int, num: int) -> torch.Tensor:
    """Inputs of one step, the same on all ranks."""
    return torch.randn((num, NUM_FEATURES), generator=torch.Generator().manual_seed(step)) + 0.3


class Model(torch.nn.Module):
    """Two linear maps of halves of the input, without bias: the gradient of a sample is the sample."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(NUM_FEATURES // 2, 1, bias=False)
        self.second = torch.nn.Linear(NUM_FEATURES // 2, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x[:, : NUM_FEATURES // 2]) + self.second(x[:, NUM_FEATURES // 2 :])


def wrapped(kind: str, kept: Kept) -> tuple[torch.nn.Module, TorchNoise]:
    """The model as a kind of data parallelism has it, with its taps."""
    model = Model()
    scale = (lambda: 65536.0) if kind == "scaled" else None
    if kind == "fsdp":
        for each in (model.first, model.second, model):
            fully_shard(each)
        noise = TorchNoise(kept, model.parameters(), sync_every=4)
        tap_reduce_scatter(noise, model)
        return model, noise
    parallel = DistributedDataParallel(model, bucket_cap_mb=1)
    noise = TorchNoise(kept, parallel.parameters(), loss_scale=scale, sync_every=4)
    if kind == "parameters":
        tap_parameters(noise)
    else:
        parallel.register_comm_hook(None, ddp_hook(noise, fp16_compress_hook if kind == "fp16" else None))
    return parallel, noise


def train(kind: str) -> list[Any]:
    """Norms of a run with groups of 3 and 5 samples."""
    torch.manual_seed(0)
    rank, kept = dist.get_rank(), Kept(every=2 if kind == "every" else 1)
    model, noise = wrapped(kind, kept)
    sizes = (3, 5)
    for step in range(NUM_STEPS):
        x = samples(step, sum(sizes))
        mine = x[:3] if rank == 0 else x[3:]
        # the mean over all samples: each rank gives its sum over their number, and DDP divides by the ranks
        loss = model(mine).sum() / sum(sizes) * dist.get_world_size()
        (loss * 65536.0 if kind == "scaled" else loss).backward()
        noise.finish(sizes[rank])
        model.zero_grad()
    return kept.norms


def main(out: Path, *kinds: str) -> None:
    """Train in each way, and tell of all."""
    dist.init_process_group("gloo")
    found = {kind: train(kind) for kind in kinds}
    (out / f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # a process group with gloo that is taken down on a busy machine can hang for ever


if __name__ == "__main__":
    faulthandler.dump_traceback_later(60, exit=True)
    main(Path(sys.argv[1]), *sys.argv[2:])
