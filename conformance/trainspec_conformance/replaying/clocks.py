"""Finds moments of an incident whose order is impossible, so that no time between them is judged."""

from __future__ import annotations

from typing import Final

from trainspec_conformance.replaying.facts import CLOCK_US, Facts
from trainspec_conformance.replaying.incidents import Incident, own_reports

DIFFER: Final = "the next attempt began before the end of the one before it, so their clocks differ"
"""Reason where records of two attempts cannot be put into an order."""
BY_ORDER: Final = frozenset(
    {
        *("detected-within", "recovered-within", "lost-steps-at-most", "not-from-nothing", "restores-newest-good"),
        *("resumes-within", "one-lineage", "saves-again"),
    }
)
"""Criteria that put records of two attempts into an order of time."""


def clocks_differ(facts: Facts, incident: Incident) -> bool:
    """Whether a later attempt trained before the last step of an earlier one, or the report of its fault."""
    before, after = incident.before, incident.after
    if before is None or after is None or not facts.has_clock:
        return False
    following = [*incident.between, after][0].first_time_us
    if any(event.time_us > following + CLOCK_US for event in own_reports(facts, incident)):
        return True
    last = facts.progress.last(before.number) if facts.progress is not None else None
    first = facts.progress.first(after.number) if facts.progress is not None else None
    return last is not None and first is not None and first.time_us < last.time_us - CLOCK_US


def impossible_order(facts: Facts, incident: Incident) -> str:
    """Why moments of an incident cannot have been in the order of their times; empty where they can."""
    reports = own_reports(facts, incident)
    if not reports or facts.progress is None:
        return ""
    detected_us, after = min(event.time_us for event in reports), incident.after
    for event in reports:
        last = facts.progress.last(event.attempt)
        if last is not None and last.time_us > event.time_us:
            return f"the fault was reported before the last step of attempt {event.attempt}, so the times contradict"
    if after is None:
        return ""
    restart = facts.restarts.get(after.number)
    if restart is not None and restart.restore is not None and restart.told.time_us < detected_us:
        return "the state was restored before the fault was reported, so the times contradict"
    first = facts.progress.first(after.number, above=facts.restored_step(after.number) or 0)
    if first is not None and first.time_us < detected_us:
        return "the first step after the fault was completed before the fault was reported, so the times contradict"
    return ""
