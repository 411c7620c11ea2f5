"""A loop with an engine of DeepSpeed: OUT STAGE FIRST PORT."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import trainspec_record
from trainspec_record.adapters.deepspeed import Recorded

OUT, STAGE, FIRST = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
NUM_SAMPLES, BATCH, MICRO, NUM_STEPS, SAVED = 32, 8, 2, 8, 4
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[4]}
UNSUPPORTED = {"train.loss.mean": "no mean over ranks is taken"}
NO_NORM = {"train.gradient.norm": "stage 0 keeps none"}
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # compiled for minutes at its first use; gloo will do


def engine_of() -> Any:
    config = {
        "train_batch_size": BATCH,
        "train_micro_batch_size_per_gpu": MICRO,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": STAGE},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
    }
    model = torch.nn.Linear(4, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return deepspeed.initialize(model=model, optimizer=sgd, config=config)[0]


def train(run: Any, loader: Any) -> list[float | None]:
    engine = engine_of()
    recorded = Recorded(run, engine)
    norms: list[float | None] = []
    if FIRST:
        engine.load_checkpoint(str(OUT / "saves"))
    while engine.global_steps < NUM_STEPS:
        for x, y in recorded.batches(loader):
            is_update = engine.is_gradient_accumulation_boundary()
            engine.backward((engine(x) - y).square().mean())
            engine.step()
            if is_update:
                norms.append(engine.get_global_grad_norm())
            if is_update and engine.global_steps == SAVED:
                engine.save_checkpoint(str(OUT / "saves"))
            if engine.global_steps == NUM_STEPS:
                break
    return norms


def main() -> None:
    if "RANK" not in os.environ:
        os.environ.update(ALONE)
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    inputs = torch.randn(NUM_SAMPLES, 4)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    with trainspec_record.run(unsupported={**UNSUPPORTED, **({} if STAGE else NO_NORM)}) as run:
        norms = train(run, DataLoader(data, MICRO, sampler=DistributedSampler(data, shuffle=False)))
    if torch.distributed.get_rank() == 0:
        (OUT / "truth.json").write_text(json.dumps({"norms": [float(norm) for norm in norms if norm is not None]}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
