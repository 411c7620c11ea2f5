"""Judges how a stack divides a batch, and how it scales its loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from trainspec_conformance.answers import Answer, answer_of
from trainspec_conformance.arrays import Array, unpacked
from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.model.units import counted


def _results(answer: Answer) -> list[tuple[dict[str, Any], float, Array]]:
    """Layout, loss and gradient of each result.

    Raises:
        CannotJudgeError: results are not of the layouts, or have another form.
    """
    layouts, results = answer.question["layouts"], answer.value("results")
    if not isinstance(results, list) or len(results) != len(layouts):
        raise CannotJudgeError(f"wanted results of {counted(len(layouts), 'layout')}")
    try:
        found = [
            (layout, float(one["loss"]), unpacked(one["gradient"]))
            for layout, one in zip(layouts, results, strict=True)
        ]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CannotJudgeError(f"a result has no loss and gradient: {error}") from error
    if len({gradient.shape for _, _, gradient in found}) != 1 or found[0][2].size == 0:
        raise CannotJudgeError("gradients of layouts have different shapes, or none")
    return found


@check("same-gradient")
def same_gradient(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """However a batch is divided over ranks and micro-batches, its gradient is the same."""
    answer = answer_of(case, criterion)
    (_, _, wanted), *others = _results(answer)
    norm = float(np.linalg.norm(wanted))
    if not norm > 0:
        yield Problem("the gradient is zero, or not a number", (answer.entry,))
        return
    for layout, _, gradient in others:
        off = float(np.linalg.norm(gradient - wanted)) / norm
        if not off <= (criterion.tolerance or 0):
            yield Problem(f"the gradient of {layout} differs by {off:.3g} of its norm", (answer.entry,))


class Sample(msgspec.Struct, frozen=True):
    """One sample alone, as a stack answers; it may report more."""

    num_targets: Annotated[int, Meta(ge=0, le=10**9)]
    loss: float


@check("loss-is-token-mean")
def loss_is_token_mean(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The loss of a batch is the mean over its targets: long samples weigh as much as they have targets."""
    answer = answer_of(case, criterion)
    samples = answer.of_type("samples", list[Sample])
    counts = np.array([one.num_targets for one in samples], np.float64)
    losses = np.array([one.loss for one in samples], np.float64)
    if len(counts) != len(answer.question["sample_ids"]) or not counts.sum() > 0 or len(set(counts)) == 1:
        raise CannotJudgeError("samples are not those asked for, or all are of one length")
    wanted = float(losses @ counts / counts.sum())
    for layout, loss, _ in _results(answer):
        if not abs(loss / wanted - 1) <= (criterion.tolerance or 0):
            yield Problem(f"the loss of {layout} is {loss!r}, the mean over targets {wanted!r}", (answer.entry,))


def scales(rule: dict[str, Any], overflows: Sequence[bool]) -> list[float]:
    """Scale of each step, and of the one after the last, by the rule of a plan."""
    found, good, tolerated = [float(rule["initial_scale"])], 0, 0
    for is_overflow in overflows:
        scale = found[-1]
        good = 0 if is_overflow else good + 1
        if is_overflow and tolerated < rule["hysteresis_steps"]:
            tolerated += 1
        elif is_overflow:
            scale = max(scale * rule["backoff_factor"], rule["min_scale"])
        elif good == rule["growth_interval_steps"]:
            scale, good, tolerated = scale * rule["growth_factor"], 0, 0
        found.append(scale)
    return found


@check("loss-scale")
def loss_scale(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The states of the loss scaler are exactly those that the rule gives."""
    answer = answer_of(case, criterion)
    overflows = answer.question["overflows"]
    wanted = scales(answer.question["loss_scaling"], overflows)
    told = [*answer.array("scales", (len(overflows),)), answer.value("next_scale")]
    for step, (mine, theirs) in enumerate(zip(told, wanted, strict=True)):
        if mine != theirs:
            yield Problem(f"the scale of step {step} is {mine}, by the rule {theirs}", (answer.entry,))
            return


@check("skips-overflows")
def skips_overflows(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """A step that overflows is skipped: no bit of the state changes, and neither step nor schedule counts it."""
    answer = answer_of(case, criterion)
    overflows = [bool(one) for one in answer.question["overflows"]]
    shape = (len(overflows),)
    skipped, unchanged = answer.array("skipped", shape), answer.array("unchanged", shape)
    if [bool(one) for one in skipped] != overflows:
        yield Problem("steps that were skipped are not those that overflowed", (answer.entry,))
    if [bool(one) for one in unchanged] != overflows:
        yield Problem("the state changed in a step that was skipped, or did not in another", (answer.entry,))
    if list(answer.array("updates", shape)) != list(np.cumsum([not one for one in overflows])):
        yield Problem("the number of counted steps differs from the number of applied steps", (answer.entry,))
    rates = answer.array("learning_rates", shape)
    after_skip = [step for step in range(1, len(overflows)) if overflows[step - 1]]
    if any(rates[step] != rates[step - 1] for step in after_skip):
        yield Problem("the learning rate changes in a step that was skipped", (answer.entry,))
