"""Reads a quantity as people write it, and writes a number as a document expects it."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Final

UNIT_WORDS: Final = {
    "By": "bytes",
    "By/s": "bytes per second",
    "s": "seconds",
    "d": "days",
    "W": "watts",
    "{flop}/s": "operations per second",
    "{token}": "tokens",
    "kg/kW.h": "kilograms per kilowatt-hour",
}
"""Unit of a schema (`x-unit`) to the words for it; `1` is a plain share and has none."""

_QUANTITY = re.compile(r"([0-9][0-9_, ]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?)\s*([A-Za-zµ%/]*)")
_GROUPED = re.compile(r"[0-9]{1,3}(?:([_, ])[0-9]{3}(?:\1[0-9]{3})*)?(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|[0-9.eE+-]+")
_SINGULAR: Final = {
    **{
        f"{noun}s": noun
        for noun in ("accelerator", "sequence", "NIC", "node", "rank", "layer", "stage", "step", "token")
    },
    **{
        f"{noun}s": noun
        for noun in ("link", "port", "device", "interface", "socket", "expert", "host", "tier", "group")
    },
    **{f"{noun}s": noun for noun in ("restart", "checkpoint", "failure", "fault", "attempt", "evaluation", "event")},
    **{f"{noun}s": noun for noun in ("byte", "second", "day", "file", "record", "row", "column", "cell", "field")},
    **{
        f"{noun}s": noun for noun in ("character", "element", "dimension", "tensor", "piece", "shard", "slice", "chunk")
    },
    **{
        f"{noun}s": noun
        for noun in ("metric", "case", "cable", "increment", "setting", "worker", "core", "die", "pair")
    },
    "switches": "switch",
    "copies": "copy",
    "entries": "entry",
    "recoveries": "recovery",
    "directories": "directory",
    "indexes": "index",
}
_ADJECTIVES = "compute|storage|management|accumulation|data|tensor|pipeline|context|expert"
_ONE_OF_MANY = re.compile(rf"(?<![\w.,/-])(?<! x )(?<! of )1 ((?:(?:{_ADJECTIVES}) )?)({'|'.join(_SINGULAR)})\b")
_VERBS: Final = {"are": "is", "were": "was", "have": "has", "do": "does"}
_ARE_OF_ONE = re.compile(
    r"(?:(?<=^)|(?<=[;:(] ))(1 [a-zA-Z]+(?: (?:of|in) [0-9.,]+(?: [a-zA-Z/-]+)?)?) (are|were|have|do)\b"
)
"""A count of one as the subject of a sentence, and its verb."""
_MAX_LENGTH: Final = 40
_LARGEST: Final = 10**24
_DECIMAL: Final = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}
_SCALES: Final = {name: Decimal(10) ** power for name, power in _DECIMAL.items()} | {
    name: Decimal(2) ** power for name, power in _BINARY.items()
}
_SECONDS: Final = {
    **dict.fromkeys(("us", "µs"), Decimal("0.000001")),
    **dict.fromkeys(("ms",), Decimal("0.001")),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), Decimal(1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), Decimal(60)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), Decimal(3600)),
    **dict.fromkeys(("d", "day", "days"), Decimal(86400)),
}
_COUNTS: Final = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
_BYTES = re.compile(r"([kKMGTPE]?|[KMGTP]i)(?:B|bytes?)|([KMGTP]i?)")
_RATE = re.compile(r"([kKMGTPE]?|[KMGTP]i)(?:(B|[Bb]ytes?)|b|bits?)(?:/s|/sec|ps)")
_FLOPS = re.compile(r"([kKMGTPE]?)(?:FLOPS|FLOPs|FLOP/s|Flops|flops|flop/s|OPS|)")
_WATTS = re.compile(r"([kKMG]?)(?:W|watts?)")


def read_quantity(text: str, unit: str) -> float | int | None:
    """The number of a text such as `400 Gb/s`, `80 GiB`, `7d` or `80,000`, in base units; None when in doubt."""
    match = _QUANTITY.fullmatch(text.strip()) if len(text) <= _MAX_LENGTH else None
    if match is None or not _GROUPED.fullmatch(match[1].strip()):
        return None
    scale = _scale(match[2], unit)
    if scale is None:
        return None
    try:
        number = Decimal(re.sub("[_, ]", "", match[1])) * scale
    except InvalidOperation:
        return None
    if number >= _LARGEST:
        return None
    return int(number) if number == number.to_integral_value() else float(number)


def _scale(suffix: str, unit: str) -> Decimal | None:
    if not suffix:
        return Decimal(1)
    scale: Callable[[str], Decimal | None] = _READERS.get(unit, _count)
    return scale(suffix)


def _bytes(suffix: str) -> Decimal | None:
    match = _BYTES.fullmatch(suffix)
    return _SCALES[match[1] if match[1] is not None else match[2]] if match else None


def _rate(suffix: str) -> Decimal | None:
    match = _RATE.fullmatch(suffix)
    return _SCALES[match[1]] / (1 if match[2] else 8) if match else None


def _flops(suffix: str) -> Decimal | None:
    match = _FLOPS.fullmatch(suffix)
    return _SCALES[match[1]] if match else None


def _watts(suffix: str) -> Decimal | None:
    match = _WATTS.fullmatch(suffix)
    return _SCALES[match[1]] if match else None


def _time(suffix: str) -> Decimal | None:
    return _SECONDS.get(suffix)


def _days(suffix: str) -> Decimal | None:
    return _SECONDS[suffix] / 86400 if suffix in _SECONDS else None


def _share(suffix: str) -> Decimal | None:
    return Decimal("0.01") if suffix == "%" else _count(suffix)


def _count(suffix: str) -> Decimal | None:
    return Decimal(_COUNTS[suffix]) if suffix in _COUNTS else None


_READERS: Final[dict[str, Callable[[str], Decimal | None]]] = {
    "By": _bytes,
    "By/s": _rate,
    "{flop}/s": _flops,
    "W": _watts,
    "s": _time,
    "d": _days,
    "1": _share,
}


def written(value: float) -> str:
    """A number as one would write it in a document: 1800, 50e9, 70.55e9, 4194304, 0.0001.

    >>> written(50e9), written(float("inf"))
    ('50e9', 'inf')
    """
    if not abs(value) < _LARGEST:
        exact = Decimal(value)
        if not exact.is_finite():
            return str(value)
        digits, _, exponent = f"{exact:.5e}".partition("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"
    if abs(value) < 1e5 or not float(value).is_integer():
        return f"{value:.12g}"
    whole = int(value)
    power = (len(str(abs(whole))) - 1) // 3 * 3
    mantissa = Decimal(whole).scaleb(-power).normalize()
    text = f"{mantissa:f}e{power}"
    return text if len(text) < len(str(whole)) else str(whole)


def singular_of_one(text: str) -> str:
    """A message in which one thing is no longer many: for the counts that rules put before their nouns.

    >>> singular_of_one("12 compute NICs for 1 accelerators, 1 sequences of 1,001 ranks")
    '12 compute NICs for 1 accelerator, 1 sequence of 1,001 ranks'
    >>> singular_of_one("1 sequences of 8,192 tokens are 8,192")
    '1 sequence of 8,192 tokens is 8,192'
    >>> singular_of_one("the row has 1 cells; 1 nodes of 4 do not answer")
    'the row has 1 cell; 1 node of 4 does not answer'
    """
    text = _ONE_OF_MANY.sub(lambda match: f"1 {match[1]}{_SINGULAR[match[2]]}", text)
    return _ARE_OF_ONE.sub(lambda match: f"{match[1]} {_VERBS[match[2]]}", text)


def in_words(value: float, unit: str) -> str:
    """A number in base units as people say it (80 GB, 400 Gb/s, 2 h); empty where the number says it all."""
    if unit == "s":
        return _in_time(value)
    name = {"By": "B", "By/s": "B/s", "{flop}/s": "FLOP/s", "W": "W"}.get(unit)
    if name is None or abs(value) < 1000:
        return ""
    prefix, power = next((p, n) for p, n in reversed(list(_DECIMAL.items())) if abs(value) >= 10**n and p != "K")
    return f"{value / 10**power:.4g} {prefix}{name}"


def _in_time(value: float) -> str:
    for factor, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if abs(value) >= factor:
            return f"{value / factor:.4g} {name}"
    return "" if abs(value) >= 1 or not value else f"{value * 1e3:.4g} ms" if abs(value) >= 1e-3 else ""
