"""Shows faults with the recoveries that answered them."""

from __future__ import annotations

from collections.abc import Sequence

from trainspec_validate.report.run_page.context import Context
from trainspec_validate.report.run_page.intervals import Interval, intervals
from trainspec_validate.report.run_page.markup import Html, element
from trainspec_validate.report.run_page.tables import table
from trainspec_validate.report.run_page.words import count, duration, utc
from trainspec_validate.telemetry.view.run_view import PlacedEvent

_HEADER = (
    "=detected (UTC)",
    "#step",
    "what failed",
    "whose",
    "where",
    "done",
    "outcome",
    "#to recover",
    "#steps again",
)


def fault_table(context: Context) -> Html:
    """Every fault with its recoveries, or that the stream reports none."""
    faults = context.view.events_named("train.fault.detected")
    answers = intervals(context.view, "train.recovery.begin")
    if not faults and not answers:
        stated = [text for coverage in context.report.coverage for text in coverage.incidents]
        if stated:
            title = element("strong", "No event reports a fault or a recovery. The run states:")
            return element("div", title, element("ul", [element("li", text) for text in stated]), class_="absent")
        return element(
            "p", element("strong", "No fault and no recovery "), "is reported in this stream.", class_="absent"
        )
    known = {_fault(fault) for fault in faults}
    rows = [_row(fault, [each for each in answers if _fault(each.opened) == _fault(fault)]) for fault in faults]
    rows += [_row(each.opened, [each]) for each in answers if _fault(each.opened) not in known]
    return table(f"{count(len(faults), 'fault')} and what was done", _HEADER, rows)


def _fault(event: PlacedEvent) -> object:
    return event.attribute("train.fault.id")


def _row(fault: PlacedEvent, answers: Sequence[Interval]) -> tuple[str, ...]:
    actions = [_text(each.opened, "train.recovery.action") for each in answers]
    ended = [each for each in answers if each.closed]
    outcomes = [_text(each.closed, "train.recovery.outcome") for each in ended] + ["not ended"] * (
        len(answers) - len(ended)
    )
    repeated = [each.closed.value("train.step.repeated") for each in ended if each.closed]
    what = [_text(fault, "train.fault.class"), _text(fault, "train.fault.vendor_code")]
    last = max((each.end_us for each in ended), default=None)
    return (
        utc(fault.time_us),
        "" if fault.step is None else f"{fault.step:,}",
        ", ".join(word for word in what if word),
        _text(fault, "train.fault.domain"),
        _text(fault, "train.fault.component"),
        ", then ".join(actions) or "nothing reported",
        ", then ".join(outcomes),
        "" if last is None else duration(max(last - fault.time_us, 0) / 1e6),
        ", ".join(f"{value:,.0f}" for value in repeated if value is not None),
    )


def _text(event: PlacedEvent | None, attribute: str) -> str:
    value = event.attribute(attribute) if event else None
    return "" if value is None else str(value)
