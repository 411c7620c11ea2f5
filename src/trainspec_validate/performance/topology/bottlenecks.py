"""Finds what is narrow or uneven in a machine: bisection, narrow blocks, unlike accelerators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.fabric import ExplicitNode
from trainspec_validate.performance.topology.graph import Block, Topology


@dataclass(frozen=True, slots=True)
class Narrowing:
    """A kind of block whose exit is narrower than the links inside it."""

    block: Block
    factor: float
    """Rate inside over rate out, both of one rank; 1 where nothing is lost."""


def bisection_bytes_per_second(topology: Topology) -> float | None:
    """Bytes per second that one half of the ranks can send to the other half, in one direction; None if unknown.

    The halves are cut between the largest blocks, as an even split of the machine is: half of the ranks times what
    one rank can send out of the largest block that is smaller than the machine. A single switched domain is cut
    through its own links, a single torus across its longest axis, whose ring is cut twice: with axes of 8 x 4 and
    four links of 45 GB/s for each rank, 2 x 4 links are cut.
    """
    outer = [
        block for block in topology.blocks if block.num_blocks > 1 and block.num_ranks >= topology.domain_num_ranks
    ]
    if outer:
        rate = outer[-1].leave_bytes_per_second
        return None if rate is None else topology.num_ranks / 2 * rate
    if topology.domain is None:
        return None
    rate = topology.domain.bandwidth_bytes_per_second
    if topology.domain_shape == "torus" and topology.domain_dimensions:
        link = rate / (2 * len(topology.domain_dimensions))
        return 2 * topology.num_ranks / max(topology.domain_dimensions) * link
    return topology.num_ranks / 2 * rate if topology.domain_shape == "switched" else None


def narrowings(topology: Topology) -> tuple[Narrowing, ...]:
    """Every block whose exit is narrower than what is inside it, the narrowest first."""
    inside = topology.domain.bandwidth_bytes_per_second if topology.domain else None
    found = []
    for block in topology.blocks:
        out = block.leave_bytes_per_second
        if inside and out and out < inside * (1 - 1e-9):
            found.append(Narrowing(block, inside / out))
        inside = out or inside
    return tuple(sorted(found, key=lambda narrowing: -narrowing.factor))


@dataclass(frozen=True, slots=True)
class UnlikeNode:
    """An explicit node whose accelerators do not all see the same network."""

    name: str
    index: int
    """Position among the explicit nodes."""
    nics_per_numa_node: tuple[tuple[int, int, int], ...]
    """NUMA node, accelerators on it, NICs on it; only where the shares differ."""
    nic_rates_bytes_per_second: tuple[float, ...]
    """The different rates of its NICs; only where there are several."""


def unlike_nodes(cluster: ClusterProfile) -> Iterator[UnlikeNode]:
    """Explicit nodes on which some accelerators have more, nearer or faster NICs than others."""
    for index, node in enumerate(cluster.layout.nodes if cluster.layout else ()):
        shares, rates = _numa_shares(node), _rates(node)
        if shares or rates:
            yield UnlikeNode(node.name, index, shares, rates)


def _numa_shares(node: ExplicitNode) -> tuple[tuple[int, int, int], ...]:
    accelerators = Counter(d.numa_node for d in node.accelerators if d.numa_node is not None)
    nics = Counter(d.numa_node for d in node.nics if d.numa_node is not None)
    if not accelerators or not nics:
        return ()
    shares = [(numa, count, nics.get(numa, 0)) for numa, count in sorted(accelerators.items())]
    if sum(nics.values()) < len(shares):
        return ()  # so few cannot be spread: some NUMA node has none wherever they are
    even = len({(num_nics / count) for _, count, num_nics in shares}) == 1
    return () if even else tuple(shares)


def _rates(node: ExplicitNode) -> tuple[float, ...]:
    rates = sorted({d.rate_bytes_per_second for d in node.nics if d.rate_bytes_per_second is not None})
    return tuple(rates) if len(rates) > 1 else ()
