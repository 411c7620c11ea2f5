"""Measures how far apart the saves of a run are: optimizer steps and productive time without one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainspec_validate.telemetry.checks._pauses import Pauses, standstills
from trainspec_validate.telemetry.checks._progress import Progress
from trainspec_validate.telemetry.checks._restarts import restarts
from trainspec_validate.telemetry.checks._saves import Save
from trainspec_validate.telemetry.view.run_view import Location, RunView


@dataclass(frozen=True, slots=True)
class Unsaved:
    """A stretch of one attempt without a save: from a save or the start, to the next save or the newest update."""

    before: str
    after: str
    steps: int | None
    """Optimizer steps between; None where a record does not give its step."""
    seconds: float
    """Productive time between: evaluations, blocking saves, restores and warm-up are left out."""
    location: Location
    """Of what ends it."""
    is_tail: bool
    """Whether no save ends it."""


@dataclass(frozen=True, slots=True)
class _Point:
    name: str
    time_us: int
    step: int | None
    location: Location


def unsaved(run: RunView, updates: Progress, saves: Sequence[Save]) -> Iterator[Unsaved]:
    """Every stretch between these saves, attempt by attempt."""
    pauses = standstills(run)
    steps = {restart.attempt: restart.step for restart in restarts(run)}
    for attempt in updates.attempts():
        points = list(_points(updates, saves, attempt, steps.get(attempt)))
        for number, (before, after) in enumerate(pairwise(points), start=2):
            yield _stretch(pauses, before, after, is_tail=number == len(points))


def _points(updates: Progress, saves: Sequence[Save], attempt: int, restored: int | None) -> Iterator[_Point]:
    first, last = updates.first(attempt), updates.last(attempt)
    if first is None or last is None:
        return
    start = first.step if restored is None else restored
    yield _Point(f"the start of attempt {attempt} at step {start:,}", first.time_us, start, first.location)
    for save in saves:
        begun = save.first
        if begun.attempt == attempt and save.committed is not None:
            at = "" if save.step is None else f" at step {save.step:,}"
            yield _Point(f"checkpoint {save.id!r}{at}", begun.time_us, save.step, begun.location)
    yield _Point(f"step {last.step:,}", last.time_us, last.step, last.location)


def _stretch(pauses: Pauses, before: _Point, after: _Point, *, is_tail: bool) -> Unsaved:
    steps = None if before.step is None or after.step is None else after.step - before.step
    seconds = float(pauses.left_us(before.time_us, max(before.time_us, after.time_us))) / 1e6
    return Unsaved(before.name, after.name, steps, seconds, after.location, is_tail)
