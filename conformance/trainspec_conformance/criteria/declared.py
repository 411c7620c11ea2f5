"""Judges whether the samples of each step are those that the order of the task gives."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check
from trainspec_conformance.criteria.synchrony import batch_of
from trainspec_conformance.criteria.trajectory import final_steps
from trainspec_validate.documents.types.scenario import Criterion


@check("order-as-declared")
def order_as_declared(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """All ranks together consume the next samples by number in each step, and begin again at 0 after the last one."""
    job, done = case.scenario.job, final_steps(case.trial)
    if job.sample_order != "sequential":
        raise CannotJudgeError("the task declares no order of samples")
    if not done or not any(one.sample_ids for one in done.values()):
        raise CannotJudgeError("the trace names no samples")
    start = 0
    for step in range(1, max(done) + 1):
        end = start + batch_of(job, step)
        wanted = sorted(place % job.samples_per_epoch for place in range(start, end))
        start = end
        if step in done and list(done[step].sample_ids) != wanted:
            message = f"step {step} consumed samples {_some(done[step].sample_ids)}, the declared order gives "
            yield Problem(f"{message}{_some(wanted)}", (done[step].entry,))
            return


def _some(ids: tuple[int, ...] | list[int]) -> str:
    return f"{', '.join(map(str, ids[:8]))}{' ...' if len(ids) > 8 else ''}"
