"""Rules on elastic sizes that need nodes, a search or a prediction of memory."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.batch import ElasticBatch
from trainspec_validate.model.units import bytes_, number
from trainspec_validate.performance.derived.state import state_bytes_per_rank
from trainspec_validate.performance.forecast.facts import Unpredictable, layout_of
from trainspec_validate.performance.forecast.predict import Prediction
from trainspec_validate.rules import NotApplicable, Uncovered, Violation, at, require, rule
from trainspec_validate.rules._forecast import prediction_of
from trainspec_validate.rules._groups import ask_group
from trainspec_validate.rules._lean_memory import MEASURE, UNMEASURED, lean_memory, leanest, needed_bytes
from trainspec_validate.rules._machine import at_machine, job_nodes, machine_of, memory_unknown
from trainspec_validate.rules._records import resized

MAX_LISTED = 8
"""Missed degrees that a finding names."""


def elastic_of(plan: TrainingPlan) -> ElasticBatch:
    """The elastic section.

    Raises:
        NotApplicable: the plan has none.
    """
    return require(plan.batch.elastic, "the job is not elastic")


@rule("TS-BAT-029")
def elastic_state(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The state that is sharded over fewer ranks still fits."""
    elastic, machine = elastic_of(plan), machine_of(plan, cluster)
    capacity, memory = machine.memory_bytes_per_rank, plan.memory
    if memory and memory.unified_memory != "none":
        raise NotApplicable("memory is shared with the host")
    if capacity is None:
        raise memory_unknown(machine)
    spare = (memory.reserve_bytes if memory else None) or 0
    least = {degree: state_bytes_per_rank(resized(plan, degree, 1)) + spare for degree in set(elastic.data_degrees)}
    fitting = [degree for degree, needed in least.items() if needed <= capacity]
    for position, degree in enumerate(elastic.data_degrees):
        if least[degree] > capacity:
            fits = f"the smallest listed degree that fits is {min(fitting)}" if fitting else "no listed degree fits"
            yield Violation(
                at(plan, "batch", "elastic", "data_degrees", position),
                f"with data {degree} the sharded state takes at least {bytes_(least[degree] - spare)} of a rank, and "
                f"{bytes_(spare)} are kept free, but a rank has {bytes_(capacity)}",
                f"leave {degree} out: {fits}",
                related=((at_machine(machine, "accelerator"), "the accelerator"),),
            )


@rule("TS-BAT-031")
def elastic_nodes(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Every size of several nodes fills them."""
    elastic, p = elastic_of(plan), plan.parallelism
    per_node, replica = job_nodes(plan, cluster, whole_job=True).ranks_per_node, p.tensor * p.pipeline * p.context
    step = per_node // gcd(per_node, replica)
    for position, degree in enumerate(elastic.data_degrees):
        ranks = degree * replica
        if not _fills_nodes(ranks, per_node):
            yield Violation(
                at(plan, "batch", "elastic", "data_degrees", position),
                f"data {degree} is {number(ranks)} ranks: {_nodes(ranks // per_node)} of {per_node} and "
                f"{ranks % per_node} accelerators of one more",
                f"use multiples of {step}: {degree // step * step or step} or {(degree // step + 1) * step}",
            )


@rule("TS-BAT-032")
def elastic_missed(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """No size between the listed ones is left out that the batch allows."""
    elastic, p, batch = elastic_of(plan), plan.parallelism, plan.batch
    if len(set(elastic.data_degrees)) < 2:
        raise NotApplicable("fewer than two sizes are listed")
    # Few jobs are elastic, and start-up would pay for the search.
    from trainspec_validate.performance.costs.elastic import Bounds, data_degrees  # noqa: PLC0415

    replica, per_node = p.tensor * p.pipeline * p.context, job_nodes(plan, cluster, whole_job=True).ranks_per_node
    low, high = min(elastic.data_degrees) * replica, max(elastic.data_degrees) * replica
    step = per_node if low >= per_node else 1
    possible = data_degrees(batch.global_sequences, elastic.micro_sequences, Bounds(low, high, replica, step))
    fitting = (
        degree for degree in possible if _experts_divide(plan, degree) and _fills_nodes(degree * replica, per_node)
    )
    missed = [degree for degree in fitting if degree not in elastic.data_degrees]
    if missed:
        listed = ", ".join(number(degree) for degree in missed[:MAX_LISTED])
        more = f" and {len(missed) - MAX_LISTED} more" if len(missed) > MAX_LISTED else ""
        every = ", ".join(str(degree) for degree in sorted({*elastic.data_degrees, *missed[:MAX_LISTED]}))
        yield Violation(
            at(plan, "batch", "elastic", "data_degrees"),
            f"the batch of {number(batch.global_sequences)} also divides over data {listed}{more}: with fewer sizes a "
            "lost node costs more ranks",
            f"list {every}",
        )


def _fills_nodes(num_ranks: int, per_node: int) -> bool:
    """Whether ranks fit into one node or fill several."""
    return num_ranks <= per_node or num_ranks % per_node == 0


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{number(count)} nodes"


def _experts_divide(plan: TrainingPlan, degree: int) -> bool:
    p = plan.parallelism
    return degree * p.context * p.tensor % (p.expert * (p.expert_tensor or p.tensor)) == 0


@rule("TS-BAT-030")
def elastic_memory(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """At every size some micro-batch is predicted to fit together with what fewer ranks hold of the state."""
    elastic = elastic_of(plan)
    if plan.memory is None or plan.memory.unified_memory != "none":
        raise NotApplicable("the plan has no memory section, or shares memory with the host")
    if plan.model.experts:
        raise Uncovered(at(plan, "model", "experts"), UNMEASURED, MEASURE)
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
        layout = leanest(plan, layout_of(smaller))
        _, memory = lean_memory(predicted.model, layout, predicted.settings)
    except (Unpredictable, ValueError):
        return None
    spare = (plan.memory.reserve_bytes if plan.memory else None) or 0
    if state_bytes_per_rank(smaller) + spare > predicted.machine.memory_bytes:
        return None
    return needed_bytes(memory, spare)
