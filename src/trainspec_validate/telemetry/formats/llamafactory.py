"""Reads `trainer_log.jsonl` of LLaMA-Factory: one line for each report of the Trainer that it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.dialects import HUGGINGFACE
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.json_text import decode
from trainspec_validate.telemetry.formats.row_copies import RowCopies
from trainspec_validate.telemetry.formats.scalars import Scalars
from trainspec_validate.telemetry.formats.transcript import Transcript

_STEP, _RATE = "current_steps", "lr"
_PLACES = frozenset({_STEP, "total_steps", "percentage", "epoch", "elapsed_time", "remaining_time"})
_LEFT_OUT = {
    "throughput": "is a mean since the last start, of tokens with or without padding",
    "total_tokens": "counts tokens with or without padding; the file does not say which",
}
_ELAPSED = re.compile(r"(?:(?P<days>\d{1,6}) days?, )?(?P<hours>\d{1,2}):(?P<minutes>\d\d):(?P<seconds>\d\d)")
_EXAMPLE = '{"current_steps": 10, "total_steps": 100, "loss": 2.5}'


class Reader:
    """Reads the lines of one file."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._scalars = Scalars(transcript, HUGGINGFACE)
        self._copies = RowCopies()
        self._elapsed_seconds = 0

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a line."""
        found = decode(text, not_finite=True)
        if not isinstance(found, dict):
            yield offset, found if isinstance(found, Refusal) else Refusal("the line is no object", _EXAMPLE)
            return
        step = fit.step(found.get(_STEP))
        if step is None:
            shown = str(found.get(_STEP))[:40]
            yield offset, Refusal(f"{_STEP} is {shown!r}", "optimizer steps completed, a whole number from 0", "value")
            return
        self._follow(offset, found)
        if copy := self._copies.row(step, found):
            yield offset, copy
        lose = self._transcript.lose
        lose("time", "time", "lines have no times; each counts as a second", offset)
        for name in _LEFT_OUT.keys() & found.keys():
            lose("meaning", name, f"{name} {_LEFT_OUT[name]}", offset)
        outside = _PLACES | _LEFT_OUT.keys()
        values = {
            ("learning_rate" if name == "lr" else name): value for name, value in found.items() if name not in outside
        }
        yield from self._scalars.row((offset, None, step, values))

    def _follow(self, offset: int, row: Mapping[str, Any]) -> None:
        """Note a restart, after which the program counts its time from zero."""
        elapsed = elapsed_seconds(row.get("elapsed_time"))
        if elapsed is None:
            return
        if elapsed < self._elapsed_seconds:
            self._scalars.restart(offset, "elapsed_time falls; inferred: a restart, which begins an attempt")
        self._elapsed_seconds = elapsed

    def end(self) -> Iterator[Found]:
        """Nothing that waits."""
        yield from self._scalars.end()


def elapsed_seconds(told: object) -> int | None:
    """Seconds of a duration as Python prints it; None for another text.

    >>> elapsed_seconds("0:32:48"), elapsed_seconds("9 days, 21:39:23"), elapsed_seconds("soon")
    (1968, 855563, None)
    """
    match = _ELAPSED.fullmatch(told) if isinstance(told, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
