"""Judges whether the node groups that one job spans can reach each other."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.derived.groups import spanned
from trainspec_validate.derived.job import JobNodes
from trainspec_validate.documents import ClusterProfile, TrainingPlan
from trainspec_validate.rules import NotApplicable, Violation, at, rule
from trainspec_validate.units import number


@rule("TS-TOP-026")
def joined_groups(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The node groups that a job spans have compute NICs in one fabric."""
    used = [nodes for nodes, _ in spanned(plan, cluster)]
    if len(used) < 2:
        raise NotApplicable("the job runs in one node group")
    if not cluster.fabrics:
        raise NotApplicable("the cluster declares no fabric")
    wanted = plan.communication.fabric if plan.communication else None
    fabrics = [_fabrics(nodes, wanted) for nodes in used]
    common = set(fabrics[0])
    for nodes, those in zip(used[1:], fabrics[1:], strict=True):
        if not common & set(those):
            largest = max(nodes.num_ranks for nodes in used)
            yield Violation(
                at(plan, "parallelism", "num_accelerators"),
                f"{number(plan.parallelism.num_accelerators)} ranks span {len(used)} node groups, but no fabric joins "
                f"{_connected(used[0], fabrics[0])} and {_connected(nodes, those)}"
                + (f" to {wanted!r}" if wanted else ""),
                f"plug compute NICs of all of them into one fabric, or use at most {largest} ranks in one node group",
                related=((at(cluster, "node_groups", nodes.index, "name"), "the group that the others do not reach"),),
            )
            return
        common &= set(those)


def _fabrics(nodes: JobNodes, wanted: str | None) -> list[str]:
    """Names of the fabrics that compute NICs of a group are plugged into and that the plan may use."""
    names = dict.fromkeys(nic.fabric for nic in nodes.group.nics if nic.role == "compute" and nic.fabric)
    return [name for name in names if wanted in {None, name}]


def _connected(nodes: JobNodes, fabrics: list[str]) -> str:
    return f"{nodes.group.name!r} ({', '.join(fabrics) or 'no fabric'})"
