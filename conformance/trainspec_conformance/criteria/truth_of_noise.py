"""Compares gradient noise in a metric stream with the norms of the gradients it was read from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from trainspec_conformance import told
from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check
from trainspec_conformance.criteria.trajectory import final_steps
from trainspec_conformance.view import View
from trainspec_validate.documents.types.scenario import Criterion

VARIANCE, SIGNAL = "train.gradient.variance", "train.gradient.signal"
_SIZES, _GROUPS = "train.gradient.group_sizes", "train.gradient.num_groups"


@check("noise-as-seen")
def noise_as_seen(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Signal, and variance over the batch, add up to the average of the squared norms that the trace has.

    In each reading they do so exactly: with q the squared norm of the mean gradient, the unbiased signal is
    (W q - m) / (W - 1) and the variance over the batch (m - q) / (W - 1), whatever the norms m of the W groups are.
    """
    half_life = case.scenario.job.gradient_noise_half_life_steps
    norms = {step: one.gradient_norm for step, one in final_steps(case.trial).items()}
    variances, signals = told.of_job(case.trial, VARIANCE), told.of_job(case.trial, SIGNAL)
    common = sorted(variances.keys() & signals.keys())
    if not common or half_life is None or any(norm is None for norm in norms.values()):
        raise CannotJudgeError("the stream has no gradient noise, or the trace no norms")
    units = _units(case.trial)
    steps = sorted(norms)
    averages = [0.0, *_averages([(step, norms[step] or 0.0) for step in steps], half_life)]
    for key in common:
        total = signals[key].value + variances[key].value / units
        # A reading may be told before or after the step that it is of is counted.
        wanted = [averages[bisect_right(steps, last)] for last in (key[1], key[1] + 1)]
        if not any(abs(total - one) <= (criterion.tolerance or 0) * one for one in wanted):
            message = f"signal and applied variance at step {key[1]} add up to {total:.6g}, squared norms to "
            yield Problem(f"{message}{wanted[0]:.6g} in the mean", (variances[key].entry, signals[key].entry))


def _averages(norms: Iterable[tuple[int, float]], half_life: float) -> Iterator[float]:
    """Average of the squares up to each step, in which each step before counts less."""
    total, weight, last = 0.0, 0.0, 0
    for step, norm in norms:
        share = 0.5 ** ((step - last) / half_life)
        total, weight, last = share * total + norm * norm, share * weight + 1.0, step
        yield total / weight


def _units(view: View) -> float:
    """Noise units of a step, by what the stream declares of its groups.

    Raises:
        CannotJudgeError: it declares none.
    """
    for head in told.heads(view):
        sizes, count = head.attributes.get(_SIZES), head.attributes.get(_GROUPS)
        if isinstance(sizes, Sequence) and not isinstance(sizes, str) and sizes and isinstance(count, int):
            return float(sum(sizes) if len(sizes) == count else sizes[0] * count)
    raise CannotJudgeError(f"no head declares {_SIZES} and {_GROUPS}")
