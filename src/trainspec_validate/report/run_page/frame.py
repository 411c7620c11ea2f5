"""Lays out the time axis that all charts of a run share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainspec_validate.report.run_page.axes import TimeTick, time_ticks
from trainspec_validate.report.run_page.marks import Marks, Stretch, marks
from trainspec_validate.report.run_page.markup import Html, Node, element
from trainspec_validate.report.run_page.words import duration, utc
from trainspec_validate.telemetry.view.run_view import RunView

WIDTH, LEFT, RIGHT = 960.0, 70.0, 14.0
LANE = 22.0
"""Height of the lane above a chart that holds the marks."""
FOOT = 44.0
"""Height below a chart for times and steps."""
_LETTER = 3.2
"""Half of the width of a letter: labels that would pass an end of the axis are moved inwards."""
_FAR_OFF = 20
"""A run that seems this many times as long as 98 % of its steps has records with wrong times."""
_LEAST_TIMES = 50
_MAX_ATTEMPT_LABELS = 12
SECOND_US = 1_000_000
NOT_STATED = "not stated"
_CLOCKS = {"utc": "UTC", "local": "local", "relative": "since start", "none": "line"}
"""Names of clocks below a chart, vaguer ones later."""
_SYMBOLS = {
    "fault": "m-4-4l8 8m0-8l-8 8",
    "checkpoint": "m0-4.5l4.5 8h-9z",
    "failed": "m0-4.5l4.5 8h-9zm-5 9l10-9",
    "notice": "m0-4l4 4l-4 4l-4-4z",
}
"""Paths from the middle of a symbol."""


@dataclass(frozen=True, slots=True)
class Frame:
    """First and last moment of a run, what is marked in between, and the step at any moment."""

    first_us: int
    last_us: int
    marks: Marks
    times: Any
    """Moments at which the step is known, ascending."""
    steps: Any
    clock: str = "utc"
    """Kind of the times, as in `StreamFile`."""
    is_part: bool = False
    """Whether records are far outside."""

    @property
    def span(self) -> tuple[int, int]:
        """First and last moment."""
        return self.first_us, self.last_us

    def across(self, time_us: float) -> float:
        """Where a moment is in a chart."""
        share = (time_us - self.first_us) / (self.last_us - self.first_us)
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def step_at(self, time_us: int) -> int | None:
        """Optimizer steps that were completed at a moment; None before the first record that says so."""
        place = int(np.searchsorted(self.times, time_us, side="right"))
        return int(self.steps[place - 1]) if place else None

    def backdrop(self, top: float, height: float) -> Iterator[Html]:
        """Background of a chart: marked stretches, starts of attempts and faults."""
        for stretch in apart(self, self.marks.stretches):
            left, right = self.across(stretch[1]), self.across(stretch[2])
            yield element("rect", class_=f"s-{stretch[0]}", x=left, y=top, width=max(right - left, 1.5), height=height)
        for kind in ("attempt", "fault"):
            lines = (
                f"M{left} {top:g}v{height:g}" for left in _places(self, kind) if kind == "fault" or left > LEFT + 1
            )
            yield from _path(f"v-{kind}", lines)

    def lane(self) -> Iterator[Html]:
        """The symbols above a chart."""
        spans = [mark for mark in self.marks.moments if mark.kind == "attempt"]
        if 1 < len(spans) <= _MAX_ATTEMPT_LABELS:
            for mark in spans:
                left = self.across(mark.time_us)
                anchor, shift = ("end", -3) if left + 60 > WIDTH - RIGHT else ("start", 3)
                yield element("text", mark.label, class_="small", x=left + shift, y=9, text_anchor=anchor)
        for kind, symbol in _SYMBOLS.items():
            yield from _path(f"m-{kind}", (f"M{left} {LANE - 7:g}{symbol}" for left in _places(self, kind)))

    def _ticks(self) -> list[TimeTick]:
        """Moments, or times since the start where the clock tells no moments."""
        if self.clock in {"utc", "local"}:
            return time_ticks(self.first_us, self.last_us)
        since = (tick.time_us for tick in time_ticks(0, self.last_us - self.first_us))
        if self.clock == "none":
            return [TimeTick(self.first_us + each, f"{each // SECOND_US:,}") for each in since]
        return [TimeTick(self.first_us + each, duration(each / SECOND_US)) for each in since]

    def foot(self, bottom: float) -> Iterator[Html]:
        """Times and steps below a chart."""
        yield element("text", _CLOCKS[self.clock], class_="small", x=LEFT - 8, y=bottom + 18, text_anchor="end")
        if len(self.times):
            yield element("text", "step", class_="small", x=LEFT - 8, y=bottom + 33, text_anchor="end")
        for tick in self._ticks():
            left = self.across(tick.time_us)
            yield element("path", class_="tick", d=f"M{left:.1f} {bottom:.1f}v4")
            half = len(tick.label) * _LETTER
            anchor = "end" if left + half > WIDTH - RIGHT else "start" if left - half < LEFT else "middle"
            yield element("text", tick.label, class_="small", x=left, y=bottom + 18, text_anchor=anchor)
            step = self.step_at(tick.time_us)
            if step is not None:
                yield element("text", step, class_="small", x=left, y=bottom + 33, text_anchor=anchor)


def moment_of(view: RunView, time_us: int) -> str:
    """A moment of a run; one whose clock has no date, or none at all, is not stated."""
    return utc(time_us) if clock_of(view) in {"utc", "local"} else NOT_STATED


def clock_of(view: RunView) -> str:
    """Kind of the times of a run: the vaguest clock of its files."""
    return max((each.clock for each in view.files), key=list(_CLOCKS).index, default="utc")


def frame(view: RunView) -> Frame | None:
    """The time axis of a run; None where all of it is one moment."""
    if view.snapshot or view.last_time_us <= view.first_time_us:
        return None
    times, steps = _steps(view)
    first_us, last_us = _core(view, times)
    is_part = (first_us, last_us) != (view.first_time_us, view.last_time_us)
    return Frame(first_us, last_us, marks(view), times, steps, clock_of(view), is_part)


def key(kinds: Iterator[tuple[str, str]]) -> Html:
    """Meaning of the marks, as a list."""
    return element("ul", [element("li", _swatch(kind), text) for kind, text in kinds], class_="key")


def _swatch(kind: str) -> Html:
    drawn: Node
    if kind in _SYMBOLS:
        drawn = element("path", class_=f"m-{kind}", d=f"M11 7{_SYMBOLS[kind]}")
    elif kind == "attempt":
        drawn = element("path", class_="v-attempt", d="M11 0v14")
    else:
        drawn = element("rect", class_=f"s-{kind}", x=1, y=1, width=20, height=12)
    return element("svg", drawn, viewBox="0 0 22 14", width=22, height=14, aria_hidden="true")


def _places(frame: Frame, kind: str) -> list[int]:
    """Where marks of a kind stand, at most one in two pixels."""
    return sorted({round(frame.across(mark.time_us) / 2) * 2 for mark in frame.marks.moments if mark.kind == kind})


def _path(look: str, parts: Iterable[str]) -> Iterator[Html]:
    """One path of many parts; nothing where there is none."""
    path = "".join(parts)
    if path:
        yield element("path", class_=look, d=path)


def apart(frame: Frame, stretches: Iterable[Stretch]) -> list[tuple[str, int, int]]:
    """Kind, start and end of stretches, joined where two of a kind are less than a pixel apart."""
    pixel = (frame.last_us - frame.first_us) / WIDTH
    found: list[tuple[str, int, int]] = []
    last: dict[str, int] = {}
    for each in stretches:
        place = last.get(each.kind)
        if place is not None and each.start_us - found[place][2] < pixel:
            found[place] = (each.kind, found[place][1], max(found[place][2], each.end_us))
        else:
            last[each.kind] = len(found)
            found.append((each.kind, each.start_us, each.end_us))
    return found


def _core(view: RunView, times: Any) -> tuple[int, int]:
    """First and last moment, without those that lie so far off that the run would be a line."""
    whole = view.first_time_us, view.last_time_us
    if len(times) < _LEAST_TIMES:
        return whole
    low, high = (int(np.quantile(times, share, method="nearest")) for share in (0.01, 0.99))
    margin = (high - low) // 20
    return whole if whole[1] - whole[0] <= _FAR_OFF * (high - low) else (low - margin, high + margin)


def _steps(view: RunView) -> tuple[Any, Any]:
    """Moments and steps of the series of the job that tells most of them."""
    best = max(view.job.values(), key=lambda series: int((np.asarray(series.step) >= 0).sum()), default=None)
    if best is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    known = np.flatnonzero(np.asarray(best.step) >= 0)
    times, steps = np.asarray(best.time_us)[known], np.asarray(best.step)[known]
    order = np.argsort(times, kind="stable")
    return times[order], steps[order]
