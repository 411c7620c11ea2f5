"""Turns the values of a caller into values that a record can hold."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from trainspec_record.catalog import METRICS
from trainspec_record.guard import tell_once

MAX_TEXT = 4000
MAX_NAME = 256
MAX_KEY = 512
MAX_LIST = 10_000
MOST_STEP = 999_000_000_000
"""Optimizer steps that a script can begin with; the schema of records leaves room to count on from there."""
EXACT = 2**53
"""Whole numbers up to here are exact in every reader of JSON."""
_NOT_FINITE = {math.inf: "+Inf", -math.inf: "-Inf"}
_KEY = re.compile(r"[a-z][a-z0-9_.]*(\{[^{}\x00-\x1f]+\})?")
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def line(record: Mapping[str, Any]) -> bytes:
    """A record as one line of a stream, with its end.

    Raises:
        ValueError: a number is not finite.
    """
    return _encode(record).encode("ascii") + b"\n"


def number(value: Any) -> float | None:
    """A plain number; None for what is none, or could only be read by waiting for a device."""
    if type(value) is float or (type(value) is int and -EXACT <= value <= EXACT):
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral):
        whole = value = int(value)
        if -EXACT <= whole <= EXACT:
            return whole
    try:
        return float(value)
    except OverflowError:  # beyond the largest number of a record, to which it is rounded as any other
        return math.inf if value > 0 else -math.inf


def step(value: Any) -> int | None:
    """A number of completed steps; None, and reported, for what no record can hold.

    >>> step(7), step(7.0), step(-1)
    (7, 7, 0)
    """
    if value is None:
        return None
    found = int(value)
    if found > MOST_STEP:
        tell_once(f"{found:,} is no number of steps; {MOST_STEP:,} at most")
        return None
    return max(0, found)


def synchronised(value: Any) -> Any:
    """A number out of a tensor, for which the device may have to be waited for; other values as they are."""
    item = getattr(value, "item", None)
    return item() if callable(item) else value


def text(value: Any, longest: int = MAX_TEXT) -> str:
    """Text that every reader takes: no half of a surrogate pair, and not too long."""
    return str(value).encode("utf-8", "replace").decode("utf-8")[:longest]


def name(value: Any, otherwise: str = "unknown") -> str:
    """An identifier, without control characters."""
    kept = "".join(each for each in text(value, MAX_NAME) if each >= " " and each != "\x7f")
    return kept or otherwise


def attribute(value: Any) -> Any:
    """A value of an attribute: plain, or a list of plain ones; text for everything else."""
    if isinstance(value, bool):
        return value
    plain = number(value)
    if plain is not None:
        return plain if math.isfinite(plain) else _not_finite(plain)
    if isinstance(value, list | tuple | set | frozenset | range):
        ordered = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [_entry(each) for each in ordered[:MAX_LIST]]
    return text(value)


def _entry(value: Any) -> int | float | str:
    plain = number(value)
    if plain is None:
        return text(value)
    return plain if math.isfinite(plain) else _not_finite(plain)


def attributes(values: Mapping[Any, Any]) -> dict[str, Any]:
    """Attributes under names that the schema takes; others are left out with a word."""
    return {key: attribute(value) for key, value in values.items() if value is not None and is_plain_name(key)}


def is_key(key: Any) -> bool:
    """Whether the schema takes the key of a series: the name of a metric, with or without attributes in braces."""
    if isinstance(key, str) and len(key) <= MAX_KEY and _KEY.fullmatch(key):
        return True
    tell_once(f"{key!r} is no name of a metric, with or without attributes in braces")
    return False


def is_plain_name(key: Any) -> bool:
    """Whether the schema takes the name of an event or of an attribute."""
    fine = isinstance(key, str) and 0 < len(key) <= MAX_NAME and key[0] in "abcdefghijklmnopqrstuvwxyz"
    if fine and set(key) <= set("abcdefghijklmnopqrstuvwxyz0123456789_."):
        return True
    tell_once(f"{key!r} is no name of the catalog: write lower-case words with dots")
    return False


class Histogram(dict[str, Any]):
    """A histogram, which only the recorder makes."""


def metrics(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Values of metrics by their keys, and the keys that gave no value."""
    kept: dict[str, Any] = {}
    refused: list[str] = []
    for key, value in values.items():
        if isinstance(value, Histogram):
            kept[key] = value
            continue
        plain = number(value)
        if plain is not None and not math.isfinite(plain):
            metric = METRICS.get(key.partition("{")[0])
            plain = _not_finite(plain) if metric is None or metric.nonfinite else None  # type: ignore[assignment]
        if plain is None:
            refused.append(key)
        else:
            kept[key] = plain
    return kept, refused


def _not_finite(value: float) -> str:
    return _NOT_FINITE.get(value, "NaN")


def once(seconds: float) -> Histogram:
    """A histogram of one value."""
    return Histogram(count=1, sum=seconds, min=seconds, max=seconds)


def histogram(values: Iterable[float], bounds: tuple[float, ...]) -> Histogram:
    """A histogram of the values of one window, with the upper bounds of its buckets."""
    found = sorted(values)
    counts = [0] * (len(bounds) + 1)
    for value in found:
        counts[sum(bound < value for bound in bounds)] += 1
    ends = {"min": found[0], "max": found[-1]} if found else {}
    return Histogram(count=len(found), sum=math.fsum(found), **ends, bounds=list(bounds), counts=counts)


def key(metric: str, **series: str) -> str:
    """The key of a series: attributes in the order of the alphabet, with `__` for the dot.

    >>> key("train.loss.mean", train__loss__name="total")
    'train.loss.mean{train.loss.name=total}'
    """
    pairs = sorted((attribute.replace("__", "."), _label(value)) for attribute, value in series.items())
    return f"{metric}{{{','.join(f'{attribute}={value}' for attribute, value in pairs)}}}"


def _label(value: str) -> str:
    return "".join("_" if each in "{},=" or each < " " else each for each in text(value, MAX_NAME)) or "_"
