"""The node groups that a job may run on, for the rules and commands that meet a plan which names none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.derived.job import JobNodes
from trainspec_validate.documents import ClusterProfile, TrainingPlan


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
    """The groups with room for the whole job; where no group has room, the first ones that have it together."""
    wanted = plan.parallelism.num_accelerators
    every = [JobNodes(group, index) for index, group in enumerate(cluster.node_groups)]
    fitting = tuple(nodes for nodes in every if nodes.num_ranks >= wanted)
    if fitting:
        return Candidates(fitting, together=False)
    return Candidates(tuple(nodes for nodes, _ in shares(every, wanted)), together=True)


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
