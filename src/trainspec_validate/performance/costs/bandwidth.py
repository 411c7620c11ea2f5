"""Computes bus bandwidth: the factor of an operation, and the ceiling of links and NICs.

Rates are one-way, in bytes per second; a rank is one process of a collective, usually one accelerator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_RING_FACTOR = frozenset({"all-gather", "reduce-scatter", "all-to-all"})
_UNIT_FACTOR = frozenset({"broadcast", "reduce", "send-receive"})
OPERATIONS = frozenset({"all-reduce", *_RING_FACTOR, *_UNIT_FACTOR})


@dataclass(frozen=True, slots=True)
class Ranks:
    """How the ranks of a collective are spread.

    Raises:
        ValueError: there are fewer than two ranks, or more domains than ranks.
    """

    num_ranks: int
    num_domains: int
    """Scale-up domains that hold ranks."""

    def __post_init__(self) -> None:
        if self.num_ranks < 2:
            raise ValueError(f"a collective needs two ranks, got {self.num_ranks}")
        if not 1 <= self.num_domains <= self.num_ranks:
            raise ValueError(f"{self.num_ranks} ranks cannot be spread over {self.num_domains} domains")

    @property
    def per_domain(self) -> float:
        """Ranks of one domain."""
        return self.num_ranks / self.num_domains


@dataclass(frozen=True, slots=True)
class Rates:
    """One-way bytes per second of one rank; None where nothing bounds it."""

    link: float | None
    """Into its scale-up domain."""
    nic: float | None
    """Into the fabric."""


def bus_bandwidth_factor(operation: str, num_ranks: int) -> float:
    """Bus bandwidth divided by algorithm bandwidth; the latter is buffer size divided by time.

    The buffer is the whole buffer of a rank: for all-gather and reduce-scatter that is n times the shard.
    Source: NVIDIA/nccl-tests@a0b82b22:doc/PERFORMANCE.md.

    >>> bus_bandwidth_factor("all-reduce", 128)
    1.984375

    Raises:
        ValueError: the operation is unknown, or there are fewer than two ranks.
    """
    if num_ranks < 2:
        raise ValueError(f"a collective needs two ranks, got {num_ranks}")
    if operation == "all-reduce":
        return 2 * (num_ranks - 1) / num_ranks
    if operation in _RING_FACTOR:
        return (num_ranks - 1) / num_ranks
    if operation in _UNIT_FACTOR:
        return 1.0
    raise ValueError(f"unknown operation {operation!r}; one of {', '.join(sorted(OPERATIONS))}")


def domain_ceiling(operation: str, ranks: Ranks, link: float, *, in_network_reduction: bool = False) -> float:
    """Largest bus bandwidth that the scale-up links of a rank allow.

    Each byte of bus bandwidth crosses a rank's link once. Switches that reduce spare an all-reduce one of its
    two crossings, so that its bus bandwidth reaches 2(g-1)/g of the link, with g ranks in a domain.
    Source: stas00/ml-engineering@744d01e1:network/README.md; NVIDIA/nccl@5067397c:src/graph/tuning.cc (NVLS).

    >>> domain_ceiling("all-reduce", Ranks(8, 1), 450e9, in_network_reduction=True) / 1e9
    787.5

    Raises:
        ValueError: the operation is unknown.
    """
    if operation not in OPERATIONS:
        raise ValueError(f"unknown operation {operation!r}; one of {', '.join(sorted(OPERATIONS))}")
    group = ranks.per_domain
    if group <= 1:
        return math.inf
    if operation == "all-reduce" and in_network_reduction:
        return link * 2 * (group - 1) / group
    return link


def fabric_ceiling(operation: str, ranks: Ranks, nic: float, *, in_network_reduction: bool = False) -> float:
    """Largest bus bandwidth that the NICs allow, with `nic` bytes per second for each rank.

    A ring enters and leaves each of k domains once, so that nic * (n-1)/(k-1) bounds all-reduce, all-gather
    and reduce-scatter. In an all-to-all every rank sends (n-g)/n of its buffer out through its own share of
    the NICs. Rooted and paired operations move the buffer once through the NICs of one domain. A fabric that
    reduces carries each byte of an all-reduce once in each direction: 2(n-1)/k. Infinite with one domain.
    Source: stas00/ml-engineering@744d01e1:network/README.md (wire rate = bus bandwidth (k-1)/(n-1));
    NVIDIA/nccl-tests issues 267 and 290 (all-to-all); the other bounds follow from counting bytes.

    >>> round(fabric_ceiling("all-reduce", Ranks(128, 16), 50e9) / 1e9, 1)
    423.3

    Raises:
        ValueError: the operation is unknown.
    """
    if operation not in OPERATIONS:
        raise ValueError(f"unknown operation {operation!r}; one of {', '.join(sorted(OPERATIONS))}")
    n, k = ranks.num_ranks, ranks.num_domains
    if k == 1:
        return math.inf
    if operation in _UNIT_FACTOR:
        return nic * n / k
    if operation == "all-to-all":
        return nic * (n - 1) / (n - n / k)
    ring = nic * (n - 1) / (k - 1)
    if operation == "all-reduce" and in_network_reduction:
        return max(ring, nic * 2 * (n - 1) / k)
    return ring


def bus_bandwidth_ceiling(
    operation: str, ranks: Ranks, rates: Rates, *, in_domain: bool = False, in_fabric: bool = False
) -> float:
    """The lower of both ceilings; `in_domain` and `in_fabric` say which switches reduce.

    >>> ceiling = bus_bandwidth_ceiling("all-reduce", Ranks(128, 16), Rates(450e9, 50e9), in_domain=True)
    >>> round(ceiling / 1e9, 1)  # AWS p5en measured 369.9, which is 87 %
    423.3

    Raises:
        ValueError: the operation is unknown.
    """
    bounds = [math.inf]
    if rates.link is not None:
        bounds.append(domain_ceiling(operation, ranks, rates.link, in_network_reduction=in_domain))
    if rates.nic is not None:
        bounds.append(fabric_ceiling(operation, ranks, rates.nic, in_network_reduction=in_fabric))
    return min(bounds)
