"""Rules on the optimizer of a plan: its moments, the bytes of its state, and what an auxiliary optimizer updates."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.documents.types.optimizer import Optimizer
from trainspec_validate.model.units import base, billions, number
from trainspec_validate.performance.costs.optimizer_state import NUM_MOMENTS
from trainspec_validate.performance.derived.optimizer import implied_state
from trainspec_validate.performance.derived.plan import shape_of
from trainspec_validate.performance.derived.trained import num_trained
from trainspec_validate.rules import NotApplicable, Uncovered, Unresolved, Violation, at, require, rule
from trainspec_validate.rules._uncounted import not_a_shape

BYTES_TOLERANCE = 0.25
"""Scales of 8-bit moments take a little more than a byte; the same quarter as of the whole state."""


def _optimizer(plan: TrainingPlan) -> Optimizer:
    return require(plan.optimizer, "the plan has no optimizer section; it is taken to use Adam")


@rule("TS-MEM-023")
def optimizer_moments(plan: TrainingPlan) -> Iterator[Violation]:
    """Declared moments are as many as the algorithm keeps, and every section declares the same ones."""
    optimizer, precision = _optimizer(plan), plan.precision
    declared: dict[tuple[str, ...], tuple[str, int | None]] = {
        ("optimizer", "moments"): (optimizer.name, _length(optimizer.moments)),
        ("precision", "num_optimizer_moments"): (optimizer.name, precision.num_optimizer_moments),
    }
    if optimizer.auxiliary:
        other = optimizer.auxiliary
        declared["optimizer", "auxiliary", "moments"] = (other.name, _length(other.moments))
    if not any(count is not None for _, count in declared.values()):
        raise NotApplicable("the plan declares no moments")
    for place, (name, count) in declared.items():
        least, _, most = NUM_MOMENTS.get(name, (0, 0, 8))
        if count is not None and not least <= count <= most:
            right = f"{least}" if least == most else f"{least} to {most}"
            yield Violation(
                at(plan, *place),
                f"{name} keeps {right} moment{'' if right == '1' else 's'} of each parameter, but {number(count)} "
                f"{'is' if count == 1 else 'are'} declared",
                "correct the number of moments, or the name of the optimizer",
            )
    yield from _contradictions(plan, optimizer)


def _length(formats: tuple[str, ...] | None) -> int | None:
    return None if formats is None else len(formats)


def _contradictions(plan: TrainingPlan, optimizer: Optimizer) -> Iterator[Violation]:
    precision, moments = plan.precision, optimizer.moments
    if moments is None:
        return
    related = ((at(plan, "optimizer", "moments"), "the moments"),)
    count = precision.num_optimizer_moments
    if count is not None and count != len(moments):
        yield Violation(
            at(plan, "precision", "num_optimizer_moments"),
            f"{number(count)} moments are declared here, but optimizer.moments has {number(len(moments))}",
            "remove num_optimizer_moments",
            related=related,
        )
    wanted = precision.optimizer_state
    if wanted is not None and any(name != wanted for name in moments):
        yield Violation(
            at(plan, "precision", "optimizer_state"),
            f"moments are in {wanted} here, but optimizer.moments has {', '.join(moments)}",
            "remove optimizer_state, or give the moments its format",
            related=related,
        )


@rule("TS-MEM-024")
def optimizer_bytes(plan: TrainingPlan) -> Iterator[Violation]:
    """Stated bytes of optimizer state are those of its moments and factors."""
    optimizer = _optimizer(plan)
    stated = require(optimizer.bytes_per_parameter, "the plan states no bytes of optimizer state")
    implied = implied_state(optimizer, plan.precision, plan.model, num_trained(plan))
    if implied.unknown is not None:
        raise Unresolved(at(plan, "optimizer"), f"does not give {implied.unknown}", "add what is known")
    if abs(stated - implied.num_bytes) > BYTES_TOLERANCE:
        yield Violation(
            at(plan, "optimizer", "bytes_per_parameter"),
            f"{number(stated)} bytes per parameter are stated, but {optimizer.name} keeps "
            f"{number(round(implied.num_bytes, 3))} in these formats",
            f"set bytes_per_parameter to {number(round(implied.num_bytes, 3))}, or correct the moments; "
            "master weights are not counted here",
        )


@rule("TS-MEM-025")
def auxiliary_part(plan: TrainingPlan) -> Iterator[Violation]:
    """An auxiliary optimizer steps some of the trained parameters."""
    other = require(_optimizer(plan).auxiliary, "one optimizer updates all parameters")
    trained = num_trained(plan)
    if other.num_parameters > trained:
        yield Violation(
            at(plan, "optimizer", "auxiliary", "num_parameters"),
            f"the auxiliary optimizer steps {billions(other.num_parameters)} parameters, but "
            f"{billions(trained)} are trained",
            "count the parameters that the main optimizer leaves out",
        )


@rule("TS-MEM-026")
def muon_matrices(plan: TrainingPlan) -> Iterator[Violation]:
    """Under Muon, another optimizer updates the embeddings and the output layer."""
    optimizer, shape = _optimizer(plan), shape_of(plan.model)
    if optimizer.name != "muon":
        raise NotApplicable("the optimizer is not Muon")
    if shape is None or num_trained(plan) < plan.model.num_parameters:
        reason = "gives a shape from which embeddings and output layer are not counted, or trains a part of it"
        place = at(plan, "model")
        raise not_a_shape(plan, place, reason) if shape is None else Uncovered(place, reason)
    tables = shape.embedding_parameters * (1 if shape.tied_embeddings else 2)
    updated = optimizer.auxiliary.num_parameters if optimizer.auxiliary else 0.0
    if updated < 0.99 * tables:
        where = ("optimizer", "auxiliary", "num_parameters") if optimizer.auxiliary else ("optimizer", "name")
        yield Violation(
            at(plan, *where),
            f"embeddings and output layer have {billions(tables)} parameters, but an auxiliary optimizer steps "
            f"{billions(updated) if updated else 'none of them'}",
            f"declare auxiliary: {{name: adamw, num_parameters: {base(tables)}}} or more",
        )
