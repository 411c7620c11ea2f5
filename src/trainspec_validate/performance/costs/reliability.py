"""Models failures: checkpoint intervals, effective training time, snapshots, spares.

All times of one call share one unit; the examples use minutes unless they say otherwise. Failures are
independent and exponential, and one can strike while a job saves or recovers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SECONDS_PER_DAY = 86400.0
WINDOW_FACTOR = 2.0
"""An interval within this factor of the best costs at most (2 + 1/2) / 2 = 1.25 times the least overhead."""
_LARGEST_EXPONENT = 700.0


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} is {value}, wanted a number above 0")


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"{name} is {value}, wanted 0 or more")


def young_interval(blocking: float, mtbf: float) -> float:
    """Productive time between saves by Young's first-order formula, sqrt(2 * blocking * mtbf).

    Source: J. W. Young, Communications of the ACM 17(9), 1974; as coded in
    LLNL/scr@85e30b19:scripts/python/scr_ckpt_interval.py.

    Raises:
        ValueError: an argument is not above 0.

    >>> young_interval(5, 1440)
    120.0
    """
    _positive(blocking=blocking, mtbf=mtbf)
    return math.sqrt(2 * blocking * mtbf)


def daly_first_order_interval(blocking: float, mtbf: float) -> float:
    """Productive time between saves by Daly's first-order formula; 0 or negative from blocking = 2 * mtbf on.

    Source: J. T. Daly, Future Generation Computer Systems 22(3), 2006, doi:10.1016/j.future.2004.11.016.

    Raises:
        ValueError: an argument is not above 0.

    >>> daly_first_order_interval(5, 1440)
    115.0
    """
    return young_interval(blocking, mtbf) - blocking


def daly_interval(blocking: float, mtbf: float) -> float:
    """Productive time between saves by Daly's higher-order formula; `mtbf` from a save of 2 * mtbf on.

    Source: J. T. Daly, doi:10.1016/j.future.2004.11.016, equation 37; as coded in
    LLNL/scr@85e30b19:scripts/python/scr_ckpt_interval.py. Published for a save of 5 minutes: 117, 57 and 9.1
    minutes at 24 h, 6 h and 15 min between failures.

    Raises:
        ValueError: an argument is not above 0.

    >>> round(daly_interval(5, 1440), 4)
    116.6898
    """
    young = young_interval(blocking, mtbf)
    if blocking >= 2 * mtbf:
        return mtbf
    ratio = blocking / (2 * mtbf)
    return young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - blocking


def lambert_w0(x: float) -> float:
    """The principal branch of Lambert's W function: the w of at least -1 for which w * exp(w) is x.

    Source: R. M. Corless and others, On the Lambert W function, 1996 (branch-point series, Halley's method).

    Raises:
        ValueError: x is below -1/e, where no real value exists, or is not finite.

    >>> round(lambert_w0(1), 6)
    0.567143
    """
    if not (x >= -math.exp(-1) and math.isfinite(x)):
        raise ValueError(f"x is {x}, wanted a finite number of at least -1/e")
    distance = math.sqrt(max(0.0, 2 * (math.e * x + 1)))
    if distance < 1e-3:
        return -1 + distance - distance**2 / 3 + 11 * distance**3 / 72
    w = -1 + distance - distance**2 / 3 if x < 1 else math.log(x) * (1 - 1 / (2 + math.log(x)))
    for _ in range(50):
        excess = w * math.exp(w) - x
        slope = math.exp(w) * (w + 1)
        step = excess / (slope - excess * (w + 2) / (2 * (w + 1)))
        w -= step
        if abs(step) <= 1e-15 * (1 + abs(w)):
            break
    return w


def optimal_interval(blocking: float, mtbf: float) -> float:
    """The interval of the largest effective time: mtbf * (1 + W0(-exp(-1 - blocking / mtbf))).

    It follows from setting the derivative of `effective_training_time_ratio` to zero; recovery leaves it.

    Raises:
        ValueError: an argument is not above 0.

    >>> round(optimal_interval(5, 15), 4)
    9.1665
    """
    _positive(blocking=blocking, mtbf=mtbf)
    return mtbf * (1 + lambert_w0(-math.exp(-1 - blocking / mtbf)))


def job_mtbf_seconds(num_nodes: float, failures_per_1000_node_days: float) -> float:
    """Mean time between failures of a job in seconds, when any failed node stops it.

    Source: arXiv:2410.21680 (failures per node-day); 2,048 nodes at 6.5 fail every 108 min.

    Raises:
        ValueError: an argument is not above 0.

    >>> round(job_mtbf_seconds(2048, 6.5) / 60, 2)
    108.17
    """
    _positive(num_nodes=num_nodes, failures_per_1000_node_days=failures_per_1000_node_days)
    return 1000 * SECONDS_PER_DAY / (num_nodes * failures_per_1000_node_days)


@dataclass(frozen=True, slots=True)
class TimeShares:
    """Where the wall time of a job goes; the four shares sum to one."""

    effective: float
    save: float
    lost_work: float
    recovery: float


def time_shares(interval: float, blocking: float, mtbf: float, recovery: float, persist: float = 0.0) -> TimeShares:
    """Expected shares of wall time by the exact exponential renewal model.

    One renewal is `interval` of work and `blocking` for its save; a failure throws that away; each attempt
    to recover takes `recovery` and can fail too. With asynchronous saves a failure also costs the `persist`
    time, since the newest snapshot is not durable yet. Expected wall time of one renewal:
    mtbf * exp((recovery + persist) / mtbf) * (exp((interval + blocking) / mtbf) - 1).

    Source: J. T. Daly, doi:10.1016/j.future.2004.11.016 (blocking saves). The linear form of arXiv:2410.21680
    departs by 0.02 at a loss of a third, and is negative where recoveries take as long as failures are apart.

    Raises:
        ValueError: interval or mtbf is not above 0, or another argument is negative.

    >>> shares = time_shares(interval=4.7, blocking=0.105, mtbf=108.17, recovery=1.5)
    >>> [round(share, 3) for share in (shares.effective, shares.save, shares.lost_work, shares.recovery)]
    [0.943, 0.021, 0.022, 0.014]
    """
    _positive(interval=interval, mtbf=mtbf)
    _not_negative(blocking=blocking, recovery=recovery, persist=persist)
    if (interval + blocking + recovery + persist) / mtbf > _LARGEST_EXPONENT:
        return TimeShares(0.0, 0.0, 1.0, 0.0)
    failures = math.expm1((interval + blocking) / mtbf)
    wall = mtbf * math.exp((recovery + persist) / mtbf) * failures
    recovering = mtbf * math.expm1(recovery / mtbf) * failures
    return TimeShares(
        effective=interval / wall,
        save=blocking / wall,
        lost_work=max(0.0, wall - recovering - interval - blocking) / wall,
        recovery=recovering / wall,
    )


def effective_training_time_ratio(
    interval: float, blocking: float, mtbf: float, recovery: float, persist: float = 0.0
) -> float:
    """Expected share of wall time that makes lasting progress; see `time_shares`.

    Raises:
        ValueError: interval or mtbf is not above 0, or another argument is negative.

    >>> round(effective_training_time_ratio(39.8009, 5, 185.5, 1.5), 4)
    0.7791
    """
    return time_shares(interval, blocking, mtbf, recovery, persist).effective


def second_fault_share(recovery: float, mtbf: float) -> float:
    """Share of recoveries in which another fault strikes, with failures that are independent and exponential.

    Both times are in one unit. Failures that come in groups, as those of one rack, make it larger.

    Raises:
        ValueError: mtbf is not above 0, or recovery is negative.

    >>> round(second_fault_share(recovery=1.5, mtbf=180), 5)
    0.0083
    """
    _positive(mtbf=mtbf)
    _not_negative(recovery=recovery)
    return -math.expm1(-recovery / mtbf)


def recommended_interval(blocking: float, mtbf: float, persist: float = 0.0) -> float:
    """Daly's higher-order interval, but no shorter than the time until a save is durable.

    Raises:
        ValueError: blocking or mtbf is not above 0, or persist is negative.

    >>> recommended_interval(blocking=0.01, mtbf=1730.77, persist=10)
    10
    """
    _not_negative(persist=persist)
    return max(daly_interval(blocking, mtbf), persist)


def interval_window(recommended: float) -> tuple[float, float]:
    """Shortest and longest interval whose overhead is at most 1.25 times the least, to first order.

    Overhead at x times the best interval is (x + 1/x) / 2 of the least.

    Raises:
        ValueError: the recommended interval is not above 0.

    >>> interval_window(30)
    (15.0, 60.0)
    """
    _positive(recommended=recommended)
    return recommended / WINDOW_FACTOR, recommended * WINDOW_FACTOR


def saves_of_job(planned: float, recommended: float) -> int:
    """Saves of a job of `planned` productive time; 1, the final one, when it is no longer than the interval.

    Raises:
        ValueError: an argument is not above 0.

    >>> saves_of_job(planned=100, recommended=30)
    3
    """
    _positive(planned=planned, recommended=recommended)
    return max(1, round(planned / recommended))


def snapshots_to_keep(error_detection: float, interval: float) -> int:
    """Checkpoints to keep so that one is older than the oldest corruption not noticed yet; at least 2.

    Source: arXiv:2410.18124, abstract (the interval is no shorter than a long detection latency); that several
    snapshots cover it as well is ours.

    Raises:
        ValueError: interval is not above 0, or error_detection is negative.

    >>> snapshots_to_keep(error_detection=180, interval=30)
    7
    """
    _positive(interval=interval)
    _not_negative(error_detection=error_detection)
    return max(2, math.ceil(error_detection / interval) + 1)


def poisson_quantile(mean: float, quantile: float) -> int:
    """The smallest count that a Poisson variable stays at or below with at least the probability `quantile`.

    Raises:
        ValueError: mean is negative or not finite, or quantile is not between 0 and 1.

    >>> poisson_quantile(13.312, 0.99)
    22
    """
    _not_negative(mean=mean)
    if not (0 < quantile < 1 and math.isfinite(mean)):
        raise ValueError(f"quantile is {quantile} and mean {mean}, wanted between 0 and 1, and finite")
    if mean == 0:
        return 0
    # Ten deviations below the mean nothing is lost (1e-23), and exp(-mean) alone would underflow from 745 on.
    count = max(0, math.floor(mean - 10 * math.sqrt(mean) - 10))
    total = 0.0
    while True:
        total += math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
        if total >= quantile or count > mean + 40 * math.sqrt(mean) + 40:
            return count
        count += 1


def spare_nodes(
    num_nodes: float, failures_per_1000_node_days: float, repair_seconds: float, quantile: float = 0.99
) -> int:
    """Spares that suffice with probability `quantile` while lost nodes are repaired.

    Source: the warm standbys of arXiv:2509.16293; the Poisson count of nodes under repair is ours.

    Raises:
        ValueError: a count or rate is not above 0, repair_seconds is negative, or quantile is not in (0, 1).

    >>> spare_nodes(2048, 6.5, repair_seconds=24 * 3600)
    22
    """
    _not_negative(repair_seconds=repair_seconds)
    return poisson_quantile(repair_seconds / job_mtbf_seconds(num_nodes, failures_per_1000_node_days), quantile)
