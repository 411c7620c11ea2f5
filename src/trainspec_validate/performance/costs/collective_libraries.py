"""Holds the calibrated constants of collective libraries and transports, with their sources.

Latencies are those that a library's own cost model carries. Efficiencies, ramps and the extra latency of a transport
are fitted to published measurements by `benchmarks/score_collectives.py`, which prints them and checks them.
"""

from __future__ import annotations

from dataclasses import dataclass

PROTOCOLS = ("low-latency", "low-latency-128", "simple")

Steps = tuple[float, float, float]
"""Seconds: once per call, per step inside a domain, per step over the fabric."""


@dataclass(frozen=True, slots=True)
class Library:
    """Latencies of one version of a library, by family of algorithms and protocol."""

    name: str
    version: str
    steps: dict[tuple[str, str], Steps]
    logarithmic_gather: Steps | None = None
    """Gathering in a logarithmic number of steps with one rank per domain; the middle figure is per rank."""

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"


# NVIDIA/nccl@5067397c:src/graph/tuning.cc: base, NVLink and network latencies; in-network is NVLS, its tree NVLSTree.
# PAT takes log2(k) / 3.5 network steps and 2.8 us per rank.
NCCL = Library(
    name="nccl",
    version="2.30",
    steps={
        ("ring", "low-latency"): (6.6e-6, 0.6e-6, 2.7e-6),
        ("ring", "low-latency-128"): (14e-6, 1.9e-6, 4.0e-6),
        ("ring", "simple"): (8.4e-6, 3.4e-6, 14e-6),
        ("tree", "low-latency"): (6.8e-6, 0.6e-6, 5.0e-6),
        ("tree", "low-latency-128"): (14e-6, 1.25e-6, 8.5e-6),
        ("tree", "simple"): (8.4e-6, 4.0e-6, 14e-6),
        ("in-network", "simple"): (0.0, 25e-6, 18e-6),
        ("in-network-tree", "simple"): (0.0, 25e-6, 20.9e-6),
    },
    logarithmic_gather=(8e-6, 2.8e-6, 4e-6),
)

# ROCm/rccl@0cbce2a7:src/graph/tuning.cc: base latencies; xGMI and network latencies of tuning model 0, LL and Simple.
RCCL = Library(
    name="rccl",
    version="0cbce2a7",
    steps={
        ("ring", "low-latency"): (12e-6, 0.8e-6, 9.5e-6),
        ("ring", "simple"): (17e-6, 3.6e-6, 15.1e-6),
        ("tree", "low-latency"): (12e-6, 0.8e-6, 11.8e-6),
        ("tree", "simple"): (17e-6, 2.5e-6, 20.8e-6),
    },
)

LIBRARIES = {library.name: library for library in (NCCL, RCCL)}
UNCALIBRATED = Library("uncalibrated", "", {})
"""A library without constants: steps take the latency of the link and nothing else."""

_TREE_RATE = 0.92
"""All-reduce by tree against by ring (NVIDIA/nccl@5067397c:src/graph/tuning.cc)."""
GATHER_RATE = 0.75
"""Gathering in a logarithmic number of steps against a ring (same source, PAT)."""
_PROTOCOL_RATES = {
    ("ring", "low-latency"): 0.5,
    ("ring", "low-latency-128"): 0.92,
    ("tree", "low-latency"): 1 / 3.8,
    ("tree", "low-latency-128"): 120 / 128,
    ("tree", "simple"): 1.0,
}
"""Rate of a protocol against the simple one (same source): flags travel with the data."""

# Same source: largest bus bandwidth of the low-latency protocol in one, two, and more domains, by generation of
# NVLink. A generation is known by its one-way rate: 150, 300, 450, 900 GB/s. Over several domains NCCL itself takes the
# first row beside Intel processors and the second beside AMD ones, whatever the accelerator; with either of them the
# median error over fabrics stays 10.0 % (`benchmarks/score_collectives.py`).
_LOW_LATENCY_CAPS = (
    (200e9, (39e9, 39e9, 20.4e9)),
    (350e9, (87.7e9, 22.5e9, 19e9)),
    (600e9, (141e9, 45e9, 35e9)),
    (float("inf"), (282e9, 90e9, 70e9)),
)
NEWER_SWITCHES = 600e9
"""Above this one-way link rate the switches are those of NVLink 5, which reduce at a lower share of the rate:
0.74 against 0.85 (same source, NVLS efficiency of Blackwell and Hopper)."""
NEWER_REDUCTION = 0.74 / 0.85


