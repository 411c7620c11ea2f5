"""Judges how a stack recovered from a fault: when, with which state, and at which cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from trainspec_conformance.criteria import SLOWNESS, CannotJudgeError, Case, Problem, check, hangs
from trainspec_conformance.records import Entry, Injected, Orphans, Started
from trainspec_conformance.view import View
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import StepDone
from trainspec_validate.model.units import counted

LEAST_STEPS = 3
"""Steps of a start from which each of its ranks has done one: they train together."""
PAUSE_STEPS, LEAST_PAUSE = 5, 0.8
"""Optimizer steps from a planted pause on within which it comes, and share of its time that has to be seen."""
_MOST_LISTED = 8


def fault(case: Case) -> tuple[Entry, Injected]:
    """The injection that a trial is about: the last one.

    Raises:
        CannotJudgeError: nothing was injected.
    """
    found = case.trial.injections()
    if not found:
        raise CannotJudgeError("nothing was injected")
    return found[-1]


@check("completes")
def completes(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The run comes to its planned end by itself, with status 0, on every rank, and reports it as completed."""
    wanted = case.scenario.job.num_steps
    exits = case.trial.exits()
    if not exits or exits[-1][1].status != 0:
        status = f"with status {exits[-1][1].status}" if exits else "not at all"
        yield Problem(f"the command ended {status}, not with 0", tuple(entry for entry, _ in exits[-1:]))
    done = case.trial.steps_done(case.trial.start_seconds)
    if not done:
        raise CannotJudgeError("the trace reports no step after the last start")
    last = max(done.values())
    if last != wanted:
        yield Problem(f"the last update is {last}, not {wanted}")
    ends = [record for _, record in case.trial.ends() if record.reason == "completed" and record.step == wanted]
    if not ends:
        yield Problem("no process reported the end of the run as completed")
    yield from _absent_ranks(case.trial)


def _absent_ranks(view: View) -> Iterator[Problem]:
    """Ranks that a start asked for and that did no step of several; later attempts of it may have fewer."""
    starts = [(entry, record) for entry, record in view.of(Started) if not record.by_platform]
    for number, (entry, started) in enumerate(starts):
        until = starts[number + 1][0].seconds if number + 1 < len(starts) else math.inf
        done = [one for seen, one in view.of(StepDone, entry.seconds) if seen.seconds < until]
        ranks, steps = {one.rank for one in done}, {one.step for one in done}
        if len(steps) < LEAST_STEPS:
            continue
        wanted = set(range(started.num_ranks))
        if ranks != wanted:
            amount = counted(started.num_ranks, "rank", "were")
            message = f"{amount} requested, and steps were reported by rank {_listed(ranks)}"
            yield Problem(message, (entry,))


def _listed(ranks: set[int]) -> str:
    more = " and more" if len(ranks) > _MOST_LISTED else ""
    return ", ".join(map(str, sorted(ranks)[:_MOST_LISTED])) + more


