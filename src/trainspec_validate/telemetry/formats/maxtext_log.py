"""Reads the log of MaxText: lines with `completed step:`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainspec_validate.documents.types.stream import AttributeValue
from trainspec_validate.model.metrics import Alias
from trainspec_validate.telemetry.formats.console import RATE, Console
from trainspec_validate.telemetry.formats.items import INDEX, Found, Refusal
from trainspec_validate.telemetry.formats.printed_numbers import VALUE
from trainspec_validate.telemetry.formats.transcript import Transcript

_STEP = re.compile(r"completed step: (?P<step>[0-9]{1,12}), (?P<fields>[^\n]{0,4000})")
_FIELD = re.compile(rf"(?P<name>[A-Za-z_/]{{1,60}}): {{1,4}}(?P<value>{VALUE})(?=,|\s|$)")
_POST_TRAINING = re.compile(r"\bTrain step [0-9]{1,12} training loss:")
"""A line of Tunix, the trainer of post-training; google/tunix: tunix/sft/peft_trainer.py."""
_WARM = 3
"""The first steps are compiled, and the clock of the next ones does not wait for the device."""
_MAXTEXT = (
    Alias("train.loss.mean", "maxtext", "loss", "1", 1.0),
    Alias("train.step.duration", "maxtext", "seconds", "s", 1.0),
    Alias("train.token.rate", "maxtext", "Tokens/s/device", "{token}/s", 1.0, times=("num_accelerators",)),
    Alias(
        "train.flops.utilization", "maxtext", "TFLOP/s/device", "T{operation}/s", 1e12, over=("peak_flops_per_second",)
    ),
    Alias(RATE, "maxtext", "lr", "1", 1.0),
)


class Reader(Console):
    """Reads the log of MaxText: lines with `completed step:`."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript, beside=_MAXTEXT)
        self._last = -1
        self._num = _WARM
        """Steps since the program started; an excerpt without any line before its steps shows no start."""
        self._is_start = False
        self._before = 1
        """Steps before the one that the program calls 0: pretraining counts from 0, and post-training from 1."""
        transcript.clock = "none"

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a line."""
        match = _STEP.search(text)
        if match is None:
            self._is_start = True
            if self._last < 0 and _POST_TRAINING.search(text):
                self._before = 0
            self.passed(offset)
            return
        told = {field["name"]: field["value"] for field in _FIELD.finditer(match["fields"])}
        if "seconds" not in told:
            yield (
                offset,
                Refusal("the line has a step and no seconds", "completed step: 5, seconds: 2.5, loss: 3.5", "value"),
            )
            return
        values, index = self.take(offset, told), int(match["step"])
        self.untimed(offset)
        if index <= self._last or (self._last < 0 and (self._is_start or index <= _WARM)):
            self._num = 0
        self._num += 1
        self._last = index
        if self._before:
            self.transcript.lose("step", "step", INDEX, offset)
        warm: dict[str, AttributeValue] = {"train.step.warmup": True} if self._num <= _WARM else {}
        yield from self.rows.row(offset, None, index + self._before, values, trained=True, a=warm)
