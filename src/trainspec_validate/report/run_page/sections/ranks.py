"""Shows how ranks differ: the slowest, how far apart they are, stragglers, slow pairs of nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trainspec_validate.report.run_page.chart import Chart
from trainspec_validate.report.run_page.charts import drawn
from trainspec_validate.report.run_page.context import Context, code
from trainspec_validate.report.run_page.intervals import intervals
from trainspec_validate.report.run_page.markup import Html, Node, element, join
from trainspec_validate.report.run_page.subjects import Tallies, pairs, tallies
from trainspec_validate.report.run_page.tables import bar, table
from trainspec_validate.report.run_page.traces import trace_of_spread
from trainspec_validate.report.run_page.words import count, duration, number, utc

SLOWDOWN = "train.rank.slowdown"
RANK_STEP = "train.rank.step"
DURATION = "train.step.duration"
LATENCY = "train.network.latency"
_NUM_SLOWEST = 10


def ranks(context: Context) -> Html:
    """Slowest ranks, spread of steps, stragglers, slowest pairs; each or that it is not there."""
    return join(_slowest(context), _spread(context), _stragglers(context), _pairs(context))


def _slowest(context: Context) -> Html:
    found = tallies(context.view, SLOWDOWN)
    if found is not None:
        normal = "1 is the median of the pipeline stage"
        return _table(found, f"Slowest of {_num_ranks(found)}, by mean slowdown; {normal}", lambda v: f"{v:.3f}")
    found = tallies(context.view, DURATION, of=lambda subject: subject.rank is not None)
    if found is None:
        return context.absent(SLOWDOWN)
    told = "without `train.rank.slowdown` a rank that waits for a slow one looks as slow"
    return join(_table(found, f"Longest mean optimizer step of {_num_ranks(found)}", duration), _note(told))


def _table(found: Tallies, caption: str, write: Callable[[float], str]) -> Html:
    slowest = found.extreme(_NUM_SLOWEST, highest=True)
    most = max((each.maximum for each in slowest), default=1.0) or 1.0
    rows = [
        (
            "" if each.subject.rank is None else f"{each.subject.rank:,}",
            each.subject.host or "",
            write(each.mean),
            write(each.maximum),
            each.num,
            bar(each.mean / most, each.maximum / most),
        )
        for each in slowest
    ]
    header = ("rank", "host", "#mean", "#highest", "#values", "mean, and highest as a line")
    return table(caption, header, rows)


def _spread(context: Context) -> Node:
    lockstep = [each for each in context.view.lockstep if each.key.metric == RANK_STEP and bool(each.num.any())]
    if not lockstep:
        return context.absent(RANK_STEP)
    farthest = max(int((each.high - each.low)[each.num > 0].max()) for each in lockstep)
    often = duration(lockstep[0].width_us / 1e6)
    told = f"ranks are up to {count(farthest, 'step')} apart" if farthest else "all ranks are at the same step"
    summary = f"Compared every {often}, {told}."
    figures = (
        ("farthest", count(farthest, "step")),
        ("most ranks compared", f"{max(int(each.num.max()) for each in lockstep):,}"),
    )
    draft = Chart("Distance between ranks", "steps", "chart-rank-spread", from_zero=True, whole=True, height=80)
    if context.frame is None:
        return join(element("p", summary), _groups(context))
    trace = trace_of_spread(lockstep, "largest less smallest step of the ranks")
    chart = replace(draft, traces=(trace,), summary=summary, figures=figures)
    return join(drawn(chart, context.frame), _groups(context))


def _groups(context: Context) -> Html | None:
    rows = sorted(
        (
            (int((each.high - each.low)[each.num > 0].max()), str(each.key), each.attempt, int(each.num.max()))
            for each in context.view.lockstep
            if each.key.metric == "train.collective.sequence" and bool(each.num.any())
        ),
        reverse=True,
    )
    if not rows:
        return None
    shown = [(key, attempt, num, far) for far, key, attempt, num in rows if far]
    if not shown:
        groups = count(len({key for _, key, _, _ in rows}), "process group")
        return element("p", f"In none of {groups} are ranks at different collectives.")
    header = ("process group", "#attempt", "#ranks", "#farthest apart")
    return table("Collectives that ranks of a group are apart", header, shown, _NUM_SLOWEST)


def _stragglers(context: Context) -> Html | None:
    found = intervals(context.view, "train.straggler.detected")
    rows = [
        (
            utc(each.start_us),
            _ranks(each.opened.attribute("train.rank.ids")),
            _number(each.opened.value(SLOWDOWN)),
            duration(each.seconds) if each.closed else "not cleared",
        )
        for each in found
    ]
    return (
        table("Stragglers that the job detected", ("=from (UTC)", "ranks", "#slowdown", "#for"), rows) if rows else None
    )


def _pairs(context: Context) -> Html:
    found = pairs(context.view, LATENCY)
    if not found:
        return context.absent(LATENCY)
    slowest = sorted(found, key=lambda each: (-each.mean, each.source, each.target))[:_NUM_SLOWEST]
    rows = [(each.source, each.target, duration(each.mean), duration(each.maximum), each.num) for each in slowest]
    caption = f"Slowest of {count(len(found), 'pair')} of nodes, by mean round trip"
    return table(caption, ("from", "to", "#mean", "#highest", "#values"), rows)


def _ranks(value: object) -> str:
    shown = [str(each) for each in value[:12]] if isinstance(value, list) else [str(value)]
    more = len(value) - len(shown) if isinstance(value, list) else 0
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


def _num_ranks(found: Tallies) -> str:
    return count(len({found.at(place).subject.rank for place in range(len(found))}), "rank")


def _note(text: str) -> Html:
    return element("p", code(f"{text[0].upper()}{text[1:]}."), class_="note")
