"""Trains the example with the engine of DeepSpeed, as its guide shows, and writes a trace."""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path
from typing import Any

os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it looks for ninja there

import deepspeed
import torch
from example import Model, Samples
from tracing import Rank, read_task


def configuration(rank: Rank) -> dict[str, Any]:
    """The stage that partitions gradients and optimizer state; all that is not named is as DeepSpeed has it."""
    return {
        "train_batch_size": rank.job["global_sequences"],
        "train_micro_batch_size_per_gpu": rank.micro_batch,
        "gradient_accumulation_steps": rank.job["accumulation_steps"],
        "zero_optimization": {"stage": 2},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "scheduler": {
            "type": "WarmupDecayLR",
            "params": {"warmup_num_steps": 10, "warmup_max_lr": 3e-3, "total_num_steps": rank.job["num_steps"]},
        },
        "steps_per_print": 10**9,
    }


class Run:
    """One attempt of one rank."""

    def __init__(self, rank: Rank) -> None:
        self._rank, job = rank, rank.job
        torch.manual_seed(job["seed"])
        deepspeed.init_distributed("gloo")
        self._example = Model(job["dropout"])
        optimizer = torch.optim.AdamW(self._example.parameters(), lr=3e-3)
        self._engine, _, self._loader, _ = deepspeed.initialize(
            model=self._example,
            optimizer=optimizer,
            training_data=Samples(job["samples_per_epoch"], job["seed"]),
            config=configuration(rank),
        )
        self._step = 0

    def restore(self) -> None:
        """Load the checkpoint that `latest` names, where the run is to resume."""
        name = None
        if self._rank.gate is not None:
            newest = self._rank.gate.newest() if self._rank.resumes else None
            if newest is not None:
                _, state = self._engine.load_checkpoint(self._rank.checkpoints, tag=newest.name)
                self._step, name = state["step"], newest.name
        elif self._rank.resumes and (Path(self._rank.checkpoints) / "latest").exists():
            path, state = self._engine.load_checkpoint(self._rank.checkpoints)
            if path is not None:
                self._step = state["step"]
                name = f"step-{self._step}"
        self._rank.restored(self._step, name)

    def train(self) -> None:
        """Train to the end; batches that were consumed before the save are passed over, as the documentation shows."""
        accumulation = self._rank.job["accumulation_steps"]
        first, skipped = divmod(self._step * accumulation, len(self._loader))
        for epoch in count(first):
            self._loader.data_sampler.set_epoch(epoch)
            for index, batch in enumerate(self._loader):
                if epoch == first and index < skipped:
                    continue
                self._micro_step(batch)
                if self._step == self._rank.job["num_steps"]:
                    self._rank.ended(self._step)
                    torch.distributed.barrier()
                    torch.distributed.destroy_process_group()
                    return

    def _micro_step(self, batch: dict[str, Any]) -> None:
        self._rank.fail_if_planned(self._step)
        self._engine.backward(self._engine(**batch)["loss"])
        is_update = self._engine.is_gradient_accumulation_boundary()
        rate = self._engine.get_lr()[0]
        self._engine.step()
        if is_update:
            self._step += 1
            loss, sample_ids = self._example.taken()
            self._rank.stepped(self._step, loss, rate, sample_ids)
            if self._step % self._rank.job["checkpoint_interval_steps"] == 0:
                name = f"step-{self._step}"
                with self._rank.telling_failure(self._step, name):
                    self._engine.save_checkpoint(self._rank.checkpoints, tag=name, client_state={"step": self._step})
                self._rank.saved(self._step, name)
                if self._rank.gate is not None:
                    self._seal(name)

    def _seal(self, name: str) -> None:
        from trainspec_record.checkpoints import seal_in_background  # noqa: PLC0415 - with the gate alone

        torch.distributed.barrier()
        if self._rank.rank == 0:
            seal_in_background(Path(self._rank.checkpoints) / name)


def main(path: str) -> None:
    """Train as the task says, on one rank."""
    rank = Rank(read_task(path), int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
    run = Run(rank)
    run.restore()
    run.train()


if __name__ == "__main__":
    main(sys.argv[1])
