"""Trains the example with the Trainer of Hugging Face, as its users do, and writes a trace."""

# ruff: noqa: ARG002 - callbacks have the form that the stack calls
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from example import Model, Samples
from tracing import Rank, read_task
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint


class Telling(TrainerCallback):  # type: ignore[misc]
    """Callbacks that report, and plant the exception of the task; they change nothing."""

    def __init__(self, rank: Rank, model: Model, found: str | None) -> None:
        self._rank, self._model = rank, model
        self._found = found
        self._learning_rate = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """State is restored."""
        self._rank.restored(state.global_step, Path(self._found).name if self._found else None)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The first micro-batch of a step is next."""
        self._rank.fail_if_planned(state.global_step)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Gradients are there."""
        self._learning_rate = kwargs["optimizer"].param_groups[0]["lr"]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step has ended."""
        loss, sample_ids = self._model.taken()
        self._rank.stepped(state.global_step, loss, self._learning_rate, sample_ids)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The Trainer says that a save has ended."""
        self._rank.saved(state.global_step, f"checkpoint-{state.global_step}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The loop has ended."""
        self._rank.ended(state.global_step)


class TellingTrainer(Trainer):  # type: ignore[misc]
    """The Trainer as it is; no callback is called for a save that fails."""

    rank: Rank

    def _save_checkpoint(self, *arguments: Any, **named: Any) -> None:
        with self.rank.telling_failure(self.state.global_step, f"checkpoint-{self.state.global_step}"):
            super()._save_checkpoint(*arguments, **named)


def main(path: str) -> None:
    """Train as the task says, on one rank."""
    rank = Rank(read_task(path), int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
    job = rank.job
    set_seed(job["seed"])
    model = Model(job["dropout"])
    arguments = TrainingArguments(
        output_dir=rank.checkpoints,
        max_steps=job["num_steps"],
        per_device_train_batch_size=rank.micro_batch,
        gradient_accumulation_steps=job["accumulation_steps"],
        learning_rate=3e-3,
        warmup_steps=10,
        save_steps=job["checkpoint_interval_steps"],
        save_total_limit=job["num_kept"],
        enable_jit_checkpoint=True,
        seed=job["seed"],
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    callbacks: list[TrainerCallback] = []
    found = get_last_checkpoint(rank.checkpoints) if rank.resumes and Path(rank.checkpoints).is_dir() else None
    if rank.gate is not None:
        from trainspec_record.adapters.transformers import SealCallback  # noqa: PLC0415 - with the gate alone

        callbacks.append(SealCallback())
        newest = rank.gate.newest() if rank.resumes else None
        found = None if newest is None else str(newest)
    samples = Samples(job["samples_per_epoch"], job["seed"])
    trainer = TellingTrainer(
        model=model, args=arguments, train_dataset=samples, callbacks=[Telling(rank, model, found), *callbacks]
    )
    trainer.rank = rank
    trainer.train(resume_from_checkpoint=found)


if __name__ == "__main__":
    main(sys.argv[1])
