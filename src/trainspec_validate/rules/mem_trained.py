"""Rules on frozen parameters and low-rank adapters."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.documents.types.adapters import Lora
from trainspec_validate.model.units import base, billions, number
from trainspec_validate.performance.costs.adapters import target_sides
from trainspec_validate.performance.derived.plan import shape_of
from trainspec_validate.performance.derived.trained import lora_parameters, num_parameters
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, require, rule
from trainspec_validate.rules._uncounted import not_a_shape

COUNT_TOLERANCE = 0.01
"""Published counts of adapters have two or three digits."""
JOINT = {"query-key-value": ("query", "key", "value"), "gate-up": ("gate", "up")}
JOINT |= {f"expert-{name}": tuple(f"expert-{part}" for part in parts) for name, parts in (("gate-up", ("gate", "up")),)}


def _lora(plan: TrainingPlan) -> Lora:
    return require(plan.lora, "the plan has no low-rank adapters")


@rule("TS-MEM-027")
def lora_count(plan: TrainingPlan) -> Iterator[Violation]:
    """Stated trained parameters are those of the adapters."""
    lora, stated, counted = _lora(plan), plan.num_parameters_trained, lora_parameters(plan)
    if stated is None:
        count = "" if counted is None else f"; adapters of rank {number(lora.rank)} have {number(counted)} in its shape"
        reason = f"has adapters without num_parameters_trained{count}"
        raise Unresolved(at(plan, "lora"), reason, "state it as the framework prints it, so that targets are checked")
    if counted is None:
        raise not_a_shape(plan, at(plan, "lora"), "gives a shape from which the parameters of adapters are not counted")
    if abs(stated - counted) > COUNT_TOLERANCE * counted:
        yield Violation(
            at(plan, "num_parameters_trained"),
            f"{number(stated)} parameters are stated as trained, but adapters of rank {number(lora.rank)} on "
            f"{', '.join(lora.targets)} have {number(counted)}",
            f"set num_parameters_trained to {base(round(counted))}, or correct rank and targets",
            related=((at(plan, "lora"), "the adapters"),),
        )


@rule("TS-MEM-028")
def trained_part(plan: TrainingPlan) -> Iterator[Violation]:
    """No more parameters are trained than the model has."""
    stated, total = plan.num_parameters_trained, num_parameters(plan.model)
    if stated is None:
        raise NotApplicable("the plan states no trained parameters")
    if stated > total:
        yield Violation(
            at(plan, "num_parameters_trained"),
            f"{billions(stated)} parameters are trained, but the model has {billions(total)}",
            "correct the count; without it all parameters are trained",
        )


@rule("TS-MEM-029")
def frozen_format(plan: TrainingPlan) -> Iterator[Violation]:
    """A format of frozen parameters is given where parameters are frozen."""
    if plan.precision.frozen_parameters is None:
        raise NotApplicable("no format of frozen parameters is given")
    stated = plan.num_parameters_trained
    if plan.lora is None and (stated is None or stated >= plan.model.num_parameters):
        yield Violation(
            at(plan, "precision", "frozen_parameters"),
            f"frozen parameters are in {plan.precision.frozen_parameters}, but all parameters are trained",
            "give num_parameters_trained or lora, or remove frozen_parameters",
        )


@rule("TS-MEM-030")
def lora_targets(plan: TrainingPlan) -> Iterator[Violation]:
    """Adapters are on matrices that the model has, and one on each."""
    lora, shape = _lora(plan), shape_of(plan.model)
    known = target_sides(shape) if shape else None
    for position, target in enumerate(lora.targets):
        place = at(plan, "lora", "targets", position)
        if target in lora.targets[:position]:
            yield Violation(place, f"{target} is listed twice", "list each matrix once")
        parts = [part for part in JOINT.get(target, ()) if part in lora.targets]
        if parts:
            yield Violation(
                place,
                f"{target} has one adapter for {', '.join(JOINT[target])}, and {parts[0]} is listed too",
                "list the joint projection or its parts",
            )
        if known is not None and target not in known:
            yield Violation(place, f"the model has no matrix {target}", f"it has {', '.join(sorted(known))}")
