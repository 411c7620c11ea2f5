"""Sorts a run that exceeds the memory, through files, writer by writer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from trainspec_validate.telemetry.decode.batch import RECORD_COLUMNS, Batch, in_order, join, take
from trainspec_validate.telemetry.decode.reader import batches, have_order
from trainspec_validate.telemetry.decode.run_file import RunFile, Stretch
from trainspec_validate.telemetry.fold.digest import Digest, event_rows

_PART_BYTES = 200_000_000
"""Text of the records of some writers, which share a file."""
_MOST_PARTS = 500
_SORTED_BYTES = 64_000_000
"""Of columns that are sorted at once, which takes eight times as much."""
_SAMPLED = 16
"""One of so many values tells where to divide."""


def sorted_digest(files: Sequence[RunFile]) -> Digest:
    """The digest of a run whose records are in any order."""
    digest = Digest()
    digest.names.know(file.head for file in files)
    by_time = not have_order(files)
    num_parts = min(_MOST_PARTS, 1 + sum(file.text_bytes for file in files) // _PART_BYTES)
    with tempfile.TemporaryDirectory(prefix="trainspec-") as directory:
        parts = [Path(directory, f"{number}.npy") for number in range(num_parts)]
        _distribute(((batch, batch.writer % num_parts) for batch in _without_events(files, digest)), parts)
        for part in parts:
            for batch in _ordered(part, by_time=by_time):
                digest.add(batch)
    return digest


def _without_events(files: Sequence[RunFile], digest: Digest) -> Iterator[Batch]:
    """The records within the run; its events go into the digest."""
    for file in files:
        for found in batches(Stretch(file), digest.names, digest.facts(file.number)):
            batch = digest.within_run(found)
            digest.events.extend(event_rows(batch))
            batch.events = []
            yield batch


def _distribute(shared: Iterable[tuple[Batch, Any]], parts: Sequence[Path]) -> None:
    """Write each record of some batches to the part whose number stands beside it."""
    handles = [part.open("wb") for part in parts]
    try:
        for batch, share in shared:
            for number in np.unique(share).tolist():
                _save(handles[number], take(batch, np.flatnonzero(share == number)))
    finally:
        for handle in handles:
            handle.close()


def _ordered(part: Path, *, by_time: bool) -> Iterator[Batch]:
    """The records of a part, in order for each writer; a large part is divided by what its records are sorted by."""
    if part.stat().st_size <= _SORTED_BYTES:
        yield in_order(join(list(_loaded(part))), by_time=by_time)
        return
    for name in ("time_us",) if by_time else ("seq", "time_us"):
        bounds = _bounds(part, name)
        if len(bounds):
            pieces = [part.with_name(f"{part.stem}-{number}.npy") for number in range(len(bounds) + 1)]
            _distribute(
                ((each, np.searchsorted(bounds, getattr(each, name), "right")) for each in _loaded(part)), pieces
            )
            part.unlink()
            for piece in pieces:
                yield from _ordered(piece, by_time=by_time)
            return
    for batch in _loaded(part):  # they differ in nothing but their place, in whose order they lie
        yield in_order(batch, by_time=by_time)


def _bounds(part: Path, name: str) -> Any:
    """Where to divide a part by a column into pieces of about the same size; none if it has one value alone."""
    low, high = np.inf, -np.inf
    found = []
    for batch in _loaded(part):
        column = getattr(batch, name)
        low, high = min(low, column.min()), max(high, column.max())
        found.append(column[::_SAMPLED])
    if low == high:
        return np.zeros(0, np.int64)
    num_pieces = min(_MOST_PARTS, 1 + part.stat().st_size // _SORTED_BYTES)
    values = np.sort(np.concatenate(found))
    bounds = np.unique(values[np.arange(1, num_pieces) * len(values) // num_pieces])
    bounds = bounds[bounds > low]
    return bounds if len(bounds) else np.array([low + 1], np.int64)


def _save(handle: IO[bytes], batch: Batch) -> None:
    odd = np.array([(number, weight) for number, weight in batch.weights.items()], np.float64).reshape(-1, 2)
    ends = np.array([(number, *pair) for number, pair in batch.intervals.items()], np.float64).reshape(-1, 3)
    columns = (getattr(batch, name) for name in RECORD_COLUMNS)
    for column in (*columns, batch.sample_record, batch.sample_key, batch.sample_value, odd, ends):
        np.save(handle, column, allow_pickle=False)


def _loaded(part: Path) -> Iterator[Batch]:
    size = part.stat().st_size
    with part.open("rb") as handle:
        while handle.tell() < size:
            columns: list[Any] = [np.load(handle, allow_pickle=False) for _ in range(len(RECORD_COLUMNS) + 5)]
            *plain, odd, ends = columns
            batch = Batch(*plain)
            batch.weights = {int(number): float(weight) for number, weight in odd}
            batch.intervals = {int(number): (float(low), float(high)) for number, low, high in ends}
            yield batch
