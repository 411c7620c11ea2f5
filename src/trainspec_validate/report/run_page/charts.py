"""Makes charts of metrics: of the job, and of many subjects in a band; or says what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainspec_validate.report.run_page.chart import MAX_TRACES, Chart, figure, figures
from trainspec_validate.report.run_page.context import Context
from trainspec_validate.report.run_page.frame import Frame
from trainspec_validate.report.run_page.markup import Html, element
from trainspec_validate.report.run_page.measures import Spread, spread
from trainspec_validate.report.run_page.subjects import Tallies, tallies
from trainspec_validate.report.run_page.traces import NUM_COLUMNS, Points, trace_of_points, trace_of_windows
from trainspec_validate.report.run_page.words import count, whose
from trainspec_validate.telemetry.view.run_view import Subject

Write = Callable[[float], str]
"""Writes a value of the metric with its unit."""
Tell = Callable[[Spread], str]
"""Says in one sentence what the values are."""


@dataclass(frozen=True, slots=True)
class JobReadings:
    """A metric of the job, and how its values are described."""

    metric: str
    write: Write
    tell: Tell | None = None
    without_warmup: bool = False


@dataclass(frozen=True, slots=True)
class BandReadings:
    """A metric of many subjects, what they are called, and which of them count."""

    metric: str
    write: Write
    noun: str
    of: Callable[[Subject], bool] = lambda _: True


def job_chart(context: Context, readings: JobReadings, draft: Chart) -> Html:
    """A metric of the job over time, or that it is not there; `draft` says how it looks."""
    metric, write, tell = readings.metric, readings.write, readings.tell
    found = context.points(metric)
    if not found:
        return context.absent(metric)
    told = spread(found[0], without_warmup=readings.without_warmup) or spread(found[0])
    assert told is not None  # noqa: S101 - a series of points has one
    sentence = f"Half of {count(told.num, 'value')} are at most {write(told.median)}; the last is {write(told.last)}."
    chart = replace(
        draft,
        identifier=_identifier(metric),
        summary=tell(told) if tell else sentence,
        figures=(*_pairs(write, told), *draft.figures),
        notes=(*draft.notes, *_notes(found)),
    )
    if context.frame is None:
        return _flat(chart)
    shown = found[:MAX_TRACES]
    num_columns = NUM_COLUMNS // len(shown)
    traces = (trace_of_points(each, each.name, context.frame.span, num_columns) for each in shown)
    return drawn(replace(chart, traces=tuple(traces)), context.frame)


def window_chart(context: Context, readings: BandReadings, draft: Chart) -> Html:
    """A metric of many subjects over time, their mean in a band from lowest to highest; or that it is not there."""
    windows, write, noun = context.windows(readings.metric), readings.write, readings.noun
    if not windows:
        return context.absent(readings.metric)
    mean = write(sum(float(each.total.sum()) for each in windows) / sum(int(each.count.sum()) for each in windows))
    used = [each.count > 0 for each in windows]
    lowest = min(float(each.minimum[some].min()) for each, some in zip(windows, used, strict=True))
    highest = max(float(each.maximum[some].max()) for each, some in zip(windows, used, strict=True))
    pairs = [("mean", mean), ("lowest value", write(lowest)), ("highest value", write(highest))]
    found = tallies(context.view, readings.metric, of=readings.of)
    told = "The" if found is None else f"{count(len(found), noun)}; the"
    chart = replace(
        draft,
        identifier=_identifier(readings.metric),
        summary=f"{told} mean of all values is {mean}.",
        figures=(*pairs, *_extremes(found, write), *draft.figures),
        band_name=f"lowest to highest {noun}",
    )
    if context.frame is None:
        return _flat(chart)
    return drawn(replace(chart, traces=(trace_of_windows(windows, f"mean of all {noun}s"),)), context.frame)


def _extremes(found: Tallies | None, write: Write) -> Iterator[tuple[str, str]]:
    """The subjects with the lowest and the highest mean, where there are several."""
    if found is not None and len(found) > 1:
        for word, is_high in (("lowest", False), ("highest", True)):
            tally = found.extreme(1, highest=is_high)[0]
            yield f"{word} mean: {whose(tally.subject)}", write(tally.mean)


def drawn(chart: Chart, frame: Frame) -> Html:
    """A chart of what is on the time axis; only its words where nothing does."""
    traces = (trace.within(*frame.span) for trace in chart.traces)
    kept = replace(chart, traces=tuple(trace for trace in traces if trace.stretches))
    return figure(kept, frame) if kept.traces else _flat(chart)


def _identifier(metric: str) -> str:
    return f"chart-{metric.replace('.', '-').replace('_', '-')}"


def _flat(chart: Chart) -> Html:
    """What is told where all values are of one moment."""
    told = [element("p", note, class_="note") for note in chart.notes]
    return element("div", element("h3", chart.title), element("p", chart.summary), figures(chart.figures), told)


def _pairs(write: Write, told: Spread) -> Sequence[tuple[str, str]]:
    named = {"p1": told.low, "p50": told.median, "p99": told.high}
    named |= {"lowest": told.minimum, "highest": told.maximum, "last": told.last}
    return [*((name, write(value)) for name, value in named.items()), ("values", f"{told.num:,}")]


def _notes(found: Sequence[Points]) -> list[str]:
    notes = []
    if len(found) > 1:
        notes.append(f"The sentence and the figures are of {found[0].name}.")
    if len(found) > MAX_TRACES:
        notes.append(f"{len(found) - MAX_TRACES:,} more series are not drawn.")
    num = sum(each.num_not_finite for each in found)
    if num:
        notes.append(f"{count(num, 'value')} not finite: counted here, not drawn.")
    if found[0].thinned > 1:
        notes.append(f"Of so long a run only every {found[0].thinned:,}th step is kept.")
    return notes
