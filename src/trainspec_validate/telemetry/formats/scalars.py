"""Turns rows of named scalars into records, by the names of the program that wrote them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from trainspec_validate.documents.types.stream import MetricValue
from trainspec_validate.telemetry.formats import fit, keys
from trainspec_validate.telemetry.formats.dialects import LOSSES_OF_ALL, UNKNOWN, Dialect, Pattern, dialect_of
from trainspec_validate.telemetry.formats.items import INDEX, Found, Refusal
from trainspec_validate.telemetry.formats.names import Names
from trainspec_validate.telemetry.formats.step_rows import StepRows
from trainspec_validate.telemetry.formats.transcript import Transcript

_LOSS = "train.loss.mean"
_OF_A_STEP = (_LOSS, "train.learning_rate", "train.gradient.norm", "train.step.duration")
"""A row with one of these is of a completed optimizer step."""
_MOST_HELD = 1_000
_MOST_NAMES = 10_000
_MOST_SECONDS = 1e9
_MOST_UNREADABLE = 1_000
_MOST_TRAILING = 10_000
_FEWEST_TRAILING = 3
"""Rows in a row without a value that is read, from which a file shows that its values end before its steps do."""
_NO_VALUE = frozenset({"", "-", "--", "none", "null", "n/a", "na"})
"""Texts, in lower case, that tables have where there is no value."""
_STEP_WORDS = {
    "index": INDEX,
    "samples": "the axis of the scalars is samples, not optimizer steps, which the file does not count",
    "unknown": "what its steps count is not known, optimizer steps or something else; they are left out",
}
_CALLS = (
    "the axis is the count of the logger, whose calls may be no optimizer steps; its steps are left out: "
    "log the optimizer step as {!r}"
)
_AGAIN = "the series {!r} comes to its first step again, as steps of an epoch do; steps from there on are left out"
_OWN_STEP = "train/global_step"
_FORM = re.compile(r"(?:train(?:er|ing)?[/_.])?(?P<whole>global[_ ]?)?(?:step|iteration|iter)s?")
_MOST_CHARACTERS = 40
_Row = tuple[int, int | None, int | None, Mapping[str, Any]]
"""Place, time, number on the axis, values by name."""


def seem_indices(numbers: Sequence[int]) -> bool:
    """Whether the steps of reports are indices from 0: the first is 0, or each is the last before a multiple.

    >>> seem_indices([49, 99, 149]), seem_indices([0, 1, 2]), seem_indices([10, 20, 30]), seem_indices([1, 2, 3])
    (True, True, False, False)
    """
    if not numbers or numbers[0] == 0:
        return True
    sizes = Counter(after - before for before, after in pairwise(numbers) if after > before)
    size = max(sizes, key=lambda each: (sizes[each], each)) if sizes else numbers[0] + 1
    return size > 1 and 2 * sum((number + 1) % size == 0 for number in numbers) > len(numbers)


class Scalars:
    """The rows of one file; the first of them show which program wrote it."""

    def __init__(
        self, transcript: Transcript, dialect: Dialect | None = None, *, is_own_count: bool = False, **head: Any
    ) -> None:
        """`is_own_count` says that the number next to a row may be one that the logger counts, not the program."""
        self._transcript = transcript
        self._rows = StepRows(transcript, **head)
        self._held: list[_Row] = []
        self._seen: set[str] = set()
        self._known = dialect
        self._is_own_count = is_own_count
        self._spoken: _Spoken | None = None
        self._last_step = -1
        """Step of the last row with a value that is read."""
        self._trailing: list[tuple[int, int | None, int]] = []
        """Place, time and step of the rows since then whose steps rise."""
        self._lacking: dict[str, tuple[int, int]] = {}
        """Place of the first row that has a name without a value, and how many such rows there are, by name."""

    def row(self, row: _Row) -> Iterator[Found]:
        """The record of a row, or of all rows so far once the program is known; names may have no value, None."""
        row = (*row[:3], self._with_values(row[0], row[3]))
        if self._spoken is not None:
            yield from self._record(self._spoken, *row)
            return
        self._held.append(row)
        if self._known is None:
            self._seen.update(list(row[3])[:_MOST_NAMES])
            self._known = dialect_of(self._seen)
        is_known = self._known is not None and self._known.axis != "index"
        if is_known or len(self._held) >= _MOST_HELD:
            yield from self._release()

    def _with_values(self, offset: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The names of a row that have a value."""
        found = {name: value for name, value in row.items() if value is not None}
        if len(found) < len(row):
            for name in row.keys() - found.keys():
                self.lack(offset, name)
        return found

    def lack(self, offset: int, name: str) -> None:
        """Note that a row has a name without a value, which says nothing of a step."""
        first, num = self._lacking.get(name, (offset, 0))
        if num or len(self._lacking) < _MOST_NAMES:
            self._lacking[name] = first, num + 1

    def restart(self, offset: int, message: str) -> None:
        """Note that the program was started again: the next completed step begins an attempt."""
        self._rows.restart(offset, message)

    def end(self) -> Iterator[Found]:
        """The rows of a file whose program did not show."""
        if self._spoken is None:
            yield from self._release()
        if len(self._trailing) >= _FEWEST_TRAILING and self._rows.is_started:
            for offset, time_us, step in self._trailing:
                yield from self._rows.row(offset, time_us, step, {}, trained=True)
        if self._spoken is not None:
            self._spoken.end_lacking(self._lacking)
            yield from self._spoken.end()

    def _release(self) -> Iterator[Found]:
        """Read the rows that were held by the names of the program, which counts steps as it seems to."""
        held, self._held = self._held, []
        dialect, is_own_count = self._known or UNKNOWN, self._is_own_count
        is_named = any(name in row[3] for name in dialect.step_names for row in held)
        is_of_logger = self._known is None or (is_own_count and bool(dialect.step_names) and not is_named)
        own = _own_steps(held) if is_of_logger else None
        if own is not None:
            dialect = replace(dialect, axis="index", step_names=(own.name,))
            is_own_count = not own.is_axis
        if dialect.has_own_names and not _names_loss(dialect, held):
            dialect = replace(dialect, patterns=(*dialect.patterns, LOSSES_OF_ALL))
        self._spoken = _Spoken(self._transcript, dialect, is_own_count=is_own_count, is_own_series=own is not None)
        self._spoken.weigh(held)
        self._transcript.first_step = int(self._spoken.dialect.axis == "index")
        for row in held:
            yield from self._record(self._spoken, *row)

    def _record(
        self, spoken: _Spoken, offset: int, time_us: int | None, number: int | None, row: Mapping[str, Any]
    ) -> Iterator[Found]:
        number = spoken.number(row, number)
        evaluations = spoken.evaluations(row) if time_us is not None else {}
        values = spoken.values(offset, {name: row[name] for name in row if name not in evaluations}, number)
        self._note_loss(spoken, offset, row, values)
        # A file of evaluations without a value that is known stays one without records.
        for name, seconds in evaluations.values() if values or self._rows.is_started else ():
            yield from self._rows.evaluation(offset, time_us or 0, seconds, number, name)
        if not values:
            self._pass(offset, time_us, spoken.step(offset, number))
            return
        is_of_a_step = _is_of_a_step(values)
        if spoken.dialect.axis == "samples" and number is not None and is_of_a_step:
            values["train.sample.count"] = float(number)
        step = spoken.step(offset, number)
        self._last_step, self._trailing = self._last_step if step is None else step, []
        yield from self._rows.row(offset, time_us, step, values, trained=is_of_a_step)

    def _note_loss(self, spoken: _Spoken, offset: int, row: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Note whether a row has its loss, or a word for none, which no count of optimizer steps shows."""
        is_written = spoken.is_loss_written(row)
        if is_written is None:
            return
        absent = self._transcript.absent
        if is_written or not (_is_of_a_step(values) and absent.counts(values)):
            names = (name for name, value in row.items() if not spoken.is_loss(name) and fit.number(value) is not None)
            absent.take_written(offset, names, has_loss=is_written)

    def _pass(self, offset: int, time_us: int | None, step: int | None) -> None:
        """Note the step of a row without a value that is read: at the end of a file it shows how far the run came."""
        last = self._trailing[-1][2] if self._trailing else self._last_step
        if step is not None and step > last and len(self._trailing) < _MOST_TRAILING:
            self._trailing.append((offset, time_us, step))


def _is_of_a_step(values: Mapping[str, Any]) -> bool:
    return any(key.partition("{")[0] in _OF_A_STEP for key in values)


def _names_loss(dialect: Dialect, rows: Sequence[_Row]) -> bool:
    """Whether a name of some rows is that of the loss of a step."""
    forms = [each.form for each in dialect.patterns if each.metric == _LOSS]
    return any(
        form.fullmatch(dialect.plain(name)) for name in {name for row in rows for name in row[3]} for form in forms
    )


class _Spoken:
    """The names of one program, as the values of a file are looked up."""

    def __init__(
        self, transcript: Transcript, dialect: Dialect, *, is_own_count: bool, is_own_series: bool = False
    ) -> None:
        """`is_own_series` says that the step is a series of the program that no dialect names."""
        self.dialect = dialect
        self._is_own_count = is_own_count and (bool(dialect.step_names) or dialect.axis == "unknown")
        self._is_own_series = is_own_series
        self._first: int | None = None
        self._has_left = self._is_again = False
        self._lose = transcript.lose
        self._has_loss_value = False
        self._losses: dict[str, bool] = {}
        """Whether a name is that of a loss of training."""
        self._forms: dict[str, Pattern | None] = {}
        self._unreadable: dict[str, tuple[int, str, int]] = {}
        """Place and text of the first value of a name that is a text without being a number, and how many there are."""
        given = dict(transcript.given.quantities)
        self._names = Names(dialect.ecosystems, transcript.tally, given, dialect.beside, dialect.implied)

    def number(self, row: Mapping[str, Any], number: int | None) -> int | None:
        """The number on the axis, where a value of the row says it better than the row itself."""
        number = None if self._is_own_count else number
        for name in self.dialect.step_names:
            if name in row:
                told = fit.number(row[name])
                number = fit.step(told) if isinstance(told, float) else None
        return number

    def weigh(self, rows: Sequence[_Row]) -> None:
        """Take no steps of a program that seems to count from 0, where those of its losses speak against it.

        A series of the program's own that does not count from 0 counts from 1.
        """
        if self.dialect.axis != "index":
            return
        numbers = [self.number(row, number) for _, _, number, row in rows if self._has_loss(row)]
        if not seem_indices([number for number in numbers if number is not None]):
            self.dialect = replace(self.dialect, axis="steps" if self._is_own_series else "unknown")

    def _has_loss(self, row: Mapping[str, Any]) -> bool:
        return any(self._is_loss(name) and fit.number(value) is not None for name, value in row.items())

    def _is_loss(self, name: str) -> bool:
        plain = self.dialect.plain(name)
        form = self._form(plain) or (LOSSES_OF_ALL if LOSSES_OF_ALL.form.fullmatch(plain) else None)
        aliases = self._names.aliases(plain) or self._names.aliases(name)
        return form.metric == _LOSS if form else any(alias.metric == _LOSS for alias in aliases)

    def is_loss(self, name: str) -> bool:
        """Whether a name is that of a loss of training that is read."""
        found = self._losses.get(name)
        if found is None:
            found = self._is_loss(name) and not self._reason(name, None)
            if len(self._losses) < _MOST_NAMES:
                self._losses[name] = found
        return found

    def is_loss_written(self, row: Mapping[str, Any]) -> bool | None:
        """Whether a row has a loss; False where it has only a word for none, and None where it has no such cell."""
        cells = [value for name, value in row.items() if self.is_loss(name)]
        if any(fit.number(value) is not None for value in cells):
            return True
        return False if any(isinstance(value, str) and value.strip().lower() in _NO_VALUE for value in cells) else None

    def end_lacking(self, lacking: Mapping[str, tuple[int, int]]) -> None:
        """Say that the file has the name of a loss, and no number for any loss of training."""
        for name, (offset, num) in lacking.items():
            if not self._has_loss_value and not self._reason(name, None) and self._is_loss(name):
                self._lose("unread", name, f"{name[:60]} without a number in any row", offset, num)

    def step(self, offset: int, number: int | None) -> int | None:
        """Optimizer steps completed, by what the number on the axis counts."""
        axis = self.dialect.axis
        if number is None and self._is_own_count:
            self._lose("step", "step", _CALLS.format((*self.dialect.step_names, _OWN_STEP)[0]), offset)
        if number is not None and self._is_own_series and self._comes_again(number):
            self._lose("step", "again", _AGAIN.format(self.dialect.step_names[0]), offset)
            return None
        if axis == "steps" or number is None:
            return number
        self._lose("step", "step", f"the file is of {self.dialect.title}: {_STEP_WORDS[axis]}", offset)
        return number + 1 if axis == "index" else None

    def _comes_again(self, number: int) -> bool:
        """Whether a series of steps has come to its first one again, which no step of a run does."""
        self._first = number if self._first is None else self._first
        self._has_left = self._has_left or number > self._first
        self._is_again = self._is_again or (self._has_left and number <= self._first)
        return self._is_again

    def evaluations(self, row: Mapping[str, Any]) -> dict[str, tuple[str, float]]:
        """The set and the seconds of evaluations that end with a row, by the name of their value."""
        form = self.dialect.evaluation_seconds
        found: dict[str, tuple[str, float]] = {}
        for name in row if form else ():
            match = form.fullmatch(self.dialect.plain(name)) if form else None
            seconds = fit.number(row[name]) if match else None
            if match and isinstance(seconds, float) and 0 < seconds < _MOST_SECONDS:
                found[name] = keys.attribute_text(match["set"] or "eval"), seconds
        return found

    def values(self, offset: int, row: Mapping[str, Any], number: int | None) -> dict[str, MetricValue]:
        """The values of a row by their key."""
        found: dict[str, MetricValue] = {}
        for name, value in row.items():
            reason = self._reason(name, number)
            if reason:
                self._lose("meaning", name, f"{name} {reason}", offset)
            elif name not in self.dialect.step_names:
                self._take(offset, name, value, found)
        self._has_loss_value = self._has_loss_value or any(key.startswith(_LOSS) for key in found)
        return found

    def _reason(self, name: str, number: int | None) -> str:
        """Why a value is none of a step; empty where it may be one."""
        if name in self.dialect.not_at_first and number == 1:
            return "at step 1 is of another interval than it says"
        return self.dialect.left_out.get(self.dialect.plain(name), "")

    def end(self) -> Iterator[Found]:
        """The refusal of each name with values that are texts."""
        for name, (offset, text, num) in self._unreadable.items():
            rest = f"; the first of {num:,} rows" if num > 1 else ""
            yield offset, Refusal(f"{name} is the text {text!r}{rest}", "write a number, or leave it out", "value")

    def _note_text(self, offset: int, name: str, text: str) -> None:
        """Note a value that is a text."""
        first, shown, num = self._unreadable.get(name, (offset, text[:40], 0))
        if num or len(self._unreadable) < _MOST_UNREADABLE:
            self._unreadable[name] = first, shown, num + 1

    def _take(self, offset: int, name: str, value: Any, into: dict[str, MetricValue]) -> None:
        plain = self.dialect.plain(name)
        pattern = self._form(plain)
        is_text = isinstance(value, str) and value.strip().lower() not in _NO_VALUE and fit.number(value) is None
        if is_text and (pattern or self._names.aliases(plain) or self._names.aliases(name)):
            self._note_text(offset, name, value)
        if pattern is None:
            self._names.take(plain if self._names.aliases(plain) else name, value, offset, into)
            return
        found = fit.number(value)
        if found is None:
            message = f"{name} has values that are no numbers, such as {str(value)[:40]!r}"
            self._lose("value", name, message, offset)
            return
        match = pattern.form.fullmatch(plain)
        parts = match.groupdict() if match else {}
        attributes = {key: keys.attribute_text(text.format(**parts)) for key, text in pattern.attributes.items()}
        self._names.note_read(name)
        into.setdefault(keys.join(pattern.metric, attributes), found)  # type: ignore[arg-type]

    def _form(self, name: str) -> Pattern | None:
        """The form that a name has."""
        if name in self._forms:
            return self._forms[name]
        found = next((each for each in self.dialect.patterns if each.form.fullmatch(name)), None)
        if len(self._forms) < _MOST_NAMES:
            self._forms[name] = found
        return found


@dataclass(frozen=True, slots=True)
class _OwnSteps:
    """A series of steps, and whether it is what the logger has as its axis."""

    name: str
    is_axis: bool
    """Whether it agrees with the axis wherever a row has both."""


def _names_of_steps(names: Collection[str]) -> list[str]:
    """The names of a program's own step, those of the whole run first.

    >>> _names_of_steps(["loss", "train/step", "time_per_step", "global_step"])
    ['global_step', 'train/step']
    """
    found = [(name, match) for name in names if len(name) <= _MOST_CHARACTERS and (match := _FORM.fullmatch(name))]
    return [name for name, _ in sorted(found, key=lambda each: (each[1]["whole"] is None, -len(each[0]), each[0]))]


def _own_steps(rows: Sequence[_Row]) -> _OwnSteps | None:
    """The first of these series that only rises, or falls to a step after its first one as at a resume.

    A series that comes to its first step again counts steps of an epoch, or of several runs.
    """
    for name in _names_of_steps({name for row in rows for name in row[3]}):
        told = [(row[2], _step(row[3][name])) for row in rows if name in row[3]]
        numbers = [number for _, number in told if number is not None]
        if len(numbers) == len(told) and not _starts_again(numbers):
            return _OwnSteps(name, all(axis == number for axis, number in told))
    return None


def _starts_again(numbers: Sequence[int]) -> bool:
    """Whether a series comes to its first step again.

    >>> _starts_again([10, 10, 20, 15, 20]), _starts_again([1, 2, 1, 2])
    (False, True)
    """
    has_left = False
    for number in numbers:
        if has_left and number <= numbers[0]:
            return True
        has_left = has_left or number > numbers[0]
    return False


def _step(value: Any) -> int | None:
    found = fit.number(value)
    return fit.step(found) if isinstance(found, float) else None
