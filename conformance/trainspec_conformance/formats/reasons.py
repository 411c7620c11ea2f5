"""Explains in words why a scenario did not pass."""

from __future__ import annotations

from trainspec_validate.documents.types.conformance_report import ScenarioReport
from trainspec_validate.system.neutral import printable


def reasons(one: ScenarioReport) -> list[str]:
    """What is wrong or was not judged, as `trial 2: check: message`, and the reason of a gap; safe to print."""
    found = [one.reason] if one.reason else []
    checks = [(trial.number, check) for trial in one.trials for check in trial.checks]
    for number, check in sorted(checks, key=lambda pair: pair[1].passed):
        messages = check.messages or (() if check.passed else ("does not hold",))
        found += [f"trial {number}: {check.check}: {message}" for message in messages]
    if one.gap:
        found.append(f"declared gap: {one.gap}")
    return [printable(reason) for reason in found]


def seconds_of(one: ScenarioReport) -> float:
    """Time of all trials together."""
    return sum(trial.seconds for trial in one.trials)
