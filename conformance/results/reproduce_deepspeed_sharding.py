"""Shows, without the suite, what a rank of DeepSpeed takes on a processor, sharding or not.

Run it with `DS_ACCELERATOR=cpu torchrun --standalone --nproc-per-node=2 reproduce_deepspeed_sharding.py STAGE`, for
the stages 0 and 3 of ZeRO. Weights, gradients and moments take 512 MiB; stage 3 is to leave half of that to a rank.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it looks for ninja there

import deepspeed
import torch

WIDTH, NUM_LAYERS, NUM_STEPS = 1024, 32, 3


def peak_bytes() -> int:
    """Most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(stage: int) -> None:
    """Train some optimizer steps, and print the growth of the peak."""
    deepspeed.init_distributed("gloo")
    torch.manual_seed(7)
    before = peak_bytes()
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(NUM_LAYERS)])
    settings = {
        "train_batch_size": torch.distributed.get_world_size(),
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "steps_per_print": 10**9,
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    for _ in range(NUM_STEPS):
        engine.backward(engine(torch.ones(1, WIDTH)).square().mean())
        engine.step()
    if torch.distributed.get_rank() == 0:
        print(f"stage {stage}: the peak of a rank has grown by {(peak_bytes() - before) >> 20} MiB")  # noqa: T201
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
