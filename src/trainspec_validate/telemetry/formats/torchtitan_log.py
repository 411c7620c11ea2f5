"""Reads the console log of torchtitan: lines with `step:`, `loss:`, `memory:` and `tps:`.

Each rank writes to the console unless the launcher keeps all but one quiet, and not every launcher names the rank. The
values of a step are of the job, but for the rates, which are of one device, and the memory, which is left out.
The first line of a step is read, of the rank that reports first; of the others a loss that is not finite is reported.

Source: https://github.com/pytorch/torchtitan, torchtitan/components/metrics.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.console import Console
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.printed_numbers import NUMBER, VALUE
from trainspec_validate.telemetry.formats.transcript import Transcript

_COLOR: Final = re.compile(r"\x1b\[[0-9;]{0,20}m")
_LINE: Final = re.compile(
    r"(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})[,.](?P<milli>[0-9]{3}) - "
    r"[\w.]{1,100} - INFO - "
    r"step: {1,6}(?P<step>[0-9]{1,12}) {1,4}(?P<fields>loss: [^\n]{1,2000})"
)
_RANK: Final = re.compile(r"\[(?:rank ?)?(?P<rank>[0-9]{1,7})\]:")
_FIELD: Final = re.compile(
    rf"(?P<name>[a-z_]{{1,40}}): {{1,8}}(?P<value>(?:{NUMBER}|[0-9,.]{{1,20}})(?=GiB|%|\s|$)|{VALUE}(?=\s|$))"
)
_GROUPS: Final = re.compile(r"(?<=[0-9]),(?=[0-9])")
_MARK: Final = " - INFO - step: "
_NAMES: Final = {
    "loss": "loss_metrics/global_avg_loss",
    "tps": "throughput(tps)",
    "tflops": "tflops",
    "mfu": "mfu(%)",
}
"""What the console calls a value, and the scalar of the same value in event files."""
HELP: Final = "look for bad data or a faulty device at this rank"
_MOST_LOST_RANKS: Final = 1_000
_PACES: Final = ("tps", "tflops", "mfu")
"""At the first step these hold the start of the program."""
_OVER = "Training completed"
"""Part of the line with which the program ends."""


class Reader(Console):
    """Reads the lines of steps; those of other programs are passed over."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript, "torchtitan")
        self._rank: str | None = None
        self._lost_ranks: set[str] = set()
        """Other ranks that had a loss which is not finite."""
        self._last = -1
        self._last_loss = ""
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
                self.transcript.is_over |= _OVER in text
            return
        self.transcript.is_over = False
        step = int(match["step"])
        told = {field["name"]: _GROUPS.sub("", field["value"]) for field in _FIELD.finditer(match["fields"])}
        rank = self._other_rank(text[: match.start()])
        if rank is not None or (step == self._last and told.get("loss") == self._last_loss):
            yield from self._left_out(offset, rank, step, told.get("loss", ""))
            return
        time_us = self.time_of(offset, match)
        if time_us is None:
            yield offset, Refusal("the line has no time that is one", "2025-05-31 12:00:00,000", "time")
            return
        if self._is_first or step < self._last:
            told = {name: value for name, value in told.items() if name not in _PACES}
        self._last, self._is_first, self._last_loss = step, False, told.get("loss", "")
        if told.pop("memory", None) is not None:
            self.transcript.lose(
                "meaning", "memory", "memory is of one rank, and the line of the job; left out", offset
            )
        values = self.take(offset, {_NAMES.get(name, name): value for name, value in told.items()})
        yield from self.rows.row(offset, time_us, step, values, trained=True)

    def _other_rank(self, before: str) -> str | None:
        """The rank of a line, where it is another one than that which is read."""
        found = _RANK.search(before)
        if found is None:
            return None
        self._rank = self._rank or found["rank"]
        return found["rank"] if found["rank"] != self._rank else None

    def _left_out(self, offset: int, rank: str | None, step: int, loss: str) -> Iterator[Found]:
        """Count a line of another rank; its loss is reported where it is not finite, once for each rank."""
        whose = f"rank {rank}" if rank else "a rank that is not named"
        self.transcript.lose("rank", whose, f"lines of {whose} left out", offset)
        value = fit.number(loss)
        if isinstance(value, str) and whose not in self._lost_ranks and len(self._lost_ranks) < _MOST_LOST_RANKS:
            self._lost_ranks.add(whose)
            yield offset, Refusal(f"the loss of {whose} is {value} at step {step:,}", HELP, "loss")
