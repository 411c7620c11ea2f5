"""Judges what all ranks have in common: the batch of each step, its rate, and its number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from statistics import median

from trainspec_conformance import told
from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check, num_ranks_of
from trainspec_conformance.criteria.trajectory import Step, final_steps
from trainspec_conformance.records import Entry
from trainspec_conformance.view import View
from trainspec_validate.documents.types.conformance import TestJob
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import StepDone
from trainspec_validate.model.units import counted

AHEAD_STEPS = 2
"""How far a rank may be ahead of another: the step that the other is in, and one line that is not seen yet."""
SEEN_LATE_SECONDS = 1.0
"""How late the suite may see lines of one rank, with those of another in time; by clocks of the stack they are not."""

COMPARED_STEPS = 4
"""Optimizer steps with a slow rank before anybody can have answered, and as many at the end."""
RELIEVED = 0.8
"""Time of a step after a slow rank was relieved, over that before."""


def batch_of(job: TestJob, step: int) -> int:
    """Samples of a step, 1 for the first, by the job."""
    stages = [stage for stage in job.batch_ramp if stage.from_step < step]
    return stages[-1].global_sequences if stages else job.global_sequences


def _done(case: Case) -> Mapping[int, Step]:
    done = final_steps(case.trial)
    if not done or not any(one.sample_ids for one in done.values()):
        raise CannotJudgeError("the trace names no samples")
    return done


@check("batch-as-asked")
def batch_as_asked(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """All ranks together consume exactly the batch of each step, from the first step of each stage on."""
    for step, one in sorted(_done(case).items()):
        wanted = batch_of(case.scenario.job, step)
        if len(one.sample_ids) != wanted:
            message = f"step {step} consumed {counted(len(one.sample_ids), 'sample')}, its batch has {wanted}"
            yield Problem(message, (one.entry,))
            return


@check("batch-as-told")
def batch_as_told(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Each change of the batch is in the stream: counted samples grow by the batch of each optimizer step."""
    counts = {step: point for (_, step), point in told.of_job(case.trial, "train.sample.count").items()}
    grown = [step for step in sorted(counts) if step - 1 in counts]
    if len(grown) < (criterion.num or 1):
        raise CannotJudgeError(
            f"the stream counts the samples of {counted(len(grown), 'step')}, wanted {criterion.num or 1}"
        )
    for step in grown:
        mine, wanted = counts[step].value - counts[step - 1].value, batch_of(case.scenario.job, step)
        if mine != wanted:
            yield Problem(
                f"step {step} is reported to have {mine:g} samples, its batch has {wanted}", (counts[step].entry,)
            )
            return


