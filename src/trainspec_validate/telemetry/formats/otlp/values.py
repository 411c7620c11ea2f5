"""Turns plain values into values of OTLP/JSON and back, and names the coordinates there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from trainspec_validate.system.digits import is_digits
from trainspec_validate.telemetry.formats import fit

COORDINATES = {
    "run": "train.run.id",
    "att": "train.run.attempt",
    "emitter": "service.instance.id",
    "rank": "train.rank.id",
    "host": "host.id",
    "device": "hw.id",
}
"""Fields of records that say whose values they are, and the attribute of each."""
OWN = "trainspec."
"""Start of the attributes that make the recovery path exact; see `write`."""
SCOPE = "org.trainspec"
"""Name of the instrumentation scope of what `write` writes."""
DELTA, CUMULATIVE = 1, 2
_TEMPORALITIES: Mapping[int | str, int] = {
    DELTA: DELTA,
    CUMULATIVE: CUMULATIVE,
    "AGGREGATION_TEMPORALITY_DELTA": DELTA,
    "AGGREGATION_TEMPORALITY_CUMULATIVE": CUMULATIVE,
}
_MAX_INT64 = 2**63 - 1
_TEXTS = {"NaN": "NaN", "+Inf": "Infinity", "-Inf": "-Infinity"}


class Unwritable(ValueError):  # noqa: N818 - an answer, not an error
    """A value that OTLP cannot hold: a whole number of more than 64 bits, or a number that is not finite."""


def any_value(value: Any) -> dict[str, Any]:
    """The value as OTLP writes it; None is a value without content.

    Raises:
        Unwritable: it cannot be written so that it can be read back.

    >>> any_value([1, 2.0, {"a": None}])["arrayValue"]["values"][0]
    {'intValue': '1'}
    """
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        if abs(value) > _MAX_INT64:
            raise Unwritable(str(value))
        return {"intValue": str(value)}
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unwritable(str(value))
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": attributes(value)}}
    return {"arrayValue": {"values": [any_value(item) for item in value]}}


def attributes(pairs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Named values as OTLP writes them."""
    return [{"key": key, "value": any_value(value)} for key, value in pairs.items()]


def plain_value(value: Any) -> Any:
    """The plain value of one of OTLP; what has no known content is None."""
    if not isinstance(value, dict):
        return None
    for kind, content in value.items():
        if kind in {"stringValue", "boolValue"}:
            return content
        if kind == "intValue":
            return _integer(content)
        if kind == "doubleValue":
            return double(content)
        if kind == "arrayValue":
            return [plain_value(item) for item in _values(content)]
        if kind == "kvlistValue":
            return plain_attributes(_values(content))
    return None


def _values(content: Any) -> list[Any]:
    values = content.get("values", []) if isinstance(content, dict) else []
    return values if isinstance(values, list) else []


def plain_attributes(pairs: Any) -> dict[str, Any]:
    """Named values of OTLP as plain ones; what has no key is left out."""
    if not isinstance(pairs, list):
        return {}
    found = (pair for pair in pairs if isinstance(pair, dict) and isinstance(pair.get("key"), str))
    return {pair["key"]: plain_value(pair.get("value")) for pair in found}


def _integer(content: Any) -> int | None:
    """A whole number of 64 bits, which JSON has as a text."""
    if isinstance(content, str) and len(content) <= 20 and is_digits(content.removeprefix("-")):
        content = int(content)
    return content if isinstance(content, int) and not isinstance(content, bool) else None


def double(content: Any) -> fit.Number | None:
    """A double, which JSON has as a text where it is not finite; records have texts for those."""
    if isinstance(content, str):
        return next((told for told, written in _TEXTS.items() if written == content), None)
    return fit.number(content)


def written_double(value: fit.Number) -> float | str:
    """A number as JSON of OTLP has it."""
    return _TEXTS[value] if isinstance(value, str) else value


def temporality(content: Mapping[str, Any]) -> int:
    """Moment that a sum or histogram counts from: 1 for its last point, 2 for a start, 0 where that is not stated.

    Source: AggregationTemporality of opentelemetry-proto, metrics/v1/metrics.proto; JSON may also name the value.
    """
    told = content.get("aggregationTemporality")
    return _TEMPORALITIES.get(told, 0) if isinstance(told, int | str) else 0


def unix_us(content: Any) -> int | None:
    """Microseconds of a time in nanoseconds since 1970, which JSON has as a text; None for 0, which means unknown."""
    nanoseconds = fit.whole(content, 2**64 - 1)
    return fit.time_us(nanoseconds // 1000) if nanoseconds else None


def objects(content: Any) -> Iterable[dict[str, Any]]:
    """The objects of a list; empty for anything else."""
    return (item for item in content if isinstance(item, dict)) if isinstance(content, list) else ()
