"""Lays values out on an axis: nice ticks, logarithms, times of the day, units with prefixes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from trainspec_validate.report.run_page import words

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_TIME_STEPS = (
    *(1, 2, 5, 10, 20, 30),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 20 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY, 90 * _DAY, 365 * _DAY, 10 * 365 * _DAY, 50 * 365 * _DAY),
)
_TINY, _HUGE = 1e-100, 1e100
_TIME_UNITS = ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "d"))
_PREFIXES = (
    (1e-6, "µ"),
    (1e-3, "m"),
    (1.0, ""),
    (1e3, "k"),
    (1e6, "M"),
    (1e9, "G"),
    (1e12, "T"),
    (1e15, "P"),
    (1e18, "E"),
)


@dataclass(frozen=True, slots=True)
class Axis:
    """From the lowest to the highest value; logarithmic where it says so, and then above 0."""

    low: float
    high: float
    log: bool = False
    whole: bool = False
    """Whether ticks between whole numbers would mean nothing."""

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high end; values outside are put at the end."""
        if self.log:
            value = log10(max(value, self.low))
            low, high = log10(self.low), log10(self.high)
        else:
            low, high = self.low, self.high
        return min(max((value - low) / (high - low), 0.0), 1.0)

    def ticks(self) -> list[float]:
        """Round values between the ends."""
        return _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high, self.whole)


def axis(low: float, high: float, *, from_zero: bool = False, log: bool = False, whole: bool = False) -> Axis:
    """An axis that holds both ends, with round ends of its own; `whole` for values that have no fractions."""
    low, high = _drawable(low), _drawable(high)
    if log and low > 0 and high > low * 30:
        return Axis(10 ** floor(log10(low)), 10 ** ceil(log10(high)), log=True)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= abs(high) * 1e-9:
        margin = abs(high) * 0.1 or 1.0
        low, high = (low if from_zero and low == 0 else low - margin), high + margin
    step = max(_nice((high - low) / 4), 1.0 if whole else 0.0)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return Axis(first * step, max(last, first + 1) * step, whole=whole)


def _drawable(value: float) -> float:
    """The value, or the nearest that arithmetic with floats keeps apart from 0 and from infinity."""
    return 0.0 if abs(value) < _TINY else min(max(value, -_HUGE), _HUGE)


def _nice(raw: float) -> float:
    power = 10.0 ** floor(log10(raw))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))


def _even_ticks(low: float, high: float, whole: bool) -> list[float]:
    step = max(_nice((high - low) / 5), 1.0 if whole else 0.0)
    first = ceil(low / step - 1e-9)
    return [number * step for number in range(first, floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = round(log10(low)), round(log10(high))
    stride = max(1, ceil((last - first) / 5))
    return [10.0**power for power in range(first, last + 1, stride)]


# --- units --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """How values of an axis are written: divided by the factor, in this unit."""

    factor: float
    unit: str


def tick_label(value: float) -> str:
    """The label of a tick.

    >>> tick_label(80.0), tick_label(2.5e9), tick_label(0.30000000000000004)
    ('80', '2.5e+09', '0.3')
    """
    return f"{value:,.10g}" if abs(value) < 1e7 else f"{value:.3g}"


def shown(unit: str, high: float) -> Shown:
    """How an axis that goes up to a value writes a unit of the catalog."""
    high = high if isfinite(high) else 1.0
    if unit == "%":
        return Shown(0.01, "%")
    if unit == "s":
        factor, name = next((pair for pair in reversed(_TIME_UNITS) if high >= 2 * pair[0]), _TIME_UNITS[0])
        return Shown(factor, name)
    if unit in {"By", "W", "J"}:
        factor, prefix = next((pair for pair in reversed(_PREFIXES) if high >= pair[0]), (1.0, ""))
        return Shown(factor, f"{prefix}{'B' if unit == 'By' else unit}")
    if unit == "token/s":
        factor, prefix = next((pair for pair in reversed(_PREFIXES[2:]) if high >= pair[0]), (1.0, ""))
        return Shown(factor, f"{prefix} tokens/s".strip())
    return Shown(1.0, unit)


# --- time ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimeTick:
    """A moment of the time axis, and what is written below it."""

    time_us: int
    label: str


def time_ticks(first_us: int, last_us: int, most: int = 8) -> list[TimeTick]:
    """Round moments; the day is written at the first one and where it changes."""
    seconds = max((last_us - first_us) / 1e6, 1.0)
    step = next((step for step in _TIME_STEPS if seconds / step <= most), _TIME_STEPS[-1])
    start = -(-first_us // (step * 1_000_000)) * step
    found, day = [], ""
    for time in range(start, last_us // 1_000_000 + 1, step):
        at = words.moment(time * 1_000_000)
        today = at.strftime("%Y-%m-%d")
        clock = "" if step >= _DAY else at.strftime("%H:%M:%S" if step < _MINUTE else "%H:%M")
        label = clock if clock and today == day else f"{today[5:] if day[:4] == today[:4] else today} {clock}".strip()
        found.append(TimeTick(time * 1_000_000, label))
        day = today
    return found