@check("detected-within")
def detected_within(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The stack reports the fault in the claimed time after its injection.

    That is `hang_detection_seconds` for a rank that is stopped or slow, else `detection_seconds`.
    """
    entry, injected = fault(case)
    hang = injected.kind in {"stop", "slow"}
    limit = criterion.seconds or (case.claims.hang_detection_seconds if hang else case.claims.detection_seconds)
    reported = case.trial.faults(entry.seconds)
    if not reported:
        yield Problem(f"the {injected.kind} was never reported", (entry,))
        return
    took = reported[0][0].seconds - entry.seconds
    if took > limit:
        message = f"the fault was reported after {took:.1f} s, not within {limit:g} s"
        yield Problem(message, (entry, reported[0][0]), by_load=True)


@check("noticed-within")
def noticed_within(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A hang that the stack caused itself is reported within `hang_detection_seconds` of the last step before it."""
    limit = criterion.seconds or case.claims.hang_detection_seconds
    reported = case.trial.faults()
    if not reported:
        yield Problem("the hang was never reported")
        return
    entry = reported[0][0]
    before = [seen.seconds for seen, _ in case.trial.of(StepDone) if seen.seconds <= entry.seconds]
    if not before:
        raise CannotJudgeError("the trace reports no step before the report")
    if entry.seconds - before[-1] > limit:
        took = entry.seconds - before[-1]
        message = f"the hang was reported {took:.1f} s after the last step, not within {limit:g} s"
        yield Problem(message, (entry,), by_load=True)


@check("recovered-within")
def recovered_within(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The recovery time, from the injected fault, is at most `recovery_seconds`.

    It ends when all ranks of an attempt after the fault have completed an optimizer step with a finite loss.
    """
    entry, injected = fault(case)
    limit = criterion.seconds or case.claims.recovery_seconds
    first = next(case.trial.first_steps(entry.seconds), None)
    if first is None:
        yield Problem(f"no new attempt completed a step after the {injected.kind}", (entry,))
    elif first.seconds - entry.seconds > limit:
        took = first.seconds - entry.seconds
        message = f"the first step was completed after {took:.1f} s, not within {limit:g} s"
        yield Problem(message, (entry, first), by_load=True)


@check("lost-steps-at-most")
def lost_steps(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Lost steps are at most one checkpoint interval and one step.

    They are the steps that were completed before the restore and are not in the restored state.
    """
    entry, _ = fault(case)
    limit = criterion.steps if criterion.steps is not None else case.scenario.job.checkpoint_interval_steps + 1
    restores = case.trial.restores(entry.seconds)
    if not restores:
        raise CannotJudgeError("no rank reported the state that it resumed from")
    before = max(
        (record.step for seen, record in case.trial.of(StepDone) if seen.seconds <= restores[0][0].seconds), default=0
    )
    restored = min(record.step for _, record in restores)
    if before - restored > limit:
        amount = counted(before - restored, "step", "were")
        message = f"{amount} lost ({before} were done, it resumed from {restored}), not {limit}"
        yield Problem(message, (restores[0][0],))


@check("not-from-nothing")
def not_from_nothing(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """After the last fault or start no rank resumes from the initial state."""
    since = max([case.trial.start_seconds, *(entry.seconds for entry, _ in case.trial.injections())])
    restores = case.trial.restores(since)
    if case.scenario.job.faults:  # damage that the stack does to itself strikes its first attempt
        restores = [(entry, record) for entry, record in restores if record.attempt > 0]
    if not restores:
        raise CannotJudgeError("no rank reported the state that it resumed from")
    for entry, record in restores:
        if record.step == 0 or record.source == "initial":
            yield Problem(f"rank {record.rank} resumed from the initial state", (entry,))
            return


@check("faults-reported")
def faults_reported(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """As many faults are reported as there were; reports of one kind in one attempt count as one."""
    wanted = criterion.num if criterion.num is not None else len(case.trial.injections())
    if wanted and not case.trial.injections() and not case.scenario.job.faults:
        raise CannotJudgeError("nothing was injected")
    episodes: dict[tuple[int, str], list[Entry]] = {}
    for entry, record in case.trial.faults():
        episodes.setdefault((record.attempt, record.kind), []).append(entry)
    if len(episodes) != wanted:
        entries = tuple(entry for group in episodes.values() for entry in group[:1])
        too_many = len(episodes) > wanted and hangs(case.trial)
        yield Problem(
            f"{counted(len(episodes), 'fault', 'were')} reported, {wanted} happened", entries, by_load=too_many
        )


@check("fault-kind")
def fault_kind(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The first fault that is reported is of one of the kinds."""
    reported = case.trial.faults()
    if not reported:
        raise CannotJudgeError("no fault was reported")
    entry, record = reported[0]
    if record.kind not in criterion.words:
        message = f"the fault was reported as {record.kind}, not as {' or '.join(criterion.words)}"
        yield Problem(message, (entry,), by_load=record.kind in SLOWNESS)


@check("blamed-rank")
def blamed_rank(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The report names the rank that the fault is about."""
    reported = [(entry, record) for entry, record in case.trial.faults() if record.rank is not None]
    if not reported:
        raise CannotJudgeError("no report names a rank")
    injected = [rank for _, one in case.trial.injections() for rank in one.ranks]
    struck = injected or [one.rank % case.scenario.job.num_ranks for one in case.scenario.job.faults]
    if not struck:
        raise CannotJudgeError("no fault of a rank was brought about")
    for entry, record in reported:
        if record.rank not in struck:
            yield Problem(f"rank {record.rank} is blamed, the fault was on rank {struck[0]}", (entry,))


@check("blames-no-other-rank")
def blames_no_other_rank(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A report that names a rank for a fault names one that the suite struck."""
    struck = {rank for _, one in case.trial.injections() for rank in one.ranks}
    if not struck:
        raise CannotJudgeError("no fault of a rank was brought about")
    for entry, record in case.trial.faults():
        if record.rank is not None and record.rank not in struck:
            message = f"rank {record.rank} is blamed, the fault was on rank {min(struck)}"
            yield Problem(message, (entry,))
            return


@check("no-orphans")
def no_orphans(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """No process of the stack is left after its end."""
    if not list(case.trial.of(Started)):
        raise CannotJudgeError("nothing was started")
    for entry, record in case.trial.of(Orphans):
        yield Problem(
            f"{counted(len(record.processes), 'process', 'were')} left: {', '.join(record.processes[:5])}", (entry,)
        )


def _pauses_left_out(case: Case) -> Iterator[Problem]:
    """Pauses that the stack was to plant, and of which the suite saw none: then there was nothing to be quiet about."""
    for fault in [one for one in case.scenario.job.faults if one.kind == "long-pause"]:
        rank = fault.rank % case.scenario.job.num_ranks
        near = range(fault.step - 1, fault.step + PAUSE_STEPS)
        seen = [entry.seconds for entry, one in case.trial.of(StepDone) if one.rank == rank and one.step in near]
        longest = max((after - before for before, after in pairwise(seen)), default=0.0)
        if longest < LEAST_PAUSE * fault.seconds:
            message = f"rank {rank} was to pause for {fault.seconds:g} s at step {fault.step}, and took {longest:.2g} s"
            yield Problem(message, by_load=True)


@check("quiet")
def quiet(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """No fault is reported and no new attempt begins where nothing went wrong."""
    if not case.trial.largest_step():
        raise CannotJudgeError("the trace reports no step")
    for entry, record in case.trial.faults():
        message = f"a {record.kind} fault was reported, but nothing was wrong"
        yield Problem(message, (entry,), by_load=record.kind in SLOWNESS)
    yield from _pauses_left_out(case)
    slow = hangs(case.trial)
    for entry, started in case.trial.of(Started):
        if started.by_platform:
            yield Problem("the job was started again, but nothing was wrong", (entry,), by_load=slow)
    attempts = {record.attempt for _, record in case.trial.of(StepDone)}
    if len(attempts) > 1:
        yield Problem(f"the run took {counted(len(attempts), 'attempt')}, but nothing was wrong", by_load=slow)
