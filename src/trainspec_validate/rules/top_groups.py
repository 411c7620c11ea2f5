"""Judges whether the node groups that one job spans can reach each other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.model.units import number
from trainspec_validate.performance.derived.groups import spanned
from trainspec_validate.performance.derived.job import JobNodes
from trainspec_validate.performance.derived.joins import Joins, joins_of, parts_of, plugged, usable
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, rule

_MAX_GROUPS: Final = 500
"""Groups of one job whose pairs are compared where no fabric joins all."""


@rule("TS-TOP-026")
def joined_groups(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The node groups that a job spans have compute NICs in one fabric, or in fabrics or sites that are joined."""
    used = [nodes for nodes, _ in spanned(plan, cluster)]
    if len(used) < 2:
        raise NotApplicable("the job runs in one node group")
    if not cluster.fabrics:
        raise NotApplicable("the cluster declares no fabric")
    wanted = plan.communication.fabric if plan.communication else None
    joins = joins_of(cluster)
    fabrics = {nodes.index: usable(nodes, wanted, joins) for nodes in used}
    if set.intersection(*(parts_of(fabrics[nodes.index], joins) for nodes in used)):
        return
    if len(used) > _MAX_GROUPS:
        reason = f"runs in {len(used):,} node groups that no one fabric joins"
        raise Unresolved(at(plan, "parallelism"), reason, f"pairs of at most {_MAX_GROUPS} are judged")
    for one, other in combinations(used, 2):
        if not _reach(one, other, fabrics, joins):
            largest = max(nodes.num_ranks for nodes in used)
            yield Violation(
                at(plan, "parallelism", "num_accelerators"),
                f"{number(plan.parallelism.num_accelerators)} ranks span {len(used)} node groups, but no fabric joins "
                f"{_connected(one)} and {_connected(other)}" + (f" to {wanted!r}" if wanted else ""),
                "plug compute NICs of all of them into one fabric, declare the interconnect of their fabrics or sites, "
                f"or use at most {largest} ranks in one node group",
                related=((at(cluster, "node_groups", other.index, "name"), "the group that the others do not reach"),),
            )
            return


def _reach(one: JobNodes, other: JobNodes, fabrics: dict[int, list[str]], joins: Joins) -> bool:
    """Whether two groups share fabrics that are joined, or stand at two sites that are."""
    if parts_of(fabrics[one.index], joins) & parts_of(fabrics[other.index], joins):
        return True
    sites = (one.group.site, other.group.site)
    return None not in sites and sites[0] != sites[1] and joins["site", sites[0]] == joins["site", sites[1]]


def _connected(nodes: JobNodes) -> str:
    return f"{nodes.group.name!r} ({', '.join(plugged(nodes)) or 'no fabric'})"
