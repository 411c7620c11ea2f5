"""Rules on placement that compare predictions."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.model.units import bytes_, seconds
from trainspec_validate.performance.costs.bandwidth import bus_bandwidth_factor
from trainspec_validate.performance.derived.job import used_axes
from trainspec_validate.performance.forecast.outlook import Outlook, Settings, outlook, planned_collectives
from trainspec_validate.performance.forecast.predict import Prediction
from trainspec_validate.rules import NotApplicable, Violation, at, rule
from trainspec_validate.rules._forecast import prediction_of

WORTH = 1.35
"""How much longer a step takes than with the best order before it is said: a prediction errs by that in one run of ten
(`costs.step_compute.CALIBRATION`). The requirement states the number."""


@rule("TS-TOP-024")
def predicted_dimension_order(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """No other order of the axes makes the step much faster."""
    in_use = set(used_axes(plan))
    used = [axis for axis in plan.parallelism.order if axis in in_use]
    if len(set(used)) < len(used):
        raise NotApplicable("the order names an axis more than once")
    fixed = {placement.axis for placement in plan.parallelism.placements if placement.reason}
    if len(set(used) - fixed) < 2:
        raise NotApplicable("fewer than two axes could change their places")
    predicted = prediction_of(plan, cluster)
    step = predicted.outlook.step
    if step.seconds <= WORTH * (step.seconds - sum(step.exposed_seconds.values())):
        return
    best, order = min(_candidates(predicted, used, fixed), key=lambda one: one[0].step.seconds, default=(None, ()))
    if best is not None and step.seconds > WORTH * best.step.seconds:
        better = replace(predicted.settings, order=order)
        sent, least = leaving_bytes(predicted, predicted.settings), leaving_bytes(predicted, better)
        yield Violation(
            at(plan, "parallelism", "order"),
            f"with the order {', '.join(used)} a step is predicted to take {seconds(step.seconds)}, and each rank "
            f"sends {bytes_(sent)} out of its domain; with {', '.join(order)} it is {seconds(best.step.seconds)} and "
            f"{bytes_(least)}",
            f"use order: [{', '.join(order)}], or give the reason in the placement of an axis",
        )


def _candidates(
    predicted: Prediction, used: Sequence[str], fixed: Container[str]
) -> Iterator[tuple[Outlook, tuple[str, ...]]]:
    """Every nested order that leaves axes with a reason in their places, with what is predicted of it."""
    for order in permutations(used):
        if not _nested(order) or any(order[index] != axis for index, axis in enumerate(used) if axis in fixed):
            continue
        settings = replace(predicted.settings, order=order)
        try:
            yield outlook(predicted.model, predicted.machine, predicted.layout, settings), order
        except ValueError:
            continue


def _nested(order: Sequence[str]) -> bool:
    """Whether an order is one that TS-TOP-021 asks for."""
    after = order[order.index("pipeline") :] if "pipeline" in order else ()
    return (order[0] == "tensor" or "tensor" not in order) and not {"context", "expert"} & set(after)


def leaving_bytes(predicted: Prediction, settings: Settings) -> float:
    """Bytes that a rank sends out of its scale-up domain in a step, on average over ranks and by rings.

    A ring leaves each domain once; an all-to-all sends each member outside its own part.
    """
    total = 0.0
    for item in planned_collectives(predicted.model, predicted.machine, predicted.layout, settings):
        network, sent = item.network, item.transfer
        if network.num_domains == 1:
            continue
        moved = bus_bandwidth_factor(sent.operation, network.num_ranks) * sent.message_bytes * sent.count
        near = network.ranks_per_domain
        if sent.operation == "all-to-all":
            total += moved * (network.num_ranks - near) / (network.num_ranks - 1)
        else:
            total += moved / near
    return total
