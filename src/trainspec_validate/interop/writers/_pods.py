"""Describes the pods of a job in Kubernetes: name, topology requests for Kueue, variables, devices, memory."""

from __future__ import annotations

import json
import math
import re

from trainspec_validate.documents.types.parallelism import Placement
from trainspec_validate.interop.writers import nccl_environment
from trainspec_validate.interop.writers._target import Job, group_num_nodes

_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
_LEVEL = "cloud.provider.com/topology-"
"""Prefix of node labels in the examples of Kueue; a site has its own."""
_DOMAIN_LABEL = "nvidia.com/gpu.clique"
"""Label of an NVLink domain that NVIDIA's feature discovery sets on nodes."""
_PINNING = frozenset({"infiniband", "rocev2"})
"""Transports whose verbs library locks the memory that a NIC reads: man 7 capabilities, CAP_IPC_LOCK."""
_LONGEST_NAME = 40
"""Characters of the JobSet's name, so that the names of its pods stay below 63."""


def job_name(job: Job) -> str:
    """The plan's name in the letters that Kubernetes takes for host names."""
    plain = re.sub(r"[^a-z0-9]+", "-", job.plan.metadata.name.casefold()).strip("-")
    plain = plain if plain[:1].isalpha() else f"job-{plain}"
    return plain[:_LONGEST_NAME].strip("-")


def _group_level(job: Job, placement: Placement) -> tuple[str, str] | None:
    """The label that the nodes of one group share, and the words why; None where a pod or the fabric holds it."""
    if placement.within == "scale-up-domain" and job.nodes_per_domain > 1:
        label = _DOMAIN_LABEL if job.vendor == "nvidia" else f"{_LEVEL}scale-up-domain"
        return label, f"plan: placements[{placement.axis}].within is scale-up-domain (TS-TOP-019)"
    if placement.fabric_tier:
        because = f"plan: placements[{placement.axis}].fabric_tier is {placement.fabric_tier} (TS-TOP-020)"
        return _LEVEL + placement.fabric_tier, because
    return None


def _topology(job: Job, notes: list[str]) -> list[tuple[str, str, str]]:
    """Annotations for Kueue with the keys that they follow from: groups that must, a job that should lie together."""
    wanted = []
    for placement in job.plan.parallelism.placements:
        size, level = group_num_nodes(job, placement.axis), _group_level(job, placement)
        if level and size > 1:
            wanted.append((size, *level))
    wanted.sort()
    found = []
    if wanted and wanted[0][0] < job.num_nodes:
        size, label, because = wanted[0]
        found.append(("podset-slice-required-topology", label, f"{because}; replace: the label of your Topology"))
        found.append(("podset-slice-size", str(size), "nodes of one group"))
    whole = [(label, because) for size, label, because in wanted if size >= job.num_nodes]
    if whole:
        found.append(("podset-required-topology", whole[0][0], f"{whole[0][1]}; replace: the label of your Topology"))
    elif job.plan.parallelism.rank_order == "topology":
        found += _preferred(job, notes)
    for size, _, because in wanted[1:]:
        if size < job.num_nodes:
            notes.append(f"{because.removeprefix('plan: ')}: Kueue takes one size of slices, the smallest was written")
    return found


def _preferred(job: Job, notes: list[str]) -> list[tuple[str, str, str]]:
    """The lowest tier that holds the whole job, as a wish."""
    fabric = job.fabric
    tiers = [tier for tier in (fabric.tiers if fabric else ()) if (tier.group_num_nodes or 0) >= job.num_nodes]
    if not tiers:
        if job.num_nodes > 1:
            notes.append(
                "rank_order is topology, but no tier of the fabric is stated to hold the job, so none is named"
            )
        return []
    because = "plan: parallelism.rank_order is topology (TS-TOP-022); replace: the label of your Topology"
    return [("podset-preferred-topology", _LEVEL + tiers[0].name, because)]


def locked_memory(job: Job, notes: list[str]) -> list[str]:
    """The capability that a transport needs to pin memory for its NICs."""
    if job.fabric is None or job.fabric.transport not in _PINNING or job.num_nodes == 1:
        return []
    notes.append("IPC_LOCK needs a namespace whose pod security level is privileged")
    because = f"cluster: fabrics[{job.fabric.name}].transport is {job.fabric.transport}, which locks memory"
    return ["securityContext:", f"  # {because}", "  capabilities: {add: [IPC_LOCK]}"]


def mounts() -> list[str]:
    """The volumes of a container."""
    return ["volumeMounts:", "  - {name: shared-memory, mountPath: /dev/shm}"]


def volumes() -> list[str]:
    """Shared memory for collectives between ranks of a pod and for data loaders; a container has 64 MiB by itself."""
    return [
        "volumes:",
        "  # collectives within a node and data loaders use more than the 64 MiB that a container has by default;",
        "  # what is written there counts against the memory of the pod",
        "  - {name: shared-memory, emptyDir: {medium: Memory}}",
    ]


def variables(job: Job, notes: list[str]) -> list[str]:
    """Variables of the collective library, each below the key that it follows from; none gives no line."""
    settings, unsaid = nccl_environment.settings(job)
    notes += unsaid
    lines = ["env:"] if settings else []
    for setting in settings:
        lines += [f"  # {setting.because}", f"  - name: {setting.name}"]
        lines += [f"    value: {json.dumps(setting.value.replace('$(', '$$('))}"]
    return lines


def devices(job: Job, notes: list[str]) -> list[str]:
    """The accelerators of a pod."""
    notes.append("network interfaces are resources of the site's device plug-in, which the documents do not name")
    return [
        "limits:",
        f"  # cluster: node_groups[{job.nodes.group.name}], one device for each rank",
        f"  {_RESOURCES[job.vendor]}: {job.ranks_per_node}",
    ]


def metadata(job: Job, notes: list[str]) -> list[str]:
    """Annotations of a pod; none gives no line."""
    annotations = _topology(job, notes)
    lines = ["metadata:", "  annotations:"] if annotations else []
    for key, value, because in annotations:
        lines += [f"    # {because}", f"    kueue.x-k8s.io/{key}: {json.dumps(value)}"]
    return lines


def grace(job: Job) -> list[str]:
    """The time that a pod has to end; none gives no line."""
    stated = job.policy.grace if job.policy else None
    if not (stated and stated.preemptible and stated.notice_seconds):
        return []
    return [
        "# policy: grace.notice_seconds (TS-CKP-054)",
        f"terminationGracePeriodSeconds: {math.ceil(stated.notice_seconds)}",
    ]


def indented(lines: list[str], depth: int) -> list[str]:
    """Lines of YAML below a key."""
    return [" " * depth + line for line in lines]
