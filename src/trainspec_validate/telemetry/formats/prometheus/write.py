"""Writes the last value of every series of a stream as an exposition of Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trainspec_validate.documents.types.stream import Event, Head, HistogramValue, MetricValue, Sample
from trainspec_validate.model.metrics import Metric, by_name
from trainspec_validate.model.metrics.prometheus import prometheus_label, prometheus_name
from trainspec_validate.telemetry.formats import keys
from trainspec_validate.telemetry.formats.items import Record
from trainspec_validate.telemetry.formats.tally import Tally

_UNFIT = re.compile(r"[^a-zA-Z0-9_:]")
_LABELS = {"run": "train.run.id", "att": "train.run.attempt", "rank": "train.rank.id", "host": "host.id"}
_TYPES = {"counter": "counter", "histogram": "histogram"}
_MAX_SERIES = 1_000_000
Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Snapshot:
    """The last value of each series, folded from the records of a stream."""

    tally: Tally = field(default_factory=Tally)
    _head: dict[str, str] = field(default_factory=dict)
    _last: dict[str, dict[Labels, tuple[MetricValue, int]]] = field(default_factory=dict)
    _num_series: int = 0
    _metrics: dict[str, Metric | None] = field(default_factory=dict)

    def take(self, records: Iterable[Record]) -> None:
        """Fold records into the snapshot."""
        for record in records:
            if isinstance(record, Head):
                self._head = _named(record)
            elif isinstance(record, Sample):
                self._sample(record)
            else:
                self.tally.lose("text", "events", "an exposition has no events", 0)
            if isinstance(record, Event) and record.m:
                self.tally.lose("value", "events", "values that events carry are left out", 0)

    def _sample(self, sample: Sample) -> None:
        common = self._head | _named(sample)
        if sample.device is not None:
            common["hw.id"] = sample.device
        for key, value in sample.m.items():
            parts = keys.split(key)
            if parts is None or not all(map(keys.is_name, parts[1])):
                parts = key.partition("{")[0], {"key": key}
            name, attributes = parts
            labels = tuple(sorted({prometheus_label(n): v for n, v in (common | attributes).items()}.items()))
            series = self._last.setdefault(name, {})
            before = series.get(labels)
            if before is None:
                self._num_series += 1
                if self._num_series > _MAX_SERIES:
                    self.tally.lose("value", "series", f"more than {_MAX_SERIES:,} series", 0)
                    continue
            else:
                self.tally.lose("value", "earlier values", "a snapshot holds only the last value of each series", 0)
            series[labels] = (_after(before[0] if before else None, value), sample.time_us)

    def lines(self) -> Iterator[str]:
        """The exposition, metric by metric."""
        for name in sorted(self._last):
            metric = by_name(name)
            series = self._last[name]
            is_histogram = any(isinstance(value, HistogramValue) for value, _ in series.values())
            kind = "histogram" if is_histogram else metric.instrument if metric else "gauge"
            kind = "gauge" if kind == "histogram" and not is_histogram else kind
            written = _written(name, metric, kind)
            if metric:
                yield f"# HELP {written} {metric.title}.\n"
            yield f"# TYPE {written} {_TYPES.get(kind, 'gauge')}\n"
            for labels, (value, time_us) in sorted(series.items()):
                yield from _series(written, dict(labels), value, time_us // 1000)


def _named(record: Head | Sample) -> dict[str, str]:
    given = {attribute: getattr(record, name) for name, attribute in _LABELS.items()}
    if isinstance(record, Head) and record.device is not None:
        given["hw.id"] = record.device
    return {name: str(value) for name, value in given.items() if value is not None}


def _written(name: str, metric: Metric | None, kind: str) -> str:
    if metric is None:
        return _UNFIT.sub("_", name)
    return prometheus_name(name, metric.unit, kind)


def _series(name: str, labels: Mapping[str, str], value: MetricValue, time_ms: int) -> Iterator[str]:
    if not isinstance(value, HistogramValue):
        yield f"{name}{_label_text(labels)} {value} {time_ms}\n"
        return
    seen = 0
    for bound, count in zip(value.bounds, value.counts, strict=False):
        seen += count
        yield f"{name}_bucket{_label_text({**labels, 'le': repr(bound)})} {seen} {time_ms}\n"
    yield f"{name}_bucket{_label_text({**labels, 'le': '+Inf'})} {value.count} {time_ms}\n"
    yield f"{name}_sum{_label_text(labels)} {value.sum} {time_ms}\n"
    yield f"{name}_count{_label_text(labels)} {value.count} {time_ms}\n"


def _label_text(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _after(before: MetricValue | None, value: MetricValue) -> MetricValue:
    """The value, or both windows of a histogram together; buckets only where their bounds are equal."""
    if not isinstance(before, HistogramValue) or not isinstance(value, HistogramValue):
        return value
    same = before.bounds == value.bounds and len(before.counts) == len(value.counts)
    counts = tuple(a + b for a, b in zip(before.counts, value.counts, strict=True)) if same else ()
    bounds = value.bounds if same else ()
    return HistogramValue(count=before.count + value.count, sum=before.sum + value.sum, bounds=bounds, counts=counts)
