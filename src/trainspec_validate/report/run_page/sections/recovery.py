"""Shows saves, faults and recoveries: on a time line and in tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainspec_validate.report.run_page.chart import figures
from trainspec_validate.report.run_page.context import Context, code
from trainspec_validate.report.run_page.frame import FOOT, LEFT, RIGHT, WIDTH, Frame, apart
from trainspec_validate.report.run_page.intervals import Interval, intervals
from trainspec_validate.report.run_page.marks import Stretch, gaps
from trainspec_validate.report.run_page.markup import Html, element, join
from trainspec_validate.report.run_page.sections.faults import fault_table
from trainspec_validate.report.run_page.tables import MAX_ROWS, table
from trainspec_validate.report.run_page.traces import quantile
from trainspec_validate.report.run_page.words import count, duration, joined, prefixed, utc
from trainspec_validate.telemetry.view.run_view import PlacedEvent

_LANES = (
    ("evaluation", "train.evaluation.begin", "evaluation"),
    ("restore", "train.checkpoint.restore.begin", "restore"),
    ("recovery", "train.recovery.begin", "recovery"),
    ("straggler", "train.straggler.detected", "notice"),
    ("drained", "train.node.drained", "notice"),
)
SIZE = "train.checkpoint.size"
_HEIGHT = 24.0
_TOP = 4.0
_LEAST = 2.0
_ROOM_OF_LABEL = 60.0


def recovery(context: Context) -> Html:
    """The time line, then saves, then faults with what was done about them."""
    saves = intervals(context.view, "train.checkpoint.begin")
    return join(_timeline(context, saves), _saves(saves), fault_table(context))


def _timeline(context: Context, saves: Sequence[Interval]) -> Html | None:
    if context.frame is None:
        return element("p", "All of the input is of one moment: there is no time line.", class_="absent")
    lanes = list(_lanes(context, saves))
    faults = len(context.view.events_named("train.fault.detected"))
    said = [
        count(len(context.view.attempts), "attempt"),
        count(_committed(saves), "committed save"),
        count(faults, "fault"),
    ]
    return timeline(context.frame, lanes, f"{joined(said)}.") if lanes else None


def _lanes(context: Context, saves: Sequence[Interval]) -> Iterator[_Lane]:
    spans = context.view.attempts
    if spans:
        labels = tuple(_label(span.number, span.world_size) for span in spans)
        yield _Lane("attempt", tuple(Stretch("attempt", s.first_time_us, s.last_time_us) for s in spans), labels)
    bars = tuple(Stretch("save" if _is_committed(each) else "failed", each.start_us, each.end_us) for each in saves)
    if bars:
        yield _Lane("save", bars)
    for name, opener, kind in _LANES:
        found = tuple(Stretch(kind, each.start_us, each.end_us) for each in intervals(context.view, opener))
        if found:
            yield _Lane(name, found)
    faults = tuple(Stretch("fault", e.time_us, e.time_us) for e in context.view.events_named("train.fault.detected"))
    if faults:
        yield _Lane("fault", faults)
    holes = tuple(Stretch("gap", start, end) for start, end in gaps(context.view))
    if holes:
        yield _Lane("gap", holes)


def _label(number: int, world_size: int | None) -> str:
    return f"{number}" if world_size is None else f"{number}: {world_size:,} ranks"


def _is_committed(save: Interval) -> bool:
    return save.closed is not None and save.closed.name == "train.checkpoint.commit"


def _committed(saves: Sequence[Interval]) -> int:
    return sum(map(_is_committed, saves))


def _saves(saves: Sequence[Interval]) -> Html:
    if not saves:
        told = code(" is reported in this stream: it has no event `train.checkpoint.begin`.")
        return element("p", element("strong", "No save"), told, class_="absent")
    done = [each for each in saves if _is_committed(each)]
    failed = sum(each.closed is not None for each in saves) - len(done)
    pairs = [
        ("committed", f"{len(done):,}"),
        ("failed", f"{failed:,}"),
        ("not ended", f"{len(saves) - len(done) - failed:,}"),
    ]
    if done:
        lengths = [each.seconds for each in done]
        ones = [1.0] * len(lengths)
        pairs += [(f"save p{share:.0%}".rstrip("%"), duration(quantile(lengths, ones, share))) for share in (0.5, 0.99)]
    if len(done) > 1:
        between = [(after.end_us - before.end_us) / 1e6 for before, after in pairwise(done)]
        pairs += [
            ("between commits p50", duration(quantile(between, [1.0] * len(between), 0.5))),
            ("longest without a commit", duration(max(between))),
        ]
    newest = [each.opened.step for each in done if each.opened.step is not None]
    pairs += [("newest at step", f"{newest[-1]:,}")] if newest else []
    return join(figures(pairs), _save_table(saves))


def _save_table(saves: Sequence[Interval]) -> Html:
    odd = [each for each in saves if not _is_committed(each)][:MAX_ROWS]
    room = MAX_ROWS - len(odd)
    good = [each for each in saves if _is_committed(each)][-room:] if room else []
    shown = sorted([*odd, *good], key=lambda each: each.start_us)
    caption = (
        "Saves" if len(shown) == len(saves) else f"{len(shown)} of {len(saves):,} saves: failed ones, and the newest"
    )
    header = ("=begin (UTC)", "#step", "#took", "#bytes", "kept in", "outlives", "result")
    return table(caption, header, [_save_row(each) for each in shown])


def _save_row(save: Interval) -> tuple[str, ...]:
    closed = save.closed
    size = closed.value(SIZE) if closed else None
    step = save.opened.step
    return (
        utc(save.start_us),
        "" if step is None else f"{step:,}",
        duration(save.seconds) if closed else "",
        "" if size is None else prefixed(size, "B"),
        _text(closed, "train.checkpoint.location"),
        _text(closed, "train.checkpoint.durability"),
        "committed" if _is_committed(save) else f"failed: {_text(closed, 'train.reason')}" if closed else "not ended",
    )


def _text(event: PlacedEvent | None, attribute: str) -> str:
    value = event.attribute(attribute) if event else None
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class _Lane:
    """One row: its name, its bars, and what kind they are."""

    name: str
    bars: tuple[Stretch, ...]
    labels: tuple[str, ...] = ()
    """Text in each bar, where it has room; empty for none."""


def timeline(frame: Frame, lanes: Sequence[_Lane], summary: str) -> Html:
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


def _lane(frame: Frame, lane: _Lane, top: float) -> Iterator[Html]:
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
