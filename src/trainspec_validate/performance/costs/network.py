"""Declares the network of one collective, in the plain numbers of the models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DomainShape = Literal["switched", "full-mesh", "hybrid-mesh", "torus", "ring", "point-to-point", "other"]


@dataclass(frozen=True, slots=True)
class Link:
    """One way out of a rank; rates have a direction and count one way.

    Raises:
        ValueError: the bandwidth is not positive, or the latency is negative.
    """

    bandwidth_bytes_per_second: float
    """Rate of one rank in one direction."""
    latency_seconds: float
    """Time of an empty message over this link, software included."""

    def __post_init__(self) -> None:
        if self.bandwidth_bytes_per_second <= 0 or self.latency_seconds < 0:
            raise ValueError(f"a link has a positive rate and no negative latency: {self}")


@dataclass(frozen=True, slots=True)
class Network:
    """Ranks of one group, spread evenly over scale-up domains, with the links of one rank.

    Raises:
        ValueError: the ranks do not fit the domains, or a link that they need is missing.
    """

    num_ranks: int
    num_domains: int = 1
    """Scale-up domains that hold members of the group; equal to `num_ranks` when each has one."""
    domain: Link | None = None
    """One rank into its scale-up domain, all links together."""
    fabric: Link | None = None
    """The share of one rank in the NICs of its node, narrowed by PCIe and by oversubscribed tiers on the way."""
    domain_shape: DomainShape = "switched"
    domain_num_ranks: int = 0
    """Ranks of the whole physical domain; in a mesh each pair has 1/(this - 1) of a rank's rate. 0 means those of
    the group."""
    domain_dimensions: tuple[int, ...] = ()
    """Extent of each axis of a torus, in ranks."""
    domain_reduces: bool = False
    """Whether the switches of a domain can reduce."""
    fabric_reduces: bool = False
    """Whether the switches of the fabric can reduce."""
    transport: str = "infiniband"
    """Transport of the fabric, by its name in a cluster profile; it selects the calibration."""
    library: str = "nccl"
    """Collective library, by its name in a cluster profile; it selects the calibration."""
    num_crossed_tiers: int = 0
    """Fabric tiers above the first that messages of the group cross."""

    def __post_init__(self) -> None:
        if self.num_ranks < 2:
            raise ValueError(f"a collective needs at least two ranks, got {self.num_ranks}")
        if not 1 <= self.num_domains <= self.num_ranks:
            raise ValueError(f"{self.num_ranks} ranks cannot be spread over {self.num_domains} domains")
        if self.num_domains > 1 and self.fabric is None:
            raise ValueError("ranks of several domains need a fabric")
        if self.num_domains < self.num_ranks and self.domain is None:
            raise ValueError("ranks that share a domain need a link into it")

    @property
    def ranks_per_domain(self) -> float:
        """Members of the group in one domain."""
        return self.num_ranks / self.num_domains
