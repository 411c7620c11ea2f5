"""Writes times, amounts, values, subjects and series in the words of a finding."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import groupby

from trainspec_validate.model.units import number
from trainspec_validate.telemetry.view.run_view import Key, Subject

MAX_NAMES = 8
MAX_RANGES = 16


def moment(time_us: int) -> str:
    """A time in microseconds since 1970 as UTC text, with as many digits of the second as it has.

    >>> moment(1_767_225_600_250_000)
    '2026-01-01 00:00:00.25 UTC'
    """
    whole, fraction = divmod(time_us, 1_000_000)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%d %H:%M:%S")
    digits = f".{fraction:06}".rstrip("0").rstrip(".")
    return f"{text}{digits} UTC"


def counted(amount: int, noun: str) -> str:
    """An amount with its noun.

    >>> counted(1, "record"), counted(8192, "rank")
    ('1 record', '8,192 ranks')
    """
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"


def ranges_in_words(numbers: Iterable[int]) -> str:
    """Whole numbers as ranges.

    >>> ranges_in_words([7, 0, 1, 2, 3])
    '0-3, 7'
    """
    ordered = sorted(set(numbers))
    runs = []
    for _, group in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0]):
        members = [value for _, value in group]
        runs.append((members[0], members[-1]))
    said = [str(low) if low == high else f"{low}-{high}" for low, high in runs[:MAX_RANGES]]
    left = sum(high - low + 1 for low, high in runs[MAX_RANGES:])
    return ", ".join(said) + (f" and {left:,} more" if left else "")


def names_in_words(names: Iterable[str]) -> str:
    """Names in order, the first few of many.

    >>> names_in_words(["b", "a"])
    'a, b'
    """
    ordered = sorted(set(names))
    left = len(ordered) - MAX_NAMES
    return ", ".join(ordered[:MAX_NAMES]) + (f" and {left:,} more" if left > 0 else "")


def subjects_in_words(subjects: Iterable[Subject]) -> str:
    """Ranks as ranges, else devices by name, else hosts; empty for the job.

    >>> subjects_in_words([Subject(rank, None, None) for rank in (0, 1, 2, 7)])
    'ranks 0-2, 7'
    >>> subjects_in_words([Subject(None, "node-1", "GPU-3f")])
    'device GPU-3f of node-1'
    """
    ranks, devices, hosts = set(), set(), set()
    for rank, host, device in subjects:
        if rank is not None:
            ranks.add(rank)
        elif device is not None:
            devices.add(f"{device} of {host}" if host else device)
        elif host is not None:
            hosts.add(host)
    parts = [f"rank{'s' * (len(ranks) > 1)} {ranges_in_words(ranks)}"] if ranks else []
    parts += [f"device{'s' * (len(devices) > 1)} {names_in_words(devices)}"] if devices else []
    parts += [f"host{'s' * (len(hosts) > 1)} {names_in_words(hosts)}"] if hosts else []
    return "; ".join(parts)


def series_in_words(key: Key, subject: Subject) -> str:
    """A series as messages name it.

    >>> series_in_words(Key("train.rank.step"), Subject(3, None, None))
    'train.rank.step of rank 3'
    """
    whose = subjects_in_words([subject])
    return f"{key} of {whose}" if whose else str(key)


def value_in_words(value: float) -> str:
    """A value as a sample of the evidence."""
    return "not a number" if math.isnan(value) else number(value)
