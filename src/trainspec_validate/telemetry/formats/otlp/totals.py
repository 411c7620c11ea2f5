"""Makes counters of deltas, and windows of histograms that count from a start."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from trainspec_validate.documents.types.stream import HistogramValue, MetricValue
from trainspec_validate.model.metrics import Metric
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.otlp.values import CUMULATIVE, DELTA, temporality
from trainspec_validate.telemetry.formats.transcript import Transcript

_MAX_SERIES = 1_000_000
_GROWING = 9
"""Differences in a row that are larger than the one before: work that is added up has no reason to."""
_GROWN = 3.0


class Totals:
    """The last value of each series that needs one."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._last: dict[Hashable, MetricValue] = {}
        self._deltas: dict[Hashable, tuple[float, float, int]] = {}
        """First and last of the differences that grow, and how many do."""
        self._told: set[str] = set()

    def settle(self, series: Hashable, value: MetricValue, content: Mapping[str, Any], metric: Metric) -> MetricValue:
        """The value as a record has it: a counter from its start, a histogram of one window."""
        since = temporality(content)
        if isinstance(value, HistogramValue):
            return self._window(series, value, metric) if since == CUMULATIVE else value
        if metric.instrument == "counter" and since == DELTA and not isinstance(value, str):
            self._transcript.lose("meaning", metric.name, f"{metric.name} is written as deltas; they are added up", 0)
            self._note(series, float(value))
            before = self._last.get(series)
            value += before if isinstance(before, float) else 0.0
            self._keep(series, value)
        elif metric.instrument == "counter" and content.get("isMonotonic") is not True:
            self._transcript.lose("meaning", metric.name, f"{metric.name} is a counter, but not written as one", 0)
        return value

    def _note(self, series: Hashable, delta: float) -> None:
        """Count how often differences grow in a row."""
        first, last, num = self._deltas.get(series, (delta, delta, 0))
        if series in self._deltas or len(self._deltas) < _MAX_SERIES:
            num = num + 1 if delta > last else 0
            self._deltas[series] = (first if num else delta, delta, num)

    def contradiction(self, series: Hashable, name: str) -> Refusal | None:
        """The refusal of differences that only grow, as sums from a start do; once."""
        first, last, num = self._deltas.get(series, (0.0, 0.0, 0))
        if num != _GROWING or not last >= _GROWN * abs(first) or name in self._told:
            return None
        self._told.add(name)
        message = (
            f"{name} is declared as differences, and its {_GROWING + 1} last points only grow, as sums from a start do"
        )
        return Refusal(message, "declare it cumulative, or write what was added since the last point", "instrument")

    def _keep(self, series: Hashable, value: MetricValue) -> None:
        if series in self._last or len(self._last) < _MAX_SERIES:
            self._last[series] = value

    def _window(self, series: Hashable, value: HistogramValue, metric: Metric) -> HistogramValue:
        """What was added since the last point; all of it where the counts start again."""
        before = self._last.get(series)
        self._keep(series, value)
        self._transcript.lose("meaning", metric.name, f"{metric.name} counts from a start; windows are differences", 0)
        if not isinstance(before, HistogramValue) or before.bounds != value.bounds or before.count > value.count:
            return value
        counts = tuple(now - then for now, then in zip(value.counts, before.counts, strict=True))
        if min(counts, default=0) < 0:
            return value
        num = value.count - before.count
        return HistogramValue(count=num, sum=value.sum - before.sum, bounds=value.bounds, counts=counts)
