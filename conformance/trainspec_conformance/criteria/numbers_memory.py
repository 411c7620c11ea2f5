"""Judges memory: what a stack predicts of it against what it takes, and whether that grows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainspec_conformance.answers import Answer, answer_of, others
from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.model.units import counted

SETTLED_STEPS = 3
"""After them every buffer of a step was allocated."""
BYTES_OF_PARAMETER = 4
BYTES_OF_MOMENTS = 8
"""Of one parameter: two moments of four bytes, which nothing needs that is not its owner."""
LEAST_SAVED = 0.75
"""Share of the moments. Stacks that shard saved twice the moments; whole replicas differed by a third of them."""


def taken_bytes(answer: Answer) -> float:
    """Most memory that the stack took: of the host as the suite saw it, of a device as the stack counts it.

    Raises:
        CannotJudgeError: memory was not counted.
    """
    where = answer.value("memory")
    if where == "device":
        return answer.number("peak_bytes")
    if where != "host":
        raise CannotJudgeError(f"memory of the answer is {where!r}, neither host nor device")
    if not answer.record.peak_bytes:
        raise CannotJudgeError("this machine does not report the memory of a process")
    return float(answer.record.peak_bytes)


@check("memory-predicted")
def memory_predicted(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Memory use is at least the prediction, except for an unused part, and not far above it."""
    answer = answer_of(case, criterion)
    taken, predicted = taken_bytes(answer), answer.number("predicted_bytes")
    most = 1 + (criterion.tolerance or 0)
    if not taken / most <= predicted <= taken * most:
        yield Problem(f"{taken:.4g} bytes were taken, {predicted:.4g} were predicted", (answer.entry,))


@check("memory-differences")
def memory_differences(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Where one factor of the shape is varied, memory changes as predicted: what does not depend on it cancels."""
    answer = answer_of(case, criterion)
    base = others(case, answer)[0]
    changed = {key for key in answer.question if answer.question[key] != base.question.get(key)}
    taken = taken_bytes(answer) - taken_bytes(base)
    predicted = answer.number("predicted_bytes") - base.number("predicted_bytes")
    if not abs(predicted - taken) <= (criterion.tolerance or 0) * abs(taken):
        names = " and ".join(sorted(changed))
        message = f"with other {names} {taken:.4g} bytes more were taken, {predicted:.4g} more were predicted"
        yield Problem(message, (answer.entry, base.entry))


@check("state-held")
def state_held(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Ranks that shard nothing hold the parameters that were asked for, and their moments, each."""
    answer = answer_of(case, criterion)
    taken, num_ranks = taken_bytes(answer), answer.question["num_ranks"]
    least = (BYTES_OF_PARAMETER + BYTES_OF_MOMENTS) * answer.question["num_parameters"] * num_ranks
    if not taken >= least:
        yield Problem(
            f"{counted(num_ranks, 'rank')} took {taken:.4g} bytes, their state alone takes {least:.4g}", (answer.entry,)
        )


@check("state-sharded")
def state_sharded(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Ranks that shard their state take less memory together than ranks that do not, and compute the same losses."""
    answer = answer_of(case, criterion)
    base = others(case, answer)[0]
    num_ranks, num_parameters = answer.question["num_ranks"], answer.question["num_parameters"]
    saved = taken_bytes(base) - taken_bytes(answer)
    moments = BYTES_OF_MOMENTS * num_parameters
    if not saved >= LEAST_SAVED * moments * (num_ranks - 1):
        message = (
            f"{counted(num_ranks, 'rank')} that were to shard their state took {saved:.4g} bytes less than without, "
        )
        yield Problem(f"{message}and one copy of the moments alone takes {moments:.4g}", (answer.entry, base.entry))
    shape = (answer.question["num_steps"],)
    losses, wanted = answer.array("losses", shape), base.array("losses", shape)
    if not np.allclose(losses, wanted, rtol=criterion.tolerance or 0, atol=0):
        message = f"losses are {losses.tolist()} with sharding, {wanted.tolist()} without"
        yield Problem(message, (answer.entry, base.entry))


@check("steady-steps")
def steady_steps(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The peak of the last step is that of the third one."""
    answer = answer_of(case, criterion)
    num_steps = answer.question["num_steps"]
    peaks = answer.array("peak_bytes", (num_steps,))
    early, late = float(peaks[:SETTLED_STEPS].max()), float(peaks[-1])
    if not early > 0:
        raise CannotJudgeError(f"the peak of the first steps is {early:g} bytes")
    if not abs(late - early) <= (criterion.tolerance or 0) * early:
        yield Problem(f"step {num_steps} takes {late:.4g} bytes, the first ones {early:.4g}", (answer.entry,))


@check("steady-process")
def steady_process(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A process of many steps takes no more, as the suite sees it, than one of few."""
    answer = answer_of(case, criterion)
    for other in others(case, answer):
        few, many = sorted((answer, other), key=lambda one: int(one.question["num_steps"]))
        before, after = float(few.record.peak_bytes), float(many.record.peak_bytes)
        if not before or not after:
            raise CannotJudgeError("this machine does not report the memory of a process")
        if after > before * (1 + (criterion.tolerance or 0)):
            steps = few.question["num_steps"], many.question["num_steps"]
            message = f"{after:.4g} bytes were taken for {steps[1]} steps, {before:.4g} for {steps[0]}"
            yield Problem(message, (many.entry, few.entry))
