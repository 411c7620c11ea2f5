"""Judges what an update does with a gradient, and where compressed updates lead to."""

# ruff: noqa: N806 - shapes stand in names: F factors, P parameters, R seeds, S steps

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainspec_conformance.answers import Answer, answer_of
from trainspec_conformance.arrays import Array, unpacked
from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check
from trainspec_validate.documents.types.scenario import Criterion

LAST_STEPS = 20
"""Steps at the end of which the mean loss is compared."""
STANDARD_DEVIATIONS = 2.0


def _updates(answer: Answer) -> Array:
    try:
        found_FP = unpacked(answer.value("updates"))
    except ValueError as error:
        raise CannotJudgeError(f"updates of the answer: {error}") from error
    if found_FP.ndim != 2 or len(found_FP) != len(answer.question["factors"]):
        raise CannotJudgeError(f"updates of the answer have the shape {list(found_FP.shape)}")
    if not (np.isfinite(found_FP).all() and np.square(found_FP).sum(1).all()):
        raise CannotJudgeError("an update is zero, or not finite")
    return found_FP


@check("updates-as-declared")
def updates_as_declared(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A gradient that is a factor larger changes the parameters by that factor more, up to the clipping limit.

    The first factor is 1 and gives the gradient; its norm is below the limit.
    """
    answer = answer_of(case, criterion)
    factors, limit = answer.question["factors"], answer.question["clip_norm"]
    found_FP = _updates(answer)
    gradient_P = found_FP[0] / factors[0]
    for factor, update_P in zip(factors, found_FP, strict=True):
        wanted_P = gradient_P * factor
        norm = float(np.linalg.norm(wanted_P))
        if limit is not None and norm > limit:
            wanted_P *= limit / norm
        off = float(np.linalg.norm(update_P - wanted_P) / np.linalg.norm(wanted_P))
        if not off <= (criterion.tolerance or 0):
            declared = "no clipping is declared" if limit is None else f"clipping at {limit:g} is declared"
            sizes = f"an update of norm {np.linalg.norm(update_P):.4g}, not {np.linalg.norm(wanted_P):.4g}"
            message = f"the gradient times {factor} gave {sizes}; {declared}"
            yield Problem(message, (answer.entry,))


@check("converges")
def converges(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """With compression the mean loss over seeds ends where it does without, within what seeds differ by."""
    answer = answer_of(case, criterion)
    shape = (len(answer.question["seeds"]), answer.question["num_steps"])
    dense_RS, compressed_RS = answer.array("dense", shape), answer.array("compressed", shape)
    for name, losses_RS in (("without", dense_RS), ("with", compressed_RS)):
        if not np.isfinite(losses_RS).all():
            yield Problem(f"a loss {name} compression is not finite", (answer.entry,))
            return
    if (dense_RS == compressed_RS).all():
        yield Problem("losses with compression are those without: nothing was compressed", (answer.entry,))
        return
    ends_R, others_R = dense_RS[:, -LAST_STEPS:].mean(1), compressed_RS[:, -LAST_STEPS:].mean(1)
    if not ends_R.mean() < dense_RS[:, 0].mean():
        raise CannotJudgeError("the job without compression did not learn")
    allowed = max(STANDARD_DEVIATIONS * float(ends_R.std(ddof=1)), (criterion.tolerance or 0) * float(ends_R.mean()))
    gap = float(others_R.mean() - ends_R.mean())
    if not gap <= allowed:
        message = f"the mean loss ends at {others_R.mean():.4g} with compression, at {ends_R.mean():.4g} without; "
        yield Problem(f"{message}seeds allow a gap of {allowed:.2g}", (answer.entry,))
