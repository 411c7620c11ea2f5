"""Compares the steps in metric streams with the steps that the suite observed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from trainspec_conformance import told
from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check
from trainspec_conformance.criteria.trajectory import final_steps, number, steps
from trainspec_conformance.records import Entry, Streams
from trainspec_conformance.view import View
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import StepDone
from trainspec_validate.model.metrics import metrics
from trainspec_validate.model.units import counted

WINDOW_STEPS = 15
LATE_SECONDS = 0.15
"""How late the suite may see a line, on a busy machine; both ends of a window."""


def _streams(case: Case) -> Streams:
    found = [record for _, record in case.trial.of(Streams)]
    if not found or found[-1].num_files == 0:
        raise CannotJudgeError("the stack wrote no stream")
    return found[-1]


@check("stream-is-valid")
def stream_is_valid(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The validator finds no error in the streams."""
    for finding in _streams(case).findings:
        if finding.startswith("error"):
            yield Problem(f"the validator says: {finding}")


@check("owes-nothing")
def owes_nothing(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Required metrics of jobs and ranks have values, or the stream header says why they have none."""
    streams, catalog = _streams(case), metrics()
    excused = {*criterion.words, *told.unsupported(case.trial)}
    for name in streams.absent:
        is_carried = any(told.points(case.trial, name))  # by an event, which the validator does not count
        if name not in excused and not is_carried and {"job", "rank"} & set(catalog[name].scopes):
            yield Problem(f"{name} has no value, and no stream header says why")


@check("every-rank-tells")
def every_rank_tells(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Each rank reports its own optimizer steps and their time, up to the last one."""
    _streams(case)
    last = case.trial.largest_step()
    for name in ("train.rank.step", "train.step.duration"):
        found = told.of_ranks(case.trial, name)
        for rank in range(case.trial.num_ranks):
            reached = max((step for _, step in found.get(rank, {})), default=None)
            if reached is None:
                yield Problem(f"rank {rank} has no value of {name}")
            elif reached < last:
                yield Problem(f"{name} of rank {rank} ends at step {reached}, the trace at {last}")


@check("steps-as-seen")
def steps_as_seen(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Optimizer steps that are counted are those that were applied; those that were skipped are counted as such."""
    planted = [one for one in case.scenario.job.faults if one.kind == "nan-gradient"]
    skipped = {record.step for _, record in case.trial.of(StepDone) if record.skipped}
    if case.claims.nonfinite_action != "skip-step":
        message = "not judged: the count of skipped steps, as the stack declares that it skips none"
        yield Problem(message, is_remark=True)
    elif len(skipped) < len(planted):
        raise CannotJudgeError(
            f"{counted(len(planted), 'step', 'were')} to be skipped, the trace has {len(skipped)} that were"
        )
    counts = told.of_job(case.trial, "train.step.count")
    if not counts:
        raise CannotJudgeError("the stream counts no steps")
    last = case.trial.largest_step()
    highest = max(counts.values(), key=lambda point: point.value)
    if highest.value != last:
        yield Problem(f"{highest.value:g} optimizer steps are counted, the trace has {last}", (highest.entry,))
    wanted: dict[str, int] = {}
    for _, record in case.trial.of(StepDone):
        if record.skipped and record.rank == 0:
            wanted[record.skipped] = wanted.get(record.skipped, 0) + 1
    found = _last_by_series(case.trial, "train.step.skipped")
    if sum(found.values()) != sum(wanted.values()):
        yield Problem(f"{sum(found.values()):g} skipped steps are counted, the trace has {sum(wanted.values())}")


def _last_by_series(view: View, metric: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for point in told.points(view, metric):
        for name, value in point.record.values.items():
            if name.startswith(metric) and not isinstance(value, str):
                found[name] = max(value, found.get(name, 0.0))
    return found


@check("step-time-as-seen")
def step_time_as_seen(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Times of steps in streams and traces add up to what the suite's own clock says, in each part of the run."""
    seen: dict[int, dict[told.Key, float]] = {}
    for entry, record in case.trial.of(StepDone):
        seen.setdefault(record.rank, {}).setdefault((record.attempt, record.step), entry.seconds)
    series: dict[str, dict[told.Key, told.Point]] = {
        f"rank {rank}": values for rank, values in told.of_ranks(case.trial, "train.step.duration").items()
    }
    series |= {"the job": of_all} if (of_all := told.job_alone(case.trial, "train.step.duration")) else {}
    if not series or not seen:
        raise CannotJudgeError("no time of a step is reported, or none was observed")
    for name, values in series.items():
        clock = seen.get(int(name.removeprefix("rank "))) if name.startswith("rank ") else seen[min(seen)]
        if clock is not None:
            yield from _windows(name, values, clock, criterion.tolerance or 0)
    for rank, clock in seen.items():
        yield from _windows(f"the trace of rank {rank}", _traced(case.trial, rank), clock, criterion.tolerance or 0)


@dataclass(frozen=True)
class _Traced:
    """How long after the one before it an optimizer step ended, by the clock of the trace."""

    entry: Entry
    value: float


def _traced(view: View, rank: int) -> dict[told.Key, _Traced]:
    done = [(entry, record) for entry, record in view.of(StepDone) if record.rank == rank]
    return {
        (after.attempt, after.step): _Traced(entry, (after.time_us - before.time_us) / 1e6)
        for (_, before), (entry, after) in pairwise(done)
        if after.attempt == before.attempt
    }


def _windows(
    name: str,
    values: Mapping[told.Key, told.Point] | Mapping[told.Key, _Traced],
    clock: dict[told.Key, float],
    tolerance: float,
) -> Iterator[Problem]:
    keys = [key for key in sorted(clock) if key in values]
    if len(keys) <= WINDOW_STEPS:
        raise CannotJudgeError(
            f"{name} reports the time of {counted(len(keys), 'step')}, wanted more than {WINDOW_STEPS}"
        )
    found = []
    for start in range(0, len(keys) - WINDOW_STEPS, WINDOW_STEPS):
        window = keys[start : start + WINDOW_STEPS + 1]
        observed = clock[window[-1]] - clock[window[0]]
        reported = sum(values[key].value for key in window[1:])
        if not abs(reported - observed) <= tolerance * observed + LATE_SECONDS:
            message = f"steps {window[1][1]} to {window[-1][1]} of {name} took {reported:.3g} s as reported, "
            message += f"{observed:.3g} s by the clock of the suite"
            lasts = isinstance(values[window[-1]], _Traced) and _lasts(keys, start, values, clock, tolerance)
            found.append(Problem(message, (values[window[-1]].entry,), by_load=not lasts))
    yield from sorted(found, key=lambda problem: problem.by_load)[:1]


def _lasts(
    keys: Sequence[told.Key],
    start: int,
    values: Mapping[told.Key, told.Point] | Mapping[told.Key, _Traced],
    clock: dict[told.Key, float],
    tolerance: float,
) -> bool:
    """Whether a difference in a window is still there after it, which a busy machine does not explain.

    A line that the suite sees late is followed by one that it sees in time. The window is therefore judged once more
    between the lines before and after it that were seen the soonest after they were written, where lines of a whole
    window before and after it were not all seen at once.
    """
    sides = keys[max(start - WINDOW_STEPS, 0) : start + 1], keys[start + WINDOW_STEPS : start + 2 * WINDOW_STEPS + 1]
    for side in sides:
        if len(side) <= WINDOW_STEPS or clock[side[-1]] - clock[side[0]] < 2 * LATE_SECONDS:
            return False
    times = dict(zip(keys, accumulate(values[key].value for key in keys), strict=True))
    begin, end = (min(side, key=lambda key: clock[key] - times[key]) for side in sides)
    observed = clock[end] - clock[begin]
    return abs(times[end] - times[begin] - observed) > tolerance * observed + LATE_SECONDS


@check("samples-as-seen")
def samples_as_seen(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Samples that are counted are those that all ranks consumed, and tokens grow with them."""
    done = final_steps(case.trial)
    counted = {
        step: point for (_, step), point in told.of_job(case.trial, "train.sample.count").items() if step in done
    }
    if not counted or not any(one.sample_ids for one in done.values()):
        raise CannotJudgeError("the stream counts no samples, or the trace names none")
    total = 0
    for step in sorted(done):
        total += len(done[step].sample_ids)
        if step in counted and counted[step].value != total:
            message = f"{counted[step].value:g} samples are counted after step {step}, {total} were consumed"
            yield Problem(message, (counted[step].entry, done[step].entry))
            break
    tokens = {step: point for (_, step), point in told.of_job(case.trial, "train.token.count").items()}
    per_sample = {tokens[step].value / point.value for step, point in counted.items() if step in tokens and point.value}
    if len(per_sample) > 1:
        yield Problem(f"a sample has {min(per_sample):g} tokens, and {max(per_sample):g}, where all are of one length")


@check("losses-as-seen")
def losses_as_seen(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Loss, learning rate and norm of the gradient are those of the trace, step by step, not smoothed."""
    done = steps(case.trial)
    pairs = (("train.loss.mean", "loss"), ("train.learning_rate", "learning_rate"))
    for metric, key in (*pairs, ("train.gradient.norm", "gradient_norm")):
        found = told.of_job(case.trial, metric)
        common = sorted(found.keys() & done.keys())
        if len(common) < (criterion.num or 1):
            raise CannotJudgeError(
                f"{metric} has values of {counted(len(common), 'step')}, wanted {criterion.num or 1}"
            )
        for at in common:
            mine, theirs = found[at].value, number(getattr(done[at], key))
            if not abs(mine - theirs) <= (criterion.tolerance or 0) * abs(theirs):
                message = f"{metric} of step {at[1]} is {mine!r}, in the trace {theirs!r}"
                yield Problem(message, (found[at].entry, done[at].entry))
                break
