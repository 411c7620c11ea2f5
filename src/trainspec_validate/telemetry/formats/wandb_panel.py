"""Reads exported charts of Weights & Biases: rows with a value of each run, of which one run is read."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.panel_columns import Column, columns_of
from trainspec_validate.telemetry.formats.scalar_table import whole
from trainspec_validate.telemetry.formats.scalars import Scalars
from trainspec_validate.telemetry.formats.transcript import Transcript

_STEP = "Step"
_MOST_NAMED = 5
_COUNT = "_step"
_APART = "export each chart to a file of its own"


class Reader:
    """Reads the rows of one run, whose name is given where the chart has several."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._header: list[str] = []
        self._columns: list[Column] = []
        self._scalars: Scalars | None = None
        self._is_below_another = False
        """Whether the header of another chart was seen."""
        self._last_step = -1

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a row."""
        try:
            cells = next(csv.reader([text]), [])
        except csv.Error as error:
            yield offset, Refusal(f"the line is no row of CSV: {error}", "commas between cells")
            return
        if not self._header:
            self._header = cells
            yield from self._choose(offset)
        elif cells == self._header:
            return
        elif self._is_below_another or cells[:1] == self._header[:1]:
            words = "the row is of another chart" if self._is_below_another else "another chart begins here"
            self._is_below_another = True
            yield offset, Refusal(words, _APART, "value")
        elif len(cells) != len(self._header):
            yield offset, Refusal(f"the row has {len(cells)} cells, and the header {len(self._header)}", "", "value")
        elif self._scalars is not None:
            yield from self._row(offset, cells)

    def _choose(self, offset: int) -> Iterator[Found]:
        """Choose the columns of the run that is read."""
        columns = columns_of(self._header)
        runs = list(dict.fromkeys(column.run for column in columns))
        run = self._transcript.given.run or (runs[0] if len(runs) == 1 else None)
        self._columns = [column for column in columns if column.run == run and column.metric != _COUNT]
        if run is None or run not in runs:
            named = ", ".join(map(repr, runs[:_MOST_NAMED])) + (" and more" if len(runs) > _MOST_NAMED else "")
            one = "none" if run is None else f"none that is called {run!r}"
            words = f"the chart has {len(runs)} runs, and {one} was named: {named}"
            yield offset, Refusal(words, "name the run: trainspec import FILE --known run=NAME", "value")
            return
        self._scalars = Scalars(self._transcript, is_own_count=True, run=fit.identity(run))

    def _row(self, offset: int, cells: Sequence[str]) -> Iterator[Found]:
        """The record of a row: what the run logged there, without means over several rows of its history."""
        told = cells[0]
        values: dict[str, str] = {}
        for column in self._columns:
            cell = cells[column.place]
            if not cell.strip():
                if self._scalars is not None:
                    self._scalars.lack(offset, column.metric)
                continue
            if cells[column.least] == cell == cells[column.largest]:
                values[column.metric] = cell
            else:
                message = f"{column.metric} is a mean over several rows of the history, which the chart does not hold"
                self._transcript.lose("meaning", column.metric, message, offset)
        if not values or self._scalars is None:
            return
        step = whole(told) if self._header[0] == _STEP else None
        if self._header[0] == _STEP and step is None:
            yield offset, Refusal(f"the step is {told[:40]!r}", "a whole number from 0", "value")
            return
        if step is not None and step <= self._last_step:
            words = f"the row is of another chart: step {step:,} follows step {self._last_step:,}"
            yield offset, Refusal(words, _APART, "value")
            return
        self._last_step = self._last_step if step is None else step
        if self._header[0] != _STEP:
            values.setdefault(self._header[0], told)
        self._transcript.lose("time", "time", "rows have no times; each counts as a second", offset)
        yield from self._scalars.row((offset, None, step, values))

    def end(self) -> Iterator[Found]:
        """The rows that wait for the name of a program."""
        if self._scalars is not None:
            yield from self._scalars.end()
