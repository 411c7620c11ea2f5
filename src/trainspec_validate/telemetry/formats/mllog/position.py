"""Gives the units of `step`, `samples_count` and `epoch_num` of a log of MLPerf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.mllog.units import MAX, STEP_TIMES, Units
from trainspec_validate.telemetry.formats.tally import Tally

_TOLD = {
    "samples": "step counts samples; it is divided by the batch",
    "index": "step counts optimizer steps from 0; 1 is added",
    "count": "step is taken as completed steps",
    "tokens": "step counts tokens; it is divided by those of a step",
    "epochs": "step counts epochs, which are not converted; records have no step",
    "unknown": "what step counts is not stated, nor does it follow from batch, samples and clock: records have no step",
}
_EPOCHS = {
    "samples": "epoch_num counts samples; it is divided by the batch",
    "tokens": "epoch_num counts tokens; it is divided by those of a step",
    "epochs": "epoch_num counts epochs, which are not converted; evaluations have no step",
    "unknown": "the unit of epoch_num is not stated; evaluations have no step",
}
_ROUNDED = "{} is no multiple of the batch; the count of steps is rounded down"
_MAX_EPOCHS = 10_000
"""No training has more epochs: a larger epoch_num counts samples or tokens."""
_MOST_APART = 1.1
"""Factor between rate times seconds and the batch; in all 492 public logs that state the three they are equal."""
_BLOCKS = ("block_start", "block_stop")


class Position:
    """Turns the metadata of an entry into optimizer steps completed, by what the entries so far say.

    One round's logs count samples under the name of step, the next round's steps from 0, others tokens under the
    name of epoch: see the alias of `train.step.count`.
    """

    def __init__(self, tally: Tally) -> None:
        self.batch = 0
        """Samples of a step; 0 while it is not known."""
        self._tokens_per_sample = 0
        self._train_samples = 0
        self._units = Units()
        self._epoch_unit = ""
        self._tally = tally

    def learn(self, key: str, value: int) -> None:
        """Take a setting of the job."""
        if key == "global_batch_size":
            self.batch = value
        elif key == "max_sequence_length":
            self._tokens_per_sample = value
        elif key == "train_samples":
            self._train_samples = value

    def updates(self, key: str, metadata: Mapping[str, Any], *, is_statistic: bool = False) -> int | None:
        """Optimizer steps completed at an entry; None where its metadata do not say."""
        samples = fit.whole(metadata.get("samples_count"), MAX)
        step = fit.whole(metadata.get("step", metadata.get("step_num")), MAX)
        # The count of a block is a position in some rounds and a length in others.
        is_stated = step is not None and is_statistic and self._units.step in {"count", "index"}
        if samples is not None and self.batch and samples % self.batch == 0 and key not in _BLOCKS and not is_stated:
            return fit.step(samples // self.batch)
        if step is not None:
            return fit.step(self._from_step(step, is_statistic=is_statistic))
        if samples is not None and self.batch and key.startswith("eval_"):
            if key == "eval_accuracy":
                self._tally.lose("step", "samples_count rounded", _ROUNDED.format("samples_count"), 0)
            return fit.step(samples // self.batch)
        if samples is not None and self.batch and samples % self.batch == 0:
            return None
        return fit.step(self._from_epoch(key, metadata))

    def rates(self, statistic: Mapping[str, Any]) -> Iterator[Refusal]:
        """The refusal of a rate of samples that is not the batch over the time of a step next to it."""
        rate = fit.number(statistic.get("throughput"))
        seconds = next((fit.number(statistic[name]) for name in STEP_TIMES if name in statistic), None)
        if not isinstance(rate, float) or not isinstance(seconds, float) or not self.batch or self.counts_tokens:
            return
        samples = rate * seconds
        if not self.batch / _MOST_APART <= samples <= self.batch * _MOST_APART:
            message = (
                f"throughput is {rate:.6g} and the time of a step {seconds:.6g} s, which make {samples:.6g} "
                f"samples, where the batch has {self.batch:,}"
            )
            yield Refusal(message, "throughput is samples per second of the job, and times are seconds", "rate")

    @property
    def counts_tokens(self) -> bool:
        """Whether the log counts tokens, so that its rates are of tokens."""
        return self._units.step == "tokens"

    def declared(self, metadata: Mapping[str, Any]) -> int | None:
        """Samples that a statistic states next to its step; None where the step itself follows from them."""
        samples = fit.whole(metadata.get("samples_count"), MAX)
        return samples if samples is not None and ("step" in metadata or "step_num" in metadata) else None

    def samples(self, metadata: Mapping[str, Any]) -> int | None:
        """Samples at an entry that counts them; None where they follow from the steps only."""
        count = metadata.get("epoch_num") if self._epoch_unit == "samples" else None
        return fit.whole(metadata.get("samples_count", count), MAX)

    def _from_step(self, step: int, *, is_statistic: bool) -> int | None:
        unit = self._units.step or "count"
        size = {"samples": self.batch, "tokens": self._tokens}.get(unit, 1) or 1
        if unit == "epochs" or (is_statistic and (unit == "unknown" or step % size)):
            return None
        # Outside of statistics a step is that many completed steps, or that many samples or tokens.
        return step + 1 if is_statistic and unit == "index" else step // size

    def decide(self, units: Units) -> None:
        """Take what the positions of the whole log count."""
        self._units = units
        if units.step:
            self._tally.lose("step", "step", _TOLD[units.step], 0)

    @property
    def _tokens(self) -> int:
        """Tokens of a step; 0 while they are not known."""
        return self.batch * self._tokens_per_sample

    def _from_epoch(self, key: str, metadata: Mapping[str, Any]) -> int | None:
        epoch = metadata.get("epoch_num")
        if not epoch:
            return None
        unit = self._epoch_unit or self._units.epoch or self._judged_epoch(fit.whole(epoch, MAX))
        if key == "eval_accuracy":
            self._epoch_unit = unit
            self._tally.lose("step", "epoch_num", _EPOCHS[unit], 0)
        count, size = fit.whole(epoch, MAX), self._tokens if unit == "tokens" else self.batch
        if count is None or unit not in {"samples", "tokens"}:
            return None
        if key == "eval_accuracy" and count % size:
            self._tally.lose("step", "epoch_num rounded", _ROUNDED.format("epoch_num"), 0)
        return count // size

    def _judged_epoch(self, first: int | None) -> str:
        """What the first epoch_num of the evaluations says that it counts."""
        if first is None or first < self.batch:
            return "epochs"
        if not self.batch:
            return "unknown"
        if self._tokens and self._units.can_be_tokens and first % self._tokens == 0:
            return "tokens"
        if first > _MAX_EPOCHS:
            return "samples"
        is_beyond = 1 < self._train_samples < first
        return "unknown" if is_beyond or first % self.batch else "samples"
