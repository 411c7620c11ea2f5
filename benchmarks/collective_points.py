"""Reads the published figures on collectives and selects those that can be scored."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from trainspec_validate.performance.costs.collective_choice import chosen
from trainspec_validate.performance.costs.collective_libraries import CALIBRATION, Calibration
from trainspec_validate.performance.costs.collective_plans import Plan, plans
from trainspec_validate.performance.costs.network import Link, Network

PUBLISHED = Path(__file__).resolve().parent / "published"
SIMAI = "SimAI NIC table"
SIMAI_NODE_RATE = 8 * 48.5e9
"""Reference of the shares in that table: eight ConnectX-7 at 48.5 GB/s (aliyun/SimAI calbusbw.h)."""
LEFT_OUT = (
    ("unnamed 4-node cluster", 20, "the source does not name the hardware, so there is no network to predict from"),
    ("Hugging Face H100 cluster", 7, "the source does not state message sizes"),
)
"""Published rows that hold no point and are therefore not in the table: system, rows, why."""


@dataclass(frozen=True, slots=True)
class Point:
    """One published measurement."""

    system: str
    network: Network
    operation: str
    algorithm: str
    protocol: str
    message_bytes: float
    bus_bandwidth: float
    excluded: str = ""
    """Why it cannot be scored; empty where it can."""


def rows(name: str) -> list[dict[str, str]]:
    """A table of `benchmarks/published`."""
    with (PUBLISHED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def networks() -> dict[tuple[str, int], Network]:
    """Networks of each published system, by name and ranks. Latencies are left to the calibration."""
    return {
        (row["system"], int(row["num_ranks"])): Network(
            num_ranks=int(row["num_ranks"]),
            num_domains=int(row["num_domains"]),
            domain=Link(float(row["link_bytes_per_second"]), 0.0),
            fabric=Link(float(row["nic_bytes_per_second"]), 0.0) if row["nic_bytes_per_second"] else None,
            domain_shape=row["domain_shape"],  # type: ignore[arg-type]
            domain_num_ranks=int(row["domain_num_ranks"]),
            domain_reduces=row["domain_reduces"] == "1",
            fabric_reduces=row["fabric_reduces"] == "1",
            transport=row["transport"] or "infiniband",
            library=row["library"],
        )
        for row in rows("collective_networks")
    }


def points() -> list[Point]:
    """All published measurements, those that cannot be scored included."""
    known = networks()
    found: list[Point] = []
    for row in rows("collectives"):
        network = known[row["system"], int(row["num_ranks"])]
        if row["algorithm"] not in {"automatic", "ring"} and not network.domain_reduces:
            raise ValueError(f"{row['system']} names {row['algorithm']}, but its switches do not reduce")
        size, bus = float(row["message_bytes"]), float(row["bus_bandwidth_bytes_per_second"])
        place = (row["system"], network, row["operation"], row["algorithm"], "automatic")
        found.append(Point(*place, size, bus, row["excluded"]))
    for row in rows("simai_ring"):
        # The table holds the efficiency of SimAI's rings; its latencies are those of the simple protocol.
        network = Network(
            int(row["num_ranks"]), int(row["num_domains"]), Link(450e9, 0.0), Link(50e9, 0.0), domain_num_ranks=8
        )
        bus = float(row["share_of_node_rate"]) * SIMAI_NODE_RATE
        found.append(Point(SIMAI, network, "all-reduce", "ring", "simple", float(row["message_bytes"]), bus))
    return found


def plan_of(point: Point, calibration: Calibration = CALIBRATION) -> Plan:
    """The plan that predicts a point: the algorithm that it names, or the one that the library picks."""
    if point.algorithm == "automatic":
        return chosen(point.operation, point.message_bytes, point.network, calibration)
    named = [
        plan
        for plan in plans(point.operation, point.network, calibration)
        if plan.algorithm == point.algorithm and point.protocol in {"automatic", plan.protocol}
    ]
    return min(named, key=lambda plan: plan.seconds(point.message_bytes))


def predicted(point: Point, calibration: Calibration = CALIBRATION) -> float:
    """Bus bandwidth of a point by the model."""
    plan = plan_of(point, calibration)
    return plan.factor * point.message_bytes / plan.seconds(point.message_bytes)
