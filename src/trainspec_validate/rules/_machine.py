"""Gives a rule the machine of a plan, the nodes of its job, the fabrics they use, and places in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.fabric import Fabric
from trainspec_validate.performance.derived.job import JobNodes, attached_compute, find_job_nodes, job_fabrics
from trainspec_validate.performance.derived.machine import Machine, find_machine
from trainspec_validate.rules import NotApplicable, Place, Unresolved, at, require
from trainspec_validate.rules._groups import ask_group


def declared_fabrics(cluster: ClusterProfile) -> Iterator[tuple[int, Fabric]]:
    """Every fabric with its position.

    Raises:
        NotApplicable: there is none.
    """
    if not cluster.fabrics:
        raise NotApplicable("the cluster declares no fabric")
    return enumerate(cluster.fabrics)


def with_nics(cluster: ClusterProfile, fabrics: Iterable[tuple[int, Fabric]]) -> list[tuple[int, Fabric]]:
    """Those of the fabrics that compute NICs name, for rules that hold a figure of a fabric against its NICs.

    Raises:
        NotApplicable: no NIC names any of them.
    """
    found = [(index, fabric) for index, fabric in fabrics if attached_compute(cluster, fabric)]
    return require(found, "no compute NIC names the fabric")


def job_nodes(plan: TrainingPlan, cluster: ClusterProfile, *, whole_job: bool = False) -> JobNodes:
    """The node group that the plan runs on.

    Raises:
        Unresolved: the plan names a group that is unknown.
        OpenGroup: the plan names none of several groups, so the rule is to run for each; `whole_job` where it judges
            a figure of all ranks.
    """
    ask_group(plan, cluster, whole_job=whole_job)
    return require(find_job_nodes(plan, cluster), "the plan does not name a node group of the cluster")


def used_fabrics(plan: TrainingPlan, cluster: ClusterProfile, nodes: JobNodes) -> list[tuple[int, Fabric]]:
    """The fabrics that collectives use, with their positions.

    Raises:
        Unresolved: the plan names one that is unknown.
    """
    check_fabric(plan, cluster)
    return job_fabrics(plan, cluster, nodes)


def check_fabric(plan: TrainingPlan, cluster: ClusterProfile) -> None:
    """Accept a plan that names a fabric of the cluster for its collectives, or none.

    Raises:
        Unresolved: the cluster has no fabric of that name.
    """
    wanted = plan.communication.fabric if plan.communication else None
    names = [fabric.name for fabric in cluster.fabrics]
    if wanted is not None and wanted not in names:
        reason = f"names communication.fabric {wanted!r}, which cluster {cluster.metadata.name} does not have"
        raise Unresolved(
            at(plan, "communication", "fabric"), reason, f"one of: {', '.join(names) or 'none is declared'}"
        )


def machine_of(plan: TrainingPlan, cluster: ClusterProfile, *, whole_job: bool = False) -> Machine:
    """The node group that a plan runs on, with declared figures before those of the catalog.

    Raises:
        NotApplicable: the plan names a group that several groups are called.
        Unresolved: the plan names a group that is unknown.
        OpenGroup: the plan names none of several groups, so the rule is to run for each; `whole_job` where it judges
            a figure of all ranks.
    """
    ask_group(plan, cluster, whole_job=whole_job)
    return require(find_machine(plan, cluster), "the plan does not name one node group of the cluster")


def memory_unknown(machine: Machine) -> Unresolved:
    """Why a rule that holds bytes against the memory of a rank cannot judge."""
    place = at_machine(machine, "accelerator", "model")
    reason = f"does not give the memory of {machine.group.accelerator.model}, which the catalog does not list"
    return Unresolved(place, reason, "state accelerator.memory_bytes")


def at_machine(machine: Machine, *pointer: str | int) -> Place:
    """A place inside the node group of a machine."""
    return at(machine.cluster, "node_groups", machine.index, *pointer)
