"""Shows what the time of a run went to, and whether its categories add up to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainspec_validate.report.run_page import measures
from trainspec_validate.report.run_page.context import Context
from trainspec_validate.report.run_page.markup import Html, element, join
from trainspec_validate.report.run_page.tables import bar, table
from trainspec_validate.report.run_page.words import duration, percent

_WIDTH, _HEIGHT = 960.0, 34.0
_LOOKS = (
    *("productive", "initialization", "data_wait", "evaluation", "checkpoint_save", "checkpoint_restore"),
    *("replay", "fault_wait", "idle"),
)
_ROOM_OF_LABEL = 0.09


def goodput(context: Context) -> Html:
    """One bar of the whole time, and a table; or that it is not there."""
    found = measures.goodput(context.view)
    whole = sum(found.values())
    if whole <= 0:
        return context.absent(measures.GOODPUT)
    elapsed = (context.view.last_time_us - context.view.first_time_us) / 1e6
    productive = found.get("productive", 0.0) / whole
    summary = f"{percent(productive)} of {duration(whole)} was productive."
    rows = [
        (_swatched(name), duration(value), percent(value / whole), bar(value / whole)) for name, value in found.items()
    ]
    closed = f"The categories add up to {duration(whole)}; first to last record is {duration(elapsed)}."
    return join(
        _bar(found, whole, summary),
        table("Time by category", ("category", "#time", "#share", ""), rows),
        element("p", closed, class_="note"),
    )


def _bar(found: Mapping[str, float], whole: float, summary: str) -> Html:
    title, description = "chart-goodput-title", "chart-goodput-text"
    told = "; ".join(f"{name} {percent(value / whole)}" for name, value in found.items())
    return element(
        "figure",
        element("figcaption", element("p", summary)),
        element(
            "svg",
            element("title", "Time by category", id=title),
            element("desc", f"{summary} {told}.", id=description),
            _parts(found, whole),
            viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
            role="img",
            aria_labelledby=f"{title} {description}",
        ),
        id="chart-goodput",
    )


def _parts(found: Mapping[str, float], whole: float) -> Iterator[Html]:
    left = 0.0
    for name, value in found.items():
        width = value / whole * _WIDTH
        yield element("rect", class_=_look(name), x=left, y=0, width=max(width - 1, 0.5), height=_HEIGHT)
        if value / whole > _ROOM_OF_LABEL:
            yield element("text", f"{name} {percent(value / whole)}", x=left + 8, y=22, class_="inside")
        left += width


def _swatched(name: str) -> Html:
    square = element("rect", class_=_look(name), x=0, y=0, width=12, height=12)
    return join(element("svg", square, viewBox="0 0 12 12", width=12, height=12, aria_hidden="true"), " ", name)


def _look(name: str) -> str:
    return f"g{_LOOKS.index(name)}" if name in _LOOKS else "g8"
