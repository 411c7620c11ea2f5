"""Reads metrics of OTLP that other programs write, by the catalog and its aliases."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.documents.types.stream import HistogramValue, MetricValue
from trainspec_validate.model.metrics import Metric, by_name, catalog
from trainspec_validate.telemetry.formats import fit, keys
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.names import Names
from trainspec_validate.telemetry.formats.otlp.histograms import explicit, exponential
from trainspec_validate.telemetry.formats.otlp.owner import Owner, first
from trainspec_validate.telemetry.formats.otlp.totals import Totals
from trainspec_validate.telemetry.formats.otlp.values import double, objects, plain_attributes, unix_us
from trainspec_validate.telemetry.formats.transcript import Transcript

ECOSYSTEMS = ("opentelemetry", "megatron-otel", "dcgm", "amd", "node-exporter", "nccl")
"""Programs whose names are met in OTLP and in expositions."""
_KINDS = ("gauge", "sum", "histogram", "exponentialHistogram", "summary")
_STEPS = ("train.step", "step", "global_step", "iteration")
_DELTA = 1
_MOST_STATED = 10_000


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
        self._totals = Totals(transcript)
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
            return explicit(point)
        if named.kind == "exponentialHistogram":
            return exponential(point)
        if named.kind == "summary":
            self._transcript.lose("unknown-name", named.name, "summaries have no place in the catalog", offset)
            return None
        if "asDouble" in point and "asInt" in point:
            return Refusal(f"a point of {named.name} has asDouble and asInt", "one of them", "value")
        value = double(point["asDouble"]) if "asDouble" in point else fit.number(point.get("asInt"))
        if value is None:
            return Refusal(f"a point of {named.name} has no number", "asDouble, or asInt as a text", "value")
        return value  # type: ignore[return-value]


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
