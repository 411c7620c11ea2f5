"""Interval, effective time and spare models against published values, exact vectors and a simulation."""

from __future__ import annotations

import doctest
import math
import random

import pytest

from trainspec_validate.performance.costs import reliability
from trainspec_validate.performance.costs.reliability import (
    daly_first_order_interval,
    daly_interval,
    effective_training_time_ratio,
    interval_window,
    job_mtbf_seconds,
    lambert_w0,
    optimal_interval,
    poisson_quantile,
    recommended_interval,
    saves_of_job,
    snapshots_to_keep,
    spare_nodes,
    time_shares,
    young_interval,
)

# Minutes: save, mean time between failures, Young, Daly first order, Daly higher order, exact optimum, and
# the effective time ratio at Daly's higher-order interval for a recovery of 0 and 1.5 min. Intervals follow
# LLNL/scr@85e30b19:scripts/python/scr_ckpt_interval.py; the first three rows have values published in
# doi:10.1016/j.future.2004.11.016.
VECTORS = (
    ("5", "1440", "120.0", "115.0", "116.6898", "116.6901", "0.918965", "0.918008"),
    ("5", "360", "60.0", "55.0", "56.713", "56.714", "0.842461", "0.838958"),
    ("5", "15", "12.2474", "7.2474", "9.1409", "9.1665", "0.388899", "0.35189"),
    ("5", "3", "5.4772", "0.4772", "2.651", "2.7753", "0.074815", "0.045378"),
    ("5", "2.5", "5.0", "0.0", "2.5", "2.3688", "0.052396", "0.028755"),
    ("5", "2.4", "4.899", "-0.101", "2.4", "2.2847", "0.048005", "0.025695"),
    ("0.105", "185.5", "6.2414", "6.1364", "6.1716", "6.1716", "0.96673", "0.958944"),
    ("1", "185.5", "19.2614", "18.2614", "18.6005", "18.6005", "0.899728", "0.892481"),
    ("5", "185.5", "43.0697", "38.0697", "39.8009", "39.8029", "0.785429", "0.779104"),
    ("1", "13.5", "5.1962", "4.1962", "4.5509", "4.552", "0.662816", "0.593113"),
)


def agrees(value: float, printed: str, decimals: int) -> bool:
    """To the last printed digit; trailing zeros are not printed."""
    return round(value, decimals) == float(printed)


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_interval_vectors(row: tuple[str, ...]) -> None:
    blocking, mtbf = float(row[0]), float(row[1])
    assert agrees(young_interval(blocking, mtbf), row[2], 4)
    assert agrees(daly_first_order_interval(blocking, mtbf), row[3], 4)
    assert agrees(daly_interval(blocking, mtbf), row[4], 4)
    assert agrees(optimal_interval(blocking, mtbf), row[5], 4)


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_effective_time_vectors(row: tuple[str, ...]) -> None:
    blocking, mtbf = float(row[0]), float(row[1])
    interval = daly_interval(blocking, mtbf)
    assert agrees(effective_training_time_ratio(interval, blocking, mtbf, 0), row[6], 6)
    assert agrees(effective_training_time_ratio(interval, blocking, mtbf, 1.5), row[7], 6)


@pytest.mark.parametrize(("mtbf", "published"), [(1440, 117), (360, 57), (15, 9.1)])
def test_daly_publishes_these_three(mtbf: float, published: float) -> None:
    assert daly_interval(5, mtbf) == pytest.approx(published, abs=0.5)


