"""Compares saves, faults and waits in metric streams with those that the suite caused and observed."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from trainspec_conformance import told
from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check, num_ranks_of
from trainspec_conformance.records import Entry, Streamed
from trainspec_conformance.view import View
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import StepDone
from trainspec_validate.model.units import counted

BEGIN, COMMIT = "train.checkpoint.begin", "train.checkpoint.commit"


@check("saves-as-seen")
def saves_as_seen(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Each checkpoint that was committed has its events, at its step, and none that was not has them."""
    committed = sorted(record.step for _, record in case.trial.saves("committed"))
    if not committed:
        raise CannotJudgeError("no checkpoint was committed")
    for name in (BEGIN, COMMIT):
        found = sorted(record.step or 0 for _, record in told.events(case.trial, name))
        if found != committed:
            yield Problem(f"{name} is reported at steps {found}, the trace has checkpoints of {committed}")
    newest = list(told.points(case.trial, "train.checkpoint.step"))
    if not newest or max(point.value for point in newest) != committed[-1]:
        yield Problem(f"train.checkpoint.step never says {committed[-1]}, the newest checkpoint that was committed")


@check("save-time-as-seen")
def save_time_as_seen(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The time between beginning and commit of a save is as long as the suite saw it, within what it can see."""
    begun = {record.checkpoint: entry.seconds for entry, record in reversed(case.trial.saves("begin"))}
    reported = dict(_durations(case.trial))
    seen = {
        record.step: entry.seconds - begun[record.checkpoint]
        for entry, record in case.trial.saves("committed")
        if record.checkpoint in begun
    }
    common = sorted(seen.keys() & reported.keys())
    if not common:
        raise CannotJudgeError("no duration of a save is reported, or no begin was observed")
    observed, claimed = median(seen[step] for step in common), median(reported[step] for step in common)
    if not abs(claimed - observed) <= (criterion.tolerance or 0) * observed + (criterion.seconds or 0):
        message = f"a save takes {claimed:.3g} s as reported, {observed:.3g} s by the clock of the suite"
        yield Problem(message, by_load=True)


@check("stall-as-seen")
def stall_as_seen(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Training waits for a save no longer than the stream says, by the clock of the suite.

    Compared are medians over saves: the time of two optimizer steps with the save between or next to them, above that
    of two others. A stack that reports more than the suite sees overlaps its saves with something else.
    """
    reported, clock = [seconds for _, seconds in _durations(case.trial, "blocking")], _first_seen(case.trial)
    saved = {record.step for _, record in case.trial.saves("committed")}
    pairs = {step: clock[step + 1] - clock[step - 1] for step in clock if {step - 1, step + 1} <= clock.keys()}
    usual = [seconds for step, seconds in pairs.items() if not saved & {step - 1, step, step + 1}]
    known = sorted(saved & pairs.keys())
    if not usual or not known or not reported:
        yield Problem("the time that training waits for saves was not judged: none is reported", is_remark=True)
        return
    both = median(pairs[step] for step in known)
    seen, claimed = both - median(usual), median(reported)
    if seen > claimed + (criterion.tolerance or 0) * both + (criterion.seconds or 0):
        message = f"training waits {claimed:.3g} s for a save as reported, {seen:.3g} s by the clock of the suite"
        yield Problem(message, by_load=True)


def _first_seen(view: View) -> dict[int, float]:
    """When the first rank was seen to have completed each optimizer step."""
    found: dict[int, float] = {}
    for entry, record in view.of(StepDone):
        if record.skipped is None:
            found.setdefault(record.step, entry.seconds)
    return found


def _durations(view: View, phase: str = "total") -> Iterator[tuple[int, float]]:
    labels = f"train.checkpoint.phase={phase}"
    for point in told.points(view, "train.checkpoint.duration", labels):
        yield point.record.step or 0, point.value


@check("faults-as-seen")
def faults_as_seen(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Each fault that the suite injected is reported, and no other fault; each attempt starts and ends.

    A recovery that the stack reports as failed is no complete one.
    """
    injected = len(case.trial.injections())
    found = told.events(case.trial, "train.fault.detected")
    if len(found) != injected:
        yield Problem(f"{counted(len(found), 'fault', 'are')} reported, the suite injected {injected}", _entries(found))
    starts = told.events(case.trial, "train.attempt.start")
    wanted = {record.attempt for _, record in case.trial.of(StepDone)}
    if not wanted:
        raise CannotJudgeError("the trace reports no step")
    if {record.attempt for _, record in starts} != wanted:
        told_of = sorted(record.attempt for _, record in starts)
        yield Problem(f"attempts {told_of} start in the stream, {sorted(wanted)} trained", _entries(starts))
    ends = told.events(case.trial, "train.recovery.end")
    ended = [(entry, record) for entry, record in ends if record.attributes.get("train.recovery.outcome") != "failed"]
    if injected and len(ended) != injected:
        yield Problem(
            f"{counted(len(ended), 'recovery', 'are')} reported as complete, wanted {injected}", _entries(ended)
        )


def _entries(found: list[tuple[Entry, Streamed]]) -> tuple[Entry, ...]:
    return tuple(entry for entry, _ in found)


@check("waits-as-seen")
def waits_as_seen(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Time that a rank waits for data is reported as long as its steps are longer than those of the baseline run."""
    planted = [one for one in case.scenario.job.faults if one.kind == "data-delay"]
    if case.control is None or not planted:
        raise CannotJudgeError("no delay of data was planted, or there is no run without one")
    fault = planted[0]
    rank = fault.rank % num_ranks_of(case.trial)
    first, last = fault.step + 2, fault.step + fault.num_steps
    extra = _pace(case.trial, rank, first, last) - _pace(case.control, rank, first, last)
    waits = {
        step: point for (_, step), point in told.of_ranks(case.trial, "train.data.wait.time").get(rank, {}).items()
    }
    between = [step for step in sorted(waits) if first <= step <= last]
    if len(between) < 2:
        raise CannotJudgeError(f"rank {rank} reports no time that it waits for data")
    wait = (waits[between[-1]].value - waits[between[0]].value) / (between[-1] - between[0])
    if not abs(wait - extra) <= (criterion.tolerance or 0) * extra + (criterion.seconds or 0):
        message = f"rank {rank} reports a wait of {wait:.4f} s for data in each step, which took {extra:.4f} s longer"
        yield Problem(message, (waits[between[-1]].entry,), by_load=True)


def _pace(view: View, rank: int, first: int, last: int) -> float:
    """Median time of steps of a rank, by the clock of the suite.

    Raises:
        CannotJudgeError: fewer than five were seen.
    """
    seen = {record.step: entry.seconds for entry, record in view.of(StepDone) if record.rank == rank}
    times = [seen[step] - seen[step - 1] for step in range(first, last + 1) if step in seen and step - 1 in seen]
    if len(times) < 5:
        raise CannotJudgeError(f"only {counted(len(times), 'step')} of rank {rank} were seen")
    return median(times)
