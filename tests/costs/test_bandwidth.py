"""Bus bandwidth: published rows, the ceiling against measurements, and the edges of the formulas."""

from __future__ import annotations

import csv
import doctest
import math
import os
from pathlib import Path

import pytest

from trainspec_validate.performance.costs import bandwidth
from trainspec_validate.performance.costs.bandwidth import (
    Ranks,
    Rates,
    bus_bandwidth_ceiling,
    bus_bandwidth_factor,
    domain_ceiling,
    fabric_ceiling,
)

SHARED = Path(os.environ.get("TRAINSPEC_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "data"


def table(name: str) -> list[dict[str, str]]:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not here; set TRAINSPEC_SHARED")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_worked_examples() -> None:
    result = doctest.testmod(bandwidth)
    assert result.attempted >= 4
    assert result.failed == 0


# Published rows: operation, ranks, algorithm and bus bandwidth in GB/s.
# aws-samples/awsome-distributed-training@7217859f (first row), coreweave/nccl-tests@cb865533 (others).
PUBLISHED = [
    ("all-reduce", 8, 276.03, 483.05),
    ("all-reduce", 96, 195.31, 386.56),
    ("all-reduce", 72, 425.49, 839.16),
]


@pytest.mark.parametrize(("operation", "ranks", "algorithm", "bus"), PUBLISHED)
def test_factor_of_published_rows(operation: str, ranks: int, algorithm: float, bus: float) -> None:
    assert bus / algorithm == pytest.approx(bus_bandwidth_factor(operation, ranks), rel=1e-3)


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [
        ("all-reduce", 2, 1.0),
        ("all-gather", 8, 0.875),
        ("reduce-scatter", 8, 0.875),
        ("all-to-all", 64, 63 / 64),
        ("broadcast", 64, 1.0),
        ("send-receive", 2, 1.0),
    ],
)
def test_factor(operation: str, ranks: int, factor: float) -> None:
    assert bus_bandwidth_factor(operation, ranks) == pytest.approx(factor)


# operation, ranks, domains, link and NIC rate per rank, reducing switches, ceiling, best published; GB/s.
CEILINGS = [
    ("all-reduce", 16, 2, 300, 6.25, False, 93.75, 78.33),  # AWS p4de
    ("all-reduce", 128, 16, 450, 50, True, 423.33, 369.86),  # AWS p5en
    ("all-reduce", 16, 2, 450, 50, True, 750, 487.09),  # AWS p5
    ("all-reduce", 72, 1, 900, None, True, 1775, 839.16),  # GB200 NVL72
    ("all-gather", 16, 2, 450, 12.5, False, 187.5, 70.9),  # GCP A3 High
    (
        "all-gather",
        8,
        1,
        450,
        None,
        True,
        450,
        361.4,
    ),  # H200 node: a switch cannot reduce what is only gathered
]


@pytest.mark.parametrize("row", CEILINGS)
def test_ceiling_of_published_systems(
    row: tuple[str, int, int, float, float | None, bool, float, float],
) -> None:
    operation, n, k, link, nic, reduces, ceiling, best = row
    own = bus_bandwidth_ceiling(operation, Ranks(n, k), Rates(link, nic), in_domain=reduces)
    assert own == pytest.approx(ceiling, rel=1e-3)
    assert best < own


def test_published_threshold_above_the_ceiling() -> None:
    # A health check of AWS p5 waits for 800 GB/s: 16 ranks on two nodes cannot reach it.
    assert bus_bandwidth_ceiling("all-reduce", Ranks(16, 2), Rates(450, 50), in_domain=True) < 800


def test_ceilings_of_the_collected_table() -> None:
    rows = table("busbw_ceiling_check.csv")
    assert len(rows) >= 20
    for row in rows:
        ranks = Ranks(int(row["ranks"]), int(row["domains"]))
        nic = float(row["nic_gbs_per_accel"]) if row["nic_gbs_per_accel"] else None
        own = bus_bandwidth_ceiling(
            row["collective"].replace("_", "-"),
            ranks,
            Rates(float(row["link_gbs"]), nic),
            in_domain=row["in_switch_reduction"] == "1",
        )
        assert own == pytest.approx(float(row["busbw_ceiling"]), rel=2e-3), row["system"]
        assert float(row["best_measured_busbw"]) <= own, row["system"]


def test_factors_of_the_collected_measurements() -> None:
    judged, strange = 0, set()
    for row in table("nccl_measured.csv"):
        if not row["busbw_gbs"] or not row["algbw_gbs"] or float(row["algbw_gbs"]) < 20:
            continue
        judged += 1
        factor = bus_bandwidth_factor(row["collective"].replace("_", "-"), int(row["world_size"]))
        if abs(float(row["busbw_gbs"]) / float(row["algbw_gbs"]) / factor - 1) > 0.005:
            strange.add((row["system"], row["collective"]))
    assert judged > 150
    # This vendor scales all-gather by n-1 because its size is the shard: another convention, rightly refused.
    assert strange == {("Gaudi3 8-card server", "all_gather")}


def test_a_single_domain_is_not_bound_by_nics() -> None:
    assert fabric_ceiling("all-reduce", Ranks(8, 1), 50e9) == math.inf


def test_one_rank_per_domain_is_not_bound_by_links() -> None:
    assert domain_ceiling("all-reduce", Ranks(4, 4), 450e9) == math.inf


def test_all_to_all_gets_its_own_share_of_the_nics_only() -> None:
    assert fabric_ceiling("all-to-all", Ranks(16, 2), 50e9) == pytest.approx(50e9 * 15 / 8)
    assert fabric_ceiling("all-to-all", Ranks(16, 2), 50e9) < fabric_ceiling("all-gather", Ranks(16, 2), 50e9)


def test_rooted_operations_use_the_nics_of_one_domain() -> None:
    assert fabric_ceiling("broadcast", Ranks(16, 2), 50e9) == pytest.approx(400e9)


def test_a_reducing_fabric_raises_the_ceiling_beyond_two_domains() -> None:
    plain = fabric_ceiling("all-reduce", Ranks(32, 4), 50e9)
    assert fabric_ceiling("all-reduce", Ranks(32, 4), 50e9, in_network_reduction=True) > plain
    two = fabric_ceiling("all-reduce", Ranks(16, 2), 50e9)
    assert fabric_ceiling("all-reduce", Ranks(16, 2), 50e9, in_network_reduction=True) == pytest.approx(two)


def test_no_rate_no_bound() -> None:
    assert bus_bandwidth_ceiling("all-reduce", Ranks(16, 2), Rates(None, None)) == math.inf


@pytest.mark.parametrize(("ranks", "domains"), [(1, 1), (4, 5), (4, 0)])
def test_impossible_ranks(ranks: int, domains: int) -> None:
    with pytest.raises(ValueError, match=r"two ranks|cannot be spread"):
        Ranks(ranks, domains)


def test_unknown_operation() -> None:
    with pytest.raises(ValueError, match="unknown operation"):
        bus_bandwidth_factor("gather", 8)
    with pytest.raises(ValueError, match="unknown operation"):
        domain_ceiling("gather", Ranks(8, 1), 450e9)
    with pytest.raises(ValueError, match="unknown operation"):
        fabric_ceiling("gather", Ranks(8, 1), 50e9)
    with pytest.raises(ValueError, match="two ranks"):
        bus_bandwidth_factor("all-reduce", 1)
