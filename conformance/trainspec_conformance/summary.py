"""Prints what came of a run: verdicts, and how long the recovery path from faults took."""

from __future__ import annotations

from collections.abc import Sequence

from trainspec_conformance.formats.reasons import reasons
from trainspec_conformance.reporting import too_few_trials
from trainspec_validate.cli import terminal
from trainspec_validate.documents.types.conformance_report import ConformanceReport, MomentFigures, ScenarioReport

MAX_REASONS = 6
_FIGURES = ("detected", "decided", "restored", "first-step")


def show(report: ConformanceReport) -> None:
    """Print a line for each scenario, what is wrong, and a table of times."""
    for one in report.scenarios:
        terminal.say(f"{one.verdict:<12} {one.requirement} {one.scenario}" + (" (declared gap)" if one.gap else ""))
        for reason in reasons(one)[:MAX_REASONS]:
            terminal.say(f"             {reason}")
    if rare := [*too_few_trials(report.scenarios, report.claims)]:
        terminal.say(f"fewer trials than the claim needs, so no level counts them: {', '.join(rare)}")
    for error in report.document_errors:
        terminal.say(f"documents: {error}")
    timed = [one for one in report.scenarios if one.figures]
    if timed:
        _table(timed)


def _table(scenarios: Sequence[ScenarioReport]) -> None:
    from rich.console import Console  # noqa: PLC0415 - only a run with faults needs it
    from rich.table import Table  # noqa: PLC0415

    table = Table(title="Seconds after the fault: half / 90 % / 95 % of the trials", title_justify="left")
    table.add_column("Scenario")
    table.add_column("Trials", justify="right")
    for name in _FIGURES:
        table.add_column(name, justify="right")
    for one in scenarios:
        by_name = {figure.name: figure for figure in one.figures}
        cells = [_cell(by_name.get(name)) for name in _FIGURES]  # type: ignore[call-overload]
        table.add_row(one.scenario, str(len(one.trials)), *cells)
    console = Console(markup=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    terminal.emit(captured.get(), color=True)
    terminal.say("A quantile is reported from 5, 29 and 59 trials on; below that, the longest of all trials.")


def _cell(figure: MomentFigures | None) -> str:
    if figure is None:
        return "not seen"
    known = [value for value in (figure.p50_seconds, figure.p90_seconds, figure.p95_seconds) if value is not None]
    if not known:
        return f"longest {figure.largest_seconds:.2f}"
    return " / ".join(f"{value:.2f}" for value in known)