# Accelerators on nodes of eight, failures per 1000 node-days, mean time between failures in minutes, blocking
# save, then Daly's interval and the ratio at recoveries of 0.5, 1.5, 10 and 20 min.
# Rates: arXiv:2410.21680, arXiv:2407.21783.
DERIVED = (
    (1024, 6.5, 1730.77, 0.01, 5.88, (0.9963, 0.9957, 0.9909, 0.9852)),
    (1024, 2.34, 4807.69, 5, 215.94, (0.955, 0.9548, 0.9531, 0.9511)),
    (4096, 6.5, 432.69, 1, 28.75, (0.9325, 0.9303, 0.9122, 0.8914)),
    (16384, 6.5, 108.17, 0.105, 4.7, (0.9522, 0.9434, 0.8721, 0.7951)),
    (16384, 3.79, 185.52, 5, 39.8, (0.7833, 0.7791, 0.7442, 0.7052)),
    (131072, 6.5, 13.52, 0.105, 1.62, (0.8485, 0.788, 0.4203, 0.2006)),
    (131072, 3.79, 23.19, 5, 12.08, (0.4683, 0.4485, 0.3109, 0.202)),
)


@pytest.mark.parametrize("row", DERIVED, ids=lambda row: f"{row[0]}-{row[1]}-{row[3]}")
def test_derived_intervals(row: tuple[int, float, float, float, float, tuple[float, ...]]) -> None:
    accelerators, rate, minutes, blocking, interval, ratios = row
    mtbf = job_mtbf_seconds(accelerators / 8, rate) / 60
    assert round(mtbf, 2) == minutes
    assert round(daly_interval(blocking, mtbf), 2) == interval
    best = daly_interval(blocking, mtbf)
    found = tuple(round(effective_training_time_ratio(best, blocking, mtbf, u), 4) for u in (0.5, 1.5, 10, 20))
    assert found == ratios


def simulated_ratio(interval: float, blocking: float, mtbf: float, recovery: float, persist: float) -> float:
    """Share of wall time that lasts, by drawing failures one by one over 4,000 committed intervals."""
    random_source = random.Random(7)
    clock, committed, until_failure = 0.0, 0, random_source.expovariate(1 / mtbf)
    pending = 0.0
    while committed < 4000:
        wanted = pending + interval + blocking
        if until_failure >= wanted:
            clock, until_failure = clock + wanted, until_failure - wanted
            committed, pending = committed + 1, 0.0

            continue
        clock += until_failure
        until_failure = random_source.expovariate(1 / mtbf)
        while until_failure < recovery:
            clock += until_failure
            until_failure = random_source.expovariate(1 / mtbf)
        clock, until_failure = clock + recovery, until_failure - recovery
        # The newest snapshot was not durable for `persist` after its save: that work is done again.
        pending = persist
    return committed * interval / clock


@pytest.mark.parametrize(
    ("interval", "blocking", "mtbf", "recovery", "persist"),
    [
        (18.99, 0.105, 1730.8, 1.5, 0),
        (29.64, 5, 108.2, 20, 0),
        (4.7, 0.105, 108.2, 1.5, 0),
        (39.8, 5, 185.5, 1.5, 0),
        (8.52, 5, 13.5, 20, 0),
        (1.61, 0.105, 13.5, 1.5, 0),
        (4.7, 0.01, 108.2, 1.5, 0.85),
    ],
)
def test_simulation_agrees(interval: float, blocking: float, mtbf: float, recovery: float, persist: float) -> None:
    model = effective_training_time_ratio(interval, blocking, mtbf, recovery, persist)
    assert simulated_ratio(interval, blocking, mtbf, recovery, persist) == pytest.approx(model, abs=0.01)


def test_optimum_is_the_best_interval() -> None:
    for blocking, mtbf in ((5.0, 1440.0), (5.0, 15.0), (5.0, 2.4), (0.01, 1e6)):
        best = optimal_interval(blocking, mtbf)
        top = effective_training_time_ratio(best, blocking, mtbf, 1)
        for factor in (0.9, 0.99, 1.01, 1.1):
            assert effective_training_time_ratio(best * factor, blocking, mtbf, 1) < top


def test_daly_is_the_mean_time_between_failures_from_twice_that_on() -> None:
    assert daly_interval(2, 1) == 1
    assert daly_interval(100, 1) == 1
    assert daly_interval(1.999999, 1) != 1


