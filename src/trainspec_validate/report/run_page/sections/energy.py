"""Shows the energy of a run: by counters, by power over time, and for each token."""

from __future__ import annotations

from trainspec_validate.report.run_page import measures
from trainspec_validate.report.run_page.context import Context, code
from trainspec_validate.report.run_page.markup import Html, element, join
from trainspec_validate.report.run_page.tables import table
from trainspec_validate.report.run_page.words import duration, number, percent, prefixed

_KILOWATT_HOUR = 3.6e6
READINGS = {"hw.energy": "energy counters", "hw.power": "power over time"}


def energy(context: Context) -> Html:
    """A row for each scope and kind of reading, or that there is none."""
    found = list(measures.energy(context.view))
    if not found:
        return context.absent("hw.energy", "hw.power")
    trained = measures.tokens(context)
    elapsed = (context.view.last_time_us - context.view.first_time_us) / 1e6
    rows = [
        (
            each.scope,
            READINGS[each.reading],
            kilowatt_hours(each.joules),
            prefixed(each.joules / elapsed, "W") if elapsed > 0 else "",
            f"{number(each.joules / trained)} J" if trained else "",
            duration(each.seconds) if each.seconds else "",
            each.note,
        )
        for each in found
    ]
    header = ("of", "reading", "#energy", "#mean over the run", "#for each token", "#covers, all added up", "")
    return join(
        table("By scope and kind of reading", header, rows),
        [element("p", text, class_="note") for text in _comparisons(found)],
        None
        if trained
        else element("p", code("Without `train.token.count` there is no energy of a token."), class_="note"),
    )


def kilowatt_hours(joules: float) -> str:
    """Energy as bills have it."""
    return prefixed(joules / _KILOWATT_HOUR * 1e3, "Wh")


def _comparisons(found: list[measures.Energy]) -> list[str]:
    """How far the two kinds of reading of a scope are apart."""
    told = []
    for scope in ("devices", "nodes"):
        both = {each.reading: each.joules for each in found if each.scope == scope}
        if len(both) == 2 and both["hw.energy"] > 0:
            apart = both["hw.power"] / both["hw.energy"] - 1
            more = "more" if apart > 0 else "less"
            told.append(f"For {scope}, power over time gives {percent(abs(apart))} {more} than the counters.")
    return told
