"""Rules on the algorithm of each collective: which one runs where, for which sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.communication import CollectiveChoice
from trainspec_validate.documents.types.fabric import Fabric
from trainspec_validate.documents.types.parallelism import Axis
from trainspec_validate.model.units import bytes_, number
from trainspec_validate.performance.costs.placement import members_in_block
from trainspec_validate.performance.derived.job import axis_span, degree
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, at_key, require, rule
from trainspec_validate.rules._machine import job_nodes, used_fabrics
from trainspec_validate.rules.com import communication

ALGORITHMS: dict[str, frozenset[str]] = {
    "all-reduce": frozenset(
        {
            "ring",
            "tree",
            "hierarchical",
            "halving-doubling",
            "in-network",
            "in-network-tree",
            "direct",
            "torus",
        }
    ),
    "all-gather": frozenset(
        {"ring", "tree", "hierarchical", "halving-doubling", "in-network", "direct", "pairwise", "torus"}
    ),
    "reduce-scatter": frozenset(
        {"ring", "tree", "hierarchical", "halving-doubling", "in-network", "direct", "pairwise", "torus"}
    ),
    "all-to-all": frozenset({"pairwise", "direct", "hierarchical", "ring", "torus"}),
    "broadcast": frozenset({"ring", "tree", "hierarchical", "in-network", "direct", "torus"}),
    "send-receive": frozenset({"direct"}),
}
"""Algorithms that exist for each operation; `automatic` is always among them."""


def _rows(plan: TrainingPlan) -> tuple[CollectiveChoice, ...]:
    return require(communication(plan).collectives, "the plan lists no collectives")


@rule("TS-COM-006")
def collective_axis(plan: TrainingPlan) -> Iterator[Violation]:
    """Collectives and compression belong to axes that have more than one rank."""
    mine = communication(plan)
    named: list[tuple[tuple[str | int, ...], Axis]] = [
        (("collectives", index, "axis"), row.axis) for index, row in enumerate(mine.collectives)
    ]
    if mine.compression is not None and mine.compression.method != "none":
        has_axis = ("compression", "axis") if mine.compression.axis != "data" else ("compression", "method")
        named.append((has_axis, mine.compression.axis))
    if not named:
        raise NotApplicable("the plan lists no collectives and no compression")
    for pointer, axis in named:
        if degree(plan, axis) == 1:
            yield Violation(
                at(plan, "communication", *pointer),
                f"{axis} has degree 1, so there is no traffic between {axis} ranks",
                "leave the entry out, or name the axis that it is meant for",
                related=((at(plan, "parallelism"), f"{axis} is 1"),),
            )


@rule("TS-COM-007")
def size_ranges(plan: TrainingPlan) -> Iterator[Violation]:
    """Several rows of one collective divide all sizes among them."""
    groups: dict[tuple[str, Axis], list[tuple[float, float, int]]] = defaultdict(list)
    for index, row in enumerate(_rows(plan)):
        top = float("inf") if row.max_bytes is None else row.max_bytes
        groups[row.operation, row.axis].append((row.min_bytes, top, index))
    for (operation, axis), ranges in groups.items():
        ranges.sort()
        name = f"{operation} of {axis} ranks"
        for low, high, index in ranges:
            if high <= low:
                message = f"the range of {name} ends at {bytes_(high)} and begins at {bytes_(low)}"
                yield Violation(at(plan, "communication", "collectives", index), message, "swap the ends")
        if len(ranges) > 1:
            yield from _seams(plan, name, ranges)


def _seams(plan: TrainingPlan, name: str, ranges: list[tuple[float, float, int]]) -> Iterator[Violation]:
    place = ("communication", "collectives")
    for (_, high, first), (low, _, second) in pairwise(ranges):
        if high != low:
            what = "choose twice" if high > low else "leave a gap"
            end = "without limit" if high == float("inf") else f"at {bytes_(high)}"
            yield Violation(
                at(plan, *place, second),
                f"two rows for {name} {what}: one ends {end}, this one begins at {bytes_(low)}",
                "set min_bytes of this row to max_bytes of the one before",
                related=((at(plan, *place, first), "the row before"),),
            )
    if ranges[0][0] > 0:
        message = f"no row for {name} covers messages below {bytes_(ranges[0][0])}"
        yield Violation(at(plan, *place, ranges[0][2]), message, "begin at 0; `automatic` leaves it to the library")
    if ranges[-1][1] != float("inf"):
        message = f"no row for {name} covers messages from {bytes_(ranges[-1][1])} on"
        yield Violation(at(plan, *place, ranges[-1][2]), message, "leave max_bytes out of the last row")


@rule("TS-COM-008")
def algorithm_exists(plan: TrainingPlan) -> Iterator[Violation]:
    """The algorithm of a row is one for its operation."""
    for index, row in enumerate(_rows(plan)):
        known = ALGORITHMS[row.operation]
        if row.algorithm != "automatic" and row.algorithm not in known:
            yield Violation(
                at(plan, "communication", "collectives", index, "algorithm"),
                f"there is no {row.algorithm} algorithm for {row.operation}",
                f"automatic, or one of: {', '.join(sorted(known))}",
            )


@rule("TS-COM-009")
def algorithm_hardware(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Hardware does what an algorithm asks of it, and groups have the shape that it needs."""
    wanted = {"in-network", "in-network-tree", "torus", "hierarchical"}
    found = [(index, row) for index, row in enumerate(_rows(plan)) if row.algorithm in wanted]
    flag = communication(plan).hierarchical_reduction
    if not found and not flag:
        raise NotApplicable("no algorithm depends on switches or on the shape of a group")
    open_question = None
    for index, row in found:
        try:
            problem, remedy = _hardware_problem(plan, cluster, row.axis, row.algorithm)
        except Unresolved as error:
            open_question = error
            continue
        if problem:
            yield Violation(at(plan, "communication", "collectives", index, "algorithm"), problem, remedy)
    if flag and degree(plan, "data") > 1:
        problem, remedy = _hardware_problem(plan, cluster, "data", "hierarchical")
        if problem:
            yield Violation(at(plan, "communication", "hierarchical_reduction"), problem, remedy)
    if open_question:
        raise open_question


