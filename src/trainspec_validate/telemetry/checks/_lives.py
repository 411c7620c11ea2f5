"""Finds the stretches in which a run is over: it can be started again after its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.telemetry.view.run_view import PlacedEvent, RunView

START, END = "train.run.start", "train.run.end"


@dataclass(frozen=True, slots=True)
class Rest:
    """The time in which a run is over."""

    end: PlacedEvent
    start: PlacedEvent | None
    """Where the run starts again; None where nothing does that."""

    def holds(self, time_us: int, margin_us: int = 0) -> bool:
        """Whether a moment is after the end and before the next start, by more than a margin."""
        begins = self.start is None or time_us < self.start.time_us - margin_us
        return self.end.time_us + margin_us < time_us and begins


def rests(run: RunView) -> Iterator[Rest]:
    """Each end of a run with the start that follows it; of ends without a start between them the first one."""
    end: PlacedEvent | None = None
    for event in run.events_named(START, END):
        if event.name == END:
            end = end or event
        elif end is not None:
            yield Rest(end, event)
            end = None
    if end is not None:
        yield Rest(end, None)


def last_end(run: RunView) -> PlacedEvent | None:
    """The end of a run that is over; None where it continues, or was started again after its last end."""
    marks = run.events_named(START, END)
    return marks[-1] if marks and marks[-1].name == END else None
