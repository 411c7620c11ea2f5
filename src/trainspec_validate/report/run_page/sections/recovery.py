"""Shows saves, faults and recoveries: on a time line and in tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from trainspec_validate.report.run_page.chart import figures
from trainspec_validate.report.run_page.context import Context, code
from trainspec_validate.report.run_page.intervals import Interval, intervals
from trainspec_validate.report.run_page.marks import Stretch, gaps
from trainspec_validate.report.run_page.markup import Html, element, join
from trainspec_validate.report.run_page.sections.faults import fault_table
from trainspec_validate.report.run_page.tables import MAX_ROWS, table
from trainspec_validate.report.run_page.timeline import Lane, timeline
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


def _lanes(context: Context, saves: Sequence[Interval]) -> Iterator[Lane]:
    spans = context.view.attempts
    if spans:
        labels = tuple(_label(span.number, span.world_size) for span in spans)
        yield Lane("attempt", tuple(Stretch("attempt", s.first_time_us, s.last_time_us) for s in spans), labels)
    bars = tuple(Stretch("save" if _is_committed(each) else "failed", each.start_us, each.end_us) for each in saves)
    if bars:
        yield Lane("save", bars)
    for name, opener, kind in _LANES:
        found = tuple(Stretch(kind, each.start_us, each.end_us) for each in intervals(context.view, opener))
        if found:
            yield Lane(name, found)
    faults = tuple(Stretch("fault", e.time_us, e.time_us) for e in context.view.events_named("train.fault.detected"))
    if faults:
        yield Lane("fault", faults)
    holes = tuple(Stretch("gap", start, end) for start, end in gaps(context.view))
    if holes:
        yield Lane("gap", holes)


def _label(number: int, world_size: int | None) -> str:
    return f"{number}" if world_size is None else f"{number}: {world_size:,} ranks"


def _is_committed(save: Interval) -> bool:
    return save.closed is not None and save.closed.name == "train.checkpoint.commit"


def _committed(saves: Sequence[Interval]) -> int:
    return sum(map(_is_committed, saves))


# --- saves --------------------------------------------------------------------------------------------------


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
