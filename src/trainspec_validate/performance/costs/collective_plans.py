"""Turns an algorithm on a network into a line in message size: latency, rate, ramp and floor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf, sqrt

from trainspec_validate.performance.costs.bandwidth import Ranks, Rates, bus_bandwidth_ceiling, bus_bandwidth_factor
from trainspec_validate.performance.costs.collective_algorithms import (
    ALGORITHMS,
    HOP_SECONDS,
    Traffic,
    combined,
    domain_rate,
    traffic,
)
from trainspec_validate.performance.costs.collective_libraries import (
    CALIBRATION,
    GATHER_RATE,
    LIBRARIES,
    NEWER_SWITCHES,
    PROTOCOLS,
    UNCALIBRATED,
    Calibration,
    Library,
    Steps,
    low_latency_cap,
    protocol_rate,
)
from trainspec_validate.performance.costs.network import Network

TIER_SECONDS = 1.2e-6
"""Two more switches for each tier that a message climbs, taken at 0.6 us each, the latency that is listed for
InfiniBand HDR (stas00/ml-engineering@744d01e1:network/README.md)."""
_FAMILIES = frozenset({"tree", "in-network", "in-network-tree"})
_REDUCING = frozenset({"in-network", "in-network-tree"})
_SCORED = frozenset({"all-reduce", "all-gather", "reduce-scatter"})
"""Operations with published measurements, of ring, tree and reducing switches; other estimates have no such band."""
_LEAST_REDUCED = 4
"""Switches reduce from five ranks of a domain on in a node of H200, from six on in one of B200
(stas00/ml-engineering@744d01e1:network/README.md)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Time of one algorithm with one protocol as a function of message size."""

    operation: str
    algorithm: str
    protocol: str
    latency_seconds: float
    seconds_per_byte: float
    """At full rate, per byte of message."""
    ramp: float
    ceiling: float
    """Largest bus bandwidth in bytes per second."""
    factor: float
    """Bus bandwidth over message size and time."""
    band: tuple[float, float]
    """Lowest and highest likely time over the central one."""
    calibration: str
    in_library: bool
    """Whether the library of the network has this algorithm; without constants of a library, every one."""

    def seconds(self, message_bytes: float) -> float:
        """Time of one call."""
        streaming = message_bytes * self.seconds_per_byte
        ramp = 2 * self.ramp * sqrt(self.latency_seconds * streaming)
        return max(self.latency_seconds + streaming + ramp, self.factor * message_bytes / self.ceiling)


@dataclass(frozen=True, slots=True)
class _Case:
    """One algorithm with one protocol on one network, and the constants to use."""

    operation: str
    algorithm: str
    protocol: str
    network: Network
    traffic: Traffic
    calibration: Calibration

    @property
    def family(self) -> str:
        """The algorithm whose latencies and rates in a library come nearest."""
        return self.algorithm if self.algorithm in _FAMILIES else "ring"

    @property
    def library(self) -> Library:
        """Constants of the library of the network."""
        return _library(self.network)

    @property
    def gathers_in_few_steps(self) -> bool:
        """Whether the library has a logarithmic algorithm of its own for this."""
        alone = self.network.num_domains == self.network.num_ranks
        return (
            self.algorithm == "halving-doubling"
            and alone
            and self.operation != "all-reduce"
            and self.library.logarithmic_gather is not None
        )


@lru_cache(maxsize=4096)
def plans(operation: str, network: Network, calibration: Calibration = CALIBRATION) -> tuple[Plan, ...]:
    """Every algorithm and protocol that can run the operation on the network.

    Raises:
        ValueError: none can.
    """
    found: list[Plan] = []
    for algorithm in ALGORITHMS:
        try:
            counted = traffic(operation, algorithm, network)
        except ValueError:
            continue
        cases = (
            _Case(operation, algorithm, protocol, network, counted, calibration)
            for protocol in _protocols(algorithm, network)
        )
        found += [_plan(case) for case in cases]
    if not found:
        raise ValueError(f"no model of {operation!r} runs on {network}")
    return tuple(found)


def _library(network: Network) -> Library:
    return LIBRARIES.get(network.library, UNCALIBRATED)


def _protocols(algorithm: str, network: Network) -> tuple[str, ...]:
    steps = _library(network).steps
    known = tuple(protocol for protocol in PROTOCOLS if (algorithm, protocol) in steps)
    return known or ("simple",)


def _in_library(case: _Case) -> bool:
    if case.library is UNCALIBRATED or case.gathers_in_few_steps:
        return True
    if case.algorithm == "direct":
        return case.operation in {"all-to-all", "send-receive"}
    if case.algorithm in _REDUCING and case.network.ranks_per_domain <= _LEAST_REDUCED:
        return False
    if (case.algorithm, case.operation) == ("tree", "broadcast"):
        return False
    return any(family == case.algorithm for family, _ in case.library.steps)


def _plan(case: _Case) -> Plan:
    network, library = case.network, case.library
    inside, outside = _seconds_per_byte(case)
    rate = GATHER_RATE if case.gathers_in_few_steps else protocol_rate(case.family, case.protocol)
    per_byte = combined(inside, outside, case.traffic.overlap) / rate
    factor = bus_bandwidth_factor(case.operation, network.num_ranks)
    if case.protocol == "low-latency" and library.name == "nccl":
        link = network.domain.bandwidth_bytes_per_second if network.domain else inf
        per_byte = max(per_byte, factor / low_latency_cap(link, network.num_domains))
    over = network.transport if network.num_domains > 1 else None
    calibrated = library is not UNCALIBRATED
    return Plan(
        case.operation,
        case.algorithm,
        case.protocol,
        _latency_seconds(case),
        per_byte,
        _ramp(case.family, network, case.calibration),
        _ceiling(case.operation, case.algorithm, network),
        factor,
        _band(case, inside, outside),
        (library.label if over is None else f"{library.label} ({over})") if calibrated else "uncalibrated",
        _in_library(case),
    )


def _band(case: _Case, inside: float, outside: float) -> tuple[float, float]:
    """Lowest and highest likely time over the central one."""
    network = case.network
    known = case.calibration.band(network.transport if network.num_domains > 1 else None)
    if case.library is UNCALIBRATED:
        return case.calibration.uncalibrated_band
    if case.algorithm == "hierarchical":
        # Between phases that overlap and phases that take turns, each with its own uncertainty.
        central = combined(inside, outside, case.traffic.overlap)
        return known[0] * max(inside, outside) / central, known[1] * (inside + outside) / central
    scored = case.family == case.algorithm and case.operation in _SCORED
    return known if scored else case.calibration.uncalibrated_band


def _seconds_per_byte(case: _Case) -> tuple[float, float]:
    """Time of one byte of message in the domain and over the fabric, by the simple protocol."""
    network, calibration = case.network, case.calibration
    inside = outside = 0.0
    if network.domain is not None and case.traffic.domain_share:
        share = calibration.domain_share(network.domain_shape, network.library)
        if case.algorithm in _REDUCING and network.domain_reduces:
            newer = network.domain.bandwidth_bytes_per_second > NEWER_SWITCHES
            share = calibration.in_network_newer if newer else calibration.in_network
        inside = case.traffic.domain_share / (domain_rate(case.operation, case.algorithm, network) * share)
    if network.fabric is not None and case.traffic.fabric_share:
        share = calibration.transport(network.transport).efficiency
        if case.algorithm == "in-network":
            share = calibration.fabric_reduction
        outside = case.traffic.fabric_share / (network.fabric.bandwidth_bytes_per_second * share)
    return inside, outside


def _latency_seconds(case: _Case) -> float:
    network, traffic_of = case.network, case.traffic
    base, inside, across = _step_seconds(case)
    latency = base
    if network.domain is not None and traffic_of.domain_steps:
        hop = HOP_SECONDS if case.algorithm == "torus" else 0.0
        latency += traffic_of.domain_steps * max(inside, network.domain.latency_seconds, hop)
    if network.fabric is not None and traffic_of.fabric_steps:
        if case.library is not UNCALIBRATED:
            across += case.calibration.transport(network.transport).extra_seconds
        step = max(across, network.fabric.latency_seconds) + TIER_SECONDS * network.num_crossed_tiers
        latency += traffic_of.fabric_steps * step
    return latency


def _step_seconds(case: _Case) -> Steps:
    """Latencies of the library; a link that takes longer by itself counts as that."""
    library, network = case.library, case.network
    if case.gathers_in_few_steps and library.logarithmic_gather:
        base, per_rank, across = library.logarithmic_gather
        return base + per_rank * network.num_ranks, 0.0, across
    base, inside, across = library.steps.get((case.family, case.protocol), (0.0, 0.0, 0.0))
    if case.family == "ring" and network.num_domains == network.num_ranks:
        # NCCL: with one rank per domain a ring pays the network latency of a tree.
        across = library.steps.get(("tree", case.protocol), (0.0, 0.0, across))[2]
    return base, inside, across


def _ramp(family: str, network: Network, calibration: Calibration) -> float:
    newer = network.domain is not None and network.domain.bandwidth_bytes_per_second > NEWER_SWITCHES
    if family == "ring" and network.num_domains > 1:
        return calibration.ring_ramp
    if family == "tree" and network.num_domains > 1:
        return calibration.tree_ramp
    if family in {"in-network", "in-network-tree"}:
        return calibration.in_network_newer_ramp if newer else calibration.in_network_ramp
    return calibration.domain_ramp


def _ceiling(operation: str, algorithm: str, network: Network) -> float:
    reducing = algorithm in _REDUCING
    shared = network.domain is not None and network.num_domains < network.num_ranks
    rates = Rates(
        domain_rate(operation, algorithm, network) if shared else None,
        None if network.fabric is None else network.fabric.bandwidth_bytes_per_second,
    )
    ceiling = bus_bandwidth_ceiling(
        operation,
        Ranks(network.num_ranks, network.num_domains),
        rates,
        in_domain=reducing and network.domain_reduces,
        in_fabric=algorithm == "in-network" and network.fabric_reduces,
    )
    return ceiling if ceiling < inf else 1e18
