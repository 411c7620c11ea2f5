"""Reads metrics and histograms of OTLP that other programs write, by the catalog and its aliases."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from trainspec_validate.documents.types.stream import HistogramValue, MetricValue
from trainspec_validate.model.metrics import Metric, by_name, catalog
from trainspec_validate.telemetry.formats import fit, keys
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.names import Names
from trainspec_validate.telemetry.formats.otlp.owner import Owner, first
from trainspec_validate.telemetry.formats.otlp.values import (
    CUMULATIVE,
    DELTA,
    double,
    objects,
    plain_attributes,
    temporality,
    unix_us,
)
from trainspec_validate.telemetry.formats.transcript import Transcript

ECOSYSTEMS = ("opentelemetry", "megatron-otel", "dcgm", "gpud", "amd", "node-exporter", "nccl")
"""Programs whose names are met in OTLP and in expositions."""
_KINDS = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")
_STEPS = ("train.step", "step", "global_step", "iteration")
_DELTA = 1
_MOST_STATED = 10_000
_MAX_SERIES = 1_000_000
_GROWING = 9
"""Differences in a row that are larger than the one before: work that is added up has no reason to."""
_GROWN = 3.0
_MAX_COUNT = 2**64 - 1
_MAX_BUCKETS = 10_000
_MAX_SCALE = 20
_UNFIT = Refusal("a histogram has counts or bounds that do not fit together", "one count more than bounds", "value")


@dataclass(slots=True)
class _Group:
    """Values of one subject at one moment."""

    time_us: int
    start_us: int | None
    place: dict[str, Any]
    values: dict[str, MetricValue] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)


class _Groups:
    """The groups of some metrics, in order of their first value."""

    def __init__(self) -> None:
        self.found: list[_Group] = []
        self._last: dict[tuple[Any, ...], _Group] = {}

    def at(self, time_us: int, start_us: int | None, place: dict[str, Any], taken: Collection[str]) -> _Group:
        """The group of a subject and moment that has none of some keys; a new one where the last has."""
        identity = (time_us, start_us, *place.items())
        group = self._last.get(identity)
        if group is None or any(key in group.values for key in taken):
            group = self._last[identity] = _Group(time_us, start_us, place)
            self.found.append(group)
        return group


class Metrics:
    """Reads the metrics of one file."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._names = Names(ECOSYSTEMS, transcript.tally, dict(transcript.given.quantities))
        self._totals = _Totals(transcript)
        self._stated: dict[str, str] = {}
        """Unit of each metric as it is stated first."""
        self._told: set[tuple[str, str]] = set()

    def take(self, offset: int, owner: Owner, metrics: Iterable[Mapping[str, Any]]) -> Iterator[Found]:
        """The samples of some metrics: values of one subject at one moment are adjacent."""
        groups = _Groups()
        for metric in metrics:
            yield from self._metric(offset, owner, metric, groups)
        for group in groups.found:
            more = {"start_us": group.start_us, "nr": tuple(group.empty), **group.place, **owner.place}
            yield offset, self._transcript.sample(group.time_us, group.values, **more)

    def _metric(self, offset: int, owner: Owner, metric: Mapping[str, Any], groups: _Groups) -> Iterator[Found]:
        name = metric.get("name")
        kind = next((kind for kind in _KINDS if isinstance(metric.get(kind), dict)), None)
        if not isinstance(name, str) or kind is None:
            yield offset, Refusal("a metric has no name or no data", "gauge, sum or histogram", "value")
            return
        known = by_name(name)
        unit = metric.get("unit") or ""
        if known:
            self._transcript.state(name, str(unit)[:64] or None, _instrument(kind, metric[kind]))
            yield from ((offset, found) for found in self._stated_otherwise(name, known, unit, kind, metric[kind]))
        factor = self._factor(offset, name, known, unit)
        if factor is None:
            message = f"{name} is in {str(unit)[:40]!r}, which does not convert to {known.unit if known else ''!r}"
            yield offset, Refusal(message, "write it in the unit of the catalog", "unit")
            return
        for point in objects(metric[kind].get("dataPoints")):
            problem = self._point(offset, owner, _Named(name, known, factor, kind, metric[kind]), point, groups)
            if problem:
                yield offset, problem

    def _stated_otherwise(
        self, name: str, known: Metric, unit: Any, kind: str, content: Mapping[str, Any]
    ) -> Iterator[Refusal]:
        """What is stated of a metric that is not so: its instrument, or a unit that other writers do not give it."""
        written = _instrument(kind, content)
        if known.instrument == "counter" and written != "counter" and "counter" not in known.also:
            message = f"{name} is a counter, and is written as a {written}"
            yield from self._once(name, "instrument", Refusal(message, "write a monotonic sum", "instrument"))
        if isinstance(unit, str) and unit and len(self._stated) < _MOST_STATED:
            before = self._stated.setdefault(name, unit)
            if before != unit:
                message = f"{name} is in {unit[:40]!r} here, and in {before[:40]!r} above"
                yield from self._once(name, "unit", Refusal(message, f"write it in {known.unit} everywhere", "unit"))

    def _once(self, name: str, what: str, refusal: Refusal) -> Iterator[Refusal]:
        if (name, what) not in self._told and len(self._told) < _MOST_STATED:
            self._told.add((name, what))
            yield refusal

    def _factor(self, offset: int, name: str, known: Metric | None, unit: Any) -> float | None:
        """What a value is to be multiplied by; None where its unit does not convert."""
        if known is None:
            return 1.0
        if not unit:
            self._transcript.lose("unit", name, f"{name} states no unit; {known.unit} is taken", offset)
            return 1.0
        found = catalog().units.get(unit) if isinstance(unit, str) else None
        if found is None or found.base != known.unit:
            return None
        if found.unit != known.unit:
            self._transcript.lose(
                "meaning", name, f"{name} is in {found.unit}; it is converted to {known.unit}", offset
            )
        return found.factor

    def _point(
        self,
        offset: int,
        owner: Owner,
        named: _Named,
        point: Mapping[str, Any],
        groups: _Groups,
    ) -> Refusal | None:
        time_us = unix_us(point.get("timeUnixNano"))
        if time_us is None:
            return Refusal(f"a point of {named.name} has no time", "timeUnixNano since 1970", "time")
        attributes = plain_attributes(point.get("attributes"))
        place, series = self._place(offset, named, attributes)
        start_us = unix_us(point.get("startTimeUnixNano")) if named.kind == "sum" else None
        flags = point.get("flags")
        if isinstance(flags, int) and flags & 1:
            key = keys.join(named.name, series)
            if named.known and keys.fits(key):
                groups.at(time_us, start_us, place, ()).empty.append(key)
            return None
        values: dict[str, MetricValue] = {}
        problem = self._values(offset, (owner, place), named, series, point, values)
        if not problem and values:
            groups.at(time_us, start_us, place, values).values.update(values)
        return problem

    def _place(self, offset: int, named: _Named, attributes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """The coordinates of a point, and its series attributes; what is neither is lost."""
        device = first(attributes, ("hw.id",))
        rank, host = fit.rank(attributes.get("train.rank.id")), first(attributes, ("host.id",))
        step = next((found for name in _STEPS if (found := fit.step(attributes.get(name))) is not None), None)
        place = {"step": step, "rank": rank, "host": host, "device": device}
        place = {name: value for name, value in place.items() if value is not None}
        known = {*named.known.attributes, *named.known.optional_attributes} if named.known else set()
        series: dict[str, str] = {}
        for name, value in attributes.items():
            if name in known - {"hw.id", "host.id"}:
                series[name] = keys.attribute_text(value)
            elif name not in {"hw.id", "host.id", "train.rank.id", *_STEPS} and named.known:
                message = f"{name} is no attribute of {named.name} in the catalog"
                self._transcript.lose("attribute", name, message, offset)
        return place, series

    def _values(  # noqa: PLR0913, PLR0917 - a point within all that surrounds it
        self,
        offset: int,
        whose: tuple[Owner, Mapping[str, Any]],
        named: _Named,
        series: Mapping[str, str],
        point: Mapping[str, Any],
        into: dict[str, MetricValue],
    ) -> Refusal | None:
        found = self._number(offset, named, point)
        if isinstance(found, Refusal):
            return found
        if named.known is None:
            if isinstance(found, HistogramValue):
                self._transcript.lose("unknown-name", named.name, f"{named.name}: no histogram of the catalog", offset)
            elif found is not None:
                self._names.take(named.name, found, offset, into)
            return None
        key = keys.join(named.name, series)
        if found is None or not keys.fits(key):
            self._transcript.lose("value", named.name, f"{named.name} has points that do not convert", offset)
            return None
        scaled = _scaled(found, named.factor)
        owned = (whose[0], tuple((n, v) for n, v in whose[1].items() if n != "step"), key)
        into[key] = self._totals.settle(owned, scaled, named.content, named.known)
        return self._totals.contradiction(owned, named.name)

    def _number(self, offset: int, named: _Named, point: Mapping[str, Any]) -> MetricValue | Refusal | None:
        if named.kind == "histogram":
            return _explicit(point)
        if named.kind == "exponentialHistogram":
            return _exponential(point)
        if named.kind == "summary":
            self._transcript.lose("unknown-name", named.name, "summaries have no place in the catalog", offset)
            return None
        if "asDouble" in point and "asInt" in point:
            return Refusal(f"a point of {named.name} has asDouble and asInt", "one of them", "value")
        value = double(point["asDouble"]) if "asDouble" in point else fit.number(point.get("asInt"))
        if value is not None and "asDouble" not in point and not _is_integer(value):
            shown = str(point["asInt"])[:40]
            return Refusal(f"a point of {named.name} has asInt {shown}, which is no integer of 64 bits", "", "value")
        if value is None:
            return Refusal(f"a point of {named.name} has no number", "asDouble, or asInt as a text", "value")
        return value  # type: ignore[return-value]


def _is_integer(value: object) -> bool:
    """Whether a number is one of `asInt`, also where it is written with a point or an exponent."""
    return isinstance(value, float) and value.is_integer() and abs(value) <= 2**63


@dataclass(frozen=True, slots=True)
class _Named:
    """A metric as a file has it, beside its points."""

    name: str
    known: Metric | None
    factor: float
    kind: str
    content: Mapping[str, Any]


def _instrument(kind: str, content: Mapping[str, Any]) -> str:
    """The instrument that the data of a metric are of."""
    if kind == "sum":
        return "counter" if content.get("isMonotonic") is True else "updowncounter"
    return "histogram" if kind in {"histogram", "exponentialHistogram"} else "gauge"


def _scaled(value: MetricValue, factor: float) -> MetricValue:
    if factor == 1 or isinstance(value, str):
        return value
    if not isinstance(value, HistogramValue):
        return fit.told(value * factor)  # type: ignore[return-value]
    low, high = (None if end is None else end * factor for end in (value.min, value.max))
    bounds = tuple(bound * factor for bound in value.bounds)
    return HistogramValue(
        count=value.count, sum=value.sum * factor, min=low, max=high, bounds=bounds, counts=value.counts
    )


class _Totals:
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


def _explicit(point: Mapping[str, Any]) -> HistogramValue | Refusal:
    """A histogram with explicit bounds."""
    bounds = _floats(point.get("explicitBounds"))
    counts = _counts(point.get("bucketCounts"))
    if bounds is None or counts is None or (counts and len(counts) != len(bounds) + 1):
        return _UNFIT
    return _histogram(point, bounds if counts else (), counts)


def _exponential(point: Mapping[str, Any]) -> HistogramValue | Refusal:
    """A histogram whose bounds are powers of a base, with the bounds spelt out; those below zero come first.

    Source: opentelemetry-specification, metrics/data-model.md: bucket i holds values in (base**i, base**(i + 1)].
    """
    scale = point.get("scale", 0)
    if not isinstance(scale, int) or abs(scale) > _MAX_SCALE:
        return _UNFIT
    positive, negative = _buckets(point.get("positive")), _buckets(point.get("negative"))
    zero = fit.whole(point.get("zeroCount", 0), _MAX_COUNT)
    if zero is None or positive is None or negative is None:
        return _UNFIT
    (up, above), (down, below) = positive, negative
    try:
        right = [_power(up + number, scale) for number in range(len(above) + 1)] if above else []
        left = [-_power(down + number, scale) for number in range(len(below) + 1)] if below else []
    except OverflowError:
        return _UNFIT
    bounds = (*reversed(left), *right)
    lowest = (0, *reversed(below)) if below else ()
    counts = (*lowest, zero, *((*above, 0) if above else ()))
    return _histogram(point, bounds, counts) if _is_rising(bounds) else _UNFIT


def _power(index: int, scale: int) -> float:
    return float(2.0 ** (index * 2.0**-scale))


def _buckets(content: Any) -> tuple[int, tuple[int, ...]] | None:
    content = content if isinstance(content, dict) else {}
    offset, counts = content.get("offset", 0), _counts(content.get("bucketCounts"))
    return (offset, counts) if isinstance(offset, int) and abs(offset) < 2**31 and counts is not None else None


def _histogram(
    point: Mapping[str, Any], bounds: tuple[float, ...], counts: tuple[int, ...]
) -> HistogramValue | Refusal:
    count = fit.whole(point.get("count"), _MAX_COUNT)
    total = fit.number(point.get("sum", 0.0))
    if count is None or not isinstance(total, float):
        return _UNFIT
    low, high = (value if isinstance(value, float) else None for value in (_end(point, "min"), _end(point, "max")))
    return HistogramValue(count=count, sum=total, min=low, max=high, bounds=bounds, counts=counts)


def _end(point: Mapping[str, Any], name: str) -> fit.Number | None:
    return fit.number(point[name]) if name in point else None


def _counts(content: Any) -> tuple[int, ...] | None:
    if content is None:
        return ()
    if not isinstance(content, list) or len(content) > _MAX_BUCKETS:
        return None
    found = [fit.whole(count, _MAX_COUNT) for count in content]
    return None if None in found else tuple(count for count in found if count is not None)


def _floats(content: Any) -> tuple[float, ...] | None:
    if content is None:
        return ()
    if not isinstance(content, list) or len(content) > _MAX_BUCKETS:
        return None
    found = tuple(value for item in content if isinstance(value := fit.number(item), float) and math.isfinite(value))
    return found if len(found) == len(content) and _is_rising(found) else None


def _is_rising(bounds: tuple[float, ...]) -> bool:
    return all(low < high for low, high in pairwise(bounds))
