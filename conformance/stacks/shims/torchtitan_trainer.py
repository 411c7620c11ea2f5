"""Trains an example with the trainer of torchtitan, adapted to a CPU, and writes a trace."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from cpu_stand_in import stand_in
from torch import Tensor, distributed
from tracing import Rank, read_task

NUM_TOKENS, SEQUENCE_TOKENS = 64, 16

stand_in()

from torchtitan.components.dataloader import ParallelAwareDataloader  # noqa: E402
from torchtitan.components.loss import build_cross_entropy_loss  # noqa: E402
from torchtitan.components.lr_scheduler import build_lr_schedulers  # noqa: E402
from torchtitan.components.metrics import MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import build_optimizers  # noqa: E402
from torchtitan.config import JobConfig  # noqa: E402
from torchtitan.models.llama3 import Transformer, TransformerModelArgs, parallelize_llama  # noqa: E402
from torchtitan.protocols.train_spec import TrainSpec, register_train_spec  # noqa: E402
from torchtitan.tools.logging import init_logger  # noqa: E402
from torchtitan.train import Trainer  # noqa: E402


class Samples(torch.utils.data.IterableDataset[tuple[dict[str, Tensor], Tensor]]):
    """The part of one rank in an endless order, shuffled anew in each epoch; knows where it is."""

    def __init__(self, job: dict[str, Any], rank: int, num_ranks: int) -> None:
        self._job, self._rank, self._num_ranks = job, rank, num_ranks
        self._num_taken = 0
        self.taken: list[int] = []

    def __iter__(self) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        size, seed = self._job["samples_per_epoch"], self._job["seed"]
        known, order = -1, torch.empty(0)
        while True:
            epoch, place = divmod(self._num_taken * self._num_ranks + self._rank, size)
            if epoch != known:
                known, order = epoch, torch.randperm(size, generator=torch.Generator().manual_seed(seed + epoch))
            one = int(order[place])
            self._num_taken += 1
            self.taken.append(one)
            tokens = (one + (1 + one % 7) * torch.arange(SEQUENCE_TOKENS + 1)) % NUM_TOKENS
            yield {"input": tokens[:-1]}, tokens[1:]

    def state_dict(self) -> dict[str, int]:
        """Where it is."""
        return {"num_taken": self._num_taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resume from this state."""
        self._num_taken = state["num_taken"]


class Telling(MetricsProcessor):  # type: ignore[misc]
    """The metrics of torchtitan, written to the trace too."""

    rank: Rank
    samples: Samples

    def log(self, step: int, global_avg_loss: float, *others: Any, extra_metrics: Any = None, **more: Any) -> None:
        """An optimizer step has ended."""
        super().log(step, global_avg_loss, *others, extra_metrics=extra_metrics, **more)
        ids, self.samples.taken = self.samples.taken, []
        self.rank.stepped(step, float(global_avg_loss), extra_metrics["lr"], ids)


class TellingTrainer(Trainer):  # type: ignore[misc]
    """The trainer of torchtitan, with reports of its loads and saves, and the exception of the task."""

    def __init__(self, config: Any, rank: Rank) -> None:
        super().__init__(config)
        self._rank = rank
        load, save = self.checkpointer.load, self.checkpointer.save

        def told_load(step: int) -> bool:
            found = bool(load(step=step))
            rank.restored(self.step, f"step-{self.step}" if found else None)
            return found

        def told_save(step: int, last_step: bool = False) -> None:
            with rank.telling_failure(step, f"step-{step}"):
                save(step, last_step)
            if last_step or step % config.checkpoint.interval == 0:
                rank.saved(step, f"step-{step}")

        self.checkpointer.load, self.checkpointer.save = told_load, told_save

    def train_step(self, data_iterator: Any) -> None:
        """An optimizer step is next."""
        self._rank.fail_if_planned(self.step - 1)
        super().train_step(data_iterator)


def specification(rank: Rank) -> Any:
    """A small Llama with samples of our own, as torchtitan takes models from outside."""
    samples = Samples(rank.job, rank.rank, rank.job["num_ranks"])

    def loader(dp_world_size: int, dp_rank: int, **_: Any) -> Any:
        return ParallelAwareDataloader(samples, dp_rank, dp_world_size, batch_size=rank.micro_batch)

    def metrics(*arguments: Any) -> Telling:
        made = Telling(*arguments)
        made.rank, made.samples = rank, samples
        return made

    return TrainSpec(
        model_cls=Transformer,
        model_args={"tiny": TransformerModelArgs(dim=32, n_layers=2, n_heads=2, vocab_size=NUM_TOKENS)},
        parallelize_fn=parallelize_llama,
        pipelining_fn=None,
        build_optimizers_fn=build_optimizers,
        build_lr_schedulers_fn=build_lr_schedulers,
        build_dataloader_fn=loader,
        build_tokenizer_fn=None,
        build_loss_fn=build_cross_entropy_loss,
        build_metrics_processor_fn=metrics,
    )


def configuration(rank: Rank) -> Any:
    """The configuration of torchtitan for a task."""
    config, job, store = JobConfig(), rank.job, Path(rank.checkpoints)
    config.model.name, config.model.flavor = "example", "tiny"
    config.job.dump_folder, config.checkpoint.folder = str(store.parent), store.name
    config.training.local_batch_size, config.training.global_batch_size = rank.micro_batch, job["global_sequences"]
    config.training.seq_len, config.training.steps = SEQUENCE_TOKENS, job["num_steps"]
    config.training.mixed_precision_param = "float32"
    config.optimizer.lr, config.optimizer.implementation = 3e-3, "foreach"
    config.lr_scheduler.warmup_steps = 10
    config.metrics.log_freq = 1
    config.debug.seed = job["seed"]
    config.activation_checkpoint.mode = "none"
    config.checkpoint.enable, config.checkpoint.interval = True, job["checkpoint_interval_steps"]
    config.checkpoint.keep_latest_k, config.checkpoint.last_save_model_only = job["num_kept"], False
    return config


def main(path: str) -> None:
    """Train as the task says, on one rank."""
    rank = Rank(read_task(path), int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
    init_logger()
    register_train_spec("example", specification(rank))
    trainer = TellingTrainer(configuration(rank), rank)
    try:
        trainer.train()
    finally:
        trainer.close()
    rank.ended(trainer.step)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
