"""Counts what a collective algorithm does: steps in sequence and bytes over each link.

Counts are per byte of message, in the convention of `bandwidth.bus_bandwidth_factor`; nothing is calibrated here.
n ranks sit in k domains, g = n / k in each. The steps of ring, tree and halving-doubling are those of Thakur,
Rabenseifner and Gropp, IJHPCA 19(1), 2005; what is split between domain and fabric follows from counting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, log2, prod

from trainspec_validate.performance.costs.bandwidth import OPERATIONS, bus_bandwidth_factor
from trainspec_validate.performance.costs.network import Network

HOP_SECONDS = 1e-6
"""One hop of a torus; jax-ml/scaling-book@0819a7d8 says about 1 us."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Work of one rank in a collective."""

    domain_steps: float
    """Messages in sequence inside domains."""
    fabric_steps: float
    """Messages in sequence over the fabric."""
    domain_share: float
    """Bytes through a rank's link into its domain."""
    fabric_share: float
    """Bytes through a rank's share of the NICs."""
    overlap: float = 1.0
    """1 when domain and fabric work at the same time, 0 when they take turns, 0.5 when only bounds are known."""


def _ring(operation: str, network: Network) -> Traffic:
    n, k = network.num_ranks, network.num_domains
    rounds = 2 if operation == "all-reduce" else 1
    across = 0 if k == 1 else rounds * (k - 1)
    share = bus_bandwidth_factor(operation, n)
    # A pipe of n ranks has n - 1 hops, k - 1 of them over the fabric; rings through all NICs of a domain share it.
    return Traffic(rounds * (n - 1) - across, across, share, 0.0 if k == 1 else share * k / n)


def _tree(operation: str, network: Network) -> Traffic:
    n, k = network.num_ranks, network.num_domains
    g = n / k
    depth = ceil(log2(k))
    if operation == "broadcast":
        inside = ceil(log2(g)) if g > 1 else 0
        return Traffic(inside, depth, 1.0, 0.0 if k == 1 else 1 / g)
    # A chain inside the domain, a double binary tree over domains: of two domains each sends its sum once;
    # of more, an inner domain of one tree is a leaf of the other and moves the message twice.
    across = 0.0 if k == 1 else (1.0 if k == 2 else 2.0) / g
    return Traffic(2 * (ceil(g) - 1), 2 * depth, 2.0, across)


def _halving_doubling(operation: str, network: Network) -> Traffic:
    k = network.num_domains
    g = network.num_ranks / k
    (inside, domain), (outside, fabric) = (_exchange(operation, count) for count in (g, k))
    # The domain goes first, so that the fabric carries a g-th of the message.
    return Traffic(inside, outside, domain, fabric / g, overlap=0.0)


def _exchange(operation: str, count: float) -> tuple[int, float]:
    """Steps and bytes of recursive halving, doubling, or both among `count` ranks."""
    if operation != "all-reduce":
        return ceil(log2(count)), (count - 1) / count  # any count: arXiv:2506.20252
    power = 1 << int(log2(count))
    # Ranks above a power of two hand their message over before, and get the result after.
    extra = 0 if power == count else 2
    return 2 * int(log2(count)) + extra, 2 * (power - 1) / power + extra


def _hierarchical(operation: str, network: Network) -> Traffic:
    n, k = network.num_ranks, network.num_domains
    g = n / k
    rounds = 2 if operation == "all-reduce" else 1
    # stas00/ml-engineering@744d01e1:network/README.md: overlapped and serial phases bound it from both sides.
    inside, across = rounds * (g - 1) / g, rounds * (k - 1) / n
    return Traffic(rounds * (ceil(g) - 1), rounds * (k - 1), inside, across, overlap=0.5)


def _in_network(_operation: str, network: Network) -> Traffic:
    n, k = network.num_ranks, network.num_domains
    g = n / k
    inside = 1.0 if network.domain_reduces else 2 * (g - 1) / g
    return Traffic(1, 0 if k == 1 else 1, inside, 0.0 if k == 1 else 1 / g)


