"""Holds what readers of console logs share: a line that reports a step, among the output of other programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainspec_validate.documents.types.stream import MetricValue
from trainspec_validate.model.metrics import Alias
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found
from trainspec_validate.telemetry.formats.local_times import local_us
from trainspec_validate.telemetry.formats.names import Names
from trainspec_validate.telemetry.formats.step_rows import StepRows
from trainspec_validate.telemetry.formats.transcript import OF_COURSE, Transcript

RATE = "train.learning_rate"


class Console:
    """Names of a program, and the rows of its steps."""

    def __init__(self, transcript: Transcript, *ecosystems: str, beside: tuple[Alias, ...] = ()) -> None:
        self.transcript = transcript
        self.rows = StepRows(transcript, is_console=True)
        self.names = Names(ecosystems, transcript.tally, dict(transcript.given.quantities), beside)

    def take(self, offset: int, told: Mapping[str, str]) -> dict[str, MetricValue]:
        """The values of a line by their key."""
        values: dict[str, MetricValue] = {}
        for name, value in told.items():
            is_text = fit.number(value) is None
            metrics = {alias.metric for alias in self.names.aliases(name)}
            if is_text and not metrics.isdisjoint(OF_COURSE):
                self.transcript.lose_value(name, value, offset)
            elif not is_text or metrics:
                self.names.take(name, value, offset, values)
        return values

    def untimed(self, offset: int) -> None:
        """Note that a line has no time."""
        self.transcript.lose("time", "time", "lines have no times that are read; each counts as a second", offset)

    def passed(self, offset: int) -> None:
        """Note a line of another program."""
        self.transcript.lose("text", "text", "the file has lines that report no step, passed over", offset)

    def end(self) -> Iterator[Found]:
        """The last rows, which may wait."""
        yield from self.rows.end()

    def time_of(self, offset: int, found: re.Match[str]) -> int | None:
        """The `time` and `milli` of a line in microseconds; one of no zone by the offset that was given, or as UTC."""
        transcript = self.transcript
        zone = transcript.given.utc_offset_seconds
        if zone is None:
            transcript.lose("time", "time", "times have no zone; they are taken for UTC", offset)
        transcript.clock = "local" if zone is None else "utc"
        return local_us(f"{found['time']}.{found['milli']}", zone)
