"""Writes rows of values at steps as records; steps that fall begin another attempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.documents.types.stream import AttributeValue, MetricValue, ScopeName
from trainspec_validate.model.metrics import by_name
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.courses import MIXED, Courses
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.printed_saves import Save
from trainspec_validate.telemetry.formats.row_copies import PastedRows
from trainspec_validate.telemetry.formats.transcript import Transcript

STEPS = "train.step.count"
SECOND_US = 1_000_000
_MOST_ATTEMPTS = 10_000


_MEASURED = frozenset({"train.step.duration", "train.token.rate", "train.sample.rate"})
"""Metrics whose values differ where a step is executed again."""


@dataclass(slots=True)
class Row:
    """A row as a reader gives it."""

    offset: int
    time_us: int | None
    step: int | None
    values: Mapping[str, MetricValue]
    is_trained: bool
    a: Mapping[str, AttributeValue] = field(default_factory=dict)
    is_restarted: bool = False
    """Whether the program was started again before it."""
    save: Save | None = None
    """Saves since the row of the step before."""

    @property
    def is_timed(self) -> bool:
        """Whether it has a time or a value that was measured."""
        return self.time_us is not None or not _MEASURED.isdisjoint(self.values)

    def digest(self) -> int:
        """A hash that equal rows have."""
        return hash((self.step, self.time_us, tuple(self.values.items())))


class StepRows:
    """The rows of one program of a run, in the order of the file."""

    def __init__(
        self, transcript: Transcript, scopes: tuple[ScopeName, ...] = ("job",), *, is_console: bool = False, **head: Any
    ) -> None:
        """`is_console` says that the rows are printed by each process, so that some may be copies or of two runs.

        The reader then calls `end` after the last row.
        """
        self._pasted = PastedRows[Row]() if is_console else None
        self._courses = Courses() if is_console else None
        self._is_over = False
        """Whether the log is known to be of several runs, so that nothing more is read."""
        self._transcript = transcript
        self._scopes, self._head = scopes, head
        self._attempt = transcript.given.attempt
        self._step = -1
        self._num_rows = 0
        self._time_us = 0
        """Time of the last record."""
        self._fitting: dict[str, bool] = {}
        """Whether a value has the scope of the rows, by its key."""
        self._placed: dict[str, Any] = {}
        """Attempt and emitter of the next record."""
        self.is_started = False
        """Whether the stream header was written."""
        self._is_restarted = False

    def restart(self, offset: int, message: str) -> None:
        """Note that the program was started again: the next completed step begins an attempt."""
        if self._step >= 0 and self.is_started and not self._is_restarted:
            self._is_restarted = True
            self._transcript.lose("step", "attempt", message, offset)

    def row(  # noqa: PLR0913 - the parts of a row
        self,
        offset: int,
        time_us: int | None,
        step: int | None,
        values: Mapping[str, MetricValue],
        *,
        trained: bool,
        a: Mapping[str, AttributeValue] | None = None,
    ) -> Iterator[Found]:
        """The record of a row; where it has no time, each row counts as a second.

        `trained` says that the row reports a completed optimizer step, which is counted; rows of evaluations do not.
        `a` are attributes of the record.
        """
        yield from self.write(self.made(offset, time_us, step, values, trained=trained, a=a))

    def made(  # noqa: PLR0913 - the parts of a row
        self,
        offset: int,
        time_us: int | None,
        step: int | None,
        values: Mapping[str, MetricValue],
        *,
        trained: bool,
        a: Mapping[str, AttributeValue] | None = None,
    ) -> Row:
        """A row that is not written yet, with what the log said before it; values can be added to it."""
        row = Row(offset, time_us, step, values, trained, a or {}, self._is_restarted)
        row.save = self._transcript.saves.pop() if trained else None
        self._is_restarted = False
        return row

    def write(self, row: Row) -> Iterator[Found]:
        """The record of a row that was made; rows are written in the order in which they were made."""
        if self._pasted is None:
            yield from self._write(row)
            return
        is_timed = row.is_timed
        if not is_timed and self._pasted.is_empty:
            yield from self._of_console(row)
            return
        free, copy = self._pasted.take(row.digest(), row, is_timed=is_timed)
        for each in free:
            yield from self._of_console(each)
        if copy:
            yield row.offset, copy

    def end(self) -> Iterator[Found]:
        """The rows that wait until it is known whether they are a copy."""
        for each in self._pasted.end() if self._pasted else ():
            yield from self._of_console(each)

    def _of_console(self, row: Row) -> Iterator[Found]:
        """The records of a row that is no copy, unless the log is of several runs."""
        if self._is_over:
            self._transcript.lose("meaning", "run", "the rest is of several runs, which are left out", row.offset)
            return
        courses = self._courses
        if courses is not None and row.is_trained and row.step is not None:
            again = courses.twice(row.step, row.values)
            if again:
                yield row.offset, again
            if courses.is_mixed(row.step):
                self._is_over = True
                yield row.offset, MIXED
                return
        yield from self._write(row)

    def _write(self, row: Row) -> Iterator[Found]:
        self._num_rows += 1
        offset, time_us, step = row.offset, row.time_us, row.step
        fits = self._fitting
        values = {key: value for key, value in row.values.items() if fits.get(key) or self._is_of_scope(offset, key)}
        if time_us is None:
            time_us = fit.time_us((self._transcript.given.start_us or 0) + self._num_rows * SECOND_US)
        if time_us is None:
            yield offset, Refusal("the time is beyond what a record holds", "", "time")
            return
        if row.is_trained:
            self._transcript.absent.take(offset, values)
        if row.is_trained and step is not None:
            yield from self._follow(offset, time_us, step, is_restarted=row.is_restarted)
            values[STEPS] = float(step)
        else:
            self._is_restarted |= row.is_restarted
        if not values:
            return
        yield from self._begin(offset, time_us)
        gap = (
            row.save.within(self._time_us, time_us) if row.save and row.time_us is not None and self._time_us else None
        )
        if gap:
            yield offset, self._transcript.event(time_us, "train.telemetry.gap", a=gap, **self._place())
        self._time_us = time_us
        yield offset, self._transcript.sample(time_us, values, step=step, a=dict(row.a), **self._place())

    def evaluation(self, offset: int, end_us: int, seconds: float, step: int | None, name: str) -> Iterator[Found]:
        """The events of an evaluation that has ended, and took so long; it began after the last record."""
        begin_us = max(self._time_us, end_us - round(seconds * SECOND_US))
        if begin_us >= end_us:
            return
        yield from self._begin(offset, begin_us)
        self._time_us = end_us
        a: dict[str, AttributeValue] = {"train.evaluation.set": name}
        more = {"id": f"evaluation-{name}-{end_us}", "step": step, **self._place()}
        yield offset, self._transcript.event(begin_us, "train.evaluation.begin", a=a, **more)
        a = {**a, "train.evaluation.outcome": "completed"}
        yield offset, self._transcript.event(end_us, "train.evaluation.end", a=a, **more)

    def _begin(self, offset: int, time_us: int) -> Iterator[Found]:
        """The stream header, before the first record."""
        if not self.is_started:
            self.is_started = True
            yield offset, self._transcript.head(time_us, self._scopes, att=self._attempt, **self._head)

    def _place(self) -> dict[str, Any]:
        if self._placed.get("att") != self._attempt:
            self._placed = {"att": self._attempt, "emitter": self._head.get("emitter") or self._transcript.emitter}
        return self._placed

    def _is_of_scope(self, offset: int, key: str) -> bool:
        """Whether a value is of what the rows are of; one of a rank, such as memory, is not one of the job."""
        name = key.partition("{")[0]
        if key not in self._fitting:
            metric = by_name(name)
            self._fitting[key] = metric is None or not set(self._scopes).isdisjoint(metric.scopes)
        if not self._fitting[key]:
            message = f"{name} is of one rank or device, and its row of the {self._scopes[0]}; left out"
            self._transcript.lose("meaning", name, message, offset)
        return self._fitting[key]

    def _follow(self, offset: int, time_us: int, step: int, *, is_restarted: bool) -> Iterator[Found]:
        """Begin another attempt where a step is below the one before, or the program was started again."""
        is_next = is_restarted
        if step < self._step and self.is_started:
            message = f"the step falls from {self._step:,} to {step:,}; inferred: a restart, which begins an attempt"
            self._transcript.lose("step", "attempt", message, offset)
            is_next = True
        if is_next and self._attempt < _MOST_ATTEMPTS:
            self._attempt += 1
            yield offset, self._transcript.head(time_us, self._scopes, att=self._attempt, **self._head)
        self._step = step
