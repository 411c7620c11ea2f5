"""Compares reported learning rates and norms of the gradient with what optimizer steps did to the checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check
from trainspec_conformance.criteria.trajectory import Step, final_steps
from trainspec_conformance.records import Applied, Entry, Unread
from trainspec_validate.documents.types.scenario import Criterion

RATE_TOLERANCE = 0.05
"""Relative; a stack whose optimizer counts one step more than the run corrects its moments by 2 % less at step 30."""
NORM_TOLERANCE = 0.01
CLIP_TOLERANCE = 0.001
"""Relative difference of two norms that were clipped to one threshold."""
MOST_SPREAD = 1.05
"""Quotient of the largest and the smallest rate of a step up to which all parameters have one rate."""
MOST_DECAY = 1.0
"""Weight decay that a stack may add to the gradient."""


@dataclass(frozen=True)
class _Found:
    """One optimizer step, as it was reported and as its checkpoints show it."""

    entry: Entry
    record: Applied
    reported: Step
    rates: tuple[float, float]
    """Lowest and highest of the rates that are reported for this step and for those next to it."""


@check("steps-as-applied")
def steps_as_applied(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Checkpoints that are one optimizer step apart show the learning rate and the gradient norm that are reported.

    Judged are steps of Adam with both moments in the checkpoint, as most of the steps are; the report says where none
    are. A parameter whose moments change moves.
    """
    done = final_steps(case.trial)
    if not done:
        raise CannotJudgeError("the trace reports no step")
    found = []
    for entry, record in case.trial.of(Applied):
        near = [done[step].learning_rate for step in range(record.step - 1, record.step + 2) if step in done]
        if record.step in done and min(near) > 0:
            found.append(_Found(entry, record, done[record.step], (min(near), max(near))))
    if not found:
        reasons = [record.reason for _, record in case.trial.of(Unread)] or ["no checkpoints of such steps are left"]
        yield Problem(f"what optimizer steps applied was not judged: {reasons[0]}", is_remark=True)
        return
    yield from _rates(found)
    yield from _resting(found)
    yield from _norms(found)


def _rates(found: Sequence[_Found]) -> Iterator[Problem]:
    judged = [one for one in found if one.record.rates]
    other = [one for one in judged if not any(_is_reported(rate, one) for rate in one.record.rates)]
    if 2 * len(other) <= len(judged):
        return
    one = other[0]
    low, high = min(one.record.rates), max(one.record.rates)
    if not 0 < high <= MOST_SPREAD * low:
        message = f"the learning rate was not judged: parameters have rates from {low:.3g} to {high:.3g}"
        yield Problem(message, (one.entry,), is_remark=True)
        return
    message = f"the learning rate of step {one.record.step} is {one.reported.learning_rate:.4g} as reported, "
    yield Problem(f"{message}{high:.4g} by the values before and after it", (one.entry, one.reported.entry))


def _is_reported(rate: float, one: _Found) -> bool:
    """Whether a rate is that of the step or one next to it; an optimizer may leave its moments uncorrected."""
    low, high = one.rates[0] * (1 - RATE_TOLERANCE), one.rates[1] * (1 + RATE_TOLERANCE)
    return any(low <= value <= high for value in (rate, rate * one.record.correction))


def _resting(found: Sequence[_Found]) -> Iterator[Problem]:
    resting = [one for one in found if one.record.resting]
    idle = [one for one in found if one.record.idle]
    if len(idle) == len(found):
        names = ", ".join(idle[0].record.idle[:5])
        yield Problem(f"optimizer steps left {names} as they were", (idle[0].entry,), is_remark=True)
    if 2 * len(resting) > len(found):
        names = ", ".join(resting[0].record.resting[:5])
        message = f"step {resting[0].record.step} changed the moments of {names}, and left the values as they were"
        yield Problem(message, (resting[0].entry,))


def _norms(found: Sequence[_Found]) -> Iterator[Problem]:
    judged = [one for one in found if one.reported.gradient_norm is not None]
    if not judged or any(_fits(judged, decay) for decay in _decays(judged)):
        return
    one = max(judged, key=lambda each: abs(math.log(_norm(each, 0.0) / _reported(each))))
    message = f"the norm of the gradient of step {one.record.step} is {_reported(one):.4g} as reported, "
    yield Problem(f"{message}{_norm(one, 0.0):.4g} by the moments before and after it", (one.entry, one.reported.entry))


def _fits(judged: Sequence[_Found], decay: float) -> bool:
    """Whether each norm is the reported one, or all that are smaller are one threshold that no norm is above."""
    norms = [(_norm(one, decay), _reported(one)) for one in judged]
    if any(norm > reported * (1 + NORM_TOLERANCE) for norm, reported in norms):
        return False
    clipped = [norm for norm, reported in norms if norm < reported * (1 - NORM_TOLERANCE)]
    is_partial = any(one.record.others for one in judged)
    return is_partial or not clipped or max(norms)[0] <= min(clipped) * (1 + CLIP_TOLERANCE)


def _reported(one: _Found) -> float:
    return max(one.reported.gradient_norm or 0.0, 1e-30)


def _norm(one: _Found, decay: float) -> float:
    """Norm of the gradient that the moments took, without the decay of values that a stack adds to it."""
    record = one.record
    squared = record.squared_norm - 2 * decay * record.dot + decay**2 * record.squared_values
    return math.sqrt(max(squared, 1e-60))


def _decays(judged: Sequence[_Found]) -> list[float]:
    """Decays with which one norm is the reported one, or the first two norms are the same; 0 is the first of them."""
    found = [0.0]
    for one in judged:
        record = one.record
        found += _roots(record.squared_values, -2 * record.dot, record.squared_norm - _reported(one) ** 2)
    for one, other in pairwise(judged[:2]):
        mine, theirs = one.record, other.record
        difference = mine.squared_values - theirs.squared_values, 2 * (theirs.dot - mine.dot)
        found += _roots(*difference, mine.squared_norm - theirs.squared_norm)
    return [decay for decay in found if 0 <= decay <= MOST_DECAY]


def _roots(square: float, linear: float, constant: float) -> list[float]:
    inner = linear**2 - 4 * square * constant
    if not square or inner < 0:
        return []
    return [(-linear + sign * math.sqrt(inner)) / (2 * square) for sign in (-1, 1)]
