"""The node groups that a job may run on, for the rules and commands that meet a plan which names none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan, changed
from trainspec_validate.performance.derived.job import JobNodes
from trainspec_validate.performance.derived.joins import joins_of, with_room


@dataclass(frozen=True, slots=True)
class Candidates:
    """The node groups that a job can get, in the order of the document."""

    groups: tuple[JobNodes, ...]
    together: bool
    """True where the job spans all of them, false where each has room for the whole job."""


def is_open(plan: TrainingPlan, cluster: ClusterProfile) -> bool:
    """Whether the cluster has several node groups and the plan names none."""
    return plan.node_group is None and len(cluster.node_groups) > 1


def candidates(plan: TrainingPlan, cluster: ClusterProfile) -> Candidates:
    """The groups with room for the whole job; where no group has room, the first ones that have it together.

    Groups that one fabric or several joined ones reach come before groups that nothing joins.
    """
    wanted = plan.parallelism.num_accelerators
    every = [JobNodes(group, index) for index, group in enumerate(cluster.node_groups)]
    fitting = tuple(nodes for nodes in every if nodes.num_ranks >= wanted)
    if fitting:
        return Candidates(fitting, together=False)
    fabric = plan.communication.fabric if plan.communication else None
    joined = with_room(every, wanted, fabric, joins_of(cluster))
    return Candidates(tuple(nodes for nodes, _ in shares(joined or every, wanted)), together=True)


def shares(groups: list[JobNodes], num_ranks: int) -> Iterator[tuple[JobNodes, int]]:
    """The ranks that each group gets when they fill the groups in this order; the last gets those without a place."""
    left = num_ranks
    for position, nodes in enumerate(groups, start=1):
        share = left if position == len(groups) else min(left, nodes.num_ranks)
        if share > 0:
            yield nodes, share
        left -= share


def spanned(plan: TrainingPlan, cluster: ClusterProfile) -> tuple[tuple[JobNodes, int], ...]:
    """The groups that a job spans, with its ranks in each; empty where one group holds it or the plan names one."""
    if not is_open(plan, cluster):
        return ()
    found = candidates(plan, cluster)
    return tuple(shares(list(found.groups), plan.parallelism.num_accelerators)) if found.together else ()


def most_together(offers: Iterable[tuple[float, int]], wanted: int) -> float:
    """The most that `wanted` nodes or ranks have together, by what one of each group has and how many a group offers.

    Those with the most come first. Ones without a place count as the best: other requirements report them.
    """
    ordered = sorted(offers, reverse=True)
    together, left = 0.0, wanted
    for each, count in ordered:
        used = min(left, count)
        together += used * each
        left -= used
    return together + left * ordered[0][0] if ordered else 0.0


def choose(cluster: ClusterProfile, wanted: str | None) -> tuple[JobNodes, str]:
    """The node group that a person asks for, else the largest, with a note where it was one of several.

    Raises:
        ValueError: the cluster has no group of that name; the text names those that it has.
    """
    every = [JobNodes(group, index) for index, group in enumerate(cluster.node_groups)]
    names = list(dict.fromkeys(nodes.group.name for nodes in every))
    if wanted is not None:
        found = next((nodes for nodes in every if nodes.group.name == wanted), None)
        if found is None:
            raise ValueError(f"{cluster.metadata.name} has no node group {wanted!r}; {_choose(names)}")
        return found, ""
    largest = max(every, key=lambda nodes: nodes.num_ranks)
    if len(every) == 1:
        return largest, ""
    others = [name for name in names if name != largest.group.name]
    return largest, f"node group: {largest.group.name}, the largest of {len(every)}; {_choose(others)}"


def _choose(names: list[str]) -> str:
    return f"choose with --node-group: {', '.join(names)}"


def narrowed(plan: TrainingPlan, cluster: ClusterProfile) -> ClusterProfile:
    """The cluster with the node group that the plan names alone; the whole cluster where it names none that exists."""
    own = tuple(group for group in cluster.node_groups if group.name == plan.node_group)
    return changed(cluster, node_groups=own) if own else cluster
