"""Writes records as OTLP/JSON, a few on each line, so that they can be read back unchanged.

A stream header becomes the attributes of a resource, each value of a sample a data point, and an event a log record
with its `eventName`. Fields for which OTLP has no place are in attributes that start with `trainspec.`. Step and
sequence number are attributes of an exemplar of the first point of a sample: they do not identify series, and so no
backend keeps a series for each of them. The points of a sample follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from trainspec_validate.documents.types.stream import (
    Event,
    Head,
    HistogramValue,
    MetricValue,
    Sample,
    encode_record,
    plain_record,
)
from trainspec_validate.model.metrics import by_name, catalog
from trainspec_validate.telemetry.formats import keys
from trainspec_validate.telemetry.formats.items import Record
from trainspec_validate.telemetry.formats.json_text import encoded
from trainspec_validate.telemetry.formats.otlp.values import (
    COORDINATES,
    CUMULATIVE,
    DELTA,
    OWN,
    SCOPE,
    Unwritable,
    attributes,
    written_double,
)

Signal = Literal["all", "metrics", "logs"]
SEVERITIES = {"info": 9, "warn": 13, "error": 17, "fatal": 21}
RAW = "trainspec.record"
"""Event name of a log record whose body is a whole record: what OTLP cannot hold otherwise."""
_CONSTANT = {"k", "apiVersion", "kind"}
_RECORDS_OF_A_LINE = 100


def write(records: Iterable[Record], signal: Signal = "all") -> Iterator[bytes]:
    """Lines of OTLP/JSON, without their ends. One file of OTLP holds one signal: `signal` keeps to one.

    Raises:
        ValueError: a record comes before any head.
    """
    lines = _Lines(signal)
    for record in records:
        yield from lines.take(record)
    yield from lines.flush()


@dataclass(slots=True)
class _Lines:
    """What waits to be written: records of one head and one signal."""

    signal: Signal
    _head: Head | None = None
    _num_heads: int = 0
    _resource: dict[str, Any] = field(default_factory=dict)
    _metrics: list[dict[str, Any]] = field(default_factory=list)
    _logs: list[dict[str, Any]] = field(default_factory=list)
    _num: int = 0
    _bare: bool = False
    """Whether the head stands on no line yet."""

    def take(self, record: Record) -> Iterator[bytes]:
        """Lines that a record completes."""
        if isinstance(record, Head):
            yield from self.flush()
            self._head, self._num_heads, self._bare = record, self._num_heads + 1, True
            self._resource = {"attributes": _resource(record, self._num_heads)}
            return
        if self._head is None:
            raise ValueError("a record precedes any head")
        points = _points(record, self._head) if isinstance(record, Sample) else None
        if self.signal == ("metrics" if points is None else "logs"):
            return
        if (self._logs if points is not None else self._metrics) or self._num >= _RECORDS_OF_A_LINE:
            yield from self.flush()
        self._num += 1
        if points is not None:
            self._metrics += points
        else:
            self._logs.append(_log_record(record))

    def flush(self) -> Iterator[bytes]:
        """The line of what waits; that of a head alone where nothing follows it."""
        scope = {"name": SCOPE}
        if self._metrics or (self._bare and not self._logs and self.signal != "logs"):
            content = [{"scope": scope, "metrics": self._metrics}] if self._metrics else []
            yield _line("resourceMetrics", {"resource": self._resource, "scopeMetrics": content})
        if self._logs or (self._bare and self.signal == "logs"):
            content = [{"scope": scope, "logRecords": self._logs}] if self._logs else []
            yield _line("resourceLogs", {"resource": self._resource, "scopeLogs": content})
        self._metrics, self._logs, self._num, self._bare = [], [], 0, False


def _line(name: str, content: dict[str, Any]) -> bytes:
    return encoded({name: [content]})


def _resource(head: Head, index: int) -> list[dict[str, Any]]:
    plain = {name: value for name, value in plain_record(head).items() if name not in _CONSTANT}
    renamed = {COORDINATES.get(name, f"{OWN}head.{name}"): value for name, value in plain.items()}
    own: dict[str, Any] = {"service.name": head.producer.name if head.producer else "train", f"{OWN}head.index": index}
    try:
        return attributes(own | renamed)
    except Unwritable:
        known = {name: renamed[name] for name in COORDINATES.values() if name in renamed}
        return attributes(own | known | {f"{OWN}head.json": encode_record(head).decode()})


def _points(sample: Sample, head: Head) -> list[dict[str, Any]] | None:
    """The values of a sample as metrics of one point each; None where they cannot all be written."""
    if not sample.m and not sample.nr:
        return None
    try:
        around = _Around.of(sample, head)
    except Unwritable:
        return None
    values = [*sample.m.items(), *((key, None) for key in sample.nr)]
    # The first point says for all that follow it which record they are of.
    return [around.metric(key, value, told=number == 0) for number, (key, value) in enumerate(values)]


@lru_cache(maxsize=10_000)
def _named(key: str) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Name of a metric, and the attributes that its key stands for."""
    parts = keys.split(key)
    if parts is None or parts[1].keys() & {*COORDINATES.values(), f"{OWN}key"}:
        return key.partition("{")[0], tuple(attributes({f"{OWN}key": key}))
    return parts[0], tuple(attributes(parts[1]))


