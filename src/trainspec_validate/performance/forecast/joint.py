"""Gives the machine of a job that takes every node group of a cluster, in which the slowest nodes bound each step.

Each rank of a synchronous job has the same share of a step, so that the step ends with the ranks of the slowest group.
All ranks then count as ranks of that group. Groups that are slower in one figure and faster in another have no slowest
one, and no figure is given for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan, changed
from trainspec_validate.documents.types.fabric import Fabric
from trainspec_validate.performance.derived.groups import is_open
from trainspec_validate.performance.derived.job import JobNodes
from trainspec_validate.performance.derived.joins import plugged
from trainspec_validate.performance.derived.plan import num_ranks
from trainspec_validate.performance.forecast.facts import MachineFacts, Unpredictable, is_tpu, machine_facts


@dataclass(frozen=True, slots=True)
class Joint:
    """All nodes of a cluster as one group, with the figures of its slowest nodes."""

    nodes: JobNodes
    fabric: Fabric
    machine: MachineFacts


def takes_all(plan: TrainingPlan, cluster: ClusterProfile) -> bool:
    """Whether a plan names none of several node groups and takes all of their ranks (TS-TOP-017)."""
    return is_open(plan, cluster) and plan.parallelism.num_accelerators == num_ranks(cluster.node_groups)


def joint_of(cluster: ClusterProfile, wanted_fabric: str | None = None) -> Joint:
    """The machine of a job on all node groups of a cluster, over one fabric.

    Raises:
        Unpredictable: no one fabric of one site joins the groups, their nodes or domains differ in size, they use
            several collective libraries, or no group is the slowest in every figure.
    """
    groups = [JobNodes(group, index) for index, group in enumerate(cluster.node_groups)]
    fabric = _shared_fabric(cluster, groups, wanted_fabric)
    machines = [machine_facts(cluster, nodes, fabric, nodes.num_ranks) for nodes in groups]
    _refuse_unlike(groups, machines)
    figures = [_figures(machine) for machine in machines]
    slow = (place for place, one in enumerate(figures) if all(_no_faster(one, other) for other in figures))
    slowest = next(slow, None)
    if slowest is None:
        raise Unpredictable("no group is the slowest in compute, memory and links alike, so that none bounds a step")
    nodes = groups[slowest]
    every = changed(nodes.group, num_nodes=sum(each.group.num_nodes for each in groups))
    joined = JobNodes(every, nodes.index)
    mixed = any(each != figures[slowest] for each in figures) or len({m.accelerator for m in machines}) > 1
    machine = machine_facts(cluster, joined, fabric, joined.num_ranks)
    return Joint(joined, fabric, replace(machine, is_mixed=mixed))


def _shared_fabric(cluster: ClusterProfile, groups: Sequence[JobNodes], wanted: str | None) -> Fabric:
    """The one fabric that all compute NICs are plugged into, at one site."""
    names = {name for nodes in groups for name in plugged(nodes)} if wanted is None else {wanted}
    found = [fabric for fabric in cluster.fabrics if fabric.name in names]
    lacking = [nodes.group.name for nodes in groups if not names.intersection(plugged(nodes))]
    if lacking or not found:
        raise Unpredictable(f"{', '.join(lacking) or 'no group'} has no compute NICs on a fabric of the others")
    if len(names) > 1:
        listed = ", ".join(sorted(names))
        raise Unpredictable(f"the groups are on several fabrics ({listed}), and traffic between them is not modelled")
    sites = {nodes.group.site for nodes in groups}
    if len(sites) > 1:
        listed = ", ".join(sorted(site or "no site named" for site in sites))
        raise Unpredictable(f"the groups are at several sites ({listed}), and traffic between them is not modelled")
    return found[0]


_ALIKE: Sequence[tuple[str, Callable[[JobNodes, MachineFacts], object]]] = (
    ("ranks of a node", lambda nodes, _: nodes.ranks_per_node),
    ("ranks of a scale-up domain", lambda nodes, _: nodes.domain_num_ranks),
    ("shapes of the scale-up domain", lambda _, machine: machine.topology.domain_shape),
    ("collective libraries", lambda _, machine: machine.topology.library),
)


def _refuse_unlike(groups: Sequence[JobNodes], machines: Sequence[MachineFacts]) -> None:
    """Say where nodes differ in a fact that has no slower value."""
    for words, fact in _ALIKE:
        values = dict.fromkeys(str(fact(nodes, machine)) for nodes, machine in zip(groups, machines, strict=True))
        if len(values) > 1:
            raise Unpredictable(f"the groups differ in the {words}: {', '.join(values)}")
    if any(is_tpu(machine.accelerator) for machine in machines):
        raise Unpredictable("slices of several groups of TPUs are not modelled as one")


def _figures(machine: MachineFacts) -> dict[str, float]:
    """Figures of a rank that more of makes faster; an absent one is 0."""
    topology = machine.topology
    rates = {name: rate * machine.matmul_share(name)[0] for name, rate in machine.peak_flops_per_second.items()}
    links = {"domain": topology.domain, "fabric": topology.fabric, "host": topology.host}
    bandwidths = {name: link.bandwidth_bytes_per_second if link else 0.0 for name, link in links.items()}
    delays = {f"{name} latency": -link.latency_seconds for name, link in links.items() if link}
    return {
        **rates,
        **bandwidths,
        **delays,
        "memory": machine.memory_bytes,
        "memory rate": machine.memory_bandwidth_bytes_per_second,
        "host rate": machine.host_bytes_per_second or 0.0,
        "reducing domain": float(topology.domain_reduces),
    }


def _no_faster(one: dict[str, float], other: dict[str, float]) -> bool:
    return all(one.get(name, 0.0) <= other.get(name, 0.0) for name in {*one, *other})