@check("once-per-epoch")
def once_per_epoch(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """No sample is consumed again before every sample was: after any optimizer step, counts differ by one at most."""
    consumed: Counter[int] = Counter()
    num_with: Counter[int] = Counter()
    """Samples that were consumed so often, or more often."""
    total, size = 0, case.scenario.job.samples_per_epoch
    for step, one in sorted(_done(case).items()):
        for sample in one.sample_ids:
            consumed[sample] += 1
            num_with[consumed[sample]] += 1
        total += len(one.sample_ids)
        most, least = -(-total // size), total // size
        repeated = [sample for sample in one.sample_ids if consumed[sample] > most]
        if repeated:
            message = f"step {step} consumes sample {repeated[0]} again: used {most + 1} times, at most {most} by then"
            yield Problem(message, (one.entry,))
            return
        behind = least and (len(consumed) < size or num_with[least] < len(consumed))
        if behind:
            yield Problem(f"after step {step} not every sample was consumed {least} times", (one.entry,))
            return


@check("ranks-agree")
def ranks_agree(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """All ranks report each step once, with one loss, one learning rate, one norm and one scale."""
    told_of: dict[tuple[int, int], dict[int, StepDone]] = {}
    for _, record in case.trial.of(StepDone):
        if record.skipped is None:
            of_step = told_of.setdefault((record.attempt, record.step), {})
            if record.rank in of_step:
                yield Problem(f"rank {record.rank} reports step {record.step} twice in attempt {record.attempt}")
                return
            of_step[record.rank] = record
    if not told_of or case.trial.num_ranks < 2:
        raise CannotJudgeError("fewer than two ranks reported an optimizer step")
    for (_, step), of_step in sorted(told_of.items()):
        if len(of_step) != case.trial.num_ranks:
            yield Problem(f"step {step} is reported by {counted(len(of_step), 'rank')} of {case.trial.num_ranks}")
            return
        for key in ("loss", "learning_rate", "gradient_norm", "loss_scale"):
            values = {getattr(record, key) for record in of_step.values()}
            if len(values) > 1:
                yield Problem(f"ranks have different {key} in step {step}: {sorted(map(str, values))}")
                return


@check("in-step")
def in_step(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """No rank completes optimizer steps that another one has not begun."""
    done = [(entry, record) for entry, record in case.trial.of(StepDone) if record.skipped is None]
    if not done:
        raise CannotJudgeError("no rank reported an optimizer step")
    allowed = AHEAD_STEPS + (criterion.steps or 0)
    # One file is read after the other: on a busy machine several steps of a rank are seen before those of another.
    ranks = range(num_ranks_of(case.trial))
    by_stack = _first_ahead([(record.time_us / 1e6, entry, record) for entry, record in done], ranks, allowed)
    by_suite = _first_ahead(
        [(entry.seconds, entry, record) for entry, record in done], ranks, allowed, SEEN_LATE_SECONDS
    )
    if found := by_stack or by_suite:
        entry, record, other = found
        message = f"rank {record.rank} has completed step {record.step}, another one {other}"
        yield Problem(message, (entry,), by_load=not by_stack)


def _first_ahead(
    done: list[tuple[float, Entry, StepDone]], ranks: Iterable[int], allowed_steps: int, late_seconds: float = 0.0
) -> tuple[Entry, StepDone, int] | None:
    """The first step that a rank has completed too far ahead, with the one that another has reached so much later."""
    ordered = sorted(done, key=lambda one: one[0])
    reached = dict.fromkeys(ranks, 0)
    by_step = [(0, rank) for rank in reached]
    """A heap of what each rank has reached, with what it had reached before."""
    number = 0
    for seconds, entry, record in ordered:
        while number < len(ordered) and ordered[number][0] <= seconds + late_seconds:
            other = ordered[number][2]
            if other.step > reached.get(other.rank, -1):
                reached[other.rank] = other.step
                heappush(by_step, (other.step, other.rank))
            number += 1
        while by_step[0][0] != reached[by_step[0][1]]:
            heappop(by_step)
        if record.step - by_step[0][0] > allowed_steps:
            return entry, record, by_step[0][0]
    return None


@check("slow-rank-answered")
def slow_rank_answered(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A rank that is slow gets so much less to do that steps are faster by a fifth, or is reported as slow."""
    planted = [one for one in case.scenario.job.faults if one.kind == "slow"]
    if not planted:
        raise CannotJudgeError("no rank was made slow")
    slow = planted[0].rank % num_ranks_of(case.trial)
    if any(record.kind == "slow" and record.rank == slow for _, record in case.trial.faults()):
        return
    shares = _last_shares(case.trial)
    others = [share for rank, share in shares.items() if rank != slow]
    before, after = _update_seconds(case.trial, planted[0].step)
    if not others or shares.get(slow, 0) >= min(others):
        held = counted(shares.get(slow, 0), "sample")
        yield Problem(f"rank {slow} is slow, is not reported, and has {held} of each step")
    elif after > RELIEVED * before:
        message = f"rank {slow} is slow and not reported, and steps take {after:.3g} s with fewer samples of it, "
        yield Problem(f"{message}{before:.3g} s before", by_load=True)


def _update_seconds(view: View, step: int) -> tuple[float, float]:
    """Median time of the first steps with a slow rank, and of the last ones, by the clock of the suite.

    Raises:
        CannotJudgeError: there are too few updates.
    """
    seen = {one: record.entry.seconds for one, record in sorted(final_steps(view).items()) if one > step}
    times = [seen[one] - seen[one - 1] for one in sorted(seen) if one - 1 in seen]
    if len(times) < 2 * COMPARED_STEPS:
        raise CannotJudgeError(f"{len(times)} optimizer steps with a slow rank were seen, wanted {2 * COMPARED_STEPS}")
    return median(times[:COMPARED_STEPS]), median(times[-COMPARED_STEPS:])


def _last_shares(view: View) -> dict[int, int]:
    last = max((record.step for _, record in view.of(StepDone)), default=0)
    return {record.rank: len(record.sample_ids) for _, record in view.of(StepDone) if record.step == last}
