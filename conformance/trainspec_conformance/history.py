"""Collects what happened in a trial, in the order in which the suite saw it, and keeps it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from trainspec_conformance.records import Act, Entry, Malformed, Streamed, SuiteRecord
from trainspec_validate.cli.terminal import paused_collector
from trainspec_validate.documents.types.trace import StepDone, TraceRecord
from trainspec_validate.system.budget import Count, Limit, OverLimitError
from trainspec_validate.system.structs import described

MAX_LINE_BYTES = 16_000_000
MAX_TRACE_BYTES = 100_000_000
"""Size limit of the files of one trial; a larger output is reported and not read further."""
_HISTORY = "the history of a trial"
HISTORY_BYTES = Limit(_HISTORY, 2 * MAX_TRACE_BYTES, "bytes")
"""Its trace, with what the suite adds to each line."""
HISTORY_LINE_BYTES = Limit(_HISTORY, 2 * MAX_LINE_BYTES, "bytes of one line")
HISTORY_ENTRIES = Limit(_HISTORY, 1_000_000, "entries")
HISTORY_ACTS = Limit(_HISTORY, 500, "entries of what the suite did to the job and the store")
HISTORY_VALUE_BYTES = Limit(_HISTORY, 600_000_000, "bytes of values in memory")
_FULL = 0.9
_ENTRY_BYTES, _ITEM_BYTES, _KEY_BYTES, _OBJECT_BYTES, _ID_BYTES = 500, 64, 100, 232, 36
"""Memory of an entry without its texts and lists, and of what these hold, at most."""
_TRACE = msgspec.json.Decoder(described(TraceRecord))
_ENTRY = msgspec.json.Decoder(described(Entry))


class Size:
    """How much of its limits a history has used."""

    def __init__(self) -> None:
        limits = (HISTORY_BYTES, HISTORY_ENTRIES, HISTORY_ACTS, HISTORY_VALUE_BYTES)
        self._counts = [Count(limit) for limit in limits]

    def add(self, entry: Entry, line: bytes) -> None:
        """Count one more entry.

        Raises:
            OverLimitError: the history passes a limit.
        """
        more = (len(line), 1, isinstance(entry.record, Act), _value_bytes(entry, line))
        for count, number in zip(self._counts, more, strict=True):  # a million entries: calls of `Count.add` tell
            count.used += number
            if count.used > count.limit.most:
                raise OverLimitError(count.limit)

    @property
    def is_nearly_full(self) -> bool:
        """Whether what is left is for what the suite itself has to write."""
        return any(count.used > _FULL * count.limit.most for count in self._counts)


class History:
    """Entries of a trial, and the file that they are written to at once."""

    def __init__(self, path: Path) -> None:
        self.entries: list[Entry] = []
        self._size = Size()
        self._began = time.monotonic()
        self._file = path.open("xb")

    @property
    def has_room(self) -> bool:
        """Whether more of what a stack writes can be kept, and read again."""
        return not self._size.is_nearly_full

    @property
    def seconds(self) -> float:
        """Time since the trial began."""
        return time.monotonic() - self._began

    def tell(self, record: SuiteRecord) -> Entry:
        """Write down what the suite did or saw, at this moment."""
        return self._add(Entry(seconds=self.seconds, record=record))

    def see(self, record: TraceRecord | SuiteRecord, file: str, line: int) -> Entry:
        """Write down a line of a trace, seen at this moment."""
        return self._add(Entry(seconds=self.seconds, record=record, file=file, line=line))

    def _add(self, entry: Entry) -> Entry:
        self.entries.append(entry)
        line = msgspec.json.encode(entry) + b"\n"
        self._size.add(entry, line)
        self._file.write(line)
        self._file.flush()
        return entry

    def close(self) -> None:
        """The source has ended."""
        self._file.close()


def read_history(path: Path) -> list[Entry]:
    """The entries that a trial wrote down.

    Raises:
        ValueError: it passes a limit, or a line is no entry as a trial writes it; the text names file and line.
    """
    entries: list[Entry] = []
    size, seconds = Size(), 0.0
    with paused_collector(), path.open("rb") as file:
        while line := file.readline(int(HISTORY_LINE_BYTES.most) + 1):
            number = len(entries) + 1
            try:
                HISTORY_LINE_BYTES.check(len(line))
                entry = _entry(line, seconds)
                size.add(entry, line)
            except (OverLimitError, msgspec.DecodeError, ValueError, RecursionError) as error:
                raise ValueError(f"{path}:{number}: {error}") from error
            seconds = entry.seconds
            entries.append(entry)
    return entries


def _entry(line: bytes, since_seconds: float) -> Entry:
    """An entry as a trial writes it, which is not earlier than the one before it."""
    if not line.endswith(b"\n"):
        raise ValueError("the line has no end")
    entry = _ENTRY.decode(line)
    if msgspec.json.encode(entry) + b"\n" != line:
        raise ValueError("a trial writes each key once and no space; this line was changed")
    if entry.seconds < since_seconds:
        raise ValueError(f"a trial writes entries in the order of time; this one is {entry.seconds} s after its begin")
    return entry


def _value_bytes(entry: Entry, line: bytes) -> int:
    """Memory that an entry takes, counted from its text where its lists may hold anything."""
    if isinstance(entry.record, StepDone):
        return _ENTRY_BYTES + len(line) + _ID_BYTES * len(entry.record.sample_ids)
    if not isinstance(entry.record, Streamed):
        return _ENTRY_BYTES + len(line) + _ITEM_BYTES * line.count(b",")
    return (
        len(line)
        + _ITEM_BYTES * (line.count(b",") + line.count(b"["))
        + _KEY_BYTES * line.count(b":")
        + _OBJECT_BYTES * line.count(b"{")
    )


class _Tail:
    """One file of a trace while it is being written."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.line = 0
        self._rest = b""
        self._offset = 0
        self._gone = False

    def read(self, most: int) -> Iterator[bytes]:
        """Lines that are complete by now, from at most so many new bytes."""
        if self._gone:
            return
        try:
            num_new = min(self.path.stat().st_size - self._offset, most)  # asked every few milliseconds
            if num_new <= 0:
                return
            with self.path.open("rb") as file:
                file.seek(self._offset)
                new = file.read(num_new)
        except OSError:
            return
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        yield from lines
        if len(self._rest) > MAX_LINE_BYTES:
            self._gone = True
            yield self._rest


