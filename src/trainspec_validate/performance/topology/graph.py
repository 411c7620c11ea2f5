"""Builds the graph of a node group: nested blocks of ranks with the links between them.

A block represents all of its kind, so that 131,072 accelerators are a handful of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.fabric import Fabric
from trainspec_validate.documents.types.hardware import Nic, NodeGroup
from trainspec_validate.performance.costs.collective_libraries import LIBRARIES
from trainspec_validate.performance.costs.network import DomainShape, Link
from trainspec_validate.performance.derived.cluster import domain_rate
from trainspec_validate.performance.derived.job import JobNodes
from trainspec_validate.performance.derived.machine import host_rate

# Per-hop constants of the ring with 128-byte flags: NVLink, PCIe and InfiniBand of
# NVIDIA/nccl@5067397c:src/graph/tuning.cc (v2.30), xGMI of ROCm/rccl@0cbce2a7:src/graph/tuning.cc (tuning model 0).
# Torus hops: jax-ml/scaling-book@0819a7d8:sharding.md. EFA, RoCE, TCPXO and TCPX: derived from the small-message rows
# of published sweeps (aws-samples/awsome-distributed-training@7217859f, GoogleCloudPlatform/cluster-toolkit@10470803),
# as time of the smallest message over network steps. The others are assumed: NeuronLink as a torus hop; MRC, UET,
# Slingshot and Omni-Path as InfiniBand; sockets and networks between data centres at 100 us.
_DOMAIN_SECONDS = {"nvlink": 1.9e-6, "xgmi": 2.2e-6, "pcie": 2.5e-6, "ici": 1e-6, "neuronlink": 1e-6}
_FABRIC_SECONDS = {
    "infiniband": 4e-6,
    "rocev2": 33e-6,
    "efa-srd": 27e-6,
    "tcpxo": 64e-6,
    "tcpx": 500e-6,
    "mrc": 4e-6,
    "uet": 4e-6,
    "slingshot": 4e-6,
    "omni-path": 4e-6,
    "ici": 1e-6,
    "dcn": 100e-6,
    "tcp": 100e-6,
}
_OTHER_DOMAIN_SECONDS = 2e-6
_OTHER_FABRIC_SECONDS = 10e-6


def domain_latency_seconds(technology: str) -> float:
    """Latency of one hop inside a scale-up domain, software included, where a profile states none.

    >>> domain_latency_seconds("nvlink")
    1.9e-06
    """
    return _DOMAIN_SECONDS.get(technology, _OTHER_DOMAIN_SECONDS)


def fabric_latency_seconds(transport: str) -> float:
    """Latency of one small message between nodes, software included, where a profile states none.

    >>> fabric_latency_seconds("efa-srd")
    2.7e-05
    """
    return _FABRIC_SECONDS.get(transport, _OTHER_FABRIC_SECONDS)


SOCKET_LINK_BYTES_PER_SECOND = 22e9
"""Rate from one socket to the other in one direction: the figure for Sapphire Rapids; others are at 10 to 40e9
(NVIDIA/nccl@5067397c:src/graph/topo.h). Profiles do not name the processor."""

_OWN_PROCESSOR = frozenset({"nvlink-c2c", "coherent"})
"""Kinds of host link that join each accelerator to a processor of its own."""

BlockKind = Literal["node", "scale-up-domain", "tier"]


@dataclass(frozen=True, slots=True)
class Block:
    """All equal blocks of one kind: a node, a scale-up domain, or what hangs under one switch tier."""

    name: str
    kind: BlockKind
    num_ranks: int
    """Ranks of one block that jobs use."""
    num_blocks: int
    leave_bytes_per_second: float | None
    """Rate at which one rank can send out of the block when all do, one way; None where nothing is stated or nothing
    leaves."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Links that join the ranks of one node group, innermost first; rates are one-way and of one rank."""

    group: str
    num_ranks: int
    ranks_per_node: int
    domain: Link | None
    """Into the scale-up domain, or to the other accelerators of the node where there is no fast domain."""
    domain_num_ranks: int
    """Ranks of one domain that jobs use; 1 where accelerators share nothing."""
    has_scale_up: bool
    """Whether links faster than the host's join the ranks of a domain."""
    physical_domain_num_ranks: int
    domain_shape: DomainShape
    domain_dimensions: tuple[int, ...]
    """Extent of each axis of a torus, in ranks; empty for other shapes."""
    domain_reduces: bool
    host: Link | None
    """To the other domains of a node, over the host link; None where a node holds no more than one domain."""
    fabric: Link | None
    """A rank's share of the NICs of its node, narrowed by the slots and switches that they share."""
    fabric_name: str | None
    fabric_reduces: bool
    transport: str
    library: str
    num_rails: int | None
    blocks: tuple[Block, ...]
    """Nested blocks, innermost first."""

    def block(self, name: str) -> Block:
        """The block of a name.

        Raises:
            KeyError: there is none.
        """
        for block in self.blocks:
            if block.name == name:
                return block
        raise KeyError(name)


