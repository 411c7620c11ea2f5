"""Reads the console log of torchtitan: lines with `step:`, `loss:`, `memory:` and `tps:`.

Each rank writes to the console unless the launcher keeps all but one quiet, and not every launcher names the rank. The
values of a step are of the job, but for the rates, which are of one device, and the memory, which is left out.
The first line of a step is read, of the rank that reports first.

Source: https://github.com/pytorch/torchtitan, torchtitan/components/metrics.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from trainspec_validate.telemetry.formats.console import NUMBER, Console
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.transcript import Transcript

_COLOR: Final = re.compile(r"\x1b\[[0-9;]{0,20}m")
_LINE: Final = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.](?P<milli>\d{3}) - [\w.]{1,100} - INFO - "
    r"step: {1,6}(?P<step>\d{1,12}) {1,4}(?P<fields>loss: [^\n]{1,2000})"
)
_RANK: Final = re.compile(r"\[(?:rank ?)?(?P<rank>\d{1,7})\]:")
_FIELD: Final = re.compile(rf"(?P<name>[a-z_]{{1,40}}): {{1,8}}(?P<value>(?:{NUMBER}|[\d,]{{1,20}}))(?=GiB|%|\s|$)")
_MARK: Final = " - INFO - step: "
_NAMES: Final = {
    "loss": "loss_metrics/global_avg_loss",
    "tps": "throughput(tps)",
    "tflops": "tflops",
    "mfu": "mfu(%)",
}
"""What the console calls a value, and the scalar of the same value in event files."""
_PACES: Final = ("tps", "tflops", "mfu")
"""At the first step these hold the start of the program."""


class Reader(Console):
    """Reads the lines of steps; those of other programs are passed over."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript, "torchtitan")
        self._rank: str | None = None
        self._last = -1
        self._is_first = True

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a line."""
        text = _COLOR.sub("", text)
        match = _LINE.search(text)
        if match is None:
            if _MARK in text:
                yield offset, Refusal("the line has no time, step and loss", "copy the line as it was printed", "value")
            else:
                self.passed(offset)
            return
        step = int(match["step"])
        if self._is_of_another(text[: match.start()], step):
            self.transcript.lose("meaning", "step", "the line repeats a step for another rank, and is left out", offset)
            return
        time_us = self.time_of(offset, match)
        if time_us is None:
            yield offset, Refusal("the line has no time that is one", "2025-05-31 12:00:00,000", "time")
            return
        told = {field["name"]: field["value"].replace(",", "") for field in _FIELD.finditer(match["fields"])}
        if self._is_first or step < self._last:
            told = {name: value for name, value in told.items() if name not in _PACES}
        self._last, self._is_first = step, False
        if told.pop("memory", None) is not None:
            self.transcript.lose(
                "meaning", "memory", "memory is of one rank, and the line of the job; left out", offset
            )
        values = self.take(offset, {_NAMES.get(name, name): value for name, value in told.items()})
        yield from self.rows.row(offset, time_us, step, values, trained=True)

    def _is_of_another(self, before: str, step: int) -> bool:
        """Whether a line is of another rank than the one that is read, or repeats the step that was read last."""
        found = _RANK.search(before)
        if found is not None and self._rank is None:
            self._rank = found["rank"]
        return (found is not None and found["rank"] != self._rank) or step == self._last
