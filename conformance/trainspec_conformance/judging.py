"""Turns the histories of a scenario into a verdict, from what they hold and nothing else."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from trainspec_conformance.arrival import left_out
from trainspec_conformance.criteria import CannotJudgeError, Case, NotArrivedError, Problem, all_checks
from trainspec_conformance.formats.reasons import ACTS, UNJUDGED
from trainspec_conformance.machine_load import too_busy
from trainspec_conformance.records import Ended, Entry, Load, Malformed, Probed, Waited
from trainspec_conformance.view import View
from trainspec_validate.documents.types.conformance import Capability, StackDescriptor
from trainspec_validate.documents.types.scenario import Criterion, Scenario, Wait

State = Literal["pass", "fail", "unsupported", "not-run", "error"]
REPORTS: Capability = "fault-reports"
REPORT_CHECKS = frozenset({"detected-within", "noticed-within", "faults-reported", "fault-kind", "blamed-rank"})
"""Checks of what a stack reports of a fault, apart from how it recovers."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Result of one check on one trial."""

    check: str
    passed: bool
    messages: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    """Lines of the history that show it, as `file:line`."""
    is_own_failure: bool = False
    """Whether the check itself failed, and nothing is said of the stack."""


def judge_trial(
    stack: StackDescriptor, scenario: Scenario, trial: Sequence[Entry], control: Sequence[Entry] | None
) -> list[Judged]:
    """Every check of a scenario on one trial. Missing events and missing input never yield a pass.

    Reports of faults are not judged where the stack says that it makes none.
    """
    view = View(trial)
    busy = next((why for run in (trial, control or ()) for why in map(_too_busy, run) if why), "")
    found = [judge_acts(scenario, view, busy)]
    case = Case(scenario, stack.claims, view, None if control is None else View(control), stack.store)
    left_out = REPORT_CHECKS if lacks_reports(stack, scenario) else ()
    wanted = [one for one in scenario.criteria if one.check not in left_out]
    return found + [judge_criterion(case, one, trial, busy) for one in wanted]


def _too_busy(entry: Entry) -> str:
    return too_busy(entry.record) if isinstance(entry.record, Load) else ""


def waits_for_a_report(scenario: Scenario) -> bool:
    """Whether a trial waits until the stack reports a fault, so that it cannot run without such reports."""
    return any(isinstance(act, Wait) and act.until == "fault" for act in scenario.acts)


def needs(scenario: Scenario) -> tuple[Capability, ...]:
    """Capabilities without which a stack does not pass a scenario: those that it names, and reports that it judges."""
    judged = any(one.check in REPORT_CHECKS for one in scenario.criteria)
    implied = judged or waits_for_a_report(scenario)
    return (*scenario.needs, REPORTS) if implied and REPORTS not in scenario.needs else tuple(scenario.needs)


def lacks_reports(stack: StackDescriptor, scenario: Scenario) -> str:
    """Why a stack reports no faults, where the scenario judges such reports; empty where they are judged."""
    if REPORTS in stack.capabilities or not any(one.check in REPORT_CHECKS for one in scenario.criteria):
        return ""
    reasons = {one.capability: one.reason for one in stack.missing}
    return f"{REPORTS}: {reasons.get(REPORTS, 'not among its capabilities')}"


def judge_criterion(case: Case, criterion: Criterion, trial: Sequence[Entry], busy: str = "") -> Judged:
    """Judge one check; `busy` says how busy the machine was, where times say nothing."""
    checks = all_checks()
    if criterion.check not in checks:
        raise ValueError(f"scenario {case.scenario.metadata.name}: there is no check {criterion.check!r}")
    try:
        problems = list(checks[criterion.check](case, criterion))
    except NotArrivedError as error:
        return Judged(criterion.check, passed=False, messages=(f"not arrived: {error}",), is_own_failure=True)
    except CannotJudgeError as error:
        return Judged(criterion.check, passed=False, messages=(f"{UNJUDGED}{error}",))
    except Exception as error:  # noqa: BLE001, RUF100 - a mistake of ours in one check must not lose what all others found
        message = f"the check itself failed: {mistake(error)}"
        return Judged(criterion.check, passed=False, messages=(message,), is_own_failure=True)
    cited = {id(entry) for problem in problems for entry in problem.entries}
    numbers = {id(entry): number for number, entry in enumerate(trial, start=1) if id(entry) in cited} if cited else {}
    places = tuple(place for problem in problems for place in _places(problem, numbers))
    failures = [problem for problem in problems if not problem.is_remark]
    found = Judged(criterion.check, not failures, tuple(problem.message for problem in problems), places)
    return _of_no_weight(found, busy) if failures and all(problem.by_load for problem in failures) else found


def _of_no_weight(failed: Judged, busy: str) -> Judged:
    """A failure that the load of the machine may have brought about, if it was busy: that says nothing of the stack."""
    if not busy:
        return failed
    messages = (f"the machine was too busy to judge times: {busy}", *failed.messages)
    return replace(failed, messages=messages, is_own_failure=True)


def mistake(error: Exception) -> str:
    """Report of an unexpected exception: its kind, its text, and its origin."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}; please report it"


def _places(problem: Problem, numbers: Mapping[int, int]) -> list[str]:
    """Lines that show a problem, by the number of each entry of the trial."""
    own = [f"history.jsonl:{numbers[id(entry)]}" for entry in problem.entries if id(entry) in numbers]
    return own + [f"{entry.file}:{entry.line}" for entry in problem.entries if entry.file and id(entry) in numbers]


def judge_acts(scenario: Scenario, view: View, busy: str) -> Judged:
    """Every act of the scenario came about within its time limits, and the trace could be read."""
    missing = tuple(f"not arrived: {words}" for words in left_out(scenario, view))
    if missing:
        return Judged(ACTS, passed=False, messages=missing, is_own_failure=True)
    messages = []
    for entry, malformed in view.of(Malformed):
        messages.append(f"{entry.file}:{entry.line} is no trace record: {malformed.reason}")
        break
    for _, waited in view.of(Waited):
        if not waited.seen:
            messages.append(f"waited for {waited.until}: {waited.reason}")
    ended = [record for _, record in view.of(Ended)]
    if not ended:
        messages.append("the history has no end")
    elif ended[-1].reason == "budget":
        messages.append("the budget of time was spent, and the processes were ended")
        return _of_no_weight(Judged(ACTS, passed=False, messages=tuple(messages)), busy)
    return Judged(ACTS, not messages, tuple(messages))


def unsupported(entries: Iterable[Entry]) -> str:
    """Requests that the stack reported as unsupported; empty where it answered all."""
    reasons = []
    for entry in entries:
        if isinstance(entry.record, Probed) and entry.record.status == 0:
            found = msgspec.json.decode(entry.record.output)
            if isinstance(found, dict) and "unsupported" in found:
                reasons.append(f"{entry.record.case}: {str(found['unsupported'])[:1000]}")
    return "; ".join(reasons)
