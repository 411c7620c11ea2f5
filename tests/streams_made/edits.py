"""Changes records of streams, one by one or all at once, for operators of damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from trainspec_validate.documents.types.stream import Event, Sample

from .emitter import Stream

Record = Sample | Event
Streams = tuple[Stream, ...]
Change = Callable[[Record], "Record | Iterable[Record] | None"]


def numbered(records: Iterable[Record]) -> tuple[Record, ...]:
    """The records with the sequence numbers of a writer that lost none."""
    return tuple(replace(record, seq=number) for number, record in enumerate(records))


def edit(
    streams: Streams, emitter: str, change: Change, *, attempt: int | None = None, renumber: bool = True
) -> Streams:
    """Change, drop (None) or multiply the records of emitters whose name begins so.

    Without `renumber` what was dropped leaves a hole in the sequence numbers.
    """
    found = []
    for stream in streams:
        if not is_of(stream, emitter, attempt):
            found.append(stream)
            continue
        records: list[Record] = []
        for record in stream.records:
            changed = change(record)
            if isinstance(changed, (Sample, Event)):
                records.append(changed)
            else:
                records.extend(changed or ())
        found.append(Stream(stream.head, numbered(records) if renumber else tuple(records)))
    return tuple(found)


def is_of(stream: Stream, emitter: str, attempt: int | None = None) -> bool:
    """Whether the name of the emitter begins so, in this attempt or in any."""
    return stream.head.emitter.startswith(emitter) and attempt in {None, stream.head.att}


def edit_heads(streams: Streams, emitter: str, attempt: int | None = None, **fields: Any) -> Streams:
    """Set fields of heads; a dict is laid over what is there."""
    found = []
    for stream in streams:
        if is_of(stream, emitter, attempt):
            laid = {
                name: {**getattr(stream.head, name), **value} if isinstance(value, dict) else value
                for name, value in fields.items()
            }
            found.append(Stream(replace(stream.head, **laid), stream.records))
        else:
            found.append(stream)
    return tuple(found)


def metric_of(key: str) -> str:
    """Name of the metric of a key."""
    return key.split("{", 1)[0]


def has(record: Record, metric: str) -> bool:
    """Whether a record has a value of the metric, by its name or its whole key."""
    return any(metric in {key, metric_of(key)} for key in record.m)


def with_values(record: Record, metric: str, change: Callable[[Any], Any]) -> Record:
    """The record with changed values of a metric, by its name or its whole key."""
    if not has(record, metric):
        return record
    values = {key: change(value) if metric in {key, metric_of(key)} else value for key, value in record.m.items()}
    return replace(record, m=values)


def without(record: Record, *metrics: str) -> Record | None:
    """The record without some metrics; None for a sample that held nothing else."""
    values = {key: value for key, value in record.m.items() if key not in metrics and metric_of(key) not in metrics}
    return replace(record, m=values) if values or isinstance(record, Event) else None


def with_keys(record: Record, change: Callable[[str], str]) -> Record:
    """The record with changed names of its values."""
    return replace(record, m={change(key): value for key, value in record.m.items()})


def span(streams: Streams) -> tuple[int, int]:
    """First and last time of all records, in microseconds."""
    times = [record.time_us for stream in streams for record in stream.records]
    return min(times), max(times)


def moment(streams: Streams, share: float) -> int:
    """A time in the run, by the share of it that has passed."""
    first, last = span(streams)
    return first + round(share * (last - first))


def events(streams: Streams, name: str) -> list[Event]:
    """Events with a name, in order of time."""
    every = (record for stream in streams for record in stream.records)
    return sorted((r for r in every if isinstance(r, Event) and r.name == name), key=lambda event: event.time_us)


def is_event(record: Record, *names: str) -> bool:
    """Whether a record is an event with one of these names."""
    return isinstance(record, Event) and record.name in names


def moved(record: Record, change: Callable[[int], int]) -> Record:
    """The record at another time, seen as late as before."""
    shift = change(record.time_us) - record.time_us
    observed = None if record.observed_us is None else record.observed_us + shift
    return replace(record, time_us=record.time_us + shift, observed_us=observed)