def topology_of(
    cluster: ClusterProfile, nodes: JobNodes, fabric: Fabric | None, num_ranks: int | None = None
) -> Topology:
    """The graph of the first `num_ranks` ranks of a node group over one fabric; of all ranks where none are stated.

    The fabric is None where nodes are not joined by any. Where a domain spans nodes, the node is the inner block.
    Where there is no scale-up domain, accelerators of a node reach each other over the host link.
    """
    group, ranks_per_node = nodes.group, nodes.ranks_per_node
    library = _library(cluster, group)
    used = min(num_ranks or nodes.num_ranks, nodes.num_ranks)
    scale_up = group.scale_up
    domain = _domain_link(nodes, library)
    domain_ranks = nodes.domain_num_ranks if scale_up else (ranks_per_node if domain else 1)
    per = group.accelerator.num_ranks_per_accelerator
    share = _fabric_link(nodes, library, fabric)
    return Topology(
        group=group.name,
        num_ranks=used,
        ranks_per_node=ranks_per_node,
        domain=domain,
        domain_num_ranks=min(domain_ranks, used),
        has_scale_up=scale_up is not None,
        physical_domain_num_ranks=scale_up.domain_num_accelerators * per if scale_up else domain_ranks,
        domain_shape=scale_up.topology if scale_up else "other",
        domain_dimensions=_dimensions(group, per),
        domain_reduces=bool(scale_up and scale_up.in_network_reduction),
        host=_host_link(group, library) if domain_ranks < ranks_per_node else None,
        fabric=share,
        fabric_name=fabric.name if fabric and share else None,
        fabric_reduces=bool(fabric and fabric.in_network_reduction),
        transport=fabric.transport if fabric else "other",
        library=library,
        num_rails=fabric.num_rails if fabric else None,
        blocks=_blocks(nodes, used, domain_ranks, (domain, share), fabric),
    )


def _library(cluster: ClusterProfile, group: NodeGroup) -> str:
    """The collective library that the profile names, else the one that the maker of the accelerator ships."""
    if cluster.software and cluster.software.collective_library:
        return cluster.software.collective_library.name
    vendor = group.accelerator.vendor or group.accelerator.model.split("-")[0]
    return {"nvidia": "nccl", "amd": "rccl"}.get(vendor, "other")


def _dimensions(group: NodeGroup, ranks_per_accelerator: int) -> tuple[int, ...]:
    scale_up = group.scale_up
    if scale_up is None or scale_up.topology != "torus" or not scale_up.dimensions:
        return ()
    return (scale_up.dimensions[0] * ranks_per_accelerator, *scale_up.dimensions[1:])


def _latency(stated: float | None, library: str, usual: float) -> float:
    """A stated latency, else none where the constants of the library hold it already, else the usual one."""
    return stated or (0.0 if library in LIBRARIES else usual)


