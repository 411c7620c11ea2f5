"""Derives the machine of a plan's ranks: node group, memory, rates, host link."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.hardware import HostLink, NodeGroup
from trainspec_validate.model.catalog import links, pcie_bandwidth
from trainspec_validate.performance.derived.cluster import capacity_bytes, listed, power_watts, ranks_per_node
from trainspec_validate.performance.derived.speed import step_time


@dataclass(frozen=True, slots=True)
class Machine:
    """A node group as the ranks of a job see it; None where neither cluster nor catalog has a figure.

    Figures are derived where they are asked for: one that is wrong leaves nothing unjudged but what needs it.
    """

    cluster: ClusterProfile
    group: NodeGroup
    index: int

    @property
    def memory_bytes_per_rank(self) -> float | None:
        """Device memory of one rank."""
        memory = capacity_bytes(self.group)
        return memory / self.group.accelerator.num_ranks_per_accelerator if memory else None

    @property
    def memory_bytes_per_second_per_rank(self) -> float | None:
        """Bandwidth of the device memory."""
        own, known = self.group.accelerator, listed(self.group)
        bandwidth = own.memory_bandwidth_bytes_per_second or (
            known.memory_bandwidth_bytes_per_second if known else None
        )
        return bandwidth / own.num_ranks_per_accelerator if bandwidth else None

    @property
    def watts_per_accelerator(self) -> float | None:
        """Power of one accelerator."""
        return power_watts(self.group)

    @property
    def peak_rates(self) -> Mapping[str, float]:
        """Dense peak rates of one accelerator by number format."""
        known = listed(self.group)
        rates = dict(known.peak_flops_per_second) if known else {}
        rates.update({rate.format: rate.flops_per_second for rate in self.group.accelerator.peak_rates})
        return rates

    @property
    def num_ranks_per_node(self) -> int:
        """Ranks that a job places on one node."""
        return ranks_per_node(self.group)

    @property
    def host_bytes_per_second_per_rank(self) -> float | None:
        """One-way rate between host and device that a rank can count on."""
        link = self.group.host_link
        rate = host_rate(link) if link else None
        return None if rate is None else rate / self.group.accelerator.num_ranks_per_accelerator


def find_machine(plan: TrainingPlan, cluster: ClusterProfile) -> Machine | None:
    """The node group that a plan runs on, with declared figures before those of the catalog.

    None when the cluster has several groups and the plan names none of them.
    """
    wanted = [i for i, group in enumerate(cluster.node_groups) if plan.node_group in (None, group.name)]
    return machine_of_group(cluster, wanted[0]) if len(wanted) == 1 else None


def machine_of_group(cluster: ClusterProfile, index: int) -> Machine:
    """A node group by its position, with declared figures before those of the catalog."""
    return Machine(cluster, cluster.node_groups[index], index)


def num_nodes(plan: TrainingPlan, machine: Machine) -> int:
    """Nodes that the ranks of a job fill."""
    return math.ceil(plan.parallelism.num_accelerators / machine.num_ranks_per_node)


def num_accelerators(plan: TrainingPlan, machine: Machine) -> float:
    """Accelerators that the ranks of a job fill."""
    return plan.parallelism.num_accelerators / machine.group.accelerator.num_ranks_per_accelerator


def step_seconds(plan: TrainingPlan) -> float | None:
    """Time of one optimizer step as the plan states it, by its speed or by its duration."""
    stated, job = step_time(plan), plan.job
    if stated is not None and stated.seconds is not None:
        return stated.seconds
    return job.planned_seconds / job.num_steps if job and job.planned_seconds and job.num_steps else None


def host_rate(link: HostLink) -> float | None:
    """One-way rate of one device over a host link that it may share."""
    rate = link.bandwidth_bytes_per_second
    if rate is None and link.technology == "pcie" and link.generation:
        one = pcie_bandwidth(link.generation, link.num_lanes or 16)
        rate = None if one is None else one * link.num_links
    if rate is None:
        rate = links().coherent_bandwidth_bytes_per_second.get(link.technology)
    if link.upstream_bandwidth_bytes_per_second and link.num_devices_per_upstream_link:
        shared = link.upstream_bandwidth_bytes_per_second / link.num_devices_per_upstream_link
        rate = min(rate or shared, shared)
    return rate
