"""Lists the sections of a run page, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable

from trainspec_validate.report.run_page.context import Context
from trainspec_validate.report.run_page.markup import Html
from trainspec_validate.report.run_page.sections import (
    coverage,
    devices,
    energy,
    findings,
    goodput,
    health,
    judged,
    learning,
    pace,
    ranks,
    recovery,
    summary,
)

SECTIONS: dict[str, tuple[str, Callable[[Context], Html]]] = {
    "verdict": ("Verdict", summary.verdict),
    "coverage": ("Coverage", coverage.coverage),
    "pace": ("Pace", pace.pace),
    "learning": ("Learning", learning.learning),
    "devices": ("Devices", devices.devices),
    "ranks": ("Ranks and network", ranks.ranks),
    "recovery": ("Checkpoints and recoveries", recovery.recovery),
    "goodput": ("Where the time went", goodput.goodput),
    "energy": ("Energy", energy.energy),
    "health": ("Health of the telemetry", health.health),
    "findings": ("Findings", findings.findings),
    "not-judged": ("Not judged", judged.not_judged),
}
"""Identifier of a section to its heading and what writes its content."""
