"""Sorts a run that exceeds the memory, through files, writer by writer."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from trainspec_validate.telemetry.decode.batch import RECORD_COLUMNS, Batch, in_order, join, take
from trainspec_validate.telemetry.decode.reader import batches, have_order
from trainspec_validate.telemetry.decode.run_file import RunFile, Stretch
from trainspec_validate.telemetry.fold.digest import Digest, event_rows

_PART_BYTES = 200_000_000
"""Text whose records are sorted at once."""


def sorted_digest(files: Sequence[RunFile]) -> Digest:
    """The digest of a run whose records lie in any order."""
    digest = Digest()
    digest.names.know(file.head for file in files)
    by_time = not have_order(files)
    num_parts = 1 + sum(file.num_bytes for file in files) // _PART_BYTES
    with tempfile.TemporaryDirectory(prefix="trainspec-") as directory:
        parts = [Path(directory, f"{number}.npy") for number in range(num_parts)]
        _spill(files, digest, parts)
        for part in parts:
            digest.add(in_order(join(list(_loaded(part))), by_time=by_time))
    return digest


def _spill(files: Sequence[RunFile], digest: Digest, parts: Sequence[Path]) -> None:
    handles = [part.open("wb") for part in parts]
    try:
        for file in files:
            for found in batches(Stretch(file), digest.names, digest.facts(file.number)):
                batch = digest.within_run(found)
                digest.events.extend(event_rows(batch))
                batch.events = []
                share = batch.writer % len(parts)
                for number in np.unique(share).tolist():
                    _save(handles[number], take(batch, np.flatnonzero(share == number)))
    finally:
        for handle in handles:
            handle.close()


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