def _domain_link(nodes: JobNodes, library: str) -> Link | None:
    group = nodes.group
    per = group.accelerator.num_ranks_per_accelerator
    if group.scale_up is not None:
        rate = domain_rate(group)
        usual = domain_latency_seconds(group.scale_up.technology)
        return Link(rate / per, _latency(group.scale_up.latency_seconds, library, usual)) if rate else None
    return _peer_link(nodes, library)


def _peer_link(nodes: JobNodes, library: str) -> Link | None:
    """From one accelerator of a node to another over the host link; None where a node has one accelerator.

    A coherent link ends at the accelerator's own processor, and the way goes on between processors.
    """
    if nodes.ranks_per_node < 2:
        return None
    link = _host_link(nodes.group, library)
    if link is None or nodes.group.host_link is None or nodes.group.host_link.technology not in _OWN_PROCESSOR:
        return link
    return Link(min(link.bandwidth_bytes_per_second, SOCKET_LINK_BYTES_PER_SECOND), link.latency_seconds)


def _host(group: NodeGroup) -> float | None:
    """The rate of one accelerator; ranks of an accelerator share it."""
    return host_rate(group.host_link) if group.host_link else None


def _host_link(group: NodeGroup, library: str) -> Link | None:
    rate, latency = _host(group), _latency(None, library, domain_latency_seconds("pcie"))
    return Link(rate / group.accelerator.num_ranks_per_accelerator, latency) if rate else None


def nic_rate(nic: Nic) -> float:
    """Rate of one interface to its accelerator in one direction: its own rate, or that of a narrower way there.

    The way is its slot, which it may share, and the link between two sockets where the accelerator hangs on the other.
    """
    slot = host_rate(nic.host_link) if nic.host_link else None
    between = SOCKET_LINK_BYTES_PER_SECOND if nic.accelerator_path == "SYS" else inf
    return min(nic.rate_bytes_per_second, slot or inf, between)


def _fabric_link(nodes: JobNodes, library: str, fabric: Fabric | None) -> Link | None:
    if fabric is None:
        return None
    group = nodes.group
    nics = [nic for nic in group.nics if nic.role == "compute" and nic.fabric == fabric.name]
    total = sum(nic_rate(nic) * nic.num_per_node for nic in nics)
    if not total:
        return None
    host = _host(group)
    if host is not None and any(nic.gpu_direct is False for nic in nics):
        total = min(total, host * group.num_accelerators_per_node)
    latency = _latency(fabric.latency_seconds, library, fabric_latency_seconds(fabric.transport))
    return Link(total / nodes.ranks_per_node, latency)


def _blocks(
    nodes: JobNodes, total: int, domain_ranks: int, links: tuple[Link | None, Link | None], fabric: Fabric | None
) -> tuple[Block, ...]:
    inside, share = links
    rate = share.bandwidth_bytes_per_second if share else None
    sizes: list[tuple[str, BlockKind, int, float | None]] = []
    if domain_ranks > nodes.ranks_per_node:
        sizes.append(("node", "node", nodes.ranks_per_node, inside.bandwidth_bytes_per_second if inside else None))
        sizes.append(("scale-up-domain", "scale-up-domain", domain_ranks, rate))
    else:
        if 1 < domain_ranks < nodes.ranks_per_node:
            host = _host(nodes.group)
            out = host / nodes.group.accelerator.num_ranks_per_accelerator if host else None
            sizes.append(("scale-up-domain", "scale-up-domain", domain_ranks, out))
        sizes.append(("node", "node", nodes.ranks_per_node, rate))
    for tier in fabric.tiers if fabric and rate else ():
        rate = rate / (tier.oversubscription or 1) if rate else None
        if tier.group_num_nodes is None:
            continue
        sizes.append((tier.name, "tier", tier.group_num_nodes * nodes.ranks_per_node, rate))
    return tuple(
        Block(name, kind, min(size, total), ceil(total / size), None if size >= total else out)
        for name, kind, size, out in sizes
    )
