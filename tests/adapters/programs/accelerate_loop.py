"""A loop with Accelerate: OUT FIRST."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import trainspec_record
from trainspec_record.adapters.accelerate import TrainspecTracker

OUT, FIRST = Path(sys.argv[1]), int(sys.argv[2])
NUM_SAMPLES, BATCH, ACCUMULATED, NUM_STEPS = 64, 4, 2, 8


def main() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(NUM_SAMPLES, 4)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    with trainspec_record.run() as run:
        tracker = TrainspecTracker(run)
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED, log_with=tracker)
        accelerator.init_trackers("small")
        line = torch.nn.Linear(4, 1)
        sgd = torch.optim.SGD(line.parameters(), lr=0.1)
        loader = DataLoader(data, BATCH // accelerator.num_processes)
        model, optimizer, loader = accelerator.prepare(line, sgd, loader)
        tracker.follow(accelerator, model, optimizer)
        number, truth = FIRST, {"losses": [], "norms": []}
        if FIRST:
            accelerator.load_state(str(OUT / f"step-{FIRST}"))
        while number < NUM_STEPS:
            losses = []
            for x, y in tracker.batches(loader):
                with accelerator.accumulate(model):
                    loss = (model(x) - y).square().mean()
                    accelerator.backward(loss)
                    losses.append(accelerator.reduce(loss.detach(), "mean"))
                    if accelerator.sync_gradients:
                        norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
                if accelerator.sync_gradients:
                    number += 1
                    mean = torch.stack(losses).mean()
                    losses = []
                    accelerator.log({"loss": mean, "grad_norm": norm, "other": 1.0}, step=number)
                    truth["losses"].append(mean.item())
                    truth["norms"].append(norm.item())
                    if number == 4:
                        accelerator.save_state(str(OUT / "step-4"))
                    if number == NUM_STEPS:
                        break
        accelerator.end_training()
    if accelerator.is_main_process:
        (OUT / "truth.json").write_text(json.dumps(truth))


if __name__ == "__main__":
    main()
