"""Gives the uncertainty of the figures of a plan, as the band that covers eight of ten cases."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainspec_validate.documents.types.cluster import Reliability
from trainspec_validate.performance.costs.reliability import job_mtbf_seconds
from trainspec_validate.planner.request import Request
from trainspec_validate.planner.search import Scored
from trainspec_validate.planner.starter.checkpoint import PolicyFigures

PUBLISHED_FAILURES = (2.3, 6.5)
"""Least and most failures per 1000 node-days that were published for large machines: arXiv:2410.21680."""
_EIGHTY_PER_CENT = 1.282
"""Standard deviations on either side of the mean that hold four fifths of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Band:
    """Two figures between which eight of ten cases are."""

    low: float
    high: float


def utilisation_band(scored: Scored) -> Band | None:
    """Model operations over the peak, by the band of the step; None where no run of the kind was measured."""
    band, share = scored.outlook.band, scored.outlook.utilisation
    return Band(share / band.high, share / band.low) if band else None


def memory_band(scored: Scored) -> Band:
    """Bytes of the fullest rank: measured runs over their predictions, each table predicted from the others."""
    return Band(scored.memory.low_total, scored.memory.high_total)


def effective_band(request: Request, figures: PolicyFigures) -> Band:
    """Share of wall time that makes lasting progress, for the failure rates that are likely.

    A measured rate with n failures is known to about 1.28 / sqrt(n) of itself, as a Poisson count is; any other may be
    any of those that were published.
    """
    shares = [
        replace(figures, mtbf_seconds=job_mtbf_seconds(request.num_nodes, rate)).effective_share
        for rate in failure_rates(request.cluster.reliability)
    ]
    return Band(min(shares), max(shares))


def failure_rates(reliability: Reliability | None) -> tuple[float, float]:
    """Least and most failures per 1000 node-days that are likely.

    >>> failure_rates(None)
    (2.3, 6.5)
    """
    if reliability is None or reliability.source != "measured" or not reliability.num_failures:
        stated = reliability.failures_per_1000_node_days if reliability else PUBLISHED_FAILURES[1]
        return min(PUBLISHED_FAILURES[0], stated), max(PUBLISHED_FAILURES[1], stated)
    share = min(0.9, _EIGHTY_PER_CENT / reliability.num_failures**0.5)
    rate = reliability.failures_per_1000_node_days
    return rate * (1 - share), rate * (1 + share)
