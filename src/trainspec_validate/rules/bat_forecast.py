"""Predicts whether an elastic job still fits into memory at each of its sizes."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.model.units import bytes_
from trainspec_validate.performance.derived.state import state_bytes_per_rank
from trainspec_validate.performance.forecast.facts import Unpredictable, layout_of
from trainspec_validate.performance.forecast.predict import Prediction
from trainspec_validate.rules import NotApplicable, Violation, at, rule
from trainspec_validate.rules._forecast import prediction_of
from trainspec_validate.rules._groups import ask_group
from trainspec_validate.rules._lean_memory import UNMEASURED, lean_memory, needed_bytes
from trainspec_validate.rules._records import resized
from trainspec_validate.rules.bat_elastic import elastic_of


@rule("TS-BAT-030")
def elastic_memory(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """At every size some micro-batch is predicted to fit beside what fewer ranks hold of the state."""
    elastic = elastic_of(plan)
    if plan.memory is None or plan.memory.unified_memory != "none":
        raise NotApplicable("the plan has no memory section, or shares memory with the host")
    if plan.model.experts:
        raise NotApplicable(UNMEASURED)
    ask_group(plan, cluster)
    predicted = prediction_of(plan, cluster)
    capacity = predicted.machine.memory_bytes
    needed = {degree: _least_bytes(plan, predicted, degree) for degree in set(elastic.data_degrees)}
    fitting = [degree for degree, least in needed.items() if least is not None and least <= capacity]
    for position, degree in enumerate(elastic.data_degrees):
        least = needed[degree]
        if least is not None and least > capacity:
            fits = f"the smallest listed degree that fits is {min(fitting)}" if fitting else "no listed degree fits"
            yield Violation(
                at(plan, "batch", "elastic", "data_degrees", position),
                f"with data {degree} a rank is predicted to need {bytes_(least)} or more, and has {bytes_(capacity)}",
                f"leave {degree} out, or shard or recompute more: {fits}",
            )


def _least_bytes(plan: TrainingPlan, predicted: Prediction, degree: int) -> float | None:
    """Bytes with the smallest micro-batch that divides the batch at this degree; None where not even the state fits."""
    batch, elastic = plan.batch, elastic_of(plan)
    micros = [micro for micro in elastic.micro_sequences if batch.global_sequences % (degree * micro) == 0]
    try:
        smaller = resized(plan, degree, min(micros))
        layout = layout_of(smaller)
        _, memory = lean_memory(predicted.model, layout, predicted.settings)
    except (Unpredictable, ValueError):
        return None
    spare = (plan.memory.reserve_bytes if plan.memory else None) or 0
    if state_bytes_per_rank(smaller) + spare > predicted.machine.memory_bytes:
        return None
    return needed_bytes(memory, spare)
