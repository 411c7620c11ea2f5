"""Finds the network between the members of a parallel group, given the placement of ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Literal

from trainspec_validate.performance.costs.network import Link, Network
from trainspec_validate.performance.costs.placement import Span, members_in_block
from trainspec_validate.performance.topology.graph import Block, Topology

RankOrder = Literal["topology", "scheduler", "alphabetical"]
Pattern = Literal["neighbours", "all-pairs"]


class NotJoined(ValueError):  # noqa: N818 - an answer about a machine, not a slip of a program
    """Members of a group are in several domains, and no fabric joins them."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The groups of one axis and how their members communicate."""

    span: Span
    """Where the members of a group are once ranks are numbered."""
    rank_order: RankOrder = "topology"
    pattern: Pattern = "neighbours"


@dataclass(frozen=True, slots=True)
class Crossing:
    """Traffic of a parallel group out of the blocks of one kind."""

    block: Block
    share: float
    """Share of what a domain sends that leaves the block."""

    @property
    def rank_bytes_per_second(self) -> float | None:
        """Rate of one rank to the fabric at which the exit of the block is full; None where that is unknown."""
        rate = self.block.leave_bytes_per_second
        return rate / self.share if rate and self.share > 0 else None


@lru_cache(maxsize=65536)
def group_network(topology: Topology, traffic: Traffic) -> Network | None:
    """The network of the groups of one axis; None for groups of one rank.

    Hosts in the order of the topology keep consecutive ranks in one block, so that a ring leaves each block once.
    Hosts in any other order (`alphabetical`, `scheduler`) are taken to be anywhere: only the ranks of one node
    stay together, and of what leaves a node the share that leaves a larger block is that of the ranks beyond the
    block among those beyond the node. All-pairs traffic (all-to-all) sends to every member alike and gains nothing
    from a ring's order. Groups that stay in a node with several domains communicate over its host link.

    Raises:
        NotJoined: members are in several domains and no fabric joins them.
    """
    span = traffic.span
    if span.degree < 2:
        return None
    members = _per_domain(topology, traffic)
    num_domains = ceil(span.degree / members)
    inside = topology.host if span.num_ranks <= topology.ranks_per_node else None
    fabric = inside or topology.fabric
    if num_domains > 1 and fabric is None:
        raise NotJoined(f"{span.degree} ranks are in {num_domains} domains of {topology.group}, which no fabric joins")
    crossings = crossed(topology, traffic) if num_domains > 1 else ()
    return Network(
        num_ranks=span.degree,
        num_domains=num_domains,
        domain=topology.domain,
        fabric=_narrowed(fabric, crossings) if num_domains > 1 and fabric else None,
        domain_shape=topology.domain_shape,
        domain_num_ranks=topology.physical_domain_num_ranks,
        domain_dimensions=_extents(topology, span) if num_domains == 1 else (),
        domain_reduces=topology.domain_reduces and members > 1,
        fabric_reduces=topology.fabric_reduces and inside is None,
        transport=topology.transport if inside is None else "other",
        library=topology.library,
        num_crossed_tiers=sum(crossing.block.kind == "tier" for crossing in crossings),
    )


def crossed(topology: Topology, traffic: Traffic) -> tuple[Crossing, ...]:
    """The blocks around the domain that a group's traffic leaves, with the share that leaves, innermost first.

    Eight pods of 3,072 ranks, data groups of 128 members that are 128 ranks apart: 24 members share a pod.
    A ring in the order of the topology sends 1/24 of its traffic out of the pod; about 7/8 in any other order.
    """
    domain_ranks = _domain_ranks(topology, traffic.rank_order)
    extent = traffic.span.num_ranks if traffic.rank_order == "topology" else topology.num_ranks
    inner = max(domain_ranks, topology.ranks_per_node)
    return tuple(
        Crossing(block, _leaving_share(topology, block, traffic))
        for block in topology.blocks
        if inner <= block.num_ranks < extent
    )


def _leaving_share(topology: Topology, block: Block, traffic: Traffic) -> float:
    span, per_domain = traffic.span, _per_domain(topology, traffic)
    if traffic.rank_order != "topology":
        return (topology.num_ranks - block.num_ranks) / (topology.num_ranks - topology.ranks_per_node)
    inside = members_in_block(span, block.num_ranks)
    if traffic.pattern == "all-pairs":
        return (span.degree - inside) / (span.degree - per_domain)
    return 1 / (inside // per_domain)


def _per_domain(topology: Topology, traffic: Traffic) -> int:
    """Members of a group that share a domain."""
    if topology.domain is None:
        return 1
    return members_in_block(traffic.span, _domain_ranks(topology, traffic.rank_order))


def _domain_ranks(topology: Topology, rank_order: RankOrder) -> int:
    """Ranks of a domain that are sure to be consecutive."""
    if rank_order == "topology" or topology.domain_num_ranks >= topology.num_ranks:
        return topology.domain_num_ranks
    return min(topology.domain_num_ranks, topology.ranks_per_node)


def _narrowed(fabric: Link, crossings: tuple[Crossing, ...]) -> Link:
    limits = [rate for crossing in crossings if (rate := crossing.rank_bytes_per_second) is not None]
    return Link(min([fabric.bandwidth_bytes_per_second, *limits]), fabric.latency_seconds)


def _extents(topology: Topology, span: Span) -> tuple[int, ...]:
    """Extents of a group in a torus whose first axis is numbered fastest; axes that it does not span are left out."""
    extents, stride = [], 1
    for size in topology.domain_dimensions:
        low, high = max(span.stride, stride), min(span.num_ranks, stride * size)
        if high > low:
            extents.append(high // low)
        stride *= size
    return tuple(extent for extent in extents if extent > 1)
