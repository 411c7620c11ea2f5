"""Judges when a stack gives up, and what it does with numbers that are not finite."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check
from trainspec_conformance.criteria.dependence import relative_resolution
from trainspec_conformance.criteria.trajectory import number, steps
from trainspec_conformance.records import Listed
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import Decision, Restore, StepDone
from trainspec_validate.model.units import counted

SLACK = 2
"""Restarts beyond the declared ones: a first attempt that reaches no step, and one that starts before the last is
counted."""


@check("gives-up")
def gives_up(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A job that makes no progress stops by itself, with an end that says so and a status other than 0.

    At most `max_restarts_without_progress` and two more restarts in a row reach no new optimizer step.
    """
    attempts = {record.attempt for _, record in case.trial.of(Restore)}
    if not attempts:
        raise CannotJudgeError("no rank reported the state that it resumed from")
    declared = case.claims.max_restarts_without_progress
    barren = _barren_attempts(case)
    if barren > declared + SLACK:
        told = f"{declared} are declared, and {SLACK} more are allowed"
        yield Problem(f"{counted(barren, 'restart')} in a row reached no new optimizer step; {told}")
    ends = [record for _, record in case.trial.ends()]
    if not any(record.reason == "crash-loop" for record in ends):
        yield Problem("no process reported an end as a crash loop")
    exits = case.trial.exits()
    if not exits or exits[-1][1].asked:
        yield Problem("the command did not end by itself")
    elif exits[-1][1].status == 0:
        yield Problem("the command ended with status 0", (exits[-1][0],))


def _barren_attempts(case: Case) -> int:
    """Restarts in a row, at most, that reached no new optimizer step; a first attempt without a step is one more."""
    reached: dict[int, int] = {record.attempt: 0 for _, record in case.trial.of(Restore)}
    for _, step in case.trial.of(StepDone):
        reached[step.attempt] = max(reached.get(step.attempt, 0), step.step)
    best, now, most = 0, 0, 0
    for attempt in sorted(reached):
        now = 0 if reached[attempt] > best else now + 1
        best, most = max(best, reached[attempt]), max(most, now)
    return most


@check("keeps-newest")
def keeps_newest(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The newest checkpoint that was committed is still there at the end."""
    committed, listed = case.trial.saves("committed"), list(case.trial.of(Listed))
    if not committed or not listed:
        raise CannotJudgeError("no checkpoint was committed")
    if committed[-1][1].checkpoint not in listed[-1][1].checkpoints:
        yield Problem(f"{committed[-1][1].checkpoint} is gone", (listed[-1][0],))


@check("stays-finite")
def stays_finite(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """No step is applied that makes the loss of a later one not finite, and the run continues to its end."""
    done = [(entry, record) for entry, record in case.trial.of(StepDone) if record.skipped is None]
    if not done:
        raise CannotJudgeError("the trace reports no step")
    for entry, record in done:
        if not math.isfinite(number(record.loss)):
            yield Problem(f"step {record.step} was applied with the loss {record.loss}", (entry,))
            return


@check("tells-nonfinite")
def tells_nonfinite(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Each step with a gradient that is not finite is reported as skipped, or leads to a rollback, as declared."""
    planted = [one for one in case.scenario.job.faults if one.kind in {"nan-gradient", "inf-gradient"}]
    wanted = sum(one.num_steps for one in planted)
    if not wanted:
        raise CannotJudgeError("no such gradient was planted")
    action = case.claims.nonfinite_action
    if action == "skip-step":
        skipped = {(record.attempt, record.rank, number(record.loss), entry.line)
                   for entry, record in case.trial.of(StepDone) if record.skipped and record.rank == 0}  # fmt: skip
        if len(skipped) != wanted:
            told = counted(len(skipped), "step", "were")
            yield Problem(f"{told} reported as skipped, {wanted} had a gradient that is not finite")
    else:
        word = "rollback" if action == "rollback" else "stop"
        if not any(record.action == word for _, record in case.trial.of(Decision)):
            yield Problem(f"no decision to {word} was reported")


@check("skipped-without-effect")
def skipped_without_effect(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """On the same samples, the step after a skipped step has the loss of that step, as parameters are the same."""
    if case.claims.nonfinite_action != "skip-step":
        return
    done = steps(case.trial)
    skipped = [(entry, one) for entry, one in case.trial.of(StepDone) if one.skipped]
    pairs = [(entry, one, done[key]) for entry, one in skipped if (key := (one.attempt, one.step + 1)) in done]
    if not pairs:
        raise CannotJudgeError("no step was skipped, or none was followed by an optimizer step")
    noise = relative_resolution([one.loss for one in done.values()])
    tolerance = max(case.claims.relative_tolerance, criterion.tolerance or 0.0, 2 * noise)
    num_judged = 0
    for entry, before, after in pairs:
        loss = number(before.loss)
        is_same = set(before.sample_ids) and set(before.sample_ids) <= set(after.sample_ids)
        if not math.isfinite(loss) or not is_same or len(after.sample_ids) != case.scenario.job.samples_per_epoch:
            continue
        num_judged += 1
        if not abs(after.loss - loss) <= tolerance * abs(loss):
            message = f"the loss of step {before.step + 1} is {after.loss!r}, after {loss!r} in the skipped step"
            yield Problem(message, (entry, after.entry))
            return
    if not num_judged:
        yield Problem("not judged: skipped steps have other samples, or losses that are not finite", is_remark=True)
