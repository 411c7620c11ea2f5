"""Judges sums, roundings and compressors of a stack against float64."""

# ruff: noqa: N806 - shapes stand in names: S steps, D draws, C copies, E entries

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trainspec_conformance.answers import answer_of
from trainspec_conformance.arrays import Array
from trainspec_conformance.criteria import Case, Problem, check
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.model.units import counted

STANDARD_ERRORS = 4.0
BYTES_OF_FP32 = 4


@check("conserves")
def conserves(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Sent parts and residuals add up to the gradients: nothing is lost, some of it is delayed."""
    answer = answer_of(case, criterion)
    gradients_SE = answer.asked("gradients")
    sent_SE = answer.array("sent", gradients_SE.shape)
    residual_E = answer.array("residual", gradients_SE.shape[1:])
    total_E = gradients_SE.sum(0)
    off = float(np.linalg.norm(total_E - sent_SE.sum(0) - residual_E) / np.linalg.norm(total_E))
    if not off <= (criterion.tolerance or 0):
        yield Problem(f"the sum of gradients and the sum of sent and kept parts differ by {off:.3g}", (answer.entry,))


@check("contracts")
def contracts(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The omitted part of a vector is at most the part that the declared density allows."""
    answer = answer_of(case, criterion)
    gradients_SE = answer.asked("gradients")
    sent_SE = answer.array("sent", gradients_SE.shape)
    left_S = np.square(sent_SE - gradients_SE).sum(1) / np.square(gradients_SE).sum(1)
    most = 1 - answer.question["compression"]["density"] + (criterion.tolerance or 0)
    step = int(np.argmax(np.where(np.isnan(left_S), np.inf, left_S)))
    if not left_S[step] <= most:
        message = f"{left_S[step]:.4f} of the square of vector {step} is left out, at most {most:.4f} is allowed"
        yield Problem(message, (answer.entry,))


@check("wire-bytes")
def wire_bytes(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Reported bytes on the wire count the values and their indices."""
    answer = answer_of(case, criterion)
    gradients_SE, compression = answer.asked("gradients"), answer.question["compression"]
    num_steps, num_entries = gradients_SE.shape
    told_S = answer.array("wire_bytes", (num_steps,))
    sent_SE = answer.array("sent", gradients_SE.shape)
    num_sent_S = np.count_nonzero(sent_SE, axis=1)
    bits = {"fp16": 2.0, "bf16": 2.0}.get(compression["method"])
    if bits is None:
        place_bytes = math.ceil(math.log2(num_entries) / 8)
        least_S, most_S = num_sent_S * (BYTES_OF_FP32 + place_bytes), num_sent_S * 2 * BYTES_OF_FP32
    else:
        least_S = most_S = np.full(num_steps, bits * num_entries)
    slack = criterion.tolerance or 0
    if answer.value("dense_bytes") != BYTES_OF_FP32 * num_entries:
        yield Problem(f"a dense step is said to have {answer.value('dense_bytes')} bytes", (answer.entry,))
    if not ((told_S >= least_S * (1 - slack)) & (told_S <= most_S * (1 + slack))).all():
        message = f"{told_S[0]:g} bytes are reported for {num_sent_S[0]} values, wanted {least_S[0]:g} to {most_S[0]:g}"
        yield Problem(message, (answer.entry,))


@check("unbiased")
def unbiased(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The mean of many stochastic roundings is as near to the value as chance allows, and each is of the format."""
    answer = answer_of(case, criterion)
    values_E, num_draws = answer.asked("values"), answer.question["num_draws"]
    drawn_DE = answer.array("dequantised", (num_draws, len(values_E)))
    if not _is_bfloat16(drawn_DE):
        yield Problem("a number is not a value of the format", (answer.entry,))
        return
    spread = float(np.square(drawn_DE - values_E).sum(1).mean())
    allowed = float(np.square(values_E).sum()) * 2.0**-16
    if not 0 < spread <= allowed:
        message = f"roundings are off by {spread:.4g} in the mean of squares, at most {allowed:.4g} is allowed"
        yield Problem(message, (answer.entry,))
        return
    of_mean = float(np.square(drawn_DE.mean(0) - values_E).sum())
    ratio = of_mean / (spread / num_draws)
    off = criterion.tolerance or 0
    if not 1 / (1 + off) <= ratio <= 1 + off:
        yield Problem(
            f"the mean of {counted(num_draws, 'rounding')} is off {ratio:.3g} times the expected error", (answer.entry,)
        )


def _is_bfloat16(values: Array) -> bool:
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    return bool((narrow == values).all() and not (narrow.view(np.uint32) & np.uint32(0xFFFF)).any())


@check("small-updates")
def small_updates(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Increments below the resolution add up in the mean if rounded stochastically, and are lost if to nearest."""
    answer = answer_of(case, criterion)
    asked = answer.question
    values_C = answer.array("values", (asked["num_copies"],))
    if not _is_bfloat16(values_C):
        yield Problem("a parameter is not a value of the format", (answer.entry,))
    if asked["rounding"] == "nearest":
        if not (values_C == asked["start"]).all():
            yield Problem(f"the parameter is {values_C[0]}, rounding leaves it at {asked['start']}", (answer.entry,))
        return
    wanted = asked["start"] + asked["num_steps"] * asked["increment"]
    with np.errstate(over="ignore", invalid="ignore"):
        allowed = STANDARD_ERRORS * float(values_C.std(ddof=1)) / math.sqrt(len(values_C))
    if not allowed > 0 or not abs(values_C.mean() - wanted) <= allowed:
        message = f"the mean of copies is {values_C.mean():.6f}, steps add up to {wanted:.6f} +- {allowed:.2g}"
        yield Problem(message, (answer.entry,))


@check("sum-as-declared")
def sum_as_declared(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A sum is as near to that of float64 as the format of its reduction allows."""
    answer = answer_of(case, criterion)
    terms = answer.asked("gradients")
    sum_E = answer.array("sum", terms.shape[2:])
    wanted_E = terms.sum((0, 1))
    off = float(np.linalg.norm(sum_E - wanted_E) / np.linalg.norm(wanted_E))
    if not off <= (criterion.tolerance or 0):
        message = f"the sum differs by {off:.3g} from that of float64, {criterion.tolerance:.3g} is allowed"
        yield Problem(message, (answer.entry,))
