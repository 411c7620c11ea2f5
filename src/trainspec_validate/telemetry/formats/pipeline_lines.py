"""Reads the lines of the pipeline engine of DeepSpeed: steps, losses, time of an iteration and samples per second.

Source: deepspeedai/DeepSpeed@03f6f75:deepspeed/runtime/pipe/engine.py, `train_batch`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from trainspec_validate.documents.types.stream import MetricValue
from trainspec_validate.telemetry.formats import fit, keys
from trainspec_validate.telemetry.formats.printed_numbers import VALUE
from trainspec_validate.telemetry.formats.transcript import Transcript

_REPORT: Final = re.compile(
    rf"(?<!\w)steps: (?P<step>[0-9]{{1,12}}) (?P<losses>loss: {VALUE} (?:[^:\n]{{1,60}}: {VALUE} ){{0,20}})"
    rf"iter time \(s\): (?P<seconds>{VALUE}) samples/sec: (?P<rate>{VALUE})"
)
"""A line has the losses of the model behind their sum, which releases before 0.14.1 do not print."""
_LOSS: Final = re.compile(rf"(?P<name>[^:\n]{{1,60}}): (?P<value>{VALUE}) ")
_BEGINS: Final = re.compile(r"(?<!\w)steps: [0-9]{1,12} loss:")
_LONGEST: Final = 100
"""Factor by which a time is not one in seconds: releases before 0.6.4 print milliseconds (DeepSpeed, pull 1934)."""


@dataclass(frozen=True, slots=True)
class Report:
    """A line of the engine."""

    step: int
    """Steps so far, with those that were skipped."""
    losses: dict[str, str]
    seconds: str
    """Mean time of an iteration since the report before."""
    rate: str
    """Samples per second."""

    def values(self, transcript: Transcript, offset: int, most_seconds: float | None) -> dict[str, MetricValue]:
        """The values by their key; a time beyond `most_seconds`, and the rate that follows from it, are left out."""
        found: dict[str, MetricValue] = {}
        for name, text in self.losses.items():
            number = fit.number(text)
            if number is None:
                transcript.lose_value(name, text, offset)
            else:
                key = keys.join("train.loss.mean", {"train.loss.name": "total" if name == "loss" else _name(name)})
                found[key] = number  # type: ignore[assignment]
        seconds, rate = fit.number(self.seconds), fit.number(self.rate)
        if not isinstance(seconds, float) or not isinstance(rate, float):
            transcript.lose(
                "value", "iter time (s)", f"no time and rate that are numbers: {self.seconds[:40]!r}", offset
            )
        elif most_seconds is not None and seconds > _LONGEST * most_seconds:
            message = (
                f"iter time (s) is {seconds:,g}, and {most_seconds:,g} s passed; left out, as are samples per second"
            )
            transcript.lose("unit", "iter time (s)", message, offset)
        else:
            found |= {"train.step.duration": seconds, "train.sample.rate": rate}
        return found


def _name(name: str) -> str:
    """The name of a further loss: `lm` for `lm loss`."""
    return keys.attribute_text(name.removesuffix(" loss"))


def reports(text: str) -> Iterator[Report]:
    """The reports of a line, of which there are several where processes tear each other's lines.

    >>> [(each.step, each.losses) for each in reports("steps: 5 loss: nan iter time (s): 2.5 samples/sec: 3.2")]
    [(5, {'loss': 'nan'})]
    """
    for match in _REPORT.finditer(text):
        losses = {each["name"].strip(): each["value"] for each in _LOSS.finditer(match["losses"])}
        yield Report(int(match["step"]), losses, match["seconds"], match["rate"])


def is_unread(text: str, num_read: int) -> bool:
    """Whether a line has reports that are cut, or of another form."""
    return len(_BEGINS.findall(text)) > num_read
