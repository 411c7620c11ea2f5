"""Shows the coverage of a run: metrics of those expected, ranks, devices, time."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.model.metrics import Metric, catalog, metrics
from trainspec_validate.report.run_page.context import Context
from trainspec_validate.report.run_page.frame import NOT_STATED, clock_of, moment_of
from trainspec_validate.report.run_page.marks import gaps
from trainspec_validate.report.run_page.markup import Html, Node, cut, element, join
from trainspec_validate.report.run_page.subjects import distinct
from trainspec_validate.report.run_page.tables import bar, few, table
from trainspec_validate.report.run_page.words import count, duration, joined, percent

_LEVELS = (("required", "core"), ("required", "full"), ("conditional", ""), ("recommended", ""), ("optional", ""))
_NUM_NAMED = 20
_NUM_ABSENT = 12
_MAX_NAME = 120


def coverage(context: Context) -> Html:
    """Metrics that every job is to report by level, ranks by attempt, and time."""
    return join(_owed(context), _metrics(context), _attempts(context), _time(context))


def seen(context: Context) -> frozenset[str]:
    """Names of the metrics that have a value."""
    return frozenset(info.key.metric for info in context.view.keys if info.metric is not None)


def _owed(context: Context) -> Html:
    have = seen(context)
    rows: list[tuple[Node, ...]] = []
    for each in catalog().owed:
        there = [name for name in each.metrics if name in have]
        absent = [name for name in each.metrics if name not in have]
        mark = "answered" if not absent else "in part" if there else "not answered"
        rows.append(
            (
                each.question,
                element("span", mark, class_=f"chip {mark.replace(' ', '-')}"),
                _names(there),
                _names(absent),
            )
        )
    return table("Required of every job", ("question", "", "seen", "not seen"), rows)


def _metrics(context: Context) -> Html:
    have = seen(context)
    rows: list[tuple[Node, ...]] = []
    for level, profile in _LEVELS:
        of = [each for each in metrics().values() if each.level == level and profile in {"", each.profile}]
        there = [each for each in of if each.name in have]
        left = [each for each in of if each.name not in have]
        declared = [each for each in left if context.view.unsupported(each.name)]
        absent = [each for each in left if each not in declared]
        share = bar(len(there) / len(of)) if of else ""
        name = f"{level}, profile {profile}" if profile else level
        rows.append((name, f"{len(there)} of {len(of)}", share, f"{len(declared)}", _listed(absent)))
    others = sorted({info.text for info in context.view.keys if info.metric is None})
    table_of_levels = table(
        "Metrics seen of those expected", ("level", "#seen", "", "#declared unsupported", "absent"), rows
    )
    if not others:
        return table_of_levels
    note = element(
        "p", f"{count(len(others), 'name')} that the catalog does not have: ", _names(others, _NUM_NAMED), class_="note"
    )
    return join(table_of_levels, note)


def _listed(entries: list[Metric]) -> Node:
    return _names([entry.name for entry in entries], _NUM_ABSENT)


def _names(names: list[str], most: int = _NUM_NAMED) -> Node:
    return few([element("code", cut(name, _MAX_NAME)) for name in names[:most]], len(names))


def _attempts(context: Context) -> Html:
    has_times = clock_of(context.view) != "none"
    ranks: dict[int, set[int]] = {}
    for each in context.view.placements:
        ranks.setdefault(each.attempt, set()).add(each.rank)
    rows = [
        (
            f"{span.number}",
            moment_of(context.view, span.first_time_us),
            duration(span.seconds) if has_times else NOT_STATED,
            "not stated" if span.world_size is None else f"{span.world_size:,}",
            len(ranks.get(span.number, ())),
            str(span.ended.attribute("train.attempt.reason") or "") if span.ended else "not stated",
        )
        for span in context.view.attempts
    ]
    header = ("attempt", "=first record (UTC)", "#lasted", "#ranks at its start", "#ranks seen", "ended because of")
    return table("Attempts", header, rows)


def _time(context: Context) -> Html:
    return element("p", " ".join(_sentences(context)))


def _sentences(context: Context) -> Iterator[str]:
    view = context.view
    if view.snapshot:
        yield "The input is one snapshot: nothing about time can be judged."
        return
    if clock_of(view) == "none":
        yield "The input has no times: neither the time that it covers nor gaps are known."
        return
    whole = (view.last_time_us - view.first_time_us) / 1e6
    covered = sum(span.seconds for span in view.attempts)
    holes = gaps(view)
    missing = sum(end - start for start, end in holes) / 1e6
    if whole > 0:
        share = percent(min(covered / whole, 1.0))
        yield f"Attempts cover {duration(covered)} of {duration(whole)}, {share}."
    if holes:
        yield f"{count(len(holes), 'gap')} of the job's own series, {duration(missing)} together."
    else:
        yield "The job's own series have no gap." if view.job else "Gaps are not known: the job has no series."
    counts = distinct(view, ("rank", "host", "device"))
    nouns = {"rank": "rank", "host": "host", "device": "component"}
    told = [count(num, nouns[name]) for name, num in counts.items() if num]
    yield f"Values are of {joined(told)}." if told else "No value names a rank, a host or a component."
