"""Lists the ranks, hosts and devices that a run reports as lost, so that they may be silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trainspec_validate.telemetry.view.run_view import PlacedEvent, RunView

LOST = "train.rank.lost"
JOINED = "train.rank.joined"
DRAINED = "train.node.drained"
DETECTED = "train.fault.detected"
NAMED_BY_FAULT = ("train.fault.component", "train.fault.first_rank")


def ranks_named(event: PlacedEvent) -> Iterator[int]:
    """Ranks that an event is about, by its attribute or its record."""
    named = event.attribute("train.rank.ids")
    if isinstance(named, list):
        yield from (int(rank) for rank in named if isinstance(rank, int))
    elif event.record.rank is not None:
        yield event.record.rank


class Absences:
    """Losses that a run reports: a thing by attempt, and when it was said."""

    def __init__(self, run: RunView) -> None:
        self._said: dict[tuple[int, int | str | None], int] = {}
        for event in run.events_named(LOST, DRAINED, DETECTED):
            for thing in _things(event):
                self._said[(event.attempt, thing)] = event.time_us

    def told_us(self, run: RunView, rows: Any) -> Any:
        """For each of some rows, when an event last said that what it is of, or the job, has failed; else -1."""
        found = np.full(len(rows), -1, dtype=np.int64)
        attempts, subjects = run.series.rows["attempt"][rows], run.series.rows["subject"][rows]
        for attempt in {number for number, _ in self._said}:
            times = (
                max(self._said.get((attempt, thing), -1) for thing in (*subject, None))
                for subject in run.series.subjects
            )
            told = np.fromiter(times, dtype=np.int64, count=len(run.series.subjects))
            mine = np.flatnonzero(attempts == attempt)
            found[mine] = told[subjects[mine]]
        return found


def _things(event: PlacedEvent) -> Iterator[int | str | None]:
    """Ranks, hosts and devices that an event says are gone; None where it is about the job as a whole."""
    if event.name == LOST:
        yield from ranks_named(event)
        return
    if event.name == DRAINED:
        host = event.attribute("host.id") or event.record.host
        yield from [host] if host else []
        return
    named = [event.attribute(name) for name in NAMED_BY_FAULT]
    found = [thing for thing in (*named, event.record.host, event.record.device) if thing is not None]
    yield from found or [None]
