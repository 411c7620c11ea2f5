"""Reads the values of metric streams: line by line, no more than a history can hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainspec_conformance.records import Streamed
from trainspec_validate.documents.types.stream import Event, Head, HistogramValue, Sample, StreamRecord
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.native import read_line
from trainspec_validate.telemetry.formats.source import SourceError, blocks

MAX_RECORDS = 50_000
"""Of all streams of a trial; a stack that writes more is read no further, and its later values are not judged."""
Place = tuple[Path, int, Streamed]


def read_streams(directory: Path) -> Iterator[Place]:
    """File, line and content of each record; lines that are no records are findings of the validator, and left out."""
    room = MAX_RECORDS
    for path in sorted(directory.rglob("*.jsonl*")) if directory.is_dir() else []:
        if path.is_symlink() or not path.is_file():
            continue
        for line, record in _records(path):
            if room == 0:
                return
            room -= 1
            yield path, line, record


def _records(path: Path) -> Iterator[tuple[int, Streamed]]:
    head, number = None, 0
    try:
        for block in blocks(path):
            for line in block.content.splitlines():
                number += 1
                record = read_line(line)
                if isinstance(record, Refusal):
                    continue
                if isinstance(record, Head):
                    head = record
                yield number, _streamed(record, head)
    except SourceError:
        return


def _streamed(record: StreamRecord, head: Head | None) -> Streamed:
    if isinstance(record, Head):
        attributes = {**record.declared, "unsupported": sorted(record.unsupported)}
        return Streamed(
            kind="head", attempt=record.att, rank=record.rank, time_us=record.time_us, attributes=attributes
        )
    attempt = record.att if record.att is not None else head.att if head else 0
    return Streamed(
        kind="event" if isinstance(record, Event) else "sample",
        name=record.name if isinstance(record, Event) else "",
        attempt=attempt,
        rank=record.rank if record.rank is not None else head.rank if head else None,
        step=record.step,
        time_us=record.time_us,
        values=_values(record),
        attributes=record.a,
    )


def _values(record: Sample | Event) -> dict[str, float | str]:
    """Values by metric; of a histogram, the sum of what it holds."""
    return {
        name: float(value.sum if isinstance(value, HistogramValue) else value) if not isinstance(value, str) else value
        for name, value in record.m.items()
    }