class Watcher:
    """Reads the trace of a running stack as it grows: every file below one directory, whatever its name."""

    def __init__(self, directory: Path, root: Path, history: History) -> None:
        self._directory, self._root, self._history = directory, root, history
        self._tails: dict[str, _Tail] = {}
        """By name of the file."""
        self._room = MAX_TRACE_BYTES

    def poll(self) -> list[Entry]:
        """Content written since the last call."""
        for name in self._new_names():
            path = self._directory / name
            told = path.relative_to(self._root).as_posix()
            self._tails[name] = _Tail(path, told.encode("utf-8", "backslashreplace").decode())
        return [entry for tail in self._tails.values() for entry in self._new(tail)]

    def _new_names(self) -> list[str]:
        try:
            with os.scandir(self._directory) as found:
                new = [one for one in found if one.name.endswith(".jsonl") and one.name not in self._tails]
        except OSError:
            return []
        return sorted(one.name for one in new if one.is_file(follow_symlinks=False))

    def _new(self, tail: _Tail) -> Iterator[Entry]:
        for text in tail.read(max(self._room, 0)):
            tail.line += 1
            self._room -= len(text) + 1
            if not text.strip():
                continue
            try:
                record: TraceRecord | SuiteRecord = _TRACE.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                record = Malformed(reason=str(error)[:1000])
            if not self._history.has_room:
                self._room = 0
                break
            yield self._history.see(record, tail.name, tail.line)
        if self._room <= 0:
            self._room = -1