def _hardware_problem(plan: TrainingPlan, cluster: ClusterProfile, axis: Axis, algorithm: str) -> tuple[str, str]:
    """What the machine or the group lacks for an algorithm, and what would be right; empty when nothing.

    Raises:
        Unresolved: the cluster does not say whether switches reduce.
    """
    nodes = job_nodes(plan, cluster)
    scale_up, group = nodes.group.scale_up, axis_span(plan, axis)
    if algorithm == "torus":
        if scale_up is None:
            return f"{nodes.group.name!r} gives no scale_up, and so no torus", "write scale_up, or choose another one"
        shape = scale_up.topology
        return ("", "") if shape == "torus" else (f"the scale-up domain is {shape}, no torus", "choose another one")
    if group is None or group.degree == 1:
        return "", ""
    domain = max(nodes.domain_num_ranks, 1)
    one_domain = plan.parallelism.num_accelerators <= domain
    near = group.degree if one_domain else members_in_block(group, domain)
    text = f"{axis} groups of {number(group.degree)} have {number(near)} in one scale-up domain"
    if scale_up is None:
        text += f" ({nodes.group.name!r} gives no scale_up)"
    if algorithm in {"hierarchical", "in-network-tree"} and near in {1, group.degree}:
        return f"{text}, so there are no two levels to reduce over", "choose an algorithm of one level"
    if algorithm in {"in-network", "in-network-tree"} and near > 1 and not (scale_up and scale_up.in_network_reduction):
        if scale_up is not None and scale_up.in_network_reduction is None:
            place = at(cluster, "node_groups", cluster.node_groups.index(nodes.group), "scale_up")
            raise Unresolved(place, "does not give in_network_reduction of the scale-up domain", "write true or false")
        return "the scale-up domain has switches that do not reduce", "choose ring or tree"
    if algorithm == "in-network" and near < group.degree:
        return _of_fabrics(cluster, used_fabrics(plan, cluster, nodes), text)
    return "", ""


def _of_fabrics(cluster: ClusterProfile, fabrics: Sequence[tuple[int, Fabric]], text: str) -> tuple[str, str]:
    """Why fabrics do not reduce what leaves a domain, and what would be right; empty where they do."""
    if fabrics and all(fabric.in_network_reduction for _, fabric in fabrics):
        return "", ""
    is_stated = not fabrics or any(fabric.in_network_reduction is False for _, fabric in fabrics)
    if is_stated:
        return f"{text}, and the fabric does not reduce", "choose in-network-tree, ring or tree"
    place = at(cluster, "fabrics", next(index for index, fabric in fabrics if fabric.in_network_reduction is None))
    raise Unresolved(place, "does not give in_network_reduction of the fabric", "write true or false")


@rule("TS-COM-010")
def sharding_collectives(plan: TrainingPlan) -> Iterator[Violation]:
    """The collectives of data ranks are those that the sharding needs."""
    sharding = plan.parallelism.sharding
    have = {row.operation for row in _rows(plan) if row.axis == "data"}
    if not have or plan.parallelism.data == 1:
        raise NotApplicable("the plan lists no collectives of data ranks")
    pair = {"reduce-scatter", "all-gather"} <= have
    lacks = []
    if sharding == "none" and "all-reduce" not in have and not pair:
        lacks.append("all-reduce")
    if sharding != "none":
        if not have & {"all-gather", "broadcast"}:
            lacks.append("all-gather")
        sums = {"reduce-scatter", "all-to-all"} | ({"all-reduce"} if sharding != "parameters" else set())
        if not have & sums:
            lacks.append("reduce-scatter")
    if lacks:
        yield Violation(
            at_key(plan, "communication", "collectives"),
            f"with sharding {sharding}, data ranks need {' and '.join(lacks)}, but the plan lists "
            f"{', '.join(sorted(have))}",
            f"add a row for {' and '.join(lacks)}; `automatic` is a possible algorithm",
            related=((at(plan, "parallelism"), f"sharding: {sharding}"),),
        )
