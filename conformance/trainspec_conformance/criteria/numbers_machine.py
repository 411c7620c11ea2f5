"""Judges rates of kernels, and energy, by what was measured in one run of one machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trainspec_conformance.answers import Answer, answer_of
from trainspec_conformance.arrays import Array
from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.rules.prc_kernels import FLOORS, NUM_TIMED, NUM_WARMUP

OWED = ("matmul", "attention", "normalization", "activation")
_OF_PRODUCT, _OF_COPY = "roofline-matmul", "device-copy"
_FORWARD_AND_BACKWARD = 3.5


def amount(kernel: Mapping[str, Any], element_bytes: int) -> float:
    """Operations of a product or of causal attention, bytes of what moves memory.

    Raises:
        CannotJudgeError: dimensions are not those of the operation.
    """
    name, sizes = kernel["operation"], [int(one) for one in kernel["dimensions"]]
    match name, sizes:
        case ("matmul" | "roofline-matmul", [rows, inner, columns]):
            return 2.0 * rows * inner * columns
        case ("attention", [batch, heads, length, width]):
            return 2.0 * batch * heads * length * length * width * _FORWARD_AND_BACKWARD
        case ("normalization" | "activation" | "device-copy", [*_]):
            return 2.0 * math.prod(sizes) * element_bytes
        case ("host-to-device-copy", [num_bytes]):
            return float(num_bytes)
        case _:
            raise CannotJudgeError(f"{name} of dimensions {sizes} is not known")


def _rates(answer: Answer, key: str) -> list[tuple[str, float, Mapping[str, Any]]]:
    """Operation, rate, and what was told of it."""
    element_bytes = {"bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2}.get(str(answer.value("format")), 4)
    try:
        return [
            (str(one["operation"]), amount(one, element_bytes) / float(one["median_seconds"]), one)
            for one in answer.value(key)
        ]
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise CannotJudgeError(f"{key} of the answer are not kernels with times: {error}") from error


@check("kernels-above-floors")
def kernels_above_floors(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Each kernel reaches its share of what the same device reached in the same run."""
    answer = answer_of(case, criterion)
    if answer.number("num_warmup_runs") < NUM_WARMUP or answer.number("num_timed_runs") < NUM_TIMED:
        yield Problem(f"medians are of fewer than {NUM_TIMED} runs after {NUM_WARMUP}", (answer.entry,))
    best = {_OF_PRODUCT: 0.0, _OF_COPY: 0.0}
    for name, rate, _ in _rates(answer, "rooflines"):
        best[name] = max(rate, best.get(name, 0.0))
    if not min(best.values()) > 0:
        raise CannotJudgeError("the run has no roofline of products, or none of copies")
    kernels = _rates(answer, "kernels")
    for name in OWED:
        if name not in {one for one, _, _ in kernels}:
            yield Problem(f"no {name} was measured", (answer.entry,))
    for name, rate, told in kernels:
        if name not in FLOORS:
            raise CannotJudgeError(f"{name} is not a kernel with a floor")
        roofline = _roofline(name, told, best)
        if roofline is not None and not rate >= FLOORS[name][0] * roofline:
            message = f"{name} of {told['dimensions']} reaches {rate / roofline:.2f} of its roofline, "
            yield Problem(f"{message}at least {FLOORS[name][0]:.2f} is required", (answer.entry,), by_load=True)


def _roofline(name: str, told: Mapping[str, Any], best: Mapping[str, float]) -> float | None:
    if name == "host-to-device-copy":
        link = told.get("roofline_per_second")
        return float(link) if isinstance(link, int | float) and 0 < link < math.inf else None
    return best[_OF_PRODUCT if name in {"matmul", "attention"} else _OF_COPY]


def _readings(answer: Answer, key: str) -> Array:
    """A series in which null stands for what was not read."""
    told = answer.value(key)
    if not isinstance(told, Sequence) or isinstance(told, str):
        raise CannotJudgeError(f"{key} of the answer is not a list")
    return answer.array(key, (len(told),))


@check("energy-counted")
def energy_counted(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A counter of energy never falls, and grows by what the readings of power add up to over the same time."""
    answer = answer_of(case, criterion)
    seconds, joules, watts = (_readings(answer, key) for key in ("seconds", "joules", "watts"))
    if not len(seconds) == len(joules) == len(watts) or len(seconds) < 10:
        raise CannotJudgeError("energy and power samples have no times, or are fewer than ten")
    if (np.diff(seconds) <= 0).any() or seconds[-1] - seconds[0] < answer.question["seconds"] * 0.9:
        yield Problem("samples are not in time order, or end before the load", (answer.entry,))
    counted, metered = np.isfinite(joules), np.isfinite(watts)
    if counted.sum() < 2 or metered.sum() < 2:
        raise CannotJudgeError("there is no energy counter, or no power meter")
    if (np.diff(joules[counted]) < 0).any():
        yield Problem("the energy counter decreases", (answer.entry,))
    if (watts[metered] <= 0).any():
        yield Problem("a power of zero is reported where none was read: a missing value is null", (answer.entry,))
    both = np.flatnonzero(counted)
    first, last = both[0], both[-1]
    grown = joules[last] - joules[first]
    inside = metered & (seconds >= seconds[first]) & (seconds <= seconds[last])
    summed = float(np.trapezoid(watts[inside], seconds[inside]))
    covered = float(np.ptp(seconds[inside])) if inside.any() else 0.0
    if covered < 0.9 * (seconds[last] - seconds[first]):
        raise CannotJudgeError("power was sampled for less than nine tenths of the time")
    if not abs(grown - summed) <= (criterion.tolerance or 0) * abs(summed):
        message = f"the counter grew by {grown:.4g} J, power samples add up to {summed:.4g} J"
        yield Problem(message, (answer.entry,))
