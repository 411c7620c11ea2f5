"""Lists what the streams of a run themselves say went wrong: faults, errors of devices, ends, and repeated updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trainspec_validate.telemetry.checks._attributes import word
from trainspec_validate.telemetry.checks._progress import find_progress
from trainspec_validate.telemetry.view.run_view import PlacedEvent, RunView

MOST = 8
"""Incidents that are named."""
_EVENTS = {
    "train.fault.detected": ("fault", "train.fault.class", "train.fault.vendor_code", "train.reason"),
    "train.device.error": ("device error", "train.fault.vendor_code", "train.error.severity", "train.reason"),
    "train.rank.lost": ("lost ranks", "train.reason"),
    "train.node.drained": ("drained node", "train.reason"),
}
_WELL = {None, "completed"}


def incidents(run: RunView) -> tuple[str, ...]:
    """Faults by the words of the streams, in order of time, alike ones counted together."""
    found = Counter(_all(run))
    texts = [text if num == 1 else f"{text} ({num:,} times)" for text, num in found.items()]
    more = len(texts) - MOST
    return (*texts[:MOST], *([f"{more:,} more"] if more > 0 else []))


def _all(run: RunView) -> Iterator[str]:
    for event in run.events_named(*_EVENTS, "train.attempt.end", "train.run.end"):
        yield from _of_event(event)
    yield from _repeated(run)
    for file in run.files:
        yield from file.incidents


def _of_event(event: PlacedEvent) -> Iterator[str]:
    if event.name in _EVENTS:
        what, *names = _EVENTS[event.name]
        said = dict.fromkeys(str(value) for name in names if (value := event.attribute(name)) is not None)
        yield f"{what}: {', '.join(said)}" if said else what
    elif event.name == "train.run.end" and (status := word(event, "train.run.status")) not in _WELL:
        yield f"the run ended as {status}"
    elif event.name == "train.attempt.end" and (reason := word(event, "train.attempt.reason")) not in _WELL:
        yield f"attempt {event.attempt} ended by {reason}"


def _repeated(run: RunView) -> Iterator[str]:
    """Optimizer steps that a later attempt executed again."""
    known = find_progress(run)
    for attempt in known.attempts()[1:] if known else ():
        first, before = (known.first(attempt), known.largest(below=attempt)) if known else (None, None)
        if first is not None and before is not None and first.step <= before.step > 0:
            yield f"attempt {attempt} begins with step {first.step:,} after step {before.step:,}"
