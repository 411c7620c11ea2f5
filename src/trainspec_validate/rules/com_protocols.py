"""Rules on the wire protocol that a plan forces for a collective, such as NCCL's LL and LL128."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.communication import CollectiveChoice
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.performance.derived.cluster import listed
from trainspec_validate.performance.derived.job import axis_span
from trainspec_validate.rules import NotApplicable, Violation, at, at_key, rule
from trainspec_validate.rules._machine import job_nodes
from trainspec_validate.rules.com import communication

NEAR_PATHS = frozenset({"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN"})
"""Paths from accelerator to NIC on which stores of 128 bytes arrive whole (NVIDIA/nccl, src/graph/tuning.cc)."""


def _rows(plan: TrainingPlan, protocol: str) -> list[tuple[int, CollectiveChoice]]:
    found = [(i, row) for i, row in enumerate(communication(plan).collectives) if row.protocol == protocol]
    if not found:
        raise NotApplicable(f"no collective is forced to {protocol}")
    return found


@rule("TS-COM-031")
def protocol_hardware(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Stores of 128 bytes arrive whole on every link that carries them."""
    found = _rows(plan, "low-latency-128")
    nodes = job_nodes(plan, cluster)
    known = listed(nodes.group)
    if (known.vendor if known else nodes.group.accelerator.vendor or "").casefold() != "nvidia":
        raise NotApplicable("the conditions are known for accelerators of NVIDIA only")
    for index, row in found:
        span = axis_span(plan, row.axis)
        inside = span is not None and span.num_ranks <= max(nodes.domain_num_ranks, 1)
        problem = _link_problem(nodes.group, inside=inside)
        if problem:
            yield Violation(
                at(plan, "communication", "collectives", index, "protocol"),
                f"low-latency-128 is forced, but {problem}",
                "`automatic`, which enables it where the library finds it safe, or `simple`",
            )


def _link_problem(group: NodeGroup, *, inside: bool) -> str:
    """What makes the protocol unsafe on a node group; empty where nothing does."""
    link = group.scale_up
    if group.num_accelerators_per_node > 1 and (link is None or link.technology != "nvlink"):
        told = "no scale-up link" if link is None else f"{link.technology} links"
        return f"accelerators of a node have {told} in {group.name!r}, not NVLink"
    far = [nic for nic in group.nics if nic.role == "compute" and nic.accelerator_path not in {None, *NEAR_PATHS}]
    if far and not inside:
        return f"{far[0].name!r} is at {far[0].accelerator_path} from its accelerator, beyond PXN"
    return ""


@rule("TS-COM-032")
def low_latency_range(plan: TrainingPlan) -> Iterator[Violation]:
    """A protocol that halves the bandwidth ends at a message size."""
    for index, row in _rows(plan, "low-latency"):
        if row.max_bytes is None:
            yield Violation(
                at_key(plan, "communication", "collectives", index),
                f"{row.operation} of {row.axis} ranks is forced to low-latency for messages of any size",
                "state max_bytes, and add a row with `automatic` or `simple` above it",
            )
