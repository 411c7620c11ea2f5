"""Reads attributes of events as texts and whole numbers; one of another type counts as absent."""

from __future__ import annotations

from trainspec_validate.telemetry.view.run_view import PlacedEvent

LARGEST = 10**15
"""No step, rank or count has a larger number."""


def word(event: PlacedEvent, name: str) -> str | None:
    """A text."""
    found = event.attribute(name)
    return found if isinstance(found, str) else None


def whole(event: PlacedEvent, name: str) -> int | None:
    """A whole number of 0 or more."""
    found = event.attribute(name)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found <= LARGEST:
        return None
    return int(found) if found == int(found) else None
