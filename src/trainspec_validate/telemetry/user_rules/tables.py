"""Writes the records of runs as the tables that rules of users look at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainspec_validate.model.metrics import catalog
from trainspec_validate.telemetry.decode.batch import WARMUP, Batch, take
from trainspec_validate.telemetry.decode.names import Names
from trainspec_validate.telemetry.decode.reader import batches
from trainspec_validate.telemetry.decode.run_file import RunFile, Stretch
from trainspec_validate.telemetry.fold.digest import Digest, event_rows
from trainspec_validate.telemetry.formats.source import SourceError
from trainspec_validate.telemetry.kernels import jit
from trainspec_validate.telemetry.view.run_view import Location

_OFFSET_BITS = 44
_WRITER = ("run", "attempt", "emitter")
_SUBJECT = ("rank", "host", "device")


def attribute_columns() -> dict[str, str]:
    """Column of each series attribute of the catalog, by its name; `hw.id` is the column `device`."""
    names = (a.name for a in catalog().attributes.values() if a.role == "series" and a.name != "hw.id")
    return {name: name.replace(".", "_") for name in sorted(names)}


def location_number(place: Location) -> int:
    """A place as one number, which grows with the file and the place in it."""
    return place.file << _OFFSET_BITS | place.offset


def location_of(number: int) -> Location:
    """The place that a number encodes.

    >>> location_of(location_number(Location(3, 17)))
    Location(file=3, offset=17)
    """
    return Location(number >> _OFFSET_BITS, number & ((1 << _OFFSET_BITS) - 1))


@dataclass(slots=True)
class Written:
    """The directory with the tables, and what was seen while they were written."""

    directory: Path
    metrics: set[str] = field(default_factory=set)
    events: set[str] = field(default_factory=set)


def write_tables(files: Sequence[RunFile], directory: Path) -> Written:
    """Write `samples.parquet` and `events.parquet`; memory holds one block of records.

    Raises:
        SourceError: Arrow is not installed, or a file cannot be read.
        OSError: the tables cannot be written.
    """
    pa, pq = _arrow()
    jit.compile_for(sum(file.text_bytes for file in files))
    written = Written(directory)
    schemas = {"samples": _schema(pa, _SAMPLES), "events": _schema(pa, _EVENTS)}
    writers = {
        name: pq.ParquetWriter(directory / f"{name}.parquet", schema, compression="zstd", store_schema=False)
        for name, schema in schemas.items()
    }
    try:
        for file, names, batch in _records(files):
            shape = _Shape(pa, file, names, batch)
            writers["samples"].write_table(pa.table(shape.samples(), schema=schemas["samples"]))
            writers["events"].write_table(pa.table(shape.events(), schema=schemas["events"]))
            written.metrics.update(names.keys.items[key].metric for key in set(batch.sample_key.tolist()))
            written.events.update(event.name for _, event in batch.events)
    finally:
        for writer in writers.values():
            writer.close()
    return written


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # type: ignore[import-untyped] # noqa: PLC0415 - an extra, and slow to load
        import pyarrow.parquet as pq  # type: ignore[import-untyped] # noqa: PLC0415
    except ImportError:
        raise SourceError("rules of users need Arrow", "pip install 'trainspec-validate[user-rules]'") from None
    return pa, pq


def _records(files: Sequence[RunFile]) -> Iterator[tuple[RunFile, Names, Batch]]:
    """The records of all files, without those whose time is no time of their run."""
    for file in files:
        digest = Digest()
        for batch in batches(Stretch(file), digest.names, digest.facts(file.number)):
            writers = digest.names.writer_columns()
            low, high = writers.low_us[batch.writer], writers.high_us[batch.writer]
            inside = (batch.time_us >= low) & (batch.time_us <= high)
            yield file, digest.names, batch if inside.all() else take(batch, inside.nonzero()[0])


_TEXT, _WHOLE, _NUMBER, _TRUTH = "text", "whole", "number", "truth"
_RECORD = dict.fromkeys(("run", "emitter", "host", "device"), _TEXT) | dict.fromkeys(
    ("attempt", "rank", "time_us", "seq", "step"), _WHOLE
)
_PLACE = {"file": _TEXT, "place": _WHOLE, "location": _WHOLE}
_KEY = dict.fromkeys(("metric", "series", "attributes", *attribute_columns().values()), _TEXT)
_VALUE = {"value": _NUMBER, "not_finite": _TEXT, "num_values": _WHOLE, "warmup": _TRUTH}
_SAMPLES = _RECORD | _KEY | _VALUE | _PLACE
_EVENTS = _RECORD | dict.fromkeys(("name", "id", "attributes", "metrics"), _TEXT) | {"severity": _WHOLE} | _PLACE
_BOUNDS = ("num_values", "first_time_us", "last_time_us", "first_step", "last_step", "location")
_SERIES = (
    {name: _RECORD[name] for name in (*_WRITER, *_SUBJECT)}
    | _KEY
    | dict.fromkeys(_BOUNDS, _WHOLE)
    | dict.fromkeys(("minimum", "maximum", "mean"), _NUMBER)
)
COLUMNS = {"samples": _SAMPLES, "events": _EVENTS, "series": _SERIES}
"""Kind of each column of each table: `text`, `whole`, `number` or `truth`."""
SERIES_KEYS = (*_WRITER, *_SUBJECT, "metric", "series", "attributes")
"""Columns whose values make one series."""


def _schema(pa: Any, columns: dict[str, str]) -> Any:
    kinds = {
        _TEXT: pa.dictionary(pa.int32(), pa.string()),
        _WHOLE: pa.int64(),
        _NUMBER: pa.float64(),
        _TRUTH: pa.bool_(),
    }
    return pa.schema([(name, kinds[kind]) for name, kind in columns.items()])


class _Shape:
    """One batch as the columns of the tables."""

    def __init__(self, pa: Any, file: RunFile, names: Names, batch: Batch) -> None:
        import numpy as np  # noqa: PLC0415

        self.pa, self.np, self.file, self.names, self.batch = pa, np, file, names, batch

    def samples(self) -> dict[str, Any]:
        """The columns of `samples`."""
        batch, np = self.batch, self.np
        record, keys, value = batch.sample_record, self.names.keys.items, batch.sample_value
        finite = np.isfinite(value)
        counts = np.ones(len(value), np.int64)
        for number, weight in batch.weights.items():
            counts[number] = int(weight)
        words = np.where(np.isnan(value), 0, np.where(value > 0, 1, 2))
        texts: dict[str, list[str | None]] = {
            "metric": [key.metric for key in keys],
            "series": [str(key) for key in keys],
            "attributes": [_json(dict(key.attributes)) for key in keys],
            **{column: [key.attribute(name) for key in keys] for name, column in attribute_columns().items()},
        }
        return {
            **self._of_records(record),
            **{name: self._coded(found, batch.sample_key) for name, found in texts.items()},
            "value": self.pa.array(np.where(finite, value, 0.0), mask=~finite),
            "not_finite": self._coded(["NaN", "+Inf", "-Inf", None], np.where(finite, 3, words)),
            "num_values": self.pa.array(counts),
            "warmup": self.pa.array((batch.flags[record] & WARMUP) > 0),
        }

    def events(self) -> dict[str, Any]:
        """The columns of `events`."""
        numbers = self.np.array([number for number, _ in self.batch.events], self.np.int64)
        found = [row.record for row in event_rows(self.batch)]
        texts: dict[str, list[str | None]] = {
            "name": [event.name for event in found],
            "id": [event.id for event in found],
            "attributes": [_json(event.a) for event in found],
            "metrics": [_json(event.m) for event in found],
        }
        every = self.np.arange(len(found))
        severity = self.pa.array([event.severity for event in found], self.pa.int64())
        return {
            **self._of_records(numbers),
            **{name: self._coded(column, every) for name, column in texts.items()},
            "severity": severity,
        }

    def _of_records(self, record: Any) -> dict[str, Any]:
        """The columns that say who wrote a record, of what, when and where."""
        batch, np, names = self.batch, self.np, self.names
        writers, subjects = names.writers.items, names.subjects.items
        writer, subject, offset = batch.writer[record], batch.subject[record], batch.offset[record].astype(np.int64)
        attempts = np.array([each.attempt for each in writers] or [0], np.int64)
        ranks = np.array([-1 if each.rank is None else each.rank for each in subjects] or [-1], np.int64)
        start = location_number(Location(self.file.number, 0))
        return {
            "run": self._coded([each.run for each in writers], writer),
            "attempt": self.pa.array(attempts[writer]),
            "emitter": self._coded([each.emitter for each in writers], writer),
            "rank": self._whole(ranks[subject]),
            "host": self._coded([each.host for each in subjects], subject),
            "device": self._coded([each.device for each in subjects], subject),
            "time_us": self.pa.array(batch.time_us[record]),
            "seq": self._whole(batch.seq[record]),
            "step": self._whole(batch.step[record]),
            "file": self._coded([self.file.name], np.zeros(len(record), np.int64)),
            "place": self.pa.array(offset),
            "location": self.pa.array(offset + start),
        }

    def _whole(self, values: Any) -> Any:
        """Whole numbers; -1 is an absent one."""
        return self.pa.array(values, mask=values < 0)

    def _coded(self, texts: Sequence[str | None], numbers: Any) -> Any:
        """A column of texts, each by its number in a list that may repeat them."""
        places: dict[str, int] = {}
        codes = [-1 if text is None else places.setdefault(text, len(places)) for text in texts]
        found = self.np.array(codes or [-1], self.np.int32)[numbers]
        # The name of a file can hold bytes that are no text, and Arrow refuses their surrogates.
        words = self.pa.array([text.encode("utf-8", "backslashreplace").decode() for text in places], self.pa.string())
        return self.pa.DictionaryArray.from_arrays(self.pa.array(found, mask=found < 0), words)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """A histogram as its fields."""
    return {name: getattr(value, name) for name in value.__struct_fields__}
