"""Turns base units into the words of a message: GB/s, Gb/s, TFLOP/s, GiB, days."""

from __future__ import annotations

from trainspec_validate.model.quantities import written

_DECIMAL = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BEYOND_PREFIXES = 1e21
"""From here on a number with the largest prefix is longer than one without."""
_TIME = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


_OF_ONE = {"are": "is", "were": "was", "have": "has"}


def counted(amount: int, noun: str, verb: str = "") -> str:
    """An amount with its noun, and with a verb in the plural where one follows.

    >>> counted(1, "record"), counted(8192, "process"), counted(1, "entry", "are"), counted(0, "entry", "were")
    ('1 record', '8,192 processes', '1 entry is', '0 entries were')
    """
    if amount == 1:
        return f"1 {noun} {_OF_ONE[verb]}" if verb else f"1 {noun}"
    several = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{amount:,} {several} {verb}".rstrip()


def number(value: float) -> str:
    """A number with at most six significant digits and thousands separated: 16,384 or 0.4961."""
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:,.6g}"


def base(value: float) -> str:
    """A number in base units for a remedy, as a document writes it, with six digits at most: 1800, 50e9, 0.0748636."""
    return written(value if isinstance(value, int) else float(f"{value:.6g}"))


def prefixed(value: float, unit: str) -> str:
    """A value with a decimal prefix, where one makes it short.

    >>> prefixed(989e12, "FLOP/s"), prefixed(1e26, "B")
    ('989 TFLOP/s', '1e26 B')
    """
    if abs(value) >= _BEYOND_PREFIXES:
        return f"{base(float(f'{value:.4g}'))} {unit}"
    for factor, prefix in _DECIMAL:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def flops_per_second(value: float) -> str:
    """Operations per second: 989 TFLOP/s."""
    return prefixed(value, "FLOP/s")


def flops(value: float) -> str:
    """Operations: 449.2 GFLOP."""
    return prefixed(value, "FLOP")


def bytes_(value: float) -> str:
    """Bytes in decimal units: 80 GB."""
    return prefixed(value, "B")


def bytes_per_second(value: float) -> str:
    """A rate in bytes: 50 GB/s."""
    return prefixed(value, "B/s")


def bits_per_second(value: float) -> str:
    """A rate given in bytes per second, said in bits: 50e9 is 400 Gb/s."""
    return prefixed(value * 8, "b/s")


def watts(value: float) -> str:
    """Power: 10.2 kW."""
    return prefixed(value, "W")


def seconds(value: float) -> str:
    """A time in the unit that reads best: 30 s, 6.94 d, 100 us."""
    for factor, unit in _TIME:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value:.4g} s"


def percent(value: float) -> str:
    """A fraction in per cent: 0.4961 is 49.61 %."""
    return f"{value * 100:.4g} %"


def billions(value: float) -> str:
    """A parameter count as people say it.

    >>> [billions(value) for value in (70.55e9, 13.4e6, 54_321, 3.0751)]
    ['70.55 billion', '13.4 million', '54,321', '3.0751']
    """
    if value < 1e6:
        return number(value)
    return f"{value / 1e9:.4g} billion" if value >= 1e9 else f"{value / 1e6:.4g} million"


def slipped_prefix(value: float, low: float, high: float) -> str:
    """Addition to a help, where a value is between two bounds once its prefix is a thousand times another; else empty.

    >>> slipped_prefix(1.28e9, 448e9, 5.76e12), slipped_prefix(1.28e6, 448e9, 5.76e12)
    ('; 1.28e12 if its prefix slipped', '')
    """
    right = next((value * factor for factor in (1e3, 1e-3) if low <= value * factor <= high), None)
    return "" if right is None else f"; {base(right)} if its prefix slipped"
