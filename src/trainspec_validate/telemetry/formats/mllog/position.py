"""Gives the units of `step`, `samples_count` and `epoch_num` of a log of MLPerf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.tally import Tally

_MAX = 10**18
_TOLD = {
    "samples": "step counts samples; it is divided by the batch",
    "index": "step counts updates from 0; 1 is added",
    "count": "step is taken as completed updates",
    "unknown": "the unit of step is not stated; records have no step",
}
_BLOCKS = ("block_start", "block_stop")


class Position:
    """Turns the metadata of an entry into optimizer updates completed, by what the entries so far tell.

    One round's logs count samples under the name of step, the next round's updates from 0, others tokens under the
    name of epoch: see the alias of `train.step.count`.
    """

    def __init__(self, tally: Tally) -> None:
        self.batch = 0
        """Samples of an update; 0 while it is not known."""
        self._tokens_per_sample = 0
        self._max_steps = 0
        self._unit = ""
        self._tally = tally

    def learn(self, key: str, value: int) -> None:
        """Take a setting of the job."""
        if key == "global_batch_size":
            self.batch = value
        elif key == "max_sequence_length":
            self._tokens_per_sample = value
        elif key == "max_steps":
            self._max_steps = value

    def updates(self, key: str, metadata: Mapping[str, Any], *, is_statistic: bool = False) -> int | None:
        """Updates completed at an entry; None where its metadata do not tell."""
        samples = fit.whole(metadata.get("samples_count"), _MAX)
        step = fit.whole(metadata.get("step", metadata.get("step_num")), _MAX)
        # The count of a block is a position in some rounds and a length in others.
        if samples is not None and self.batch and samples % self.batch == 0 and key not in _BLOCKS:
            if is_statistic and step is not None and not self._unit:
                self._tell({samples: "samples", samples // self.batch: "count"}.get(step, "index"))
            return fit.step(samples // self.batch)
        if step is not None:
            return fit.step(self._from_step(step, is_statistic=is_statistic))
        if samples is not None and self.batch and samples % self.batch == 0:
            return None
        return fit.step(self._from_epoch(metadata))

    def _from_step(self, step: int, *, is_statistic: bool) -> int | None:
        if not is_statistic:
            # Outside of statistics a step is that many completed updates, or that many samples.
            return step // self.batch if self._unit == "samples" and self.batch else step
        if not self._unit:
            self._tell(self._judged(step))
        if self._unit == "samples":
            return step // self.batch if step % self.batch == 0 else None
        return {"index": step + 1, "count": step}.get(self._unit)

    def _tell(self, unit: str) -> None:
        self._unit = unit
        self._tally.lose("step", "step", _TOLD[unit], 0)

    def _judged(self, first: int) -> str:
        """What the first step of the statistics says that steps count."""
        if first == 0:
            return "index"
        if self.batch > 1 and first % self.batch == 0 and (first == self.batch or first > max(self._max_steps, 1)):
            return "samples"
        return "count" if first == 1 or first <= self._max_steps else "unknown"

    def _from_epoch(self, metadata: Mapping[str, Any]) -> int | None:
        epoch = fit.whole(metadata.get("epoch_num"), _MAX)
        tokens = self.batch * self._tokens_per_sample
        if not epoch or not self.batch:
            return None
        if tokens and epoch % tokens == 0:
            self._tally.lose("step", "epoch_num", "epoch_num counts tokens; it is divided by those of an update", 0)
            return epoch // tokens
        if epoch % self.batch == 0:
            self._tally.lose("step", "epoch_num", "epoch_num counts samples; it is divided by the batch", 0)
            return epoch // self.batch
        return None
