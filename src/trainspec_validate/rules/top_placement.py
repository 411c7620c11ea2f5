"""Rules on placement: which ranks share a node, a scale-up domain or a tier."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, gcd

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.fabric import Fabric
from trainspec_validate.documents.types.parallelism import Axis, Placement
from trainspec_validate.model.units import number, seconds
from trainspec_validate.performance.costs.placement import Span, holds_whole_groups
from trainspec_validate.performance.derived.groups import spanned
from trainspec_validate.performance.derived.job import JobNodes, axis_span, degree, used_axes
from trainspec_validate.rules import NotApplicable, Violation, at, require, rule
from trainspec_validate.rules._machine import job_nodes, used_fabrics

MAX_OVERSUBSCRIPTION = 2
"""Ratio above which gradients that cross a tier want to be reduced below it first."""


@rule("TS-TOP-017")
def node_group(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The plan names a node group of its cluster, unless there is one or it uses all; its rollout names one too."""
    names = [group.name for group in cluster.node_groups]
    rollout = plan.rollout.node_group if plan.rollout else None
    for name, *place in ((plan.node_group, "node_group"), (rollout, "rollout", "node_group")):
        if name is not None and name not in names:
            yield Violation(
                at(plan, *place),
                f"cluster {cluster.metadata.name} has no node group {name!r}",
                f"one of: {', '.join(names)}",
                related=((at(cluster, "node_groups"), "its node groups"),),
            )
    if plan.node_group is not None:
        return
    offered = sum(JobNodes(group, index).num_ranks for index, group in enumerate(cluster.node_groups))
    wanted = plan.parallelism.num_accelerators
    if len(names) > 1 and wanted < offered:
        yield Violation(
            at(plan, "parallelism", "num_accelerators"),
            f"{number(wanted)} of {number(offered)} ranks are used, in which of {len(names)} groups is open",
            f"add node_group: one of {', '.join(names)}",
        )


