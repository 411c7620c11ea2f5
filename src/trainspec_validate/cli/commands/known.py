"""Reads facts about a run that its files lack: KEY=VALUE on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from trainspec_validate.model.metrics import catalog
from trainspec_validate.model.suggest import hint
from trainspec_validate.system.digits import is_digits
from trainspec_validate.telemetry.formats import Given

_TEXTS = ("run", "emitter", "host")
_WHOLE = ("attempt", "rank")
_OFFSET = re.compile(r"(?P<sign>[-+])(?P<hours>[0-9]{1,2})(?::?(?P<minutes>[0-9][0-9]))?")


def words() -> str:
    """The keys that are taken, for a help text."""
    return ", ".join((*_TEXTS, *_WHOLE, "start", "utc_offset", *catalog().quantities))


def given(pairs: Iterable[str]) -> Given:
    """Known values, by key.

    Raises:
        click.UsageError: a pair is none, its key is not known, or its value does not fit.
    """
    taken: dict[str, Any] = {}
    quantities: dict[str, float] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--known {pair}: write KEY=VALUE; keys are {words()}")
        if key in catalog().quantities:
            quantities[key] = _number(key, value)
        else:
            name, found = _field(key, value)
            taken[name] = found
    return Given(quantities=quantities, **taken)


def _field(key: str, value: str) -> tuple[str, Any]:
    readers: Mapping[str, Any] = {
        **dict.fromkeys(_TEXTS, _text),
        **dict.fromkeys(_WHOLE, _whole),
        "start": _moment,
        "utc_offset": _offset,
    }
    if key not in readers:
        told = hint(key, [*readers, *catalog().quantities]) or f"keys are {words()}"
        raise click.UsageError(f"--known {key}: no such key; {told}")
    names = {"start": "start_us", "utc_offset": "utc_offset_seconds"}
    return names.get(key, key), readers[key](key, value)


def _text(key: str, value: str) -> str:
    if not value or len(value) > 256 or any(ord(letter) < 32 for letter in value):
        raise click.UsageError(f"--known {key}: 1 to 256 characters without line breaks")
    return value


def _whole(key: str, value: str) -> int:
    if not (is_digits(value) and len(value) <= 8) or (key == "attempt" and int(value) > 1_000_000):
        raise click.UsageError(f"--known {key}: a whole number from 0")
    return int(value)


def _number(key: str, value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e30:
        raise click.UsageError(f"--known {key}: a number above 0")
    return found


def _moment(key: str, value: str) -> int:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or moment.year < 1971:
        raise click.UsageError(f"--known {key}: a moment with its zone, such as 2026-01-31T12:00:00+00:00")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _offset(key: str, value: str) -> int:
    match = _OFFSET.fullmatch(value)
    seconds = (int(match["hours"]) * 60 + int(match["minutes"] or 0)) * 60 if match else 0
    if match is None or seconds > 14 * 3600 or int(match["minutes"] or 0) > 59:
        raise click.UsageError(f"--known {key}: local time minus UTC, such as +08:00")
    return -seconds if match["sign"] == "-" else seconds
