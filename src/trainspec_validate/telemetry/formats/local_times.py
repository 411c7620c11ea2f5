"""Reads the times of console logs, which name no zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from trainspec_validate.telemetry.formats import fit


def local_us(text: str, offset_seconds: int | None) -> int | None:
    """A time in microseconds since 1970 UTC; one of no zone by the offset that was given. None where it is no time.

    >>> local_us("1970-01-01 08:00:01", 8 * 3600), local_us("1970-01-01T02:00:01+02:00", 8 * 3600)
    (1000000, 1000000)
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC) - timedelta(seconds=offset_seconds or 0)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return fit.time_us(since // timedelta(microseconds=1))


def has_zone(text: str) -> bool:
    """Whether a time names its zone.

    >>> has_zone("2024-05-01T12:00:00Z"), has_zone("2024-05-01 12:00:00")
    (True, False)
    """
    return text.endswith("Z") or any(sign in text[19:] for sign in "+-")