@rule("TS-TOP-018")
def whole_nodes(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """A job of several nodes fills them, and a job in a full mesh fills its domains."""
    *full, (nodes, ranks) = spanned(plan, cluster) or (
        (job_nodes(plan, cluster, whole_job=True), plan.parallelism.num_accelerators),
    )
    before = sum(num_ranks for _, num_ranks in full)
    scale_up = nodes.group.scale_up
    place = at(plan, "parallelism", "num_accelerators")
    mesh = scale_up is not None and scale_up.topology == "full-mesh"
    domain = nodes.domain_num_ranks if mesh else 0
    if mesh and domain > 1 and ranks % domain and ranks > 1:
        used = ranks % domain
        yield Violation(
            place,
            f"{used} of {domain} accelerators of a full mesh are used, so {used - 1} of {domain - 1} links "
            "of each carry traffic",
            f"{_multiple(domain, before)}: {before + ceil(ranks / domain) * domain}",
        )
    elif ranks > nodes.ranks_per_node and ranks % nodes.ranks_per_node:
        per_node = nodes.ranks_per_node
        yield Violation(
            place,
            f"{number(ranks)} ranks{_in_last(nodes, full)} fill {ranks // per_node} nodes of {per_node} and "
            f"{ranks % per_node} accelerators of one more",
            f"{_multiple(per_node, before)}: {before + ceil(ranks / per_node) * per_node}",
        )
    elif ranks <= nodes.ranks_per_node and not mesh and not full:
        raise NotApplicable("the job fits on one node, which is no full mesh")


def _multiple(size: int, before: int) -> str:
    return f"use {number(before)} and a multiple of {size}" if before else f"use a multiple of {size}"


def _in_last(nodes: JobNodes, full: list[tuple[JobNodes, int]]) -> str:
    return f" in {nodes.group.name}" if full else ""


@rule("TS-TOP-019")
def tensor_domain(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Tensor groups are inside a scale-up domain."""
    tensor, ranks = plan.parallelism.tensor, plan.parallelism.num_accelerators
    if tensor == 1:
        raise NotApplicable("the plan has no tensor parallelism")
    if any(placement.axis == "tensor" and placement.reason for placement in plan.parallelism.placements):
        raise NotApplicable("the plan gives its reason for placing tensor groups as it does")
    nodes = job_nodes(plan, cluster)
    domain = nodes.domain_num_ranks
    place = at(plan, "parallelism", "tensor")
    if domain == 0 and nodes.group.accelerator.num_ranks_per_accelerator % tensor == 0:
        return  # the ranks of one package
    if domain == 0:
        message = f"tensor groups of {tensor} have no scale-up domain: {nodes.group.name} declares none"
        yield Violation(place, message, "declare scale_up, or use tensor: 1")
    elif tensor > domain:
        yield Violation(
            place,
            f"tensor groups of {tensor} are larger than a scale-up domain of {domain}",
            f"use tensor {domain} or a divisor of it, and pipeline or context for the rest",
        )
    elif domain % tensor and ranks > domain:
        yield Violation(
            place,
            f"a scale-up domain of {domain} does not divide into tensor groups of {tensor}: some straddle",
            f"use a divisor of {domain}, or state used_num_accelerators of the domain, for example "
            f"{domain // tensor * tensor}",
        )
    else:
        yield from _on_the_fabric(plan, tensor, domain)


def _on_the_fabric(plan: TrainingPlan, tensor: int, domain: int) -> Iterator[Violation]:
    group = axis_span(plan, "tensor")
    if group is None or not holds_whole_groups(group, domain, plan.parallelism.num_accelerators):
        return
    for index, placement in enumerate(plan.parallelism.placements):
        if placement.axis == "tensor" and placement.within == "fabric":
            yield Violation(
                at(plan, "parallelism", "placements", index, "within"),
                f"tensor groups of {tensor} may be spread over the fabric, but fit into a scale-up domain of {domain}",
                "write within: scale-up-domain, or give the reason of the placement",
            )


@rule("TS-TOP-020")
def placement_holds(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Each placement that a plan claims is the one that its rank order gives."""
    placements = require(plan.parallelism.placements, "the plan states no placement")
    nodes = job_nodes(plan, cluster)
    seen: set[Axis] = set()
    for index, placement in enumerate(placements):
        if placement.axis in seen:
            message = f"{placement.axis} is placed twice"
            yield Violation(at(plan, "parallelism", "placements", index), message, "keep one placement per axis")
        seen.add(placement.axis)
        group = axis_span(plan, placement.axis)
        if group is not None and placement.within != "fabric" and placement.fabric_tier is None:
            yield from _block(plan, index, placement, group, nodes)
        elif group is not None and placement.fabric_tier is not None:
            yield from _below_tier(plan, cluster, index, group, nodes)


def _block(plan: TrainingPlan, index: int, placement: Placement, group: Span, nodes: JobNodes) -> Iterator[Violation]:
    block = nodes.ranks_per_node if placement.within == "node" else nodes.domain_num_ranks
    what = placement.within.replace("-domain", " domain")
    place = at(plan, "parallelism", "placements", index, "within")
    if block == 0:
        yield Violation(place, f"{nodes.group.name} declares no scale-up domain", "declare scale_up, or place on nodes")
    elif not holds_whole_groups(group, block, plan.parallelism.num_accelerators):
        fitting = gcd(block // group.stride if group.stride <= block else 1, group.degree)
        step = "adjacent ranks" if group.stride == 1 else f"every {number(group.stride)} ranks"
        reach = f"{placement.axis} groups reach over {number(group.num_ranks)} consecutive ranks (degree {group.degree}"
        uneven = f", which is no multiple of {number(group.num_ranks)}" if group.num_ranks <= block else ""
        inwards = "move it inwards in the order"
        remedy = f"{inwards}, or use degree {fitting}" if fitting > 1 else f"or {inwards}"
        yield Violation(
            place,
            f"{reach}, {step}), but a {what} holds {block}{uneven}",
            f"place it within a larger thing, {remedy}",
        )


def _below_tier(
    plan: TrainingPlan, cluster: ClusterProfile, index: int, group: Span, nodes: JobNodes
) -> Iterator[Violation]:
    placement = plan.parallelism.placements[index]
    place = at(plan, "parallelism", "placements", index, "fabric_tier")
    if placement.within != "fabric":
        message = f"a group within a {placement.within} does not reach tier {placement.fabric_tier}"
        yield Violation(place, message, "leave fabric_tier out, or place within the fabric")
        return
    tiers = [tier for _, fabric in used_fabrics(plan, cluster, nodes) for tier in fabric.tiers]
    named = [tier for tier in tiers if tier.name == placement.fabric_tier]
    sizes = [tier.group_num_nodes for tier in named if tier.group_num_nodes is not None]
    if not named:
        names = ", ".join(dict.fromkeys(tier.name for tier in tiers)) or "none"
        message = f"the job's fabric has no tier {placement.fabric_tier!r}"
        yield Violation(place, message, f"tiers of the fabric: {names}")
    elif sizes:
        block = min(sizes) * nodes.ranks_per_node
        if not holds_whole_groups(group, block, plan.parallelism.num_accelerators):
            yield Violation(
                place,
                f"{placement.axis} groups reach over {number(group.num_ranks)} consecutive ranks, but "
                f"{number(min(sizes))} nodes below {placement.fabric_tier} hold {number(block)}",
                "name a higher tier, or move the axis inwards in the order",
            )


@rule("TS-TOP-021")
def dimension_nesting(plan: TrainingPlan) -> Iterator[Violation]:
    """Tensor ranks are adjacent, and stages enclose the groups of a layer."""
    used = list(used_axes(plan))
    order = [axis for axis in plan.parallelism.order if axis in used]
    if len(order) < 2:
        raise NotApplicable("fewer than two axes have ranks to order")
    place = at(plan, "parallelism", "order")
    text = ", ".join(order)
    if "tensor" in order and order[0] != "tensor":
        yield Violation(
            place,
            f"the order {text} puts {order[0]} ranks between those of a tensor group",
            "name tensor first: its ranks communicate in every layer",
        )
    if "pipeline" in order:
        outside = [axis for axis in order[order.index("pipeline") :] if axis in {"context", "expert"}]
        if outside:
            yield Violation(
                place,
                f"the order {text} puts pipeline stages inside {' and '.join(outside)} groups",
                f"name pipeline after {outside[-1]}: stages communicate per micro-batch, these axes in every layer",
            )


@rule("TS-TOP-022")
def rank_order(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Ranks of a job that spans leaves follow the topology."""
    order = require(plan.parallelism.rank_order, "the plan does not say how hosts become ranks")
    nodes = job_nodes(plan, cluster)
    count = ceil(plan.parallelism.num_accelerators / nodes.ranks_per_node)
    leaves = [fabric.tiers[0].group_num_nodes for _, fabric in used_fabrics(plan, cluster, nodes) if fabric.tiers]
    leaf = min((num_nodes for num_nodes in leaves if num_nodes is not None), default=None)
    if count <= (leaf or 1):
        raise NotApplicable("the nodes of the job share one group of the first tier")
    if order != "topology":
        reach = f"{number(leaf)} meet at one leaf" if leaf else "the network between them is not uniform"
        yield Violation(
            at(plan, "parallelism", "rank_order"),
            f"hosts become ranks in {order} order on {number(count)} nodes, of which {reach}"
            f"{_cost_of_order(plan, cluster)}",
            "sort the hosts by topology before ranks are given out, and set rank_order: topology",
        )


def _cost_of_order(plan: TrainingPlan, cluster: ClusterProfile) -> str:
    """What the order of hosts costs in a step, where that is predicted."""
    # Few plans come here, and start-up would pay for the models.
    from trainspec_validate.rules._forecast import rank_order_seconds  # noqa: PLC0415

    times = rank_order_seconds(plan, cluster)
    if times is None or times[0] <= times[1]:
        return ""
    return f"; a step is predicted to take {seconds(times[0])}, and {seconds(times[1])} in the order of the topology"


@rule("TS-TOP-023")
def data_tier(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Gradients are reduced below an oversubscribed tier before they cross it."""
    group = axis_span(plan, "data")
    if degree(plan, "data") == 1 or group is None:
        raise NotApplicable("the plan has no data groups that the order places")
    nodes = job_nodes(plan, cluster)
    narrow = [one for _, fabric in used_fabrics(plan, cluster, nodes) for one in _narrow_tiers(fabric)]
    if not narrow:
        raise NotApplicable("no tier of the job's fabric is oversubscribed by more than 2")
    reasons = [placement for placement in plan.parallelism.placements if placement.axis == "data" and placement.reason]
    if reasons or (plan.communication and plan.communication.hierarchical_reduction):
        return
    for name, num_nodes, ratio in narrow:
        block = num_nodes * nodes.ranks_per_node
        if not holds_whole_groups(group, block, plan.parallelism.num_accelerators):
            yield Violation(
                at(plan, "parallelism", "data"),
                f"data groups reach over {number(group.num_ranks)} consecutive ranks and cross {name}, which "
                f"is oversubscribed {ratio:g}:1 above {number(num_nodes)} nodes",
                "set communication.hierarchical_reduction: true once it is so, keep data groups below that "
                "tier, or give the reason in their placement",
            )


def _narrow_tiers(fabric: Fabric) -> Iterator[tuple[str, int, float]]:
    for tier in fabric.tiers:
        if tier.group_num_nodes and tier.oversubscription and tier.oversubscription > MAX_OVERSUBSCRIPTION:
            yield tier.name, tier.group_num_nodes, tier.oversubscription