@pytest.mark.parametrize("x", [-math.exp(-1), -0.3678794, -0.367, -0.2, -1e-9, 0, 1e-9, 0.5, 1, 2.5, 10, 1e6, 1e300])
def test_lambert_w_inverts(x: float) -> None:
    w = lambert_w0(x)
    assert w >= -1
    assert w * math.exp(w) == pytest.approx(x, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("x", [-0.4, math.nan, math.inf, -math.inf])
def test_lambert_w_refuses(x: float) -> None:
    with pytest.raises(ValueError, match="-1/e"):
        lambert_w0(x)


def test_shares_sum_to_one() -> None:
    for interval, blocking, mtbf, recovery, persist in (
        (4.7, 0.1, 108, 1.5, 0.0),
        (60, 5, 20, 15, 3.0),
        (1, 0, 1e9, 0, 0),
    ):
        shares = time_shares(interval, blocking, mtbf, recovery, persist)
        total = shares.effective + shares.save + shares.lost_work + shares.recovery
        assert total == pytest.approx(1, abs=1e-6)
        assert min(shares.effective, shares.save, shares.lost_work, shares.recovery) >= 0


def test_hopeless_intervals_have_no_effective_time() -> None:
    assert effective_training_time_ratio(1e9, 1, 1, 1) == 0


def test_a_window_of_two_costs_at_most_a_quarter_more() -> None:
    mtbf, blocking = 1e5, 1.0
    best = optimal_interval(blocking, mtbf)
    least = 1 - effective_training_time_ratio(best, blocking, mtbf, 0)
    for edge in interval_window(best):
        assert 1 - effective_training_time_ratio(edge, blocking, mtbf, 0) <= 1.26 * least


def test_recommended_interval_waits_for_durable_saves() -> None:
    assert recommended_interval(2, 830769, 20) == pytest.approx(1821.6, abs=0.1)
    assert recommended_interval(2, 830769, 5000) == 5000


def test_saves_and_snapshots() -> None:
    assert [saves_of_job(length, 30) for length in (1, 30, 44, 46, 300)] == [1, 1, 1, 2, 10]
    assert [snapshots_to_keep(latency, 30) for latency in (0, 30, 31, 180)] == [2, 2, 3, 7]


# Nodes, hours of repair, failures per 1000 node-days, spares at the 99 % quantile of the Poisson
# distribution.
SPARES = (
    *((128, 1, 2.34, 1), (128, 24, 6.5, 4), (128, 72, 6.5, 7), (512, 24, 2.34, 4), (512, 72, 6.5, 18)),
    *(
        (2048, 1, 6.5, 3),
        (2048, 24, 6.5, 22),
        (2048, 72, 6.5, 55),
        (16384, 24, 6.5, 131),
        (16384, 72, 6.5, 362),
    ),
)


@pytest.mark.parametrize(("nodes", "hours", "rate", "spares"), SPARES)
def test_spares(nodes: int, hours: int, rate: float, spares: int) -> None:
    assert spare_nodes(nodes, rate, hours * 3600) == spares


def test_poisson_quantile_at_the_ends() -> None:
    assert poisson_quantile(0, 0.99) == 0
    assert poisson_quantile(1e-9, 0.99) == 0
    assert poisson_quantile(1e6, 0.5) == pytest.approx(1e6, abs=2)
    with pytest.raises(ValueError, match="quantile"):
        poisson_quantile(1, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: young_interval(0, 1),
        lambda: daly_interval(1, -1),
        lambda: optimal_interval(math.nan, 1),
        lambda: time_shares(1, -1, 1, 1),
        lambda: job_mtbf_seconds(0, 1),
        lambda: snapshots_to_keep(1, 0),
        lambda: spare_nodes(1, 1, -1),
    ],
)
def test_senseless_numbers_are_refused(call: object) -> None:
    with pytest.raises(ValueError, match="wanted"):
        call()  # type: ignore[operator]


def test_worked_examples() -> None:
    results = doctest.testmod(reliability)
    assert results.failed == 0
    assert results.attempted >= 12
