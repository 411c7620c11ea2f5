"""Collects what happened in a trial, in the order in which the suite saw it, and keeps it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from trainspec_conformance.records import Entry, Malformed, SuiteRecord
from trainspec_validate.documents.types.trace import TraceRecord

MAX_LINE_BYTES = 16_000_000
MAX_TRACE_BYTES = 100_000_000
"""What the files of one trial may hold; a stack that writes more is told so and read no further."""
MAX_HISTORY_BYTES = 2 * MAX_TRACE_BYTES
"""What the history of one trial may hold: its trace, with what the suite adds to each line."""
_TRACE = msgspec.json.Decoder(TraceRecord)
_ENTRY = msgspec.json.Decoder(Entry)


class History:
    """Entries of a trial, and the file that they are written to at once."""

    def __init__(self, path: Path) -> None:
        self.entries: list[Entry] = []
        self._began = time.monotonic()
        self._file = path.open("xb")

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
        self._file.write(msgspec.json.encode(entry) + b"\n")
        self._file.flush()
        return entry

    def close(self) -> None:
        """Nothing more will be told."""
        self._file.close()


def read_history(path: Path) -> list[Entry]:
    """The entries that a trial wrote down.

    Raises:
        ValueError: it is too long, or a line is no entry as a trial writes it; the text names file and line.
    """
    entries: list[Entry] = []
    num_bytes = 0
    with path.open("rb") as file:
        while line := file.readline(2 * MAX_LINE_BYTES):
            number = len(entries) + 1
            num_bytes += len(line)
            if num_bytes > MAX_HISTORY_BYTES:
                raise ValueError(f"{path}:{number}: a history has at most {MAX_HISTORY_BYTES:,} bytes")
            if not line.endswith(b"\n"):
                raise ValueError(f"{path}:{number}: a line has at most {2 * MAX_LINE_BYTES:,} bytes and an end of line")
            try:
                entry = _ENTRY.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ValueError(f"{path}:{number}: {error}") from error
            if msgspec.json.encode(entry) + b"\n" != line:
                raise ValueError(f"{path}:{number}: a trial writes each key once and no space; this line was changed")
            entries.append(entry)
    return entries


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
        """What was written since the last time."""
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
            yield self._history.see(record, tail.name, tail.line)
        if self._room <= 0:
            self._room = -1
