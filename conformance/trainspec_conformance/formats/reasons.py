"""Explains in words why a scenario did not pass."""

from __future__ import annotations

from trainspec_validate.documents.types.conformance_report import ScenarioReport, TrialReport
from trainspec_validate.model.units import counted
from trainspec_validate.system.neutral import printable

ACTS, UNJUDGED = "acts", "cannot be judged: "
"""Check of what the suite did, and how the message of a check begins that found nothing to judge."""


def reasons(one: ScenarioReport) -> list[str]:
    """Problems and checks that were not judged, as `trial 2: check: message`, and reasons of gaps; safe to print."""
    found = [one.reason] if one.reason else []
    for trial in one.trials:
        found += _failures(trial)
    for trial in one.trials:
        found += [f"trial {trial.number}: {check.check}: {words}" for check in trial.checks if check.passed
                  for words in check.messages]  # fmt: skip
    if one.gap:
        found.append(f"declared gap: {one.gap}")
    return [printable(reason) for reason in found]


def _failures(trial: TrialReport) -> list[str]:
    """What is wrong; where the acts did not come about, what follows from that is counted alone."""
    failed = [check for check in trial.checks if not check.passed]
    is_cut_short = any(check.check == ACTS for check in failed)
    found, num_unjudged = [], 0
    for check in failed:
        for message in check.messages or ("does not hold",):
            if is_cut_short and message.startswith(UNJUDGED):
                num_unjudged += 1
            else:
                found.append(f"trial {trial.number}: {check.check}: {message}")
    if num_unjudged:
        found.append(f"trial {trial.number}: {counted(num_unjudged, 'further check')} cannot be judged")
    return found


def seconds_of(one: ScenarioReport) -> float:
    """Time of all trials together."""
    return sum(trial.seconds for trial in one.trials)
