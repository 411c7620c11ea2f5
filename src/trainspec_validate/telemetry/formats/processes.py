"""Reads the lines of a console log that several processes share: each without its prefix, the steps of one process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.format import FORMATS, StreamFormat
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.line_forms import FORMS
from trainspec_validate.telemetry.formats.prefixes import Prefix, prefix_for, prefixes_of, source_of, whose
from trainspec_validate.telemetry.formats.source import HEAD_BYTES, MAX_LINE_BYTES, SourceError, Unended
from trainspec_validate.telemetry.formats.transcript import Transcript
from trainspec_validate.telemetry.formats.unread import lost_value

Line = tuple[int, bytes | Refusal]
HELP: Final = "look for bad data or a faulty device at this rank"
_STEP: Final = re.compile(rb"(?i)\b(?:steps?|iter(?:ation)?|batch)\b[\"']?[\s:=\[]{0,12}(\d{1,15})")
_OF_ALL: Final = frozenset({"mllog", "dlrover-events"})
"""Formats whose readers find their entries behind any prefix, and put those of all processes together."""
_MOST_SILENT: Final = 100
"""Reports of another process since the last one of the process that is read, after which the other one is read."""
_MOST_SHOWN: Final = 1_000
"""Lines that show whose prefix it is."""
_MOST_PROCESSES: Final = 100_000


@dataclass(slots=True)
class Processes:
    """The lines of a log without their prefix, and the process whose reports are read."""

    transcript: Transcript
    prefix: Prefix | None
    _source: bytes = b""
    """Process of the last line that was taken; empty where its prefix names none."""
    _read: bytes | None = None
    """Process whose reports are read."""
    _first_step: int | None = None
    """Step of the first report of that process."""
    _num_since: dict[bytes, int] = field(default_factory=dict)
    """Reports of each other process since the last one of the process that is read."""
    _lost: set[bytes] = field(default_factory=set)
    """Other processes that had a loss which is not finite."""

    def taken(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines without their prefix; those that were cut into parts are whole."""
        prefix = self.prefix
        if prefix is None:
            yield from lines
            return
        start, parts = 0, b""
        for offset, raw in lines:
            if isinstance(raw, Refusal):
                yield offset, raw
                continue
            text, before, is_part = prefix.take(raw)
            start = start if parts else offset
            if is_part and len(parts) + len(text) <= MAX_LINE_BYTES and not isinstance(raw, Unended):
                parts += text
                continue
            text, parts = parts + text, b""
            self.transcript.before, self._source = before, source_of(before)
            yield start, Unended(text) if isinstance(raw, Unended) else text

    def of_one(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines without those of other processes that report steps too, as the prefix names them."""
        if self.prefix is None or self.transcript.format.name in _OF_ALL:
            yield from lines
            return
        for offset, raw in lines:
            source = self._source
            if isinstance(raw, Refusal) or not source or not self._is_of_other(source, raw):
                yield offset, raw
                continue
            self.transcript.lose("rank", whose(source), f"lines of {whose(source)} left out", offset)
            value = None if source in self._lost else lost_value(raw.decode("utf-8", "replace"))
            if value is not None:
                self._lost.add(source)
                found = _STEP.search(raw)
                at = f" at step {int(found[1]):,}" if found else ""
                yield offset, Refusal(f"the loss of {whose(source)} is {fit.number(value)}{at}", HELP, "loss")

    def _is_of_other(self, source: bytes, raw: bytes) -> bool:
        """Whether a line is of a process that reports steps next to the one that is read."""
        if not self._is_report(raw):
            return source != self._read and source in self._num_since
        if source == self._read:
            self._num_since = dict.fromkeys(self._num_since, 0) if any(self._num_since.values()) else self._num_since
            return False
        found = _STEP.search(raw)
        step = int(found[1]) if found else None
        if self._is_next(source, step):
            self._num_since.setdefault(self._read or source, 0)
            self._num_since.pop(source, None)
            self._read, self._first_step = source, step
            return False
        if len(self._num_since) < _MOST_PROCESSES:
            self._num_since[source] = self._num_since.get(source, 0) + 1
        return True

    def _is_next(self, source: bytes, step: int | None) -> bool:
        """Whether the reports of a process are read from now on: it is the first, or continues after a restart."""
        if self._read is None:
            return True
        if source in self._num_since:
            return self._num_since[source] >= _MOST_SILENT
        return step is not None and self._first_step is not None and step > self._first_step

    def _is_report(self, raw: bytes) -> bool:
        """Whether a line reports a step."""
        form = self.transcript.format
        return raw.startswith(b"{") if not form.mark else form.mark in raw and form.looks_like(raw)


def processes_of(lines: Iterable[Line], transcript: Transcript) -> tuple[Processes, Iterator[Line]]:
    """The processes of a log, by the start of its lines; and all of its lines."""
    held, error = list[Line](), None
    source, num_bytes = iter(lines), 0
    try:
        for offset, raw in source:
            held.append((offset, raw))
            num_bytes += 0 if isinstance(raw, Refusal) else len(raw) + 1
            if num_bytes >= HEAD_BYTES:
                break
    except SourceError as damage:
        error = damage
    head = b"\n".join(raw for _, raw in held if not isinstance(raw, Refusal))
    form = transcript.format
    shows = None if form is FORMATS["crash-log"] else partial(_shows_report, form)
    if form.name in _OF_ALL and form.looks_like(head):
        prefix = next((each for each in prefixes_of(head)[:1] if each.is_object), None)
    else:
        prefix = prefix_for(head, shows, has_times=form.clock == "local")
        prefix = (
            None if prefix and form.mark and (_is_own(prefix, form, head) or _is_read(prefix, form, head)) else prefix
        )
    if prefix is not None and prefix.example:
        shown = repr(prefix.example[:80].decode("utf-8", "replace"))
        transcript.lose(
            "meaning", "prefix", f"lines begin with a prefix, such as {shown}, which is taken off", held[0][0]
        )
    return Processes(transcript, prefix), chain(held, _raised(error) if error else source)


def _is_own(prefix: Prefix, form: StreamFormat, head: bytes) -> bool:
    """Whether a prefix is of the reports of a format themselves: all lines that have it are reports, of one process."""
    taken = [(raw, prefix.take(raw)) for raw in head.split(b"\n")[:_MOST_SHOWN]]
    lines = [raw for raw, its in taken if its.prefix]
    is_one = len({source_of(its.prefix) for _, its in taken if its.prefix}) <= 1
    return is_one and bool(lines) and all(form.mark in raw and form.looks_like(raw) for raw in lines)


def _is_read(prefix: Prefix, form: StreamFormat, head: bytes) -> bool:
    """Whether a prefix is of lines that the reader of a format reads with it, such as those with the time of a step."""
    of_reader = [each for each in FORMATS.values() if each.module == form.module and each.looks_like(head)]
    printed = prefix.without(head)
    return not all(each.looks_like(printed) for each in of_reader)


def _shows_report(form: StreamFormat, text: bytes) -> bool:
    """Whether a text has a report; where one has several lines, also another line of it."""
    more = FORMS[form.name].more if form.name in FORMS else None
    return form.looks_like(text) and (more is None or re.search(more.pattern.encode(), text, re.MULTILINE) is not None)


def _raised(error: SourceError) -> Iterator[Line]:
    """The damage of a file at its place."""
    raise error
    yield 0, b""
