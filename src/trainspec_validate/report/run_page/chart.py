"""Draws a chart over the time of a run, with a text alternative."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainspec_validate.report.run_page.axes import Axis, Shown, axis, shown, tick_label
from trainspec_validate.report.run_page.frame import FOOT, LANE, LEFT, RIGHT, WIDTH, Frame
from trainspec_validate.report.run_page.markup import Html, Node, cut, element
from trainspec_validate.report.run_page.traces import Column, Trace

MAX_TRACES = 4
"""Lines of one chart; the colours beyond are not distinguished."""
_FAR = 3.0
"""Values further above the usual ones than this many times their spread are drawn at the upper edge."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A horizontal line that values are compared with."""

    value: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Content of a chart, with its description in words."""

    title: str
    unit: str
    """Unit of the catalog; `%` for shares."""
    identifier: str = ""
    traces: tuple[Trace, ...] = ()
    summary: str = ""
    """One sentence that says what the picture says."""
    figures: tuple[tuple[str, str], ...] = ()
    """Names and values, computed from all values and not from the picture."""
    limits: tuple[Limit, ...] = ()
    dots: tuple[tuple[float, float], ...] = ()
    """Single values as moment and value, such as losses of evaluations."""
    dots_name: str = ""
    band_name: str = ""
    """Meaning of the band; empty where there is none, or it is that of thinning."""
    from_zero: bool = False
    log: bool = False
    whole: bool = False
    height: float = 150.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Plot:
    frame: Frame
    axis: Axis
    """In the unit that is shown."""
    shown: Shown
    height: float
    clipped: tuple[Column, ...] = field(default=())

    def down(self, value: float) -> float:
        """Where a value lies, from the top of the picture."""
        return LANE + (1 - self.axis.place(value / self.shown.factor)) * self.height

    def at(self, time_us: float, value: float) -> str:
        """Coordinates in a path."""
        return f"{self.frame.across(time_us):.1f} {self.down(value):.1f}"


def figure(chart: Chart, frame: Frame) -> Html:
    """A chart with its title, its key, a text alternative and its figures."""
    plot = _plot(chart, frame)
    notes = [*chart.notes, *_clip_notes(chart, plot)]
    return element(
        "figure",
        element("figcaption", element("h3", chart.title), element("p", chart.summary), _key(chart)),
        _svg(chart, plot),
        figures(chart.figures),
        [element("p", note, class_="note") for note in notes],
        id=chart.identifier,
    )


def figures(pairs: Sequence[tuple[str, str]]) -> Html | None:
    """Names and values in a row."""
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in pairs]
    return element("dl", rows, class_="figures") if rows else None


def _plot(chart: Chart, frame: Frame) -> _Plot:
    columns = [column for trace in chart.traces for column in trace.columns()]
    lows = [column.low for column in columns] + [value for _, value in chart.dots]
    highs = sorted([column.high for column in columns] + [value for _, value in chart.dots])
    low, high = min(lows), highs[-1]
    limits = [limit.value for limit in chart.limits]
    low, high = min([low, *limits]), max([high, *limits])
    usual = max([highs[int(0.97 * (len(highs) - 1))], *limits])
    base = min(low, 0.0) if chart.from_zero else low
    clips = not chart.log and high > usual + (_FAR - 1) * max(usual - base, abs(usual) * 1e-3)
    top = usual + 0.25 * (usual - base) if clips else high
    unit = shown(chart.unit, top)
    ends = (low / unit.factor, top / unit.factor)
    scale = axis(*ends, from_zero=chart.from_zero, log=chart.log, whole=chart.whole)
    edge = scale.high * unit.factor * (1 + 1e-9)
    clipped = tuple(column for column in columns if column.high > edge)
    return _Plot(frame, scale, unit, chart.height, clipped)


def _clip_notes(chart: Chart, plot: _Plot) -> Iterator[str]:
    if plot.clipped:
        most = max(plot.clipped, key=lambda column: column.high)
        step = plot.frame.step_at(int(most.time_us))
        where = "" if step is None else f", near step {step:,}"
        value = shown(chart.unit, most.high)
        largest = f"{most.high / value.factor:,.4g} {value.unit}"
        yield f"▲ at the upper edge: values above the axis, the largest {largest}{where}."


# --- the picture --------------------------------------------------------------------------------------------


def _svg(chart: Chart, plot: _Plot) -> Html:
    bottom = LANE + plot.height
    told = " ".join([chart.summary, *(f"{name}: {value}." for name, value in chart.figures)])
    title, description = f"{chart.identifier}-title", f"{chart.identifier}-text"
    return element(
        "svg",
        element("title", f"{chart.title} over time", id=title),
        element("desc", told, id=description),
        plot.frame.backdrop(LANE, plot.height),
        _grid(plot),
        [_band(trace, plot, number) for number, trace in enumerate(chart.traces)],
        [_line(trace, plot, number) for number, trace in enumerate(chart.traces)],
        _limits(chart, plot),
        _dots(chart, plot),
        _carets(plot),
        plot.frame.lane(),
        plot.frame.foot(bottom),
        viewBox=f"0 0 {WIDTH:g} {bottom + FOOT:g}",
        role="img",
        aria_labelledby=f"{title} {description}",
    )


def _grid(plot: _Plot) -> Iterator[Html]:
    for tick in plot.axis.ticks():
        down = plot.down(tick * plot.shown.factor)
        yield element("path", class_="grid", d=f"M{LEFT:g} {down:.1f}H{WIDTH - RIGHT:g}")
        yield element("text", tick_label(tick), x=LEFT - 8, y=down + 4, text_anchor="end")
    scale = " (log)" if plot.axis.log else ""
    yield element("text", f"{plot.shown.unit}{scale}", class_="unit", x=LEFT - 8, y=LANE - 10, text_anchor="end")


def _band(trace: Trace, plot: _Plot, number: int) -> Iterator[Html]:
    if not trace.is_wide:
        return
    for stretch in trace.stretches:
        if len(stretch) > 1:
            over = " L".join(plot.at(column.time_us, column.high) for column in stretch)
            under = " L".join(plot.at(column.time_us, column.low) for column in reversed(stretch))
            yield element("path", class_=f"b{number}", d=f"M{over} L{under} Z")
        elif stretch[0].high > stretch[0].low:
            left, high, low = plot.frame.across(stretch[0].time_us), stretch[0].high, stretch[0].low
            d = f"M{left - 1:.1f} {plot.down(high):.1f}h2V{plot.down(low):.1f}h-2Z"
            yield element("path", class_=f"b{number}", d=d)


def _line(trace: Trace, plot: _Plot, number: int) -> Iterator[Html]:
    for stretch in trace.stretches:
        if len(stretch) == 1:
            left, down = plot.at(stretch[0].time_us, stretch[0].middle).split()
            yield element("circle", class_=f"p{number}", cx=left, cy=down, r=2)
        else:
            path = " L".join(plot.at(column.time_us, column.middle) for column in stretch)
            yield element("path", class_=f"l{number}", d=f"M{path}")


def _limits(chart: Chart, plot: _Plot) -> Iterator[Html]:
    for limit in chart.limits:
        down = plot.down(limit.value)
        yield element("path", class_="limit", d=f"M{LEFT:g} {down:.1f}H{WIDTH - RIGHT:g}")
        below = 15 if down - LANE < 14 else -4
        yield element("text", limit.label, class_="halo", x=WIDTH - RIGHT - 4, y=down + below, text_anchor="end")


def _dots(chart: Chart, plot: _Plot) -> Iterator[Html]:
    for time_us, value in chart.dots:
        left, down = plot.at(time_us, value).split()
        yield element("circle", class_="dot", cx=left, cy=down, r=3.5)


def _carets(plot: _Plot) -> Iterator[Html]:
    places = sorted({round(plot.frame.across(column.time_us) / 3) * 3 for column in plot.clipped})
    if places:
        yield element("path", class_="caret", d="".join(f"M{left - 3.5} {LANE + 5}l3.5-6l3.5 6z" for left in places))


def _key(chart: Chart) -> Node:
    entries: list[tuple[Node, str]] = []
    for number, trace in enumerate(chart.traces):
        name = ", ".join(filter(None, (cut(trace.name, 80), trace.middle_name)))
        entries.append((element("path", class_=f"l{number}", d="M1 7H21"), name))
        name = chart.band_name if trace.has_band else "all values"
        if trace.is_wide:
            entries.append((element("rect", class_=f"b{number}", x=1, y=1, width=20, height=12), name))
    if chart.dots:
        entries.append((element("circle", class_="dot", cx=11, cy=7, r=3.5), chart.dots_name))
    box = {"viewBox": "0 0 22 14", "width": 22, "height": 14}
    items = [element("li", element("svg", drawn, aria_hidden="true", **box), name) for drawn, name in entries]  # type: ignore[arg-type]
    return element("ul", items, class_="key")
