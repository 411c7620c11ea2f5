"""Estimates the time of a collective: by algorithm, by choice, and where choices change.

A message is the whole buffer of a rank, as in `bandwidth.bus_bandwidth_factor`: n shards for all-gather,
reduce-scatter and all-to-all. Time is t = L + W + 2 r sqrt(L W): L the steps of the algorithm times their latency,
W its bytes over calibrated rates, r a fitted ramp; it is never below what the links allow.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_validate.performance.costs.bandwidth import OPERATIONS
from trainspec_validate.performance.costs.collective_algorithms import traffic
from trainspec_validate.performance.costs.collective_choice import chosen
from trainspec_validate.performance.costs.collective_plans import Plan, plans
from trainspec_validate.performance.costs.network import Network

_STEPS_PER_OCTAVE = 8
"""Sizes looked at between one power of two and the next when choices are compared."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Time of one collective."""

    operation: str
    algorithm: str
    protocol: str
    message_bytes: float
    """Whole buffer of a rank."""
    seconds: float
    low_seconds: float
    """Nine of ten held-out measurements took longer than this. Of a hierarchy: phases overlap. Half of the time for
    what was never measured: other operations, other algorithms, libraries without constants."""
    high_seconds: float
    """Nine of ten held-out measurements took less. Of a hierarchy: phases take turns. Twice the time otherwise."""
    bus_bandwidth_bytes_per_second: float
    """Never above `bandwidth.bus_bandwidth_ceiling`."""
    calibration: str
    """Library, version and transport whose constants were used, or `uncalibrated`."""


def _check(operation: str, message_bytes: float) -> None:
    if operation not in OPERATIONS:
        raise ValueError(f"unknown operation {operation!r}; one of {', '.join(sorted(OPERATIONS))}")
    if not 0 <= message_bytes < float("inf"):
        raise ValueError(f"a message has a finite size of 0 bytes or more, got {message_bytes}")


def _estimate(plan: Plan, message_bytes: float) -> Estimate:
    seconds = plan.seconds(message_bytes)
    moved = plan.factor * message_bytes
    low, high = plan.band
    return Estimate(
        plan.operation,
        plan.algorithm,
        plan.protocol,
        message_bytes,
        seconds,
        max(seconds * low, moved / plan.ceiling),
        seconds * high,
        min(moved / seconds, plan.ceiling) if seconds > 0 else 0.0,
        plan.calibration,
    )


def estimate(
    operation: str, message_bytes: float, network: Network, algorithm: str, protocol: str = "automatic"
) -> Estimate:
    """Time of one algorithm; `automatic` takes its fastest protocol.

    64 ranks on 8 nodes, 1.73 GB over RoCE; ten published runs took 10.4 to 10.7 ms or 14.2 to 14.4 ms
    (mlcommons/training_results_v5.0, Google h200_n8_nemo).

    >>> from trainspec_validate.performance.costs.network import Link
    >>> nodes = Network(64, 8, Link(450e9, 0), Link(50e9, 0), domain_reduces=True, transport="rocev2")
    >>> round(estimate("all-reduce", 1.73e9, nodes, "ring").seconds * 1e3, 1)
    11.6

    Raises:
        ValueError: the operation or the size is unknown, or that algorithm or protocol cannot run on this network.
    """
    _check(operation, message_bytes)
    known = plans(operation, network)
    mine = [plan for plan in known if plan.algorithm == algorithm and protocol in {"automatic", plan.protocol}]
    if not mine:
        traffic(operation, algorithm, network)  # tells what keeps the algorithm from running
        raise ValueError(f"{network.library} has no {protocol} protocol for {algorithm}")
    return _estimate(min(mine, key=lambda plan: plan.seconds(message_bytes)), message_bytes)


def estimates(operation: str, message_bytes: float, network: Network) -> tuple[Estimate, ...]:
    """Every algorithm that can run, each with its fastest protocol, fastest first.

    Some of them no library offers on this network; `best` keeps to what the library has.

    >>> from trainspec_validate.performance.costs.network import Link
    >>> node = Network(8, domain=Link(450e9, 0), domain_reduces=True)
    >>> [each.algorithm for each in estimates("all-reduce", 1 << 30, node)]
    ['in-network', 'direct', 'halving-doubling', 'ring', 'tree']

    Raises:
        ValueError: the operation or the size is unknown, or no algorithm can run.
    """
    _check(operation, message_bytes)
    fastest: dict[str, tuple[float, Plan]] = {}
    for plan in plans(operation, network):
        seconds = plan.seconds(message_bytes)
        if plan.algorithm not in fastest or seconds < fastest[plan.algorithm][0]:
            fastest[plan.algorithm] = (seconds, plan)
    ordered = sorted(fastest.values(), key=lambda pair: pair[0])
    return tuple(_estimate(plan, message_bytes) for _, plan in ordered)


def best(operation: str, message_bytes: float, network: Network) -> Estimate:
    """Algorithm that a well-tuned library would pick.

    NCCL over EFA follows the thresholds of `collective_choice.tuned`; everything else takes the fastest
    estimate among the algorithms of the library.

    >>> from trainspec_validate.performance.costs.network import Link
    >>> node = Network(8, domain=Link(450e9, 0), domain_reduces=True)
    >>> small, large = best("all-reduce", 1 << 10, node), best("all-reduce", 1 << 34, node)
    >>> small.algorithm, large.algorithm, round(large.bus_bandwidth_bytes_per_second / 1e9)
    ('ring', 'in-network', 486)

    Raises:
        ValueError: the operation or the size is unknown, or no algorithm can run.
    """
    _check(operation, message_bytes)
    return _estimate(chosen(operation, message_bytes, network), message_bytes)


def crossovers(
    operation: str, network: Network, smallest_bytes: float = 1 << 10, largest_bytes: float = 1 << 35
) -> tuple[tuple[float, Estimate], ...]:
    """Sizes from which each choice of `best` holds, with the estimate at that size.

    Sizes between are looked at in steps of a ninth and the change is found by halving; a choice that holds for
    less than a step can be missed.

    >>> from trainspec_validate.performance.costs.network import Link
    >>> node = Network(8, domain=Link(450e9, 0), domain_reduces=True)
    >>> [(round(size), row.algorithm, row.protocol) for size, row in crossovers("all-reduce", node)]
    [(1024, 'ring', 'low-latency'), (829420, 'in-network', 'simple')]

    Raises:
        ValueError: the operation or a size is unknown, or the sizes are not positive and in order.
    """
    _check(operation, largest_bytes)
    if not 0 < smallest_bytes <= largest_bytes:
        raise ValueError(f"sizes begin above 0 and ascend, got {smallest_bytes} to {largest_bytes}")
    rows = [(smallest_bytes, best(operation, smallest_bytes, network))]
    size = smallest_bytes
    while size < largest_bytes:
        following = min(size * 2 ** (1 / _STEPS_PER_OCTAVE), largest_bytes)
        if not _same(best(operation, following, network), rows[-1][1]):
            change = _change(operation, network, size, following)
            rows.append((change, best(operation, change, network)))
        size = following
    return tuple(rows)


def _same(left: Estimate, right: Estimate) -> bool:
    return (left.algorithm, left.protocol) == (right.algorithm, right.protocol)


def _change(operation: str, network: Network, low: float, high: float) -> float:
    """The least size, to a millionth, at which the choice is that of `high`."""
    target = best(operation, high, network)
    while high - low > high * 1e-6:
        middle = (low + high) / 2
        if _same(best(operation, middle, network), target):
            high = middle
        else:
            low = middle
    return high