def _in_network_tree(_operation: str, network: Network) -> Traffic:
    k = network.num_domains
    return Traffic(1, 2 * ceil(log2(k)), 1.0, (1.0 if k == 2 else 2.0) * k / network.num_ranks)


def _direct(operation: str, network: Network) -> Traffic:
    n, k = network.num_ranks, network.num_domains
    g = n / k
    if operation == "send-receive":
        return Traffic(float(k == 1), float(k > 1), float(k == 1), float(k > 1))
    rounds = 2 if operation == "all-reduce" else 1
    # Every shard goes straight to its owner; nothing is combined on the way. All messages start at once.
    inside, outside = float(g > 1), float(k > 1)
    return Traffic(rounds * inside, rounds * outside, rounds * (g - 1) / n, rounds * (n - g) / n)


def _pairwise(_operation: str, network: Network) -> Traffic:
    n, k = network.num_ranks, network.num_domains
    g = n / k
    return Traffic(g - 1, n - g, (g - 1) / n, (n - g) / n, overlap=0.0)


def _torus(operation: str, network: Network) -> Traffic:
    n, extents = network.num_ranks, torus_axes(network)
    hops = sum(extent // 2 for extent in extents)
    used = len(extents) / len(network.domain_dimensions)
    # jax-ml/scaling-book@0819a7d8: all axes work at once; an all-to-all crosses a quarter of each on average.
    if operation == "all-to-all":
        return Traffic(hops, 0, max(extents) * len(network.domain_dimensions) / 4, 0.0)
    rounds = 2 if operation == "all-reduce" else 1
    return Traffic(rounds * hops, 0, bus_bandwidth_factor(operation, n) / used, 0.0)


def torus_axes(network: Network) -> tuple[int, ...]:
    """Extents of the axes of a torus that the group of ranks fills.

    >>> from trainspec_validate.performance.costs.network import Link
    >>> torus_axes(Network(16, domain=Link(540e9, 1e-6), domain_shape="torus", domain_dimensions=(16, 8, 4)))
    (16,)

    Raises:
        ValueError: no set of whole axes has as many ranks as the group.
    """
    dimensions = network.domain_dimensions
    if len(dimensions) <= 8:
        for subset in sorted(range(1, 1 << len(dimensions)), key=int.bit_count):
            extents = tuple(extent for axis, extent in enumerate(dimensions) if subset >> axis & 1)
            if prod(extents) == network.num_ranks:
                return extents
    raise ValueError(f"{network.num_ranks} ranks do not fill whole axes of a torus of {dimensions}")


_REDUCING = frozenset({"all-reduce", "all-gather", "reduce-scatter"})
ALGORITHMS: dict[str, tuple[Callable[[str, Network], Traffic], frozenset[str]]] = {
    "ring": (_ring, _REDUCING | {"broadcast"}),
    "tree": (_tree, frozenset({"all-reduce", "broadcast"})),
    "hierarchical": (_hierarchical, _REDUCING),
    "halving-doubling": (_halving_doubling, _REDUCING),
    "in-network": (_in_network, frozenset({"all-reduce"})),
    "in-network-tree": (_in_network_tree, frozenset({"all-reduce"})),
    "direct": (_direct, _REDUCING | {"all-to-all", "send-receive"}),
    "pairwise": (_pairwise, frozenset({"all-to-all"})),
    "torus": (_torus, _REDUCING | {"all-to-all"}),
}
"""Algorithm: what counts it, and the operations that it is a model of."""


def traffic(operation: str, algorithm: str, network: Network) -> Traffic:
    """Steps and bytes of one algorithm on one network.

    A ring all-reduce of 8 ranks takes 14 steps and moves 1.75 bytes per byte:

    >>> from trainspec_validate.performance.costs.network import Link
    >>> traffic("all-reduce", "ring", Network(8, domain=Link(450e9, 1e-6)))
    Traffic(domain_steps=14, fabric_steps=0, domain_share=1.75, fabric_share=0.0, overlap=1.0)

    Raises:
        ValueError: the operation or the algorithm is unknown, or it cannot run on this network.
    """
    if operation not in OPERATIONS or algorithm not in ALGORITHMS:
        raise ValueError(f"no model of {algorithm!r} for {operation!r}")
    count, operations = ALGORITHMS[algorithm]
    if operation not in operations:
        raise ValueError(f"{algorithm} is no model of {operation}; it is one of {', '.join(sorted(operations))}")
    obstacle = _obstacle(algorithm, network)
    if obstacle:
        raise ValueError(f"{algorithm} cannot run here: {obstacle}")
    counted = count(operation, network)
    alone = network.num_domains == network.num_ranks
    return replace(counted, domain_steps=0, domain_share=0.0) if alone else counted


def _obstacle(algorithm: str, network: Network) -> str | None:
    """What keeps an algorithm from running on a network."""
    several, shared = network.num_domains > 1, network.num_domains < network.num_ranks
    reduces = network.domain_reduces and shared
    checks = {
        "hierarchical": (several and shared, "it needs several domains of several ranks"),
        "in-network": (
            network.fabric_reduces if several else reduces,
            f"the switches of the {'fabric' if several else 'domain'} do not reduce",
        ),
        "in-network-tree": (
            reduces and several,
            "it needs several domains of several ranks whose switches reduce",
        ),
        "torus": (
            network.domain_shape == "torus" and not several,
            "the ranks do not share one torus",
        ),
    }
    possible, why = checks.get(algorithm, (True, ""))
    return None if possible else why


def alpha_beta_seconds(operation: str, algorithm: str, message_bytes: float, network: Network) -> float:
    """Textbook time without calibration: steps times latency plus bytes over rate, links taken at full rate.

    Ring all-reduce is 2(n-1) a + 2(n-1)/n S/B (Thakur, Rabenseifner and Gropp, IJHPCA 2005). Eight ranks,
    1 GiB, 450 GB/s and 2 us: 14 x 2 us + 1.75 x 2386 us.

    >>> from trainspec_validate.performance.costs.network import Link
    >>> round(alpha_beta_seconds("all-reduce", "ring", 2**30, Network(8, domain=Link(450e9, 2e-6))) * 1e6)
    4204

    Raises:
        ValueError: the operation or the algorithm is unknown, or it cannot run on this network.
    """
    counted = traffic(operation, algorithm, network)
    inside = outside = latency = 0.0
    if network.domain is not None:
        inside = counted.domain_share / domain_rate(operation, algorithm, network)
        latency += counted.domain_steps * network.domain.latency_seconds
    if network.fabric is not None:
        outside = counted.fabric_share / network.fabric.bandwidth_bytes_per_second
        latency += counted.fabric_steps * network.fabric.latency_seconds
    return latency + message_bytes * combined(inside, outside, counted.overlap)


def combined(inside: float, outside: float, overlap: float) -> float:
    """Time of two kinds of work that overlap to a degree: the longer at 1, the sum at 0."""
    return max(inside, outside) + (1 - overlap) * min(inside, outside)


def domain_rate(operation: str, algorithm: str, network: Network) -> float:
    """One-way bytes per second that members of the group have into their domain.

    In a mesh every pair has its own links, so a subset of the mesh has its share of the rate only; MI300X
    measured 312.9 GB/s with 8 ranks and 47.7 with 2 (stas00/ml-engineering@744d01e1:network/README.md). In a
    torus a ring, or any algorithm that does not know the axes, uses the two links of one axis.

    >>> from trainspec_validate.performance.costs.network import Link
    >>> pair = Network(2, domain=Link(448e9, 1e-6), domain_shape="full-mesh", domain_num_ranks=8)
    >>> domain_rate("all-reduce", "ring", pair) / 1e9
    64.0

    Raises:
        ValueError: the ranks have no link into a domain.
    """
    if network.domain is None:
        raise ValueError("these ranks share no domain")
    rate = network.domain.bandwidth_bytes_per_second
    if network.domain_shape == "full-mesh":
        whole = max(network.domain_num_ranks, ceil(network.ranks_per_domain), 2)
        peers = 1 if operation == "send-receive" else max(network.ranks_per_domain - 1, 1)
        return rate * peers / (whole - 1)
    if network.domain_shape == "torus" and algorithm != "torus" and network.domain_dimensions:
        return rate / len(network.domain_dimensions)
    return rate
