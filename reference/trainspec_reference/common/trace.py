"""Writes the trace: what a conformance test reads of each process, line by line."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import msgspec

from trainspec_validate.documents.types import trace


def number(value: float) -> trace.Number:
    """A number as a trace holds it: JSON has no word for those that are not finite."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


class TraceWriter:
    """Appends the records of one process to a file of its own; each is one write, which a kill does not cut.

    Where there is no directory, nothing is written.
    """

    def __init__(self, directory: Path | None, name: str) -> None:
        self.attempt = 0
        """Of records to come."""
        self._file: int | None = None
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f"{name}-{os.getpid()}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def tell(self, record_type: type[trace.TraceRecord], /, **values: Any) -> None:
        """Write a record of this moment and attempt."""
        if self._file is None:
            return
        record = record_type(time_us=time.time_ns() // 1000, attempt=self.attempt, **values)
        os.write(self._file, msgspec.json.encode(record) + b"\n")

    def close(self) -> None:
        """Write nothing more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
