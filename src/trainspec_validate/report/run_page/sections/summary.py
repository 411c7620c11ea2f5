"""Shows a run at a glance: what it is, how it went in figures, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.model.finding import Report, Severity, Verdict
from trainspec_validate.report.run_page import measures
from trainspec_validate.report.run_page.chart import figures
from trainspec_validate.report.run_page.context import Context
from trainspec_validate.report.run_page.frame import clock_of
from trainspec_validate.report.run_page.intervals import intervals
from trainspec_validate.report.run_page.markup import Html, Node, element, join
from trainspec_validate.report.run_page.sections.energy import kilowatt_hours
from trainspec_validate.report.run_page.sections.pace import STEP_TIME, TOKEN_RATE, UTILIZATION
from trainspec_validate.report.run_page.tables import table
from trainspec_validate.report.run_page.words import count, duration, joined, percent, prefixed, tokens, utc
from trainspec_validate.report.summary import nothing_judged, severities, summary_line, verdicts
from trainspec_validate.telemetry.view.run_view import RunView, StreamFile

_CLOCKS = {
    "local": "the input does not state their zone; they are shown as written.",
    "relative": "the input counts them from a start that it does not state; dates on this page mean nothing.",
    "none": "the input has none; each line counts as a second, and times on this page mean nothing else.",
}
_NOT_MEASURED = "not measured"
_MOST_FILES = 30
_MOST_UNREAD = 10
_WORDS = {
    Verdict.PASS: "passed",
    Verdict.FAIL: "failed",
    Verdict.WARN: "failed with a warning",
    Verdict.NOT_APPLICABLE: "nothing to judge",
    Verdict.UNSUPPORTED: "declared unsupported",
    Verdict.NOT_RUN: "not run",
    Verdict.ERROR: "mistake of the tool",
}


def header(context: Context) -> Html:
    """Name of the run, verdict in a word, figures, and the files that it was read from."""
    view, report = context.view, context.report
    word, look = _verdict_word(report)
    span = _span(view) if view.num_records else "no records"
    versions = f"specification {report.specification_version}, trainspec-validate {report.tool_version}"
    return element(
        "header",
        element("p", "Training run", class_="over"),
        element("h1", view.run or "without a name", " ", element("span", word, class_=f"chip {look}")),
        element(
            "p",
            span,
            f" · {count(len(view.attempts), 'attempt')} · {_ranks(context)}",
            " · it continues" if view.is_live else "",
        ),
        element("dl", [_card(name, value) for name, value in _figures(context)], class_="cards"),
        _stated(context),
        _clock(context),
        _unread(context),
        _cut(context),
        _files(context),
        element("p", f"Judged by {versions}. Dates and times are in UTC, where nothing else is said.", class_="note"),
    )


def _span(view: RunView) -> str:
    clock = clock_of(view)
    if clock in {"relative", "none"}:
        return "no dates"
    return f"{utc(view.first_time_us)} to {utc(view.last_time_us)}{' UTC' if clock == 'utc' else ''}"


def _card(name: str, value: str) -> Html:
    look = "missing" if value == _NOT_MEASURED else None
    return element("div", element("dt", name), element("dd", value, class_=look))


def _ranks(context: Context) -> str:
    sizes = sorted({span.world_size for span in context.view.attempts if span.world_size is not None})
    if not sizes:
        return "world size not stated"
    return count(sizes[0], "rank") if len(sizes) == 1 else f"{sizes[0]:,} to {count(sizes[-1], 'rank')}"


def _figures(context: Context) -> Iterator[tuple[str, str]]:
    view = context.view
    lasted = (view.last_time_us - view.first_time_us) / 1e6
    yield "lasted", duration(lasted) if lasted > 0 and clock_of(view) != "none" else _NOT_MEASURED
    done = measures.steps(context)
    yield "optimizer steps", _NOT_MEASURED if done is None else f"{done[1]:,}"
    step = measures.spread_of(context, STEP_TIME, without_warmup=True)
    yield "optimizer step, p50", _NOT_MEASURED if step is None else duration(step.median)
    rate = measures.spread_of(context, TOKEN_RATE)
    yield "tokens/s, p50", _NOT_MEASURED if rate is None else tokens(rate.median)
    used = measures.spread_of(context, UTILIZATION)
    yield "MFU, p50", _NOT_MEASURED if used is None else percent(used.median)
    spent = measures.goodput(view)
    whole = sum(spent.values())
    yield "goodput", percent(spent.get("productive", 0.0) / whole) if whole > 0 else _NOT_MEASURED
    used_energy = next(measures.energy(view), None)
    name = f"energy of {used_energy.scope}" if used_energy else "energy"
    yield name, kilowatt_hours(used_energy.joules) if used_energy else _NOT_MEASURED
    saves = [
        each
        for each in intervals(view, "train.checkpoint.begin")
        if each.closed and each.closed.name.endswith("commit")
    ]
    faults = view.events_named("train.fault.detected")
    yield "saves", f"{len(saves):,}" if view.events else _NOT_MEASURED
    is_reported = any(not event.name.startswith("train.telemetry.") for event in view.events)
    yield "faults", f"{len(faults):,}" if is_reported else _NOT_MEASURED


def _files(context: Context) -> Html:
    """Formats at a glance, and the single files for those who open the list."""
    files = context.view.files
    formats = sorted({each.format for each in files})
    told = [_format(name, [each for each in files if each.format == name]) for name in formats]
    rows: list[tuple[Node, ...]] = [
        (each.path, each.format, prefixed(each.num_bytes, "B"), each.num_records, "still open" if each.is_open else "")
        for each in files
    ]
    names = ("file", "format", "#size", "#records", "")
    listing = table("Files of the run", names, rows, _MOST_FILES) if rows else None
    return element(
        "details",
        element("summary", f"Read from {joined(told) or 'no file'}"),
        listing,
        open="" if len(files) < 4 else None,
    )


def _clock(context: Context) -> Html | None:
    """That times are no moments in UTC, where they are not."""
    words = _CLOCKS.get(clock_of(context.view))
    return element("p", element("strong", "Times: "), words, class_="absent") if words else None


def _stated(context: Context) -> Html | None:
    """What the streams themselves say went wrong, and what they lack of a whole run, as `validate` prints it."""
    found = context.report.coverage
    lacks = dict.fromkeys(lack for each in found for lack in each.lacks)
    items = [element("li", text) for each in found for text in each.incidents]
    items += [element("li", "incomplete: ", ", ".join(lacks))] if lacks else []
    title = element("strong", "The run states:")
    return element("div", title, element("ul", items), class_="absent") if items else None


def _unread(context: Context) -> Html | None:
    shown = [element("li", each) for each in context.unread[:_MOST_UNREAD]]
    left = len(context.unread) - len(shown)
    if not shown:
        return None
    title = element("strong", f"{count(len(context.unread), 'input')} could not be read, and this page is without it:")
    more = element("li", f"and {left:,} more") if left else None
    return element("div", title, element("ul", shown, more), class_="absent")


def _cut(context: Context) -> Html | None:
    """The files that end within a record, each with the place."""
    records = [record for coverage in context.report.coverage for record in coverage.cut_records]
    shown = [element("li", f"{each.path}: cut at {each.place}") for each in records[:_MOST_UNREAD]]
    if not shown:
        return None
    left = len(records) - len(shown)
    title = element("strong", f"The last record of {count(len(records), 'file')} is cut and was not judged:")
    more = element("li", f"and {left:,} more") if left else None
    return element("div", title, element("ul", shown, more), class_="absent")


def _format(name: str, files: list[StreamFile]) -> str:
    records = count(sum(each.num_records for each in files), "record")
    return f"{count(len(files), 'file')} of format {name} ({prefixed(sum(e.num_bytes for e in files), 'B')}, {records})"


# --- verdict ------------------------------------------------------------------------------------------------


def verdict(context: Context) -> Html:
    """Counts, and what the gate makes of them."""
    report = context.report
    counts = [(_WORDS[each], f"{num:,}") for each, num in verdicts(report).items() if num]
    line = summary_line(report)
    return join(
        element("p", f"{line[0].upper()}{line[1:]}.", class_="lead"),
        element("p", _exit(report)),
        figures(counts),
    )


def _verdict_word(report: Report) -> tuple[str, str]:
    if nothing_judged(report) and not report.findings:
        return "nothing judged", "note"
    counts = severities(report)
    if counts[Severity.ERROR]:
        return "fails", "error"
    if any(each.lacks or any(map(_is_end, each.incidents)) for each in report.coverage):
        return "passes, incomplete", "warning"
    return ("passes with warnings", "warning") if counts[Severity.WARNING] else ("passes", "pass")


def _is_end(incident: str) -> bool:
    """Whether an incident is that a run ended before it was complete, rather than a fault that it recovered from."""
    return incident.startswith(("the log ", "the run ended"))


def _exit(report: Report) -> str:
    if nothing_judged(report):
        return "Nothing came to a verdict, which proves nothing about the run."
    counts = severities(report)
    strict = sum(counts[severity] for severity in (Severity.ERROR, Severity.WARNING))
    first = f"trainspec-validate exits with {1 if counts[Severity.ERROR] else 0} on these files: "
    why = count(counts[Severity.ERROR], "error") if counts[Severity.ERROR] else "no errors"
    return f"{first}{why}. With --fail-on warning it exits with {1 if strict else 0}."
