"""Writes the values of a run page: moments, times, quantities, counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import isfinite

from trainspec_validate.telemetry.view.run_view import Subject

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = 9_007_199_254_740_991
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_TIMES = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))
_SMALL_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def moment(time_us: int) -> datetime:
    """A time in microseconds since 1970 UTC; times that no stream can hold become the nearest that it can."""
    return _EPOCH + timedelta(microseconds=min(max(time_us, 0), _LAST))


def utc(time_us: int) -> str:
    """`2026-03-01 12:34:56`, of which the page says once that it is UTC.

    >>> utc(1_772_368_496_000_000)
    '2026-03-01 12:34:56'
    """
    return moment(time_us).strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float) -> str:
    """A time with its two largest units, or three digits of a short one.

    >>> duration(93_784), duration(95.4), duration(0.0123)
    ('1 d 2 h', '1 min 35 s', '12.3 ms')
    """
    if abs(seconds) < 60:
        for factor, unit in _SMALL_TIMES:
            if abs(seconds) >= factor:
                return f"{seconds / factor:.3g} {unit}"
        return "0 s" if seconds == 0 else f"{seconds:.3g} s"
    units = (*_TIMES, (1.0, "s"))
    place = next(number for number, (factor, _) in enumerate(_TIMES) if abs(seconds) >= factor)
    (large, name), (small, small_name) = units[place], units[place + 1]
    whole, rest = divmod(round(seconds / small), round(large / small))
    return f"{whole:,} {name} {rest} {small_name}" if rest else f"{whole:,} {name}"


def number(value: float) -> str:
    """At most four significant digits, whole numbers in full.

    >>> number(16384), number(262312.7), number(0.123456), number(float("inf"))
    ('16,384', '262,300', '0.1235', 'not finite')
    """
    if not isfinite(value):
        return "not finite"
    if abs(value) < 1e12 and (float(value).is_integer() or abs(value) >= 1e4):
        rounded = value if float(value).is_integer() else float(f"{value:.4g}")
        return f"{rounded:,.0f}"
    return f"{value:,.4g}"


def prefixed(value: float, unit: str) -> str:
    """A value with a decimal prefix.

    >>> prefixed(79_600_000_000, "B")
    '79.6 GB'
    """
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def tokens(value: float) -> str:
    """Tokens, as people say them.

    >>> tokens(15_600_000_000_000), tokens(12_000)
    ('15.6 trillion', '12,000')
    """
    for factor, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= factor:
            return f"{value / factor:.4g} {name}"
    return number(value)


def percent(share: float) -> str:
    """A share in per cent, with a digit behind the point where it helps.

    >>> percent(0.4961), percent(1.0), percent(0.00012)
    ('49.6 %', '100 %', '0.012 %')
    """
    value = share * 100
    if value == 0 or abs(value) >= 99.95:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if abs(value) >= 1 else f"{value:.2g} %"


def count(num: int, noun: str) -> str:
    """A number of things.

    >>> count(1, "value"), count(1200, "value"), count(2, "entry")
    ('1 value', '1,200 values', '2 entries')
    """
    if num == 1:
        return f"1 {noun}"
    return f"{num:,} {noun[:-1]}ies" if noun.endswith("ry") else f"{num:,} {noun}s"


def joined(words: list[str], word: str = "and") -> str:
    """The words as a list in a sentence."""
    return f" {word} ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def whose(subject: Subject) -> str:
    """A subject as people name it."""
    parts = [f"rank {subject.rank:,}"] if subject.rank is not None else []
    parts += [f"{'' if parts else 'device '}{subject.device}"] if subject.device is not None else []
    parts += [f"{'on ' if parts else 'host '}{subject.host}"] if subject.host is not None else []
    return " ".join(parts) or "the run"
