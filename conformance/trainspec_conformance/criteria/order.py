"""Judges the order of attempts: which attempt trains when, from which step, and until when."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from math import inf

from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check, hangs
from trainspec_conformance.criteria.trajectory import final_steps
from trainspec_conformance.records import Ended, Started
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import Save, StepDone
from trainspec_validate.model.units import counted


@check("one-attempt")
def one_attempt(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """All steps are completed in one attempt."""
    attempts = {record.attempt for _, record in case.trial.of(StepDone)}
    if not attempts:
        raise CannotJudgeError("the trace reports no step")
    if len(attempts) > 1:
        yield Problem(f"the run took {counted(len(attempts), 'attempt')}", by_load=hangs(case.trial))


@check("one-lineage")
def one_lineage(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """No attempt completes a step or commits a save once ranks of a newer one train."""
    begun: dict[int, float] = {}
    for entry, record in case.trial.restores():
        begun.setdefault(record.attempt, entry.seconds)
    if len(begun) < 2:
        raise CannotJudgeError("there was one attempt only")
    late = [(entry, record.attempt) for entry, record in case.trial.of(StepDone)]
    late += [(entry, record.attempt) for entry, record in case.trial.saves("committed")]
    attempts = sorted(begun)
    newer = list(accumulate((begun[attempt] for attempt in reversed(attempts)), min))[::-1]
    for entry, attempt in late:
        at = bisect_right(attempts, attempt)
        if at < len(newer) and entry.seconds > newer[at] + case.scenario.job.step_seconds:
            yield Problem(f"attempt {attempt} continued after a newer one had begun", (entry,))
            return


@check("ends-in-grace")
def ends_in_grace(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Asked to end, the command ends by itself within `grace_seconds`."""
    asked = [(entry, record) for entry, record in case.trial.exits() if record.asked]
    if not asked:
        raise CannotJudgeError("the command was not asked to end, or had ended before")
    entry, record = asked[0]
    if record.status < 0:
        yield Problem(f"signal {-record.status} had to end the command", (entry,), by_load=True)


@check("resumes-within")
def resumes_within(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The next start resumes from at most this number of steps before the last completed one."""
    starts = [entry for entry, record in case.trial.of(Started) if record.resume]
    if not starts:
        raise CannotJudgeError("nothing was resumed from a checkpoint")
    restores = case.trial.restores(starts[0].seconds)
    if not restores:
        raise CannotJudgeError("no rank reported the state that it resumed from")
    done = max(
        (record.step for entry, record in case.trial.of(StepDone) if entry.seconds < starts[0].seconds), default=0
    )
    limit = criterion.steps or 0
    if done - restores[0][1].step > limit:
        message = f"{done - restores[0][1].step} optimizer steps were lost after notice, at most {limit} are allowed"
        yield Problem(message, (restores[0][0],))


@check("restores-before-damage")
def restores_before_damage(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """After silent damage the run goes back to a state from before it; what is saved from there on is sound again."""
    planted = [one.step for one in case.scenario.job.faults]
    if not planted:
        raise CannotJudgeError("no damage was planted")
    later = [(entry, record) for entry, record in case.trial.restores() if record.attempt > 0]
    if not later:
        yield Problem("the run never rolled back")
    back_seconds = min((entry.seconds for entry, record in later if record.step <= min(planted)), default=inf)
    saved: dict[int, float] = {}
    """When each step was saved first after that."""
    for entry, save in case.trial.of(Save):
        if save.stage == "committed" and entry.seconds >= back_seconds:
            saved[save.step] = min(saved.get(save.step, inf), entry.seconds)
    for entry, record in later:
        if record.step > min(planted) and saved.get(record.step, inf) > entry.seconds:
            yield Problem(f"it rolled back to step {record.step}, the damage was at {min(planted)}", (entry,))


@check("ends-in-time")
def ends_in_time(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The run ends by itself, with any result, and reports its end."""
    if any(record.reason == "budget" for _, record in case.trial.of(Ended)):
        yield Problem("the run did not end within the time budget", by_load=True)
    if not case.trial.ends():
        yield Problem("no process reported the end of the run")


@check("each-sample-once")
def each_sample_once(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Within one epoch no sample is consumed twice and none is left out."""
    done = final_steps(case.trial)
    if not any(one.sample_ids for one in done.values()):
        raise CannotJudgeError("the trace names no samples")
    epoch = case.scenario.job.samples_per_epoch
    consumed: list[int] = [identifier for step in sorted(done) for identifier in done[step].sample_ids]
    if len(consumed) < epoch:
        raise CannotJudgeError(f"{counted(len(consumed), 'sample', 'were')} consumed, an epoch has {epoch}")
    for start in range(0, len(consumed) - epoch + 1, epoch):
        counts = Counter(consumed[start : start + epoch])
        twice = sorted(identifier for identifier, count in counts.items() if count > 1)
        if twice:
            yield Problem(f"samples {twice[:5]} were consumed more than once in epoch {start // epoch}")
            return


@check("same-end-where-bitwise")
def same_end_where_bitwise(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Where `bitwise` is claimed, the state at the end has the digest of the baseline run."""
    if case.claims.resume_class != "bitwise":
        return
    if case.control is None:
        raise CannotJudgeError("there is no run without faults to compare with")
    mine = [(entry, record.digest) for entry, record in case.trial.ends() if record.digest]
    theirs = [record.digest for _, record in case.control.ends() if record.digest]
    if not mine or not theirs:
        raise CannotJudgeError("the trace reports no digest of the state at the end")
    if mine[-1][1] != theirs[-1]:
        yield Problem("the state at the end differs from that of the run without faults", (mine[-1][0],))
