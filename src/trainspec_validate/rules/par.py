"""Rules on parallel degrees, pipelines and synchrony."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.parallelism import Axis
from trainspec_validate.model.units import number, percent
from trainspec_validate.performance.costs.stage_memory import stages
from trainspec_validate.performance.costs.transformer import parameters, pipeline_idle_ratio
from trainspec_validate.performance.derived.plan import node_groups, num_ranks, shape_of
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, rule
from trainspec_validate.rules._groups import check_group
from trainspec_validate.rules._uncounted import not_a_shape

CHUNKED_SCHEDULES = frozenset({"interleaved-1f1b", "zero-bubble", "dual-pipe", "other"})
"""Schedules whose ranks can hold several pipeline chunks."""
MAX_IDLE_RATIO = 0.5
"""Idle time over busy time of a pipeline rank, above which more micro-batches pay."""
ZERO_BUBBLE_FACTOR = 1 / 3
"""Share of the 1F1B bubble that the weakest zero-bubble schedule leaves."""


@rule("TS-PAR-001")
def world_size(plan: TrainingPlan) -> Iterator[Violation]:
    """The degrees multiply to the ranks of the job."""
    p = plan.parallelism
    product = p.data * p.tensor * p.pipeline * p.context
    if product == p.num_accelerators:
        return
    rest = p.tensor * p.pipeline * p.context
    other = f", or data to {p.num_accelerators // rest}" if p.num_accelerators % rest == 0 else ""
    yield Violation(
        at(plan, "parallelism", "num_accelerators"),
        f"data {p.data} x tensor {p.tensor} x pipeline {p.pipeline} x context {p.context} "
        f"is {number(product)}, but the job has {number(p.num_accelerators)} ranks",
        f"set num_accelerators to {product}{other}",
    )


@rule("TS-PAR-002")
def ranks_fit_cluster(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The cluster has a place for every rank."""
    check_group(plan, cluster)
    groups = node_groups(plan, cluster)
    offered = num_ranks(groups)
    wanted = plan.parallelism.num_accelerators
    if wanted > offered:
        names = ", ".join(group.name for group in groups)
        yield Violation(
            at(plan, "parallelism", "num_accelerators"),
            f"the job has {number(wanted)} ranks, but {cluster.metadata.name} offers {number(offered)} in {names}",
            f"use at most {offered} ranks, or name the cluster that the plan is for",
            related=((at(cluster, "node_groups"), f"accelerators for {number(offered)} ranks"),),
        )


@rule("TS-PAR-003")
def expert_degree(plan: TrainingPlan) -> Iterator[Violation]:
    """Expert ranks are taken evenly from the other ranks of a stage, and experts divide over them."""
    p, experts = plan.parallelism, plan.model.experts
    if p.expert == 1 and p.expert_tensor is None:
        raise NotApplicable("the plan has no expert parallelism")
    key = "expert" if p.expert > 1 else "expert_tensor"
    if experts is None:
        yield Violation(
            at(plan, "parallelism", key),
            f"{key} is {getattr(p, key)}, but the model is a {plan.model.family} without experts",
            "leave it out, or declare model.experts",
        )
        return
    inner = p.tensor if p.expert_tensor is None else p.expert_tensor
    stage = p.data * p.context * p.tensor
    if stage % (p.expert * inner):
        yield Violation(
            at(plan, "parallelism", key),
            f"expert {p.expert} x expert_tensor {inner} is {number(p.expert * inner)}, which does not divide "
            f"the {number(stage)} ranks of a stage (data {p.data} x context {p.context} x tensor {p.tensor})",
            "set expert_tensor: 1 where experts are not split"
            if p.expert_tensor is None and stage % p.expert == 0
            else f"choose a divisor of {stage}",
        )
    if experts.num_experts % p.expert:
        yield Violation(
            at(plan, "parallelism", "expert"),
            f"{experts.num_experts} experts do not divide over {p.expert} ranks",
            f"choose a divisor of {experts.num_experts}",
            related=((at(plan, "model", "experts", "num_experts"), f"{experts.num_experts} experts"),),
        )


@rule("TS-PAR-004")
def sharding_degree(plan: TrainingPlan) -> Iterator[Violation]:
    """The sharding degree divides the ranks that hold copies."""
    p = plan.parallelism
    if p.sharding_degree is None:
        raise NotApplicable("the plan gives no sharding degree")
    place = at(plan, "parallelism", "sharding_degree")
    copies = p.data * p.context
    if p.sharding == "none" and p.sharding_degree > 1:
        message = f"sharding_degree is {p.sharding_degree}, but nothing is sharded"
        yield Violation(place, message, "say what is sharded under `sharding`, or leave the degree out")
    elif copies % p.sharding_degree:
        yield Violation(
            place,
            f"{p.sharding_degree} does not divide the {number(copies)} ranks that hold copies "
            f"(data {p.data} x context {p.context})",
            f"choose a divisor of {copies}",
        )


