"""Reads console logs whose programs print each step as a line, or a block, of names and values, by their form.

A step that a line lacks stays unknown, and so do times that it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from trainspec_validate.documents.types.stream import AttributeValue, MetricValue
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import INDEX, Found, Refusal, beyond
from trainspec_validate.telemetry.formats.line_forms import DURATION, FORMS, NORM, RATE, TOKENS
from trainspec_validate.telemetry.formats.local_times import local_us
from trainspec_validate.telemetry.formats.step_rows import StepRows
from trainspec_validate.telemetry.formats.transcript import OF_COURSE, Transcript

_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_TIME: Final = re.compile(
    r"(?P<time>[0-9]{4}-[0-9][0-9]-[0-9][0-9][ T][0-9][0-9]:[0-9][0-9]:[0-9][0-9])(?:[.,](?P<milli>[0-9]{3}))?(?![0-9])"
)
_UNKNOWN: Final = ("", 1.0)
_MOST_VALUES: Final = 2_000
"""Values that a block is read for."""


@dataclass(slots=True)
class _Block:
    """A report whose lines have not all come."""

    offset: int
    time_us: int | None
    step: int | None
    told: dict[str, str] = field(default_factory=dict)


class Reader:
    """Reads the reports of one log; lines of other programs are passed over."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._form = FORMS[transcript.format.name]
        self._groups = self._form.report.groupindex
        self._has_several = "'" in self._form.example
        self._rows = StepRows(transcript, is_console=True)
        self._block: _Block | None = None
        self._last = -1
        self._is_beyond = False
        self._has_evaluated = False
        """Whether an evaluation was printed since the last report, whose time is in that of the next one."""

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a report, which a block gives with the line after it."""
        form, text = self._form, _CONTROL.sub("", text) if "\x1b" in text else text
        part = form.more.match(text) if form.more and self._block else None
        if part and self._block is not None and len(self._block.told) < _MOST_VALUES:
            self._block.told.setdefault(part["name"], part["value"])
            return
        if self._block is not None:
            yield from self._report()
        found = [*form.report.finditer(text)] if self._has_several else [form.report.search(text)]
        for match in filter(None, found):
            step = _step(match, "step") if "step" in self._groups else None
            if "total" in self._groups:
                yield from self._beyond(offset, step, _step(match, "total"))
            told = {each["name"]: each["value"] for fields in form.fields for each in fields.finditer(match["fields"])}
            self._block = _Block(offset, self._time(text), step, told)
            if form.more is None:
                yield from self._report()
        if not any(found):
            self._transcript.is_restored |= form.restored in text
            self._transcript.is_over |= form.over in text
            self._has_evaluated |= form.evaluation is not None and form.evaluation.match(text) is not None
            self._transcript.lose("text", "text", "the file has lines that report no step, passed over", offset)

    def _beyond(self, offset: int, step: int | None, total: int | None) -> Iterator[Found]:
        """The refusal of the first step beyond the number of steps that the line states."""
        if step is not None:
            self._transcript.reach(step + self._form.is_index, total)
        if step is not None and total and step > total and not self._is_beyond:
            self._is_beyond = True
            yield offset, beyond(step, total)

    def end(self) -> Iterator[Found]:
        """The last report, and rows that wait."""
        yield from self._report()
        yield from self._rows.end()

    def _report(self) -> Iterator[Found]:
        """The report that waits for further lines."""
        block, self._block = self._block, None
        if block is None:
            return
        if block.step is None and (index := fit.step(block.told.pop(self._form.index, None))) is not None:
            block.step = index + 1
        values = self._values(block)
        if not values:
            if self._form.more is None and not any(_number(text) is not None for text in block.told.values()):
                yield block.offset, Refusal("the line has no loss that is a number", self._form.example, "value")
            return
        is_trained = any(key.startswith(("train.loss", RATE, NORM)) for key in values)
        step, warm = block.step, False
        self._transcript.is_over &= not is_trained or "total" in self._groups
        if is_trained and step is not None:
            warm = DURATION in values and step < self._last + 1 if self._last >= 0 else True
            self._last, step = step, step + self._form.is_index
        a: dict[str, AttributeValue] = {"train.step.warmup": True} if warm and DURATION in values else {}
        yield from self._rows.row(block.offset, block.time_us, step, values, trained=is_trained, a=a)

    def _values(self, block: _Block) -> dict[str, MetricValue]:
        """The values of a report by their key; what the catalog has no name for is counted as lost."""
        lose, values, known = self._transcript.lose, dict[str, MetricValue](), self._form.metrics
        for name, text in block.told.items():
            key, divisor = known.get(name, _UNKNOWN)
            number = _number(text)
            if number is None and key.partition("{")[0] in OF_COURSE:
                self._transcript.lose_value(name, text, block.offset)
            elif number is None and key:
                lose("value", name, f"{name} has values that are no numbers, such as {text[:40]!r}", block.offset)
            elif number is None and not self._form.more:
                continue  # a word of the line
            elif not key or number is None:
                lose("unknown-name", name, f"the catalog has no metric for {name!r}", block.offset)
            elif key in {DURATION, TOKENS} and self._has_evaluated:
                lose("meaning", key, "the time of a step has that of the evaluation before it", block.offset)
            else:
                values[key] = cast("MetricValue", number if isinstance(number, str) else number / divisor)
        self._has_evaluated = False
        if block.step is None:
            lose("step", "step", "reports have no step; their records have none", block.offset)
        elif self._form.is_index:
            self._transcript.first_step = 1
            lose("step", "step", INDEX, block.offset)
        return values

    def _time(self, text: str) -> int | None:
        """The time that a line of a block begins with; reports of one line have none."""
        found = _TIME.search(text) if self._form.more else None
        transcript = self._transcript
        if found is None:
            transcript.clock = "none"
            transcript.lose("time", "time", "lines have no times that are read; each counts as a second", 0)
            return None
        zone = transcript.given.utc_offset_seconds
        if zone is None:
            transcript.lose("time", "time", "times have no zone; they are taken for UTC", 0)
        transcript.clock = "local" if zone is None else "utc"
        return local_us(f"{found['time'].replace('T', ' ')}.{found['milli'] or '000'}", zone)


def _number(text: str) -> fit.Number | None:
    """A value, whose digits may be in groups."""
    found = fit.number(text)
    return fit.number(text.replace(",", "")) if found is None and "," in text else found


def _step(match: re.Match[str], name: str) -> int | None:
    """A step, or a number of steps, of a report, whose digits may be in groups."""
    return fit.step((match[name] or "").replace(",", ""))
