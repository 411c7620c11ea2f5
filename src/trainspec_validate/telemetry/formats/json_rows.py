"""Reads JSON Lines with an object for each report: `logging.jsonl` of ms-swift, and those of other training loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.dialects import HUGGINGFACE
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.json_text import decode
from trainspec_validate.telemetry.formats.row_copies import PART, PART_OF_TABLE, RowCopies
from trainspec_validate.telemetry.formats.scalars import Scalars
from trainspec_validate.telemetry.formats.transcript import Transcript

SWIFT: Final = "swift-log"
SWIFT_STEP: Final = "global_step/max_steps"
_OF_STEPS: Final = re.compile(r"(?P<step>[0-9]{1,12})/(?P<total>[0-9]{1,12})")
_PLACES: Final = frozenset({"epoch", "percentage", "elapsed_time", "remaining_time"})
_TIMES: Final = ("timestamp", "time", "ts", "wall_time")
_LEAST_SECONDS, _MOST_SECONDS = 1e9, 1e10
"""Between these a number is seconds since 1970; a smaller one is a duration, or the time since some start."""
_KINDS: Final = frozenset({"split", "phase", "mode", "set", "subset", "type", "event", "kind"})
"""Keys whose text says what the values of a row are of."""
_OTHER_ROW: Final = "rows without a step, as a summary is, are passed over"
_EXAMPLE: Final = '{"step": 10, "loss": 2.5}'


class Reader:
    """Reads the lines of one file."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._is_swift = transcript.format.name == SWIFT
        self._scalars = Scalars(transcript, HUGGINGFACE if self._is_swift else None)
        self._copies = RowCopies(of_any_part=True)
        self._time_name: str | None = None
        """Key of the time of rows, as the first one has it; empty where it has none."""

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a line."""
        row = decode(text, not_finite=True)
        if not isinstance(row, dict):
            yield offset, row if isinstance(row, Refusal) else Refusal("the line is no object", _EXAMPLE)
            return
        step = self._swift_step(row) if self._is_swift else None
        if self._is_swift and step is None:
            self._transcript.lose("text", "row", _OTHER_ROW, offset)
            return
        if other := next((key for key in _KINDS & row.keys() if _is_other(row[key])), None):
            message = f"rows whose {other} is not that of training are left out, such as {str(row[other])[:40]!r}"
            self._transcript.lose("meaning", other, message, offset)
            return
        time_us = self._time(offset, row)
        if isinstance(time_us, Refusal):
            yield offset, time_us
            return
        left_out = {*_PLACES, *_KINDS, SWIFT_STEP, self._time_name}
        values = {name: value for name, value in row.items() if name not in left_out}
        copy = self._copies.row(step, row) if time_us is None and step is not None else None
        if copy is not None:
            yield offset, PART_OF_TABLE if copy is PART else copy
        yield from self._scalars.row((offset, time_us, step, values))

    def _swift_step(self, row: Mapping[str, Any]) -> int | None:
        """The step of a row of ms-swift; a row without one is of no report."""
        told = row.get(SWIFT_STEP)
        found = _OF_STEPS.fullmatch(told) if isinstance(told, str) else None
        if found is None:
            return None
        step = fit.step(found["step"])
        self._transcript.reach(step, int(found["total"]))
        return step

    def _time(self, offset: int, row: Mapping[str, Any]) -> int | Refusal | None:
        """The moment of a row, where the first one says when it was."""
        if self._time_name is None:
            names = () if self._is_swift else _TIMES
            self._time_name = next((name for name in names if _seconds(row.get(name)) is not None), "")
        transcript = self._transcript
        if not self._time_name:
            transcript.clock = "none"
            transcript.lose("time", "time", "rows have no times that are read; each counts as a second", offset)
            return None
        seconds = _seconds(row.get(self._time_name))
        if seconds is None:
            return Refusal(f"the row has no {self._time_name} in seconds since 1970, unlike rows before it", "", "time")
        return fit.time_us(round(seconds * 1e6))

    def end(self) -> Iterator[Found]:
        """The rows that wait for the name of a program."""
        yield from self._scalars.end()


def _is_other(told: Any) -> bool:
    """Whether a text says that a row is not of training.

    >>> _is_other("val"), _is_other("train"), _is_other("train_step"), _is_other(3)
    (True, False, False, False)
    """
    return isinstance(told, str) and not told.lower().startswith("train")


def _seconds(told: Any) -> float | None:
    """Seconds since 1970 UTC; None for another number."""
    found = fit.number(told) if isinstance(told, int | float) else None
    return found if isinstance(found, float) and _LEAST_SECONDS < found < _MOST_SECONDS else None
