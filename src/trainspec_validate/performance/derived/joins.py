"""Which node groups fabrics and interconnects join, for what asks where one job can run."""

from __future__ import annotations

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.performance.derived.job import JobNodes

Joins = dict[tuple[str, str | None], int]
"""Number of the part that interconnects join, by `fabric` or `site` and the name."""


def joins_of(cluster: ClusterProfile) -> Joins:
    """The fabrics and sites of a cluster in parts that are joined."""
    groups = cluster.node_groups
    names = [("fabric", nic.fabric) for group in groups for nic in group.nics] + [("site", g.site) for g in groups]
    names += [(kind, end) for join in cluster.interconnects for end in join.ends for kind in ("fabric", "site")]
    parts = {name: number for number, name in enumerate(dict.fromkeys(names))}
    roots = list(range(len(parts)))

    def root(part: int) -> int:
        while roots[part] != part:
            roots[part] = roots[roots[part]]
            part = roots[part]
        return part

    for join in cluster.interconnects:
        for kind in ("fabric", "site"):
            first, second = (root(parts[kind, end]) for end in join.ends)
            roots[first] = second
    return {name: root(part) for name, part in parts.items()}


def plugged(nodes: JobNodes) -> list[str]:
    """Names of the fabrics that compute NICs of a group are plugged into."""
    return list(dict.fromkeys(nic.fabric for nic in nodes.group.nics if nic.role == "compute" and nic.fabric))


def usable(nodes: JobNodes, wanted: str | None, joins: Joins) -> list[str]:
    """Names of the fabrics of a group that a plan may use which wants this fabric, or any."""
    part = joins.get(("fabric", wanted))
    return [name for name in plugged(nodes) if wanted is None or joins["fabric", name] == part]


def parts_of(names: list[str], joins: Joins) -> set[int]:
    """The joined parts that fabrics belong to."""
    return {joins["fabric", name] for name in names}


def with_room(every: list[JobNodes], num_ranks: int, wanted: str | None, joins: Joins) -> list[JobNodes] | None:
    """The groups on the first joined fabrics that have this many ranks together; None where no fabrics have."""
    reached: dict[int, list[JobNodes]] = {}
    for nodes in every:
        for part in parts_of(usable(nodes, wanted, joins), joins):
            reached.setdefault(part, []).append(nodes)
    return next((groups for groups in reached.values() if sum(n.num_ranks for n in groups) >= num_ranks), None)
