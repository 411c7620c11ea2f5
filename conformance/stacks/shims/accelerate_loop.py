"""Trains the example in a loop with Accelerate, as its documentation shows, and writes a trace."""

from __future__ import annotations

import os
import shutil
import sys
from itertools import count
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from example import Model, Samples
from tracing import Rank, read_task


class Run:
    """One attempt of one rank."""

    def __init__(self, rank: Rank) -> None:
        self._rank, job = rank, rank.job
        self._store = Path(rank.checkpoints)
        set_seed(job["seed"])
        self._accelerator = Accelerator(
            cpu=True,
            gradient_accumulation_steps=job["accumulation_steps"],
            dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
        )
        self._example = Model(job["dropout"])
        optimizer = torch.optim.AdamW(self._example.parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, job["num_steps"])
        samples = Samples(job["samples_per_epoch"], job["seed"])
        is_shuffled = job["sample_order"] == "any"
        loader = torch.utils.data.DataLoader(samples, batch_size=rank.micro_batch, shuffle=is_shuffled)
        prepared = self._accelerator.prepare(self._example, optimizer, loader, schedule)
        self._model, self._optimizer, self._loader, self._schedule = prepared
        self._step = 0

    def restore(self) -> None:
        """Load the newest checkpoint, where the run is to resume."""
        found = sorted(self._store.glob("step_*"), key=lambda path: int(path.name[5:])) if self._rank.resumes else []
        if found and self._rank.gate is not None:
            newest = self._rank.gate.newest()
            found = [] if newest is None else [newest]
        if found:
            self._accelerator.load_state(str(found[-1]))
            self._step = int(found[-1].name[5:])
        self._rank.restored(self._step, found[-1].name if found else None)

    def train(self) -> None:
        """Train to the end, from the batch of the epoch at which the state was saved."""
        accumulation = self._rank.job["accumulation_steps"]
        per_epoch = len(self._loader)
        first, skipped = divmod(self._step * accumulation, per_epoch)
        for epoch in count(first):
            self._loader.set_epoch(epoch)
            batches = self._accelerator.skip_first_batches(self._loader, skipped) if skipped else self._loader
            skipped = 0
            for batch in batches:
                self._micro_step(batch)
                if self._step == self._rank.job["num_steps"]:
                    self._rank.ended(self._step)
                    self._accelerator.end_training()
                    return

    def _micro_step(self, batch: dict[str, Any]) -> None:
        self._rank.fail_if_planned(self._step)
        with self._accelerator.accumulate(self._model):
            self._accelerator.backward(self._model(**batch)["loss"])
            rate = self._optimizer.param_groups[0]["lr"]
            self._optimizer.step()
            self._schedule.step()
            self._optimizer.zero_grad()
        if self._accelerator.sync_gradients:
            self._step += 1
            loss, sample_ids = self._example.taken()
            self._rank.stepped(self._step, loss, rate, sample_ids)
            if self._step % self._rank.job["checkpoint_interval_steps"] == 0:
                self._save()

    def _save(self) -> None:
        name = f"step_{self._step}"
        with self._rank.telling_failure(self._step, name):
            self._accelerator.save_state(str(self._store / name))
        self._accelerator.wait_for_everyone()
        self._rank.saved(self._step, name)
        if self._accelerator.is_main_process:
            if self._rank.gate is not None:
                from trainspec_record.checkpoints import seal_in_background  # noqa: PLC0415 - with the gate alone

                seal_in_background(self._store / name)
            kept = sorted(self._store.glob("step_*"), key=lambda path: int(path.name[5:]))
            for old in kept[: -self._rank.job["num_kept"]]:
                shutil.rmtree(old)


def main(path: str) -> None:
    """Train as the task says, on one rank."""
    task, variables = read_task(path), {"RANK": "0", "TORCHELASTIC_RESTART_COUNT": "0", **os.environ}
    rank = Rank(task, int(variables["RANK"]), int(variables["TORCHELASTIC_RESTART_COUNT"]))
    run = Run(rank)
    run.restore()
    run.train()


if __name__ == "__main__":
    main(sys.argv[1])
