"""Turns foreign values into ones that a record can hold; None where they do not fit."""

from __future__ import annotations

import math
import re
from typing import Any

from trainspec_validate.system.digits import is_digits
from trainspec_validate.telemetry.formats.printed_numbers import parse

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_TIME_US = 9_007_199_254_740_991
_MAX_STEP = 999_999_999_999
_MAX_SEQUENCE = 999_999_999_999_999
_MAX_RANK = 99_999_999
_MAX_IDENTITY = 256
_MAX_NUMBER_TEXT = 400

Number = float | str
"""A finite number, or "NaN", "+Inf" or "-Inf"."""


def number(value: Any) -> Number | None:
    """A value of a metric.

    >>> number(3), number("2.5e1"), number(float("nan")), number("-nan"), number("-inf"), number(True), number("null")
    (3.0, 25.0, 'NaN', 'NaN', '-Inf', None, None)
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        found = parse(value)
        return None if found is None else told(found)
    if not isinstance(value, int | float):
        return None
    try:
        return told(float(value))
    except OverflowError:
        return None


def told(value: float) -> Number:
    """The number, or the text that represents it where it is not finite."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def whole(value: Any, maximum: int) -> int | None:
    """A whole number from 0 to a maximum; a float and a text are taken where they are whole."""
    if isinstance(value, str) and len(value) <= _MAX_NUMBER_TEXT and is_digits(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if 0 <= value <= maximum else None


def time_us(value: Any) -> int | None:
    """Microseconds since 1970 UTC."""
    return whole(value, _MAX_TIME_US)


def step(value: Any) -> int | None:
    """Optimizer steps completed."""
    return whole(value, _MAX_STEP)


def sequence(value: Any) -> int | None:
    """Sequence number."""
    return whole(value, _MAX_SEQUENCE)


def rank(value: Any) -> int | None:
    """Rank of a process."""
    return whole(value, _MAX_RANK)


def attempt(value: Any) -> int | None:
    """Attempt of a run."""
    return whole(value, 1_000_000)


def identity(value: Any) -> str | None:
    """Name of a run, emitter, host or device, in 256 characters and without control characters."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return None
    return _CONTROL.sub("_", value.encode("utf-8", "replace").decode())[:_MAX_IDENTITY] or None