@lru_cache(maxsize=10_000)
def _known(name: str) -> tuple[str, str] | None:
    metric = by_name(name)
    return (metric.instrument, metric.unit) if metric else None


@dataclass(frozen=True, slots=True)
class _Around:
    """What all points of one sample share."""

    head: Head
    time: str
    start: str
    coordinates: list[dict[str, Any]]
    filtered: list[dict[str, Any]]

    @staticmethod
    def of(sample: Sample, head: Head) -> _Around:
        start_us = sample.start_us if sample.start_us is not None else head.counters_start_us
        start_us = head.time_us if start_us is None else start_us
        named = {"seq": sample.seq, "step": sample.step, "start_us": sample.start_us, "observed_us": sample.observed_us}
        filtered: dict[str, Any] = {f"{OWN}{name}": value for name, value in named.items() if value is not None}
        nested = any(name.startswith(OWN) for name in sample.a)
        filtered |= {f"{OWN}a": sample.a} if nested else sample.a
        given = {COORDINATES[name]: getattr(sample, name) for name in COORDINATES}
        coordinates = {name: value for name, value in given.items() if value is not None}
        time = str(sample.time_us * 1000)
        return _Around(head, time, str(start_us * 1000), attributes(coordinates), attributes(filtered))

    def metric(self, key: str, value: MetricValue | None, *, told: bool) -> dict[str, Any]:
        """A metric with the one point of a key; None is a point without value."""
        name, series = _named(key)
        instrument, unit = self._kind(name, key)
        point: dict[str, Any] = {
            "attributes": [*series, *self.coordinates],
            "timeUnixNano": self.time,
            **_content(value),
        }
        if told:
            exemplar = {"timeUnixNano": self.time, "asDouble": _shown(value), "filteredAttributes": self.filtered}
            point["exemplars"] = [exemplar]
        if isinstance(value, HistogramValue):
            point["startTimeUnixNano"] = self.start
            return {"name": name, "unit": unit, "histogram": _with([point], DELTA)}
        if instrument in {"counter", "updowncounter"}:
            point["startTimeUnixNano"] = self.start
            more = {"isMonotonic": instrument == "counter"}
            return {"name": name, "unit": unit, "sum": _with([point], CUMULATIVE) | more}
        return {"name": name, "unit": unit, "gauge": {"dataPoints": [point]}}

    def _kind(self, name: str, key: str) -> tuple[str, str]:
        metric = _known(name)
        if metric:
            return metric
        foreign = self.head.extension_metrics.get(name) or self.head.extension_metrics.get(key)
        return (foreign.instrument, foreign.unit) if foreign else ("gauge", "")


def _with(points: list[dict[str, Any]], temporality: int) -> dict[str, Any]:
    return {"dataPoints": points, "aggregationTemporality": temporality}


def _content(value: MetricValue | None) -> dict[str, Any]:
    if value is None:
        return {"flags": 1}
    if not isinstance(value, HistogramValue):
        return {"asDouble": written_double(value)}
    ends = {name: getattr(value, name) for name in ("min", "max") if getattr(value, name) is not None}
    counts = {"bucketCounts": [str(count) for count in value.counts], "explicitBounds": list(value.bounds)}
    return {"count": str(value.count), "sum": value.sum, **ends, **counts}


def _shown(value: MetricValue | None) -> float | str:
    """The value that an exemplar must have."""
    return value.sum if isinstance(value, HistogramValue) else 0.0 if value is None else written_double(value)


def _log_record(record: Sample | Event) -> dict[str, Any]:
    if isinstance(record, Event):
        try:
            return _event(record)
        except Unwritable:
            pass
    written = {"timeUnixNano": str(record.time_us * 1000), "eventName": RAW}
    return written | {"body": {"stringValue": encode_record(record).decode()}, "attributes": []}


def _event(event: Event) -> dict[str, Any]:
    given = {name: getattr(event, name) for name in COORDINATES if getattr(event, name) is not None}
    clash = any(name in COORDINATES.values() for name in event.a)
    named = {(f"{OWN}{name}" if clash else COORDINATES[name]): value for name, value in given.items()}
    for name in ("seq", "step", "id", "severity"):
        if getattr(event, name) is not None:
            named[f"{OWN}{name}"] = getattr(event, name)
    if event.m:
        named[f"{OWN}m"] = plain_record(event)["m"]
    if clash:
        named[f"{OWN}clash"] = True
    nested = any(name.startswith(OWN) for name in event.a)
    named |= {f"{OWN}a": event.a} if nested else event.a
    severity = event.severity
    if severity is None:
        known = catalog().events.get(event.name)
        severity = SEVERITIES[known.severity] if known else SEVERITIES["info"]
    observed = {"observedTimeUnixNano": str(event.observed_us * 1000)} if event.observed_us is not None else {}
    return {
        "timeUnixNano": str(event.time_us * 1000),
        **observed,
        "severityNumber": severity,
        "eventName": event.name,
        "attributes": attributes(named),
    }
