"""The only place that says what was not judged, and why: nothing seen is never a pass."""

from __future__ import annotations

from trainspec_validate.findings import Verdict
from trainspec_validate.run_page.context import Context, code
from trainspec_validate.run_page.markup import Html, Node, element
from trainspec_validate.run_page.tables import table

_WORDS = {
    Verdict.NOT_APPLICABLE: "nothing to judge",
    Verdict.UNSUPPORTED: "declared unsupported",
    Verdict.NOT_RUN: "not run",
    Verdict.ERROR: "mistake of the tool",
}
_MOST = 400


def not_judged(context: Context) -> Html:
    """Every requirement without a verdict, with the reason."""
    rows: list[tuple[Node, ...]] = []
    for outcome in sorted(context.report.outcomes, key=lambda each: each.requirement):
        if outcome.verdict in _WORDS:
            text = context.requirements.get(outcome.requirement)
            rows.append(
                (outcome.requirement, text.title if text else "", _WORDS[outcome.verdict], code(outcome.reason))
            )
    if not rows:
        return element(
            "p", "Every requirement came to a verdict." if context.report.outcomes else "No requirement was run."
        )
    return table("Requirements without a verdict", ("requirement", "wants", "why", "reason"), rows, _MOST)
