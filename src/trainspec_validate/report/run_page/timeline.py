"""Draws what happened in a run as lanes of bars over its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainspec_validate.report.run_page.frame import FOOT, LEFT, RIGHT, WIDTH, Frame, apart
from trainspec_validate.report.run_page.marks import Stretch
from trainspec_validate.report.run_page.markup import Html, element

_HEIGHT = 24.0
_TOP = 4.0
_LEAST = 2.0
_ROOM_OF_LABEL = 60.0


@dataclass(frozen=True, slots=True)
class Lane:
    """One row: its name, its bars, and what kind they are."""

    name: str
    bars: tuple[Stretch, ...]
    labels: tuple[str, ...] = ()
    """Text in each bar, where it has room; empty for none."""


def timeline(frame: Frame, lanes: Sequence[Lane], summary: str) -> Html:
    """The lanes as a figure."""
    bottom = _TOP + len(lanes) * _HEIGHT
    title, description = "chart-timeline-title", "chart-timeline-text"
    counts = "; ".join(f"{lane.name}: {len(lane.bars):,}" for lane in lanes)
    return element(
        "figure",
        element("figcaption", element("h3", "Timeline"), element("p", summary)),
        element(
            "svg",
            element("title", "Time line of the run", id=title),
            element("desc", f"{summary} {counts}.", id=description),
            [_lane(frame, lane, _TOP + row * _HEIGHT) for row, lane in enumerate(lanes)],
            frame.foot(bottom),
            viewBox=f"0 0 {WIDTH:g} {bottom + FOOT:g}",
            role="img",
            aria_labelledby=f"{title} {description}",
        ),
        id="chart-timeline",
    )


def _lane(frame: Frame, lane: Lane, top: float) -> Iterator[Html]:
    middle = top + _HEIGHT / 2
    yield element("path", class_="grid", d=f"M{LEFT:g} {top + _HEIGHT:.1f}H{WIDTH - RIGHT:g}")
    yield element("text", lane.name, x=LEFT - 8, y=middle + 4, text_anchor="end", class_="small")
    if lane.labels:
        for bar, label in zip(lane.bars, lane.labels, strict=True):
            yield from _bar(frame, bar.kind, bar.start_us, bar.end_us, top)
            left, right = frame.across(bar.start_us), frame.across(bar.end_us)
            if right - left > _ROOM_OF_LABEL:
                yield element("text", label, x=left + 6, y=middle + 4, class_="inside")
        return
    for kind, start_us, end_us in apart(frame, lane.bars):
        yield from _bar(frame, kind, start_us, end_us, top)


def _bar(frame: Frame, kind: str, start_us: int, end_us: int, top: float) -> Iterator[Html]:
    left, right = frame.across(start_us), frame.across(end_us)
    width = max(right - left, _LEAST)
    yield element("rect", class_=f"t-{kind}", x=left, y=top + 4, width=width, height=_HEIGHT - 8)
