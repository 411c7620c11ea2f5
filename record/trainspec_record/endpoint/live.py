"""Follows the streams of a run whose writers are alive, and keeps the latest value of each series.

A writer that died, ended or fell silent is left out as a whole: its last values are no present ones. The text that is
served has no other memory, so Prometheus marks those series as stale at the next scrape.

Source: https://prometheus.io/docs/prometheus/latest/querying/basics/#staleness
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from trainspec_record.claim import is_held, open_regular
from trainspec_record.endpoint.exposition import Exposition, Histogram, Subject, together, value_of
from trainspec_record.guard import tell_once
from trainspec_record.identity import Identity
from trainspec_record.past import TAIL_BYTES
from trainspec_record.rank import HEARTBEAT_SECONDS
from trainspec_record.stream import MAX_LINE_BYTES

SILENT_SECONDS = 3 * HEARTBEAT_SECONDS
"""A writer without a record for so long is left out; ranks and nodes write every 10 s, also while nothing happens."""
MAX_SERIES = 100_000
"""Series that are kept at most, of all streams together."""
MAX_STREAMS = 20_000
"""Writers that are followed at most."""
CHUNK_BYTES = 1_000_000
MAX_CHUNKS = 64
"""Chunks that are read of a stream at one look."""
LEADER = "rank-000000"
"""The writer of rank 0, whose process writes the stream of the job too."""
Key = tuple[Subject, str]


class Tail:
    """Whole lines that were appended to a file since the look before."""

    def __init__(self) -> None:
        self._place = 0
        self._rest = b""

    def head(self, descriptor: int) -> dict[str, Any] | None:
        """The first record; None while it is not whole. Of a large file only the end is read after it.

        Raises:
            ValueError: it is no stream header.
        """
        content = os.pread(descriptor, MAX_LINE_BYTES, 0)
        line, end, _ = content.partition(b"\n")
        if not end:
            if len(content) == MAX_LINE_BYTES:
                raise ValueError("the first line is too long")
            return None
        found = _record(line)
        if found.get("k") != "head":
            raise ValueError("the first line is no stream header")
        self._place = max(len(line) + 1, os.fstat(descriptor).st_size - TAIL_BYTES)
        if os.pread(descriptor, 1, self._place - 1) != b"\n":
            self._rest = b"x"  # makes what is left of a line no record
        return found

    def lines(self, descriptor: int) -> Iterator[bytes]:
        """New lines; a line beyond the limit of a record is left out."""
        for _ in range(MAX_CHUNKS):
            chunk = os.pread(descriptor, CHUNK_BYTES, self._place)
            if not chunk:
                return
            self._place += len(chunk)
            *whole, rest = (self._rest + chunk).split(b"\n")
            self._rest = rest[: MAX_LINE_BYTES + 1]
            yield from (line for line in whole if len(line) <= MAX_LINE_BYTES)


class Stream:
    """The latest values of one writer in one attempt."""

    def __init__(self, head: dict[str, Any], tail: Tail, *, is_near: bool) -> None:
        self.head = head
        self.values: dict[Key, float | str | Histogram] = {}
        self._tail, self._is_near = tail, is_near
        self._grown_at: float | None = None
        """When it was last known to grow; None before the first look."""
        self._is_over = False

    def follow(self, descriptor: int, now: float, room: int) -> int:
        """Take new records, with room for so many new series; the room that is left."""
        is_held_ = is_held(descriptor) if self._is_near else None  # on this host a lock ends with its process
        num_lines = 0
        for line in self._tail.lines(descriptor):
            num_lines += 1
            with suppress(ValueError):
                room = self._take(_record(line), room)
        self._is_over = is_held_ is False
        if self._grown_at is None:
            self._grown_at = now if is_held_ else now - max(0.0, time.time() - os.fstat(descriptor).st_mtime)
        elif num_lines:
            self._grown_at = now
        return room

    def _take(self, record: dict[str, Any], room: int) -> int:
        told = record.get("m")
        if record.get("k") not in {"m", "e"} or not isinstance(told, dict):
            return room
        subject = Subject(*(_label(record.get(name)) for name in Subject._fields))
        for name, written in told.items():
            value, key = value_of(written), (subject, name)
            if value is None:
                continue
            if key not in self.values:
                if room <= 0:
                    tell_once(f"the endpoint serves {MAX_SERIES:,} series and leaves out further ones")
                    continue
                room -= 1
            self.values[key] = together(self.values.get(key), value)
        return room

    def is_fresh(self, now: float) -> bool:
        """Whether its writer is alive and has written lately."""
        return not self._is_over and self._grown_at is not None and now - self._grown_at <= SILENT_SECONDS


class Live:
    """The streams of a run that are written now: those of one host, or of all."""

    def __init__(self, who: Identity, *, all_hosts: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._all_hosts, self._clock = who.folder, all_hosts, clock
        self._hosts = {who.host} | ({who.redaction.name(who.host)} if who.redaction else set())
        self._streams: dict[str, Stream | None] = {}
        """By file name; None for a file that is no stream, or one of another host."""

    def page(self) -> bytes:
        """The latest values of all writers that are alive."""
        self.follow()
        now, exposition = self._clock(), Exposition()
        for name, stream in self._streams.items():
            leader = self._streams.get(_leader(name))
            if stream is not None and leader is not None and leader.is_fresh(now):
                for (subject, key), value in stream.values.items():
                    exposition.add(stream.head, subject, key, value)
        return exposition.text()

    def follow(self) -> None:
        """Take what was written since the look before."""
        now, names = self._clock(), self._newest()
        self._streams = {name: stream for name, stream in self._streams.items() if name in names}
        room = MAX_SERIES - sum(len(stream.values) for stream in self._streams.values() if stream)
        for name in names:
            if name not in self._streams or self._streams[name] is not None:
                with suppress(OSError):  # the file is looked at again
                    room = self._look(name, now, room)

    def _newest(self) -> list[str]:
        """File of the newest attempt of each writer; that of rank 0 is before that of the job."""
        newest: dict[str, tuple[int, str]] = {}
        with suppress(OSError):  # the first rank makes the directory
            for entry in os.scandir(self._folder):
                emitter, attempt, suffix = (*entry.name.rsplit(".", 2), "", "")[:3]
                if suffix == "jsonl" and attempt.isascii() and attempt.isdecimal() and len(attempt) < 8:
                    newest[emitter] = max(newest.get(emitter, (-1, "")), (int(attempt), entry.name))
        names = [name for _, name in sorted(newest.values(), key=lambda each: (_leader(each[1]) != each[1], each[1]))]
        if len(names) > MAX_STREAMS:
            tell_once(f"the endpoint follows {MAX_STREAMS:,} writers and leaves out further ones")
        return names[:MAX_STREAMS]

    def _look(self, name: str, now: float, room: int) -> int:
        if self._streams.get(_leader(name), self) is None:
            return room  # rank 0 is elsewhere, and so is the job
        descriptor = open_regular(self._folder / name)
        try:
            if name not in self._streams:
                self._begin(name, descriptor)
            stream = self._streams.get(name)
            return room if stream is None else stream.follow(descriptor, now, room)
        finally:
            os.close(descriptor)

    def _begin(self, name: str, descriptor: int) -> None:
        tail = Tail()
        try:
            head = tail.head(descriptor)
        except ValueError:
            self._streams[name] = None
            return
        if head is not None:
            host = head.get("host")
            is_near = host in self._hosts
            is_led = _leader(name) != name
            self._streams[name] = Stream(head, tail, is_near=is_near) if is_near or is_led or self._all_hosts else None


def _leader(name: str) -> str:
    """The stream by which the writer of a stream shows that it is alive.

    The job writes every minute while no step ends, and its process every 10 s for rank 0.

    >>> _leader("job.2.jsonl"), _leader("rank-000001.2.jsonl")
    ('rank-000000.2.jsonl', 'rank-000001.2.jsonl')
    """
    return f"{LEADER}.{name[4:]}" if name.startswith("job.") else name


def _label(told: Any) -> Any:
    return told if isinstance(told, str | int) else None


def _record(line: bytes) -> dict[str, Any]:
    """The record of a line.

    Raises:
        ValueError: it is none.
    """
    try:
        found = json.loads(line)
    except RecursionError as error:
        raise ValueError("too many levels of nesting") from error
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found
