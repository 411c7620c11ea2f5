"""A loop with an engine of DeepSpeed: OUT STAGE FIRST."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import deepspeed
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import trainspec_record
from trainspec_record.adapters.deepspeed import Recorded

OUT, STAGE, FIRST = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
NUM_SAMPLES, BATCH, MICRO, NUM_STEPS = 32, 8, 2, 8


def main() -> None:
    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1"}.items():
        os.environ.setdefault(name, str(value))
    os.environ.setdefault("MASTER_PORT", sys.argv[4] if len(sys.argv) > 4 else "0")
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    inputs = torch.randn(NUM_SAMPLES, 4)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = torch.nn.Linear(4, 1)
    config = {
        "train_batch_size": BATCH,
        "train_micro_batch_size_per_gpu": MICRO,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": STAGE},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
    }
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with trainspec_record.run(unsupported={"train.loss.mean": "no sum over ranks is made"}) as run:
        engine, _, _, _ = deepspeed.initialize(model=model, optimizer=sgd, config=config)
        recorded = Recorded(run, engine)
        loader = DataLoader(data, MICRO, sampler=DistributedSampler(data, shuffle=False))
        norms = []
        if FIRST:
            engine.load_checkpoint(str(OUT / "saves"))
        while engine.global_steps < NUM_STEPS:
            for x, y in recorded.batches(loader):
                is_update = engine.is_gradient_accumulation_boundary()
                engine.backward((engine(x) - y).square().mean())
                engine.step()
                if is_update:
                    norms.append(float(engine.get_global_grad_norm()))
                    if engine.global_steps == 4:
                        engine.save_checkpoint(str(OUT / "saves"))
                if engine.global_steps == NUM_STEPS:
                    break
    if torch.distributed.get_rank() == 0:
        (OUT / "truth.json").write_text(json.dumps({"norms": norms}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
