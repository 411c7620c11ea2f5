"""Records what the Trainer of torchtitan does: `python -m trainspec_record.adapters.torchtitan`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchtitan.train import Trainer
from torchtitan.train import main as train

import trainspec_record
from trainspec_record.adapters.blocks import Blocks
from trainspec_record.adapters.checkpoints import restoring
from trainspec_record.adapters.pytorch import memory_counted, recorded_save
from trainspec_record.guard import never_raises
from trainspec_record.silent import NO_SPAN

if TYPE_CHECKING:
    from trainspec_record.recording import Run
    from trainspec_record.silent import SilentRun

GIBIBYTE = 2**30
FALLBACK_FLOPS = 312e12
"""Rate that torchtitan takes for the peak of a device that it does not know: that of an A100."""
STATE = "train_state"
"""Part of a checkpoint that training can continue from."""
WORDS = {
    "loss_metrics/global_avg_loss": "loss",
    "loss_metrics/global_max_loss": "largest_loss",
    "grad_norm": "gradient_norm",
}
"""Metrics of torchtitan, and the words of `log` that they are."""
BYTES = {
    "memory/max_reserved(GiB)": "allocator_reserved_bytes",
    "memory/max_active(GiB)": "allocator_active_bytes",
}
"""The same for memory, which is negative where the device has no allocator."""
COUNTED = {"memory/num_alloc_retries": "allocator_retries", "memory/num_ooms": "out_of_memory"}
"""Counters of torchtitan, which count from the start of the process; -1 where the device has none."""
METRICS = {"loss": "train.loss.mean", "largest_loss": "train.loss.max", "gradient_norm": "train.gradient.norm"}
ELSEWHERE = "with pipeline stages rank 0, which writes for the job, does not have the loss"
NO_GRADIENT = "torchtitan shows no gradient before it is reduced over ranks"


class Logger:
    """The logger of the metrics processor, which gets what torchtitan has brought to the host."""

    def __init__(self, logger: Any, run: Run | SilentRun, refused: Collection[str]) -> None:
        self.evaluation: Any = NO_SPAN
        self._logger, self._run = logger, run
        self._words = {name: word for name, word in WORDS.items() if METRICS[word] not in refused}
        self._counts: dict[str, float] = {}

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Hand on the values."""
        self._hear(metrics)
        self._logger.log(metrics, step)

    @never_raises(None)
    def _hear(self, metrics: dict[str, Any]) -> None:
        words = {word: metrics[name] for name, word in self._words.items() if name in metrics}
        for name, word in BYTES.items():
            if metrics.get(name, -1) >= 0:
                words[word] = metrics[name] * GIBIBYTE
        for name, word in COUNTED.items():
            count = metrics.get(name, -1)
            if count >= 0:
                words[word] = count - self._counts.get(name, 0)
                self._counts[name] = count
        self._run.log(**words)
        if "loss" in self._words.values():
            self.evaluation.log(loss=metrics.get("validation_metrics/loss"))

    def close(self) -> None:
        """Close the other one."""
        self._logger.close()


class RecordedTrainer(Trainer):  # type: ignore[misc]
    """A Trainer whose training is recorded."""

    def __init__(self, job_config: Any) -> None:
        super().__init__(job_config)
        settings = _settings(self.metrics_processor)
        self.recorded = trainspec_record.run(**settings)
        self._blocks = Blocks(self.recorded)
        if self.recorded.is_active:
            self._logger = Logger(self.metrics_processor.logger, self.recorded, settings.get("unsupported", {}))
            self.metrics_processor.logger = self._logger
            self._save, self.checkpointer.dcp_save = self.checkpointer.dcp_save, self._saved
            self._load, self.checkpointer.dcp_load = self.checkpointer.dcp_load, self._loaded
            validator = getattr(self, "validator", None)
            if validator is not None:
                self._validate, validator.validate = validator.validate, self._validated

    def train(self) -> None:
        """Train; an error ends the attempt."""
        with self.recorded, memory_counted(self.recorded):
            super().train()

    def batch_generator(self, data_iterable: Any) -> Iterator[Any]:
        """Micro-batches; waiting for one is data wait."""
        return self._blocks.batches(super().batch_generator(data_iterable))

    def train_step(self, data_iterator: Any) -> None:
        """One update."""
        num_tokens, rate = self.ntokens_seen, self.lr_schedulers.schedulers[0].get_last_lr()[0]
        super().train_step(data_iterator)
        data_ranks = self.parallel_dims.dp_replicate * self.parallel_dims.dp_shard
        local = self.job_config.training.local_batch_size * self.gradient_accumulation_steps
        tokens = (self.ntokens_seen - num_tokens) * data_ranks
        self._blocks.complete(samples=local * data_ranks, tokens=tokens, learning_rate=float(rate))

    def _validated(self, *args: Any, **options: Any) -> Any:
        with self.recorded.evaluation() as self._logger.evaluation:
            answer = self._validate(*args, **options)
        self._logger.evaluation = NO_SPAN
        return answer

    def _saved(self, state_dict: dict[str, Any], checkpoint_id: str, *args: Any, **options: Any) -> Any:
        call = partial(self._save, state_dict, checkpoint_id, *args, **options)
        return recorded_save(self.recorded, checkpoint_id, call) if STATE in state_dict else call()

    def _loaded(self, state_dict: dict[str, Any], checkpoint_id: str, *args: Any, **options: Any) -> Any:
        call = partial(self._load, state_dict, checkpoint_id, *args, **options)
        step = re.fullmatch(r"step-([0-9]+)", Path(checkpoint_id).name)
        if STATE not in state_dict or step is None:
            return call()
        with restoring(self.recorded, checkpoint_id, int(step[1])):
            return call()


@never_raises(dict[str, Any]())
def _settings(processor: Any) -> dict[str, Any]:
    """What torchtitan knows of its run; the peak only where it is not that of another device."""
    found: dict[str, Any] = {
        "loss_reduction": "global-token-mean",
        "unsupported": {"train.gradient.variance": NO_GRADIENT, "train.gradient.signal": NO_GRADIENT},
    }
    if processor.parallel_dims.pp_enabled:
        found["unsupported"] |= dict.fromkeys(("train.loss.mean", "train.loss.max"), ELSEWHERE)
    name = processor.device_memory_monitor.device_name
    if processor.gpu_peak_flops != FALLBACK_FLOPS or "A100" in name:
        found |= {"peak_flops": processor.gpu_peak_flops, "flops_per_token": processor.num_flops_per_token}
        found |= {"flops_convention": "palm"}
    return found


def main() -> None:
    """Train as `python -m torchtitan.train` does, and record."""
    train(RecordedTrainer)


if __name__ == "__main__":
    main()
