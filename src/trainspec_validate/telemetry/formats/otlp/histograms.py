"""Turns histograms of OTLP into histograms of records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from trainspec_validate.documents.types.stream import HistogramValue
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Refusal

_MAX_COUNT = 2**64 - 1
_MAX_BUCKETS = 10_000
_MAX_SCALE = 20
_UNFIT = Refusal("a histogram has counts or bounds that do not fit together", "one count more than bounds", "value")


def explicit(point: Mapping[str, Any]) -> HistogramValue | Refusal:
    """A histogram with explicit bounds."""
    bounds = _floats(point.get("explicitBounds"))
    counts = _counts(point.get("bucketCounts"))
    if bounds is None or counts is None or (counts and len(counts) != len(bounds) + 1):
        return _UNFIT
    return _histogram(point, bounds if counts else (), counts)


def exponential(point: Mapping[str, Any]) -> HistogramValue | Refusal:
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
