"""Shows what was not judged, and why: missing input never yields a pass."""

from __future__ import annotations

from trainspec_validate.model.finding import Verdict
from trainspec_validate.report.run_page.context import Context, code
from trainspec_validate.report.run_page.markup import Html, Node, element
from trainspec_validate.report.run_page.tables import few, table
from trainspec_validate.report.run_page.words import count

_WORDS = {
    Verdict.NOT_APPLICABLE: "nothing to judge",
    Verdict.UNSUPPORTED: "declared unsupported",
    Verdict.NOT_RUN: "not run",
    Verdict.ERROR: "mistake of the tool",
}
_NUM_NAMED = 40


def not_judged(context: Context) -> Html:
    """Every reason for which requirements have no verdict, with the requirements."""
    groups: dict[tuple[str, str], list[str]] = {}
    for outcome in sorted(context.report.outcomes, key=lambda each: each.requirement):
        if outcome.verdict in _WORDS:
            groups.setdefault((_WORDS[outcome.verdict], outcome.reason), []).append(outcome.requirement)
    if not groups:
        return element(
            "p", "Every requirement came to a verdict." if context.report.outcomes else "No requirement was run."
        )
    rows: list[tuple[Node, ...]] = [
        (
            code(reason or "no reason given"),
            why,
            len(names),
            few([_named(context, n) for n in names[:_NUM_NAMED]], len(names)),
        )
        for (why, reason), names in groups.items()
    ]
    total = count(sum(map(len, groups.values())), "requirement")
    return table(f"{total} without a verdict, by reason", ("reason", "=", "#requirements", "which"), rows)


def _named(context: Context, requirement: str) -> Node:
    """The name of a requirement, or its number where the index does not have it."""
    text = context.requirements.get(requirement)
    return [element("code", requirement), f" {text.name}" if text else ""]
