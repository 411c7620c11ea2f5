"""Reads back the records that `write` wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainspec_validate.model.metrics import by_name
from trainspec_validate.system.digits import is_digits
from trainspec_validate.telemetry.formats import keys
from trainspec_validate.telemetry.formats.items import Found, Record, Refusal
from trainspec_validate.telemetry.formats.native import read_line, record_from
from trainspec_validate.telemetry.formats.otlp.values import (
    COORDINATES,
    CUMULATIVE,
    DELTA,
    OWN,
    double,
    objects,
    plain_attributes,
    temporality,
    unix_us,
)
from trainspec_validate.telemetry.formats.otlp.write import RAW

_INDEX = f"{OWN}head.index"
_KINDS = ("gauge", "sum", "histogram")


def is_own(resource: Mapping[str, Any]) -> bool:
    """Whether the attributes of a resource are those of a head."""
    return _INDEX in resource


def index_of(resource: Mapping[str, Any]) -> Any:
    """Number of the head in its file, which distinguishes heads."""
    return resource[_INDEX]


def head_of(resource: Mapping[str, Any]) -> Record | Refusal:
    """The head that became the attributes of a resource."""
    text = resource.get(f"{OWN}head.json")
    if isinstance(text, str):
        return read_line(text.strip().encode("utf-8", "surrogatepass"))
    fields = {name: resource[attribute] for name, attribute in COORDINATES.items() if attribute in resource}
    start = f"{OWN}head."
    fields |= {name.removeprefix(start): value for name, value in resource.items() if name.startswith(start)}
    del fields["index"]
    return record_from({"k": "head", "apiVersion": "trainspec/v1", "kind": "MetricStream", **fields})


class Samples:
    """Reads samples back; their points follow each other, also from one line to the next."""

    def __init__(self) -> None:
        self._group: dict[str, Any] | None = None
        self._around: tuple[Any, ...] = ()
        self._offset = 0

    def take(self, offset: int, metrics: Any) -> Iterator[Found]:
        """The samples that the metrics of one scope complete."""
        for metric in objects(metrics):
            content: dict[str, Any] = next((metric[kind] for kind in _KINDS if isinstance(metric.get(kind), dict)), {})
            problem = _changed(metric)
            if problem:
                yield offset, problem
            for point in objects(content.get("dataPoints")):
                plain = plain_attributes(point.get("attributes"))
                coordinates = {name: plain.pop(key) for name, key in COORDINATES.items() if key in plain}
                key = plain.pop(f"{OWN}key", None) or keys.join(str(metric.get("name")), plain)
                around = (coordinates, point.get("timeUnixNano"))
                yield from self._point(offset, key, around, point, is_taken=not problem)

    def _point(
        self, offset: int, key: str, around: tuple[Any, ...], point: Mapping[str, Any], *, is_taken: bool
    ) -> Iterator[Found]:
        """Add a point to its sample, without its value where that is not to be taken."""
        filtered = next((e.get("filteredAttributes") for e in objects(point.get("exemplars"))), None)
        if filtered is not None:
            yield from self.flush()
            self._group = _sample(around[0], plain_attributes(filtered), point)
            self._around, self._offset = around, offset
        elif self._group is None or around != self._around:
            message = "a point has lost the exemplar with its sequence number, or the points before it"
            yield offset, Refusal(message, "keep exemplars, and the order of points", "sequence")
            return
        if point.get("flags") == 1:
            self._group["nr"].append(key)
        elif "asDouble" in point and "asInt" in point:
            yield offset, Refusal(f"a point of {key[:80]} has asDouble and asInt", "one of them", "value")
        elif is_taken:
            self._group["m"][key] = _value(point)

    def flush(self) -> Iterator[Found]:
        """The sample whose points are over."""
        if self._group is not None:
            yield self._offset, record_from(self._group)
        self._group = None


def _changed(metric: Mapping[str, Any]) -> Refusal | None:
    """What was done to a metric on its way, so that its values are not those that were written; None for nothing."""
    name, unit = str(metric.get("name")), metric.get("unit")
    known = by_name(name)
    if known and unit and unit != known.unit:
        message = f"{name} is in {str(unit)[:40]!r}; a stream that was written as OTLP has it in {known.unit!r}"
        return Refusal(message, "leave units as they were written", "unit")
    is_counter = known is not None and known.instrument == "counter" and "counter" not in known.also
    if is_counter and isinstance(metric.get("sum"), dict) and metric["sum"].get("isMonotonic") is not True:
        return Refusal(f"{name} is a counter, and its sum is not monotonic", "leave sums as they were", "instrument")
    for kind, wanted, words in (("sum", CUMULATIVE, "from a start"), ("histogram", DELTA, "of one window")):
        content = metric.get(kind)
        if isinstance(content, dict) and temporality(content) not in {0, wanted}:
            message = f"{name[:80]} does not count {words} any more (aggregationTemporality)"
            return Refusal(message, "leave the temporality as it was written", "value")
    return None


def _sample(coordinates: dict[str, Any], filtered: dict[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    own = {name.removeprefix(OWN): value for name, value in filtered.items() if name.startswith(OWN)}
    attributes = {name: value for name, value in filtered.items() if not name.startswith(OWN)}
    fields: dict[str, Any] = {"k": "m", "time_us": _time(point), "m": {}, "nr": [], "a": attributes}
    return fields | coordinates | own


def _time(entry: Mapping[str, Any]) -> int | None:
    return 0 if entry.get("timeUnixNano") == "0" else unix_us(entry.get("timeUnixNano"))


def _value(point: Mapping[str, Any]) -> Any:
    if "asDouble" in point:
        return double(point["asDouble"])
    counts = [_count(count) for count in point.get("bucketCounts") or ()]
    ends = {name: point[name] for name in ("min", "max") if name in point}
    bounds = point.get("explicitBounds") or []
    return {"count": _count(point.get("count")), "sum": point.get("sum"), "bounds": bounds, "counts": counts} | ends


def _count(content: Any) -> Any:
    return int(content) if isinstance(content, str) and is_digits(content) and len(content) <= 20 else content


def event_of(entry: Mapping[str, Any]) -> Record | Refusal:
    """The event, or whole record, that became a log record."""
    if entry.get("eventName") == RAW:
        body = entry.get("body")
        text = body.get("stringValue") if isinstance(body, dict) else None
        return (
            read_line(text.strip().encode("utf-8", "surrogatepass"))
            if isinstance(text, str)
            else Refusal("a record without text", "", "value")
        )
    plain = plain_attributes(entry.get("attributes"))
    own = {name.removeprefix(OWN): value for name, value in plain.items() if name.startswith(OWN)}
    rest = {name: value for name, value in plain.items() if not name.startswith(OWN)}
    fields: dict[str, Any] = {"k": "e", "time_us": _time(entry), "name": entry.get("eventName")}
    if not own.pop("clash", False):
        fields |= {name: rest.pop(key) for name, key in COORDINATES.items() if key in rest}
    if "observedTimeUnixNano" in entry:
        observed = entry["observedTimeUnixNano"]
        fields["observed_us"] = 0 if observed == "0" else unix_us(observed)
    return record_from(fields | {"a": rest} | own)
