"""A loop with Accelerate: OUT FIRST."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import trainspec_record
from trainspec_record.adapters.accelerate import TrainspecTracker

OUT, FIRST = Path(sys.argv[1]), int(sys.argv[2])
NUM_SAMPLES, BATCH, ACCUMULATED, NUM_STEPS, SAVED = 64, 4, 2, 8, 4


class Training:
    """A model, what trains it, and what it found."""

    def __init__(self, run: Any) -> None:
        torch.manual_seed(0)
        inputs = torch.randn(NUM_SAMPLES, 4)
        data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        self.tracker = TrainspecTracker(run)
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED, log_with=self.tracker)
        self.accelerator.init_trackers("small")
        line = torch.nn.Linear(4, 1)
        loader = DataLoader(data, BATCH // self.accelerator.num_processes)
        sgd = torch.optim.SGD(line.parameters(), lr=0.1)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(line, sgd, loader)
        self.tracker.follow(self.accelerator, self.model, self.optimizer)
        self.number = FIRST
        self.losses: list[torch.Tensor] = []
        self.truth: dict[str, list[float]] = {"losses": [], "norms": []}

    def micro_batch(self, x: torch.Tensor, y: torch.Tensor) -> None:
        with self.accelerator.accumulate(self.model):
            loss = (self.model(x) - y).square().mean()
            self.accelerator.backward(loss)
            self.losses.append(self.accelerator.reduce(loss.detach(), "mean"))
            if self.accelerator.sync_gradients:
                norm = self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
        if self.accelerator.sync_gradients:
            self.updated(norm)

    def updated(self, norm: torch.Tensor) -> None:
        self.number += 1
        mean = torch.stack(self.losses).mean()
        self.losses = []
        self.accelerator.log({"loss": mean, "grad_norm": norm, "other": 1.0}, step=self.number)
        self.truth["losses"].append(mean.item())
        self.truth["norms"].append(norm.item())
        if self.number == SAVED:
            self.accelerator.save_state(str(OUT / f"step-{SAVED}"))


def main() -> None:
    with trainspec_record.run() as run:
        training = Training(run)
        if FIRST:
            training.accelerator.load_state(str(OUT / f"step-{FIRST}"))
        while training.number < NUM_STEPS:
            for x, y in training.tracker.batches(training.loader):
                training.micro_batch(x, y)
                if training.number == NUM_STEPS:
                    break
        training.accelerator.end_training()
    if training.accelerator.is_main_process:
        (OUT / "truth.json").write_text(json.dumps(training.truth))


if __name__ == "__main__":
    main()
