"""Reads a metric file of an MLflow run: a time, a value and a step on each line, under the name of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.dialects import UNKNOWN
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.named_runs import metric_of
from trainspec_validate.telemetry.formats.scalars import Scalars
from trainspec_validate.telemetry.formats.transcript import Transcript

_LINE = re.compile(r"(?P<time>[0-9]{1,16}) (?P<value>\S{1,40}) (?P<step>-?[0-9]{1,15})")


class Reader:
    """Reads the lines of one metric."""

    def __init__(self, transcript: Transcript) -> None:
        self._name, run = metric_of(PurePath(transcript.name))
        self._scalars = Scalars(transcript, UNKNOWN, run=transcript.given.run or run, emitter=self._name)

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a line."""
        match = _LINE.fullmatch(text.strip())
        value = fit.number(match["value"]) if match else None
        if match is None or value is None:
            yield offset, Refusal("the line has no time, value and step", "1700000000000 2.5 10", "value")
            return
        time_us = fit.time_us(int(match["time"]) * 1000)
        if time_us is None:
            yield offset, Refusal("the time is beyond what a record holds", "milliseconds since 1970 UTC", "time")
            return
        yield from self._scalars.row((offset, time_us, fit.step(int(match["step"])), {self._name: value}))

    def end(self) -> Iterator[Found]:
        """Nothing beyond what the lines gave."""
        yield from self._scalars.end()
