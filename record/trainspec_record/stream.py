"""Numbers the records of one emitter and appends them to its file."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Any

from trainspec_record import values
from trainspec_record.claim import claim
from trainspec_record.clock import Clock
from trainspec_record.guard import tell_once
from trainspec_record.redaction import NOT_WRITTEN, Redaction

DROPPED, LAG = "train.telemetry.dropped", "train.telemetry.lag"
MAX_QUEUED = 50_000
"""Records that wait at most; more are dropped and counted."""
MAX_LINE_BYTES = 1_000_000
MAX_BATCH = 2_000
"""Records that are written by one call of the system."""


class Stream:
    """Records of one emitter in one attempt: put in by any thread, taken out and written by one.

    A record has its number when it is written, so that what was dropped leaves no hole and is only counted.
    """

    def __init__(self, folder: Path, head: dict[str, Any], clock: Clock, redaction: Redaction | None = None) -> None:
        label = redaction.file(head["emitter"]) if redaction else head["emitter"]
        self.path = folder / f"{file_name(label)}.{head['att']}.jsonl"
        self.head = redaction.head(head) if redaction else head
        self.num_dropped = 0
        """Records of this attempt that were not written."""
        self._clock, self._redaction = clock, redaction
        self._queue: deque[dict[str, Any]] = deque()
        self._descriptor: int | None = None
        self._size = 0
        self._seq = 0
        self._lag_us = 0
        self._silent_since_us: int | None = None

    def open(self) -> None:
        """Make the file and write its head.

        Raises:
            FileExistsError: another process writes, or wrote, the same stream.
            OSError: the file cannot be made.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(self.path, flags, 0o644)
        claim(self._descriptor)
        if self._append(values.line(self.head)) is not None:
            self.close()
            self.path.unlink()
            raise OSError(f"{self.path} cannot be written")

    def sample(self, time_us: int, m: dict[str, Any], **more: Any) -> None:
        """Values that hold at a moment; what is None is left out."""
        self._put({"k": "m", "time_us": time_us, "m": m, **more})

    def event(self, time_us: int, event: str, **more: Any) -> None:
        """Something that happened at a moment; what is None is left out."""
        self._put({"k": "e", "time_us": time_us, "name": event, **more})

    def _put(self, record: dict[str, Any]) -> None:
        if len(self._queue) >= MAX_QUEUED:
            self.num_dropped += 1
        else:
            self._queue.append(record)

    def drain(self) -> None:
        """Write what waits; only one thread at a time may do so."""
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), MAX_BATCH))]
            self._write(batch)

    def _write(self, batch: list[dict[str, Any]]) -> None:
        first, lag_us = self._seq, self._lag_us
        if self._silent_since_us is not None:
            batch.insert(0, self._gap(self._silent_since_us))
        lines = [line for record in batch if (line := self._line(record)) is not None]
        written = self._append(b"".join(lines))
        if written is None:
            self._silent_since_us = None
            return
        num_whole = self._keep_lines(lines, written)
        self._seq = first + num_whole
        self.num_dropped += len(lines) - num_whole
        if self._silent_since_us is None:
            self._silent_since_us = batch[0]["time_us"]
        else:
            self.num_dropped -= num_whole == 0  # the gap itself is told again
        self._lag_us = lag_us

    def _line(self, record: dict[str, Any]) -> bytes | None:
        """A record as it is written; None, and counted, where it cannot be."""
        now_us = self._clock.now_us()
        self._lag_us = max(self._lag_us, now_us - record["time_us"])
        try:
            line = values.line(self._cleaned(record, now_us))
        except Exception as error:  # noqa: BLE001, RUF100 - one bad record must not keep back the others
            tell_once(f"a record was dropped: {type(error).__name__}: {error}")
            self.num_dropped += 1
            return None
        if len(line) > MAX_LINE_BYTES:
            tell_once(f"a record of {len(line)} bytes was dropped; {MAX_LINE_BYTES} are allowed")
            self.num_dropped += 1
            return None
        self._seq += 1
        return line

    def _cleaned(self, record: dict[str, Any], now_us: int) -> dict[str, Any]:
        found = {key: value for key, value in record.items() if value is not None}
        found["seq"] = self._seq
        found["observed_us"] = now_us
        if "m" in found:
            if LAG in found["m"]:
                found["m"] = {**found["m"], LAG: self._lag_us / 1e6, DROPPED: self.num_dropped}
                self._lag_us = 0
            found["m"], refused = values.metrics(found["m"])
            if refused and found["k"] == "m":
                found["nr"] = sorted({key.partition("{")[0] for key in refused})
        if "a" in found:
            found["a"] = values.attributes(found["a"])
        return self._redaction.record(found) if self._redaction else found

    def _gap(self, since_us: int) -> dict[str, Any]:
        now_us = self._clock.now_us()
        told = {"train.gap.start": since_us, "train.gap.end": now_us, "train.reason": NOT_WRITTEN}
        m = {DROPPED: self.num_dropped}
        return {"k": "e", "time_us": now_us, "name": "train.telemetry.gap", "a": told, "m": m}

    # --- the file -------------------------------------------------------------------------------------------

    def _append(self, content: bytes) -> int | None:
        """Append whole lines; None, or how many bytes were written where not all could be."""
        if self._descriptor is None:
            return 0
        done = 0
        try:
            while done < len(content):
                done += os.write(self._descriptor, content[done:])
        except OSError as error:
            tell_once(f"{self.path.name} cannot be written: {error.strerror}")
            return done
        self._size += len(content)
        return None

    def _keep_lines(self, lines: list[bytes], written: int) -> int:
        """Cut off a half line at the end of the file; how many lines are whole."""
        kept, num_whole = 0, 0
        while num_whole < len(lines) and kept + len(lines[num_whole]) <= written:
            kept += len(lines[num_whole])
            num_whole += 1
        self._size += kept
        if self._descriptor is not None and kept < written:
            try:
                os.ftruncate(self._descriptor, self._size)
            except OSError:
                self.close()  # half a line stands there: nothing may follow it
        return num_whole

    def close(self) -> None:
        """Close the file; what is put in later is counted as dropped."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)


def file_name(emitter: str) -> str:
    """The emitter as a part of a file name."""
    return "".join(each if each.isalnum() or each in "-_" else "-" for each in emitter)[:200]
