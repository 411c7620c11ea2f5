"""Trains the example with the Trainer of Lightning, as its users do, and writes a trace."""

# ruff: noqa: ARG002 - callbacks have the form that the stack calls
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from example import Model, Samples
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor
from tracing import Rank, read_task


class Module(lightning.LightningModule):
    """The code of a user: the model, its step and its optimizer."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__()
        self.model = Model(job["dropout"])
        self._num_steps = job["num_steps"]

    def training_step(self, batch: dict[str, Tensor], index: int) -> Tensor:
        """The loss of a batch."""
        return self.model(**batch)["loss"]

    def configure_optimizers(self) -> dict[str, Any]:
        """Optimizer, and a rate that changes with each update."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, self._num_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Telling(Callback):
    """Reports each step, and plants the exception of the task."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._rate = 0.0
        self._told = 0

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """State is restored."""
        self._told = trainer.global_step
        name = Path(os.path.realpath(trainer.ckpt_path)).name if trainer.ckpt_path else None
        self._rank.restored(self._told, name)

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        """A micro-batch is next."""
        self._rank.fail_if_planned(trainer.global_step)
        self._rate = trainer.optimizers[0].param_groups[0]["lr"]

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        """A micro-batch has ended, and an optimizer step with the last of them."""
        if trainer.global_step > self._told:
            self._told = trainer.global_step
            loss, sample_ids = module.model.taken()
            self._rank.stepped(self._told, loss, self._rate, sample_ids)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """The loop has ended."""
        self._rank.ended(trainer.global_step)


class TellingIO(TorchCheckpointIO):
    """The files of Lightning, written as it does; a save is reported when the write has returned."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write, then report."""
        step, name = checkpoint["global_step"], Path(path).name
        with self._rank.telling_failure(step, name):
            super().save_checkpoint(checkpoint, path, storage_options)
        self._rank.saved(step, name)


def main(path: str) -> None:
    """Train as the task says, on one rank."""
    rank = Rank(read_task(path), int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
    job = rank.job
    lightning.seed_everything(job["seed"])
    saves = ModelCheckpoint(
        dirpath=rank.checkpoints,
        filename="{step}",
        monitor="step",
        mode="max",
        save_top_k=job["num_kept"],
        save_last="link",
        every_n_train_steps=job["checkpoint_interval_steps"],
        save_on_exception=True,
    )
    callbacks = [Telling(rank), saves]
    if rank.gate is not None:
        from trainspec_record.adapters.lightning import SealCallback  # noqa: PLC0415 - with the gate alone

        callbacks.append(SealCallback())
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=job["num_ranks"],
        strategy="ddp",
        max_steps=job["num_steps"],
        accumulate_grad_batches=job["accumulation_steps"],
        logger=False,
        enable_progress_bar=False,
        default_root_dir=rank.checkpoints,
        callbacks=callbacks,
        plugins=[TellingIO(rank)],
    )
    samples = Samples(job["samples_per_epoch"], job["seed"])
    loader = torch.utils.data.DataLoader(samples, batch_size=rank.micro_batch, shuffle=False)
    last = Path(rank.checkpoints) / "last.ckpt"
    found = str(last) if rank.resumes and last.exists() else None
    if rank.gate is not None and rank.resumes:
        newest = rank.gate.newest()
        found = None if newest is None else str(newest)
    trainer.fit(Module(job), loader, ckpt_path=found)


if __name__ == "__main__":
    main(sys.argv[1])
