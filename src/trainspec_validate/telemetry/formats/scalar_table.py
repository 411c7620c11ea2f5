"""Reads tables of scalars: metrics.csv of Lightning, exported histories of W&B, and tables of epochs."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from typing import Any

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.dialects import LIGHTNING, UNKNOWN
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.json_text import decode
from trainspec_validate.telemetry.formats.row_copies import PART, PART_OF_TABLE, RowCopies
from trainspec_validate.telemetry.formats.scalars import Scalars
from trainspec_validate.telemetry.formats.transcript import Transcript

WANDB, EPOCHS = "wandb-history", "epoch-csv"
_STEP, _EPOCH, _WANDB_STEP, _WANDB_TIME = "step", "epoch", "_step", "_timestamp"
_OF_LOGGER = frozenset({"", _WANDB_STEP, _WANDB_TIME, "_runtime", "_wandb"})
"""Columns that are no scalars of the program."""
_EXAMPLE = '{"_step": 0, "loss": 2.5}'
_MOST_COLUMNS = 10_000
_APART = "export each run to a file of its own"


class Reader:
    """Reads the rows of one file: lines of CSV under a header, or JSON objects."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._is_wandb = transcript.format.name == WANDB
        is_of_epochs = transcript.format.name == EPOCHS
        self._places = _OF_LOGGER if self._is_wandb else _OF_LOGGER | {_EPOCH if is_of_epochs else _STEP}
        self._columns: list[str] = []
        self._is_below_another = False
        """Whether the header of another export was seen."""
        self._last: tuple[int, int] | None = None
        """Step and time of the last row of the run; those of another one are before them."""
        self._is_of_another = False
        self._copies = RowCopies(of_any_part=True)
        dialect = UNKNOWN if is_of_epochs else None if self._is_wandb else LIGHTNING
        self._scalars = Scalars(transcript, dialect, is_own_count=self._is_wandb)

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a row."""
        row = self._object(text) if self._is_wandb and text.lstrip().startswith("{") else self._cells(text)
        if isinstance(row, Refusal):
            yield offset, row
        elif row is not None:
            yield from self._record(offset, row)

    def _object(self, text: str) -> Mapping[str, Any] | Refusal:
        found = decode(text, not_finite=True)
        return found if isinstance(found, dict | Refusal) else Refusal("the line is no object", _EXAMPLE)

    def _cells(self, text: str) -> Mapping[str, Any] | Refusal | None:
        """The cells of a row by their column, None where they hold nothing; None for the header."""
        try:
            cells = next(csv.reader([text]), [])
        except csv.Error as error:
            return Refusal(f"the line is no row of CSV: {error}", "commas between cells")
        if not self._columns:
            self._columns = cells[:_MOST_COLUMNS]
            return None
        if cells == self._columns:
            return None  # written again by a program that was started again
        if not self._is_wandb and sorted(cells) == sorted(self._columns):
            self._columns = cells  # the same columns in another order
            return None
        if self._is_below_another or (self._is_wandb and _WANDB_STEP in cells):
            is_header, self._is_below_another = not self._is_below_another, True
            words = "another export begins here, with other columns" if is_header else "the row is of another export"
            return Refusal(words, _APART, "value")
        if len(cells) != len(self._columns):
            return Refusal(f"the row has {len(cells)} cells, and the header {len(self._columns)}", "", "value")
        return {name: cell if cell.strip() else None for name, cell in zip(self._columns, cells, strict=True)}

    def _record(self, offset: int, row: Mapping[str, Any]) -> Iterator[Found]:
        told = row.get(_WANDB_STEP if self._is_wandb else _STEP)
        step = whole(told)
        if told is not None and step is None:
            yield offset, Refusal(f"the step is {str(told)[:40]!r}", "a whole number from 0", "value")
            return
        time_us = self._time(offset, row)
        if isinstance(time_us, Refusal):
            yield offset, time_us
            return
        if self._is_wandb and step is not None and time_us is not None and self._falls(step, time_us):
            yield offset, Refusal("the row is of another run: its _step and its _timestamp fall", _APART, "value")
            return
        values = {name: value for name, value in row.items() if name not in self._places}
        copy = self._copies.row(step, row) if time_us is None else None
        if copy is not None:
            yield offset, PART_OF_TABLE if copy is PART else copy
        yield from self._scalars.row((offset, time_us, step, values))

    def _falls(self, step: int, time_us: int) -> bool:
        """Whether a row begins another run, or follows one that does: a history has its rows in order."""
        if self._last is not None and time_us < self._last[1]:
            self._is_of_another = self._is_of_another or step < self._last[0]
        else:
            self._last, self._is_of_another = (step, time_us), False
        return self._is_of_another

    def _time(self, offset: int, row: Mapping[str, Any]) -> int | Refusal | None:
        transcript = self._transcript
        told = row.get(_WANDB_TIME) if self._is_wandb else None
        if told is None and transcript.clock == "utc" and transcript.num_records:
            return Refusal("the row has no _timestamp, unlike rows before it", "", "time")
        if told is None:
            transcript.clock = "none"
            transcript.lose("time", "time", "rows have no times; each counts as a second", offset)
            return None
        seconds = fit.number(told)
        is_time = isinstance(seconds, float) and math.isfinite(seconds) and 0 <= seconds < 1e10
        found = fit.time_us(round(seconds * 1e6)) if is_time and isinstance(seconds, float) else None
        return (
            Refusal(f"_timestamp is {str(told)[:40]!r}", "seconds since 1970 UTC", "time") if found is None else found
        )

    def end(self) -> Iterator[Found]:
        """The rows that wait for the name of a program."""
        yield from self._scalars.end()


def whole(told: Any) -> int | None:
    """A step, which tables of doubles write with a point.

    >>> whole("49"), whole("49.0"), whole(49), whole("4.5"), whole("x")
    (49, 49, 49, None, None)
    """
    number = fit.number(told)
    return fit.step(number) if isinstance(number, float) else None
