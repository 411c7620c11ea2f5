"""Judges gradient noise as a stack computes it, against float64 and against the truth."""

# ruff: noqa: N803, N806 - shapes stand in names: S steps, G groups, E entries

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np

from trainspec_conformance.answers import Answer, answer_of
from trainspec_conformance.arrays import Array
from trainspec_conformance.criteria import Case, Problem, check
from trainspec_conformance.numerics.noise import true_signal, true_variances
from trainspec_validate.documents.types.scenario import Criterion

STANDARD_DEVIATIONS = 4.0


def readings(gradients_SGE: Array, sizes: Array) -> tuple[Array, Array, Array]:
    """Signal, noise and norm of the mean gradient of each step, by the unbiased estimator for groups of any size."""
    num_groups, units = len(sizes), sizes.sum()
    mean_SE = np.einsum("g,sge->se", sizes / units, gradients_SGE)
    of_mean_S = np.square(mean_SE).sum(1)
    of_groups_S = np.square(gradients_SGE).sum(2) @ (sizes / units)
    signal_S = (num_groups * of_mean_S - of_groups_S) / (num_groups - 1)
    return signal_S, units * (of_groups_S - of_mean_S) / (num_groups - 1), np.sqrt(of_mean_S)


def _told(answer: Answer, num_steps: int) -> tuple[Array, Array, Array]:
    names = ("signal_sq", "noise_trace", "norms")
    signal_S, noise_S, norms_S = (answer.array(name, (num_steps,)) for name in names)
    return signal_S, noise_S, norms_S


@check("noise-readings")
def noise_readings(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Each step's signal, noise and norm are those of the gradients, whatever their scale and clipping."""
    answer = answer_of(case, criterion)
    gradients_SGE, sizes = answer.asked("gradients"), answer.asked("group_sizes")
    wanted = readings(gradients_SGE, sizes)
    found = _told(answer, len(gradients_SGE))
    applied_S = wanted[1] / sizes.sum()
    """Noise and signal are differences of larger numbers: errors are seen against those."""
    ranges = (wanted[2] ** 2 + applied_S, wanted[1], wanted[2])
    for name, mine_S, theirs_S, range_S in zip(("signal", "noise", "norm"), found, wanted, ranges, strict=True):
        off_S = np.abs(mine_S - theirs_S) / range_S
        step = int(np.argmax(np.where(np.isnan(off_S), np.inf, off_S)))
        if not off_S[step] <= (criterion.tolerance or 0):
            message = f"{name} of step {step} is {mine_S[step]:.6g}, its gradients have {theirs_S[step]:.6g}"
            yield Problem(message, (answer.entry,))


@check("noise-truth")
def noise_truth(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Means over all steps are the signal and the noise that the gradients were drawn with."""
    answer = answer_of(case, criterion)
    gradients_SGE, sizes = answer.asked("gradients"), answer.asked("group_sizes")
    signal_S, noise_S, _ = _told(answer, len(gradients_SGE))
    variances, truth = true_variances(), true_signal()
    trace = float(variances.sum())
    shares, num_groups, units = sizes / sizes.sum(), len(sizes), sizes.sum()
    pairs = num_groups**2 * (1 - np.square(shares).sum()) + np.square(num_groups * shares - 1).sum()
    of_noise = 2 * float(np.square(variances).sum()) * pairs / (units * (num_groups - 1)) ** 2
    of_signal = 4 * float(np.square(truth) @ variances) / units + of_noise
    """Variance of the signal of one step, of Gaussian gradients."""
    allowed = STANDARD_DEVIATIONS * math.sqrt(of_signal / len(signal_S))
    wanted = float(np.square(truth).sum())
    if not abs(signal_S.mean() - wanted) <= allowed:
        message = f"the mean signal is {signal_S.mean():.5g}, gradients were drawn with {wanted:.5g} +- {allowed:.2g}"
        yield Problem(message, (answer.entry,))
    if not abs(noise_S.mean() / trace - 1) <= (criterion.tolerance or 0):
        message = f"the mean noise is {noise_S.mean():.5g}, gradients were drawn with {trace:.5g}"
        yield Problem(message, (answer.entry,))


class Averages(msgspec.Struct, frozen=True):
    """Averages over steps, as a stack answers; it may report more."""

    signal_sq: float
    noise_trace: float
    noise_scale: float | None
    """None where the signal is not above zero."""


@check("noise-averages")
def noise_averages(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Averages of signal and noise are corrected for their start, and the noise scale is the ratio of them."""
    answer = answer_of(case, criterion)
    gradients_SGE = answer.asked("gradients")
    signal_S, noise_S, _ = readings(gradients_SGE, answer.asked("group_sizes"))
    ages_S = np.arange(len(signal_S))[::-1]
    weights_S = 0.5 ** (ages_S / answer.question["half_life_steps"])
    weights_S /= weights_S.sum()
    signal, noise = float(weights_S @ signal_S), float(weights_S @ noise_S)
    wanted = {"signal_sq": signal, "noise_trace": noise, "noise_scale": noise / signal if signal > 0 else None}
    told = answer.of_type("averages", Averages)
    for name, value in wanted.items():
        mine = getattr(told, name)
        if mine is None or value is None:
            is_right = mine is None and value is None
        else:
            is_right = abs(mine - value) <= (criterion.tolerance or 0) * abs(value)
        if not is_right:
            yield Problem(f"{name} is {mine!r}, the averages of the readings give {value!r}", (answer.entry,))