@rule("TS-PAR-005")
def sharding_with_pipeline(plan: TrainingPlan) -> Iterator[Violation]:
    """Parameters that are gathered for each micro-batch do not go with pipelines."""
    p = plan.parallelism
    if p.pipeline == 1 or p.sharding == "none":
        raise NotApplicable("the plan does not combine sharding with a pipeline")
    if p.sharding == "parameters":
        steps = plan.batch.accumulation_steps
        yield Violation(
            at(plan, "parallelism", "sharding"),
            f"with {p.pipeline} pipeline stages, parameters are gathered again for each of {number(steps)} "
            f"micro-batches, forward and backward: {number(2 * steps)} times in one step",
            "shard `optimizer` or `gradients`, and keep the parameters of a stage",
        )


@rule("TS-PAR-006")
def dimension_order(plan: TrainingPlan) -> Iterator[Violation]:
    """The order names each axis in use exactly once."""
    p = plan.parallelism
    place = at(plan, "parallelism", "order")
    for axis, times in Counter(p.order).items():
        if times > 1:
            message = f"{axis} appears {times} times in the order of axes"
            yield Violation(place, message, "name each axis once, from adjacent ranks outwards")
    degrees: dict[Axis, int] = {
        "data": p.data,
        "tensor": p.tensor,
        "pipeline": p.pipeline,
        "context": p.context,
        "expert": p.expert,
    }
    for axis, degree in degrees.items():
        if degree > 1 and axis not in p.order:
            message = f"{axis} has degree {degree}, but the order of axes lacks it"
            yield Violation(place, message, f"add {axis}: without it the ranks of its groups are unknown")


@rule("TS-PAR-007")
def sequence_parallel(plan: TrainingPlan) -> Iterator[Violation]:
    """Splitting activations along the sequence needs tensor ranks to split them over."""
    p = plan.parallelism
    if not p.sequence:
        raise NotApplicable("the plan does not split activations along the sequence")
    if p.tensor == 1:
        message = "sequence is true, but there is one tensor rank"
        yield Violation(at(plan, "parallelism", "sequence"), message, "set sequence: false, or use context ranks")


@rule("TS-PAR-008")
def pipeline_schedule(plan: TrainingPlan) -> Iterator[Violation]:
    """A pipeline has a schedule, and only a pipeline."""
    p = plan.parallelism
    if p.pipeline > 1 and p.schedule is None:
        reason = f"has {p.pipeline} pipeline stages and does not give their schedule"
        raise Unresolved(at(plan, "parallelism", "pipeline"), reason, "name it, for example `schedule: 1f1b`")
    if p.pipeline > 1 and p.schedule == "none":
        yield Violation(
            at(plan, "parallelism", "schedule"),
            f"the plan has {p.pipeline} pipeline stages and no schedule",
            "name it, for example `schedule: 1f1b`",
        )
    if p.pipeline == 1 and p.schedule not in {None, "none"}:
        message = f"the schedule is {p.schedule}, but there is one stage"
        yield Violation(at(plan, "parallelism", "schedule"), message, "leave the schedule out, or set pipeline")


@rule("TS-PAR-009")
def virtual_stages(plan: TrainingPlan) -> Iterator[Violation]:
    """Several chunks on one rank go with schedules that interleave them."""
    p = plan.parallelism
    if p.num_virtual_stages == 1 and p.schedule != "interleaved-1f1b":
        raise NotApplicable("each rank holds one chunk")
    place = at(plan, "parallelism", "num_virtual_stages")
    if p.num_virtual_stages == 1:
        message = "the schedule is interleaved-1f1b, but each rank holds one chunk"
        yield Violation(at(plan, "parallelism", "schedule"), message, "set num_virtual_stages, or schedule: 1f1b")
    elif p.pipeline == 1:
        message = f"{p.num_virtual_stages} chunks on each rank, but there is one pipeline stage"
        yield Violation(place, message, "leave num_virtual_stages out, or set pipeline")
    elif p.schedule not in CHUNKED_SCHEDULES:
        message = f"{p.num_virtual_stages} chunks on each rank, but {p.schedule} runs one"
        yield Violation(place, message, "use schedule: interleaved-1f1b, or one chunk")


