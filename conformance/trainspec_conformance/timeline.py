"""Measures the way back from a fault: the moments of one trial, by the clock of the suite."""

from __future__ import annotations

from trainspec_conformance.view import View
from trainspec_validate.documents.types.conformance_report import Mark, Moment
from trainspec_validate.documents.types.trace import Decision, StepDone


def marks(view: View) -> tuple[Mark, ...]:
    """Moments after the last injection, in seconds after it; none where nothing was injected."""
    injected = view.injections()
    if not injected:
        return ()
    start = injected[-1][0].seconds
    first = next(view.first_steps(start), None)
    restored = [entry.seconds for entry, record in view.restores(start)]
    if first is not None:
        restored = [seconds for seconds in restored if seconds <= first.seconds]
    earlier = [record for entry, record in view.of(StepDone) if entry.seconds <= start]
    before = max((record.step for record in earlier), default=0)
    attempt = max((record.attempt for record in earlier), default=0)
    later = [(entry, record) for entry, record in view.of(StepDone, start) if record.attempt > attempt]
    caught_up = next((entry for entry, record in later if record.step == before + 1), None)
    found: dict[Moment, float | None] = {
        "detected": next((entry.seconds for entry, _ in view.faults(start)), None),
        "decided": next((entry.seconds for entry, _ in view.of(Decision, start)), None),
        "restored": max(restored, default=None),
        "first-step": first.seconds if first else None,
        "caught-up": caught_up.seconds if caught_up else None,
    }
    return tuple(Mark(name=name, seconds=round(at - start, 4)) for name, at in found.items() if at is not None)
