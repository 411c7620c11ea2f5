"""Chooses the algorithm and protocol of a collective: a tuner's thresholds, or the fastest."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_validate.performance.costs.collective_libraries import CALIBRATION, Calibration
from trainspec_validate.performance.costs.collective_plans import Plan, plans
from trainspec_validate.performance.costs.network import Network

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where choices change; fitted to a tuner's table by `benchmarks/collective_choices.py`."""

    few_bytes: float = 32 * KIB
    """With at most two ranks per domain, a tree below this times domains to a power."""
    few_power: float = 1.75
    tree_bytes: float = 8 * MIB
    """With more ranks per domain, a tree below this times domains,"""
    tree_most_bytes: float = 256 * MIB
    """and below this."""
    least_domains: int = 16
    """From so many domains on, an in-network tree follows the tree,"""
    ring_bytes: float = 256 * MIB
    """and a ring follows from this times domains on."""
    gather_bytes: float = 362 * KIB
    """With one rank per domain, gathering in few steps below this times ranks to a power."""
    gather_power: float = 1.25


THRESHOLDS = Thresholds()
_LEAST_TUNED_DOMAINS = 3
"""With two domains the tuner leaves the choice to the library."""


def tuned(
    operation: str, message_bytes: float, network: Network, thresholds: Thresholds = THRESHOLDS
) -> tuple[str, str] | None:
    """Algorithm and protocol by thresholds fitted to a vendor's tuner, or None where there are none.

    The tuner is that of aws/aws-ofi-nccl@2daf7d30:src/tuner for NCCL over EFA, three nodes or more. With at most
    two ranks per domain, an all-reduce goes by tree below 32 KiB k^1.75, k domains, and by ring above. With more,
    by tree below 8 MiB k and 256 MiB; then by ring, but from 16 domains on by in-network tree below 256 MiB k.
    All-gather and reduce-scatter go by ring; with one rank per domain, below 362 KiB n^1.25, n ranks, in a
    logarithmic number of steps (NCCL's PAT, arXiv:2506.20252; here `halving-doubling`, which has that count).
    The algorithm is the tuner's in 90 % of its all-reduce choices and 98 % of the others; with thresholds fitted on
    two of three platforms, in 83 % to 92 % and 96 % to 100 % of those of the third
    (`benchmarks/score_collectives.py`).

    >>> from trainspec_validate.performance.costs.network import Link
    >>> efa = Network(128, 16, Link(450e9, 0), Link(50e9, 0), domain_reduces=True, transport="efa-srd")
    >>> [tuned("all-reduce", size, efa) for size in (1 << 10, 64 << 20, 1 << 30, 8 << 30)]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('tree', 'low-latency'), ('tree', 'low-latency-128'), ('in-network-tree', 'simple'), ('ring', 'simple')]
    """
    if network.library != "nccl" or network.transport != "efa-srd" or network.num_domains < _LEAST_TUNED_DOMAINS:
        return None
    if operation == "all-reduce":
        algorithm = _all_reduce(message_bytes, network, thresholds)
    elif operation in {"all-gather", "reduce-scatter"}:
        alone = network.num_domains == network.num_ranks
        limit = thresholds.gather_bytes * network.num_ranks**thresholds.gather_power
        algorithm = "halving-doubling" if alone and message_bytes < limit else "ring"
    else:
        return None
    return algorithm, _protocol(algorithm, message_bytes, network)


def _all_reduce(message_bytes: float, network: Network, thresholds: Thresholds) -> str:
    k = network.num_domains
    if network.ranks_per_domain <= 2:
        return "tree" if message_bytes < thresholds.few_bytes * k**thresholds.few_power else "ring"
    if message_bytes < min(thresholds.tree_bytes * k, thresholds.tree_most_bytes):
        return "tree"
    through_switches = k >= thresholds.least_domains and network.domain_reduces
    return "in-network-tree" if through_switches and message_bytes < thresholds.ring_bytes * k else "ring"


def _protocol(algorithm: str, message_bytes: float, network: Network) -> str:
    """Protocol by the same tuner: rings by bytes per rank, trees by bytes."""
    several = network.num_domains < network.num_ranks
    per_rank = message_bytes / network.num_ranks
    if algorithm == "tree":
        return "low-latency" if message_bytes < (256 if several else 128) * KIB else "low-latency-128"
    if algorithm != "ring":
        return "simple"
    if several and per_rank < 64 * KIB:
        return "low-latency"
    return "low-latency-128" if per_rank < (16 if several else 4) * MIB else "simple"


def fastest(operation: str, message_bytes: float, network: Network, calibration: Calibration = CALIBRATION) -> Plan:
    """The plan with the least time among those that the library of the network has.

    >>> from trainspec_validate.performance.costs.network import Link
    >>> fastest("all-reduce", 1 << 30, Network(8, domain=Link(450e9, 0), domain_reduces=True)).algorithm
    'in-network'

    Raises:
        ValueError: no algorithm can run the operation here.
    """
    known = plans(operation, network, calibration)
    possible = [plan for plan in known if plan.in_library] or known
    return min(possible, key=lambda plan: plan.seconds(message_bytes))


def chosen(operation: str, message_bytes: float, network: Network, calibration: Calibration = CALIBRATION) -> Plan:
    """The plan that a well-tuned library picks: by the tuner where there is one, else the fastest.

    Raises:
        ValueError: no algorithm can run the operation here.
    """
    choice = tuned(operation, message_bytes, network)
    if choice is not None:
        for plan in plans(operation, network, calibration):
            if (plan.algorithm, plan.protocol) == choice:
                return plan
    return fastest(operation, message_bytes, network, calibration)