@rule("TS-PAR-010")
def stage_layers(plan: TrainingPlan) -> Iterator[Violation]:
    """Layers divide over the chunks of the pipeline, or the plan lists how many each holds."""
    p, layers = plan.parallelism, plan.model.num_layers
    if layers is None or (p.pipeline == 1 and not p.stage_layers):
        raise NotApplicable("no layers are divided over stages")
    chunks = p.pipeline * p.num_virtual_stages
    words = f"{chunks} stages"
    if p.num_virtual_stages > 1:
        words = f"{chunks} chunks ({p.pipeline} stages x {p.num_virtual_stages})"
    place = at(plan, "parallelism", "stage_layers")
    if not p.stage_layers:
        if layers % chunks:
            yield Violation(
                at(plan, "parallelism", "pipeline"),
                f"{layers} layers do not divide over {words}",
                f"list the layers of each of the {chunks} under stage_layers; their sum is {layers}",
                related=((at(plan, "model", "num_layers"), f"{layers} layers"),),
            )
        return
    if len(p.stage_layers) != chunks:
        message = f"stage_layers has {len(p.stage_layers)} entries for {words}"
        yield Violation(place, message, f"give {chunks} entries")
    if sum(p.stage_layers) != layers:
        message = f"stage_layers adds up to {sum(p.stage_layers)}, but the model has {layers} layers"
        yield Violation(place, message, f"make the sum {layers}")


@rule("TS-PAR-011")
def interleaved_micro_batches(plan: TrainingPlan) -> Iterator[Violation]:
    """Interleaved schedules take micro-batches in groups of one per stage."""
    p, steps = plan.parallelism, plan.batch.accumulation_steps
    if p.schedule != "interleaved-1f1b":
        raise NotApplicable("the schedule is not interleaved-1f1b")
    if steps % p.pipeline:
        yield Violation(
            at(plan, "batch", "accumulation_steps"),
            f"{steps} micro-batches do not divide over {p.pipeline} interleaved stages",
            f"use a multiple of {p.pipeline}, for example {ceil(steps / p.pipeline) * p.pipeline}; "
            "a schedule without this constraint is `other`",
        )


@rule("TS-PAR-012")
def pipeline_bubble(plan: TrainingPlan) -> Iterator[Violation]:
    """A pipeline has micro-batches enough to keep its ranks busy."""
    p, steps = plan.parallelism, plan.batch.accumulation_steps
    if p.pipeline == 1 or p.schedule not in {"gpipe", "1f1b", "interleaved-1f1b", "zero-bubble"}:
        raise NotApplicable("the plan has no pipeline whose idle time is known")
    factor = ZERO_BUBBLE_FACTOR if p.schedule == "zero-bubble" else 1.0
    idle = factor * pipeline_idle_ratio(p.pipeline, steps, p.num_virtual_stages)
    if idle > MAX_IDLE_RATIO:
        needed = ceil(factor * (p.pipeline - 1) / (MAX_IDLE_RATIO * p.num_virtual_stages))
        yield Violation(
            at(plan, "batch", "accumulation_steps"),
            f"{steps} micro-batches in {p.pipeline} stages leave ranks idle for {percent(idle)} of their busy time",
            f"use at least {needed} micro-batches, fewer stages, or more chunks on each rank",
        )


@rule("TS-PAR-044")
def stage_balance(plan: TrainingPlan) -> Iterator[Violation]:
    """No pipeline rank has so much of the work that the others idle for half of their busy time."""
    p, shape = plan.parallelism, shape_of(plan.model)
    if p.pipeline == 1 or not p.stage_layers:
        raise NotApplicable("the plan lists no layers of pipeline stages")
    if shape is None:
        reason = "gives a shape from which the work of the output layer next to a layer is not counted"
        raise not_a_shape(plan, at(plan, "model"), reason)
    try:
        held = stages(shape, p.pipeline, p.num_virtual_stages, p.stage_layers, p.schedule or "1f1b")
    except ValueError as error:
        place, remedy = at(plan, "parallelism", "stage_layers"), "correct the layers of the stages"
        raise Unresolved(place, f"is not predicted: {error}", remedy) from error
    counted = parameters(shape)
    output = shape.embedding_parameters * shape.num_layers / (counted.attention + counted.active_feed_forward)
    # The output layer is in the rank of the last chunk; a table of tied embeddings is looked up at the other end.
    loads = [stage.num_dense_layers + stage.num_expert_layers + output * stage.output_tables for stage in held]
    worst, mean = max(loads), sum(loads) / len(loads)
    if worst > (1 + MAX_IDLE_RATIO) * mean and worst > (best := _best_load(shape.num_layers, p.pipeline, output)):
        rank = loads.index(worst)
        layers = held[rank].num_dense_layers + held[rank].num_expert_layers
        also = f" and the output layer (work of {number(round(output, 2))} layers)" if held[rank].output_tables else ""
        yield Violation(
            at(plan, "parallelism", "stage_layers"),
            f"pipeline rank {rank} has {layers} layers{also}, {number(round(worst / mean, 2))} times the mean work of "
            "a rank, and all others wait for it",
            f"give it fewer: in the best split no rank has more than the work of {number(round(best, 2))} layers",
        )


def _best_load(num_layers: int, num_ranks: int, output: float) -> float:
    """Work of the fullest rank, in layers, where whole layers are split as evenly as the output layer lets."""
    most = ceil(num_layers / num_ranks)
    while (num_ranks - 1) * most + max(0, int(most - output)) < num_layers:
        most += 1
    return max(float(most), output)