@dataclass(frozen=True, slots=True)
class Transport:
    """Rates that one transport of the fabric reaches."""

    name: str
    efficiency: float
    """Share of the NIC rate that large messages reach."""
    extra_seconds: float
    """Time that a step takes longer than over InfiniBand, for which the libraries' constants were taken."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted constants; every default is printed by `benchmarks/score_collectives.py`.

    A ramp is the factor r in t = L + W + 2 r sqrt(L W), with L the latency and W the time at full rate. A message
    that is cut into chunks of the best size takes L + W + 2 sqrt(L W) (r = 1); without chunks r = 0.
    """

    switched: float = 0.83
    """Share of the link rate into a switched domain that large messages reach."""
    mesh: tuple[tuple[str, float], ...] = (("hccl", 0.98), ("rccl", 0.75))
    """The same where every pair has its own links, by library; otherwise as into a switch."""
    in_network: float = 0.63
    """Share of the link rate at which switches of NVLink 4 reduce."""
    in_network_newer: float = 0.52
    """The same for NVLink 5."""
    domain_ramp: float = 0.45
    in_network_ramp: float = 0.5
    in_network_newer_ramp: float = 0.75
    ring_ramp: float = 0.05
    """Ramp of rings over the fabric."""
    tree_ramp: float = 0.75
    """Ramp of trees over the fabric."""
    transports: tuple[Transport, ...] = (
        Transport("efa-srd", 0.97, 53.7e-6),
        Transport("infiniband", 0.94, 0.0),
        Transport("omni-path", 0.16, 1441.2e-6),
        Transport("rocev2", 0.83, 33.6e-6),
        Transport("tcpx", 0.97, 900.7e-6),
        Transport("tcpxo", 0.96, 85.9e-6),
    )
    other: Transport = Transport("other", 0.95, 69.8e-6)
    """A transport without measurements of its own."""
    fabric_reduction: float = 0.51
    """Share of the NIC rate at which switches of the fabric reduce; one system reports it."""
    domain_band: tuple[float, float] = (0.9, 1.13)
    """Measured over predicted time inside one domain: 10th and 90th percentile of what was held out."""
    fabric_band: tuple[float, float] = (0.91, 1.84)
    """The same over a fabric whose transport other systems measured too."""
    other_band: tuple[float, float] = (0.98, 8.25)
    """The same over a transport that no other system measured."""
    uncalibrated_band: tuple[float, float] = (0.5, 2.0)
    """Without constants of the library, or without measurements of the kind: an assumption."""

    def transport(self, name: str) -> Transport:
        """The constants of one transport, or those of any other."""
        return next((known for known in self.transports if known.name == name), self.other)

    def domain_share(self, shape: str, library: str) -> float:
        """Share of the link rate that large messages reach without reduction in switches."""
        meshes = dict(self.mesh) if shape == "full-mesh" else {}
        return meshes.get(library, self.switched)

    def band(self, transport: str | None) -> tuple[float, float]:
        """Lowest and highest likely time over the central one; no transport means inside one domain."""
        if transport is None:
            return self.domain_band
        return self.fabric_band if self.transport(transport) is not self.other else self.other_band


CALIBRATION = Calibration()


def protocol_rate(family: str, protocol: str) -> float:
    """Share of the rate of the simple ring that an algorithm with a protocol can reach.

    >>> protocol_rate("tree", "low-latency-128")
    0.8625
    """
    rate = _TREE_RATE if family in {"tree", "in-network-tree"} else 1.0
    return rate * _PROTOCOL_RATES.get((family, protocol), 1.0)


def low_latency_cap(link_bytes_per_second: float, num_domains: int) -> float:
    """Largest bus bandwidth of the low-latency protocol, in bytes per second.

    >>> low_latency_cap(450e9, 1) / 1e9
    141.0
    """
    caps = next(caps for limit, caps in _LOW_LATENCY_CAPS if link_bytes_per_second <= limit)
    return caps[min(num_domains, 3) - 1]
