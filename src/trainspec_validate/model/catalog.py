"""Reads the published figures of accelerators, links and models that the specification carries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

_DATA = Path(__file__).resolve().parents[1] / "data"


@dataclass(frozen=True, slots=True)
class CatalogAccelerator:
    """Published figures of one accelerator package or chip; rates are dense."""

    name: str
    title: str
    vendor: str
    memory_bytes: float
    """Total that the device reports to programs, not the rounded figure of its data sheet."""
    source: str
    peak_flops_per_second: Mapping[str, float]
    memory_bandwidth_bytes_per_second: float | None = None
    power_watts: float | None = None
    measured_matmul_flops_per_second: float | None = None
    scale_up: Mapping[str, str] = field(default_factory=dict)
    """Technology and generation of the scale-up links; empty where there are none."""
    no_scale_up: bool = False
    """Whether a source says that it has no scale-up links, so that no sort of them is possible."""
    bridge: Mapping[str, str] = field(default_factory=dict)
    """Technology and generation of links that some machines have and others lack; empty where none are sold."""
    host_link: str = ""
    """Technology of the coherent link to a host in the same module; empty where the host is a separate one."""
    pcie: Mapping[str, int] = field(default_factory=dict)
    """Fastest PCIe generation and most lanes of its own link to a host; empty where no source gives them."""
    num_dies: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True)
class ScaleUpLink:
    """Nominal one-way figures of one generation of scale-up links."""

    technology: str
    generation: str
    bandwidth_bytes_per_second: float
    source: str
    num_links: int | None = None
    link_bandwidth_bytes_per_second: float | None = None
    max_domain_num_accelerators: int | None = None
    num_switch_ports: int | None = None
    """Ports of one switch chip."""
    topologies: Sequence[str] = ()
    """Ways in which published machines join accelerators by these links; empty where none are listed."""
    node_bandwidth_bytes_per_second: float | None = None
    """The part of the rate that joins accelerators of one node, where links of another kind join nodes."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Links:
    """The table of links."""

    scale_up: Mapping[tuple[str, str], ScaleUpLink]
    pcie_bandwidth_bytes_per_second: Mapping[int, float]
    """One-way rate of 16 lanes by PCIe generation."""
    coherent_bandwidth_bytes_per_second: Mapping[str, float]
    """One-way rate of named coherent host links."""
    nic_rate_bytes_per_second: Mapping[tuple[str, str], float]
    """Rate of one NIC by technology and generation."""
    standard_rates_bytes_per_second: tuple[float, ...]
    """Rates that network interfaces are built for."""


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """The published shape of a model."""

    name: str
    title: str
    source: str
    model: Mapping[str, Any]
    """The model section of a training plan, its name left out, in plain values."""


def _read(name: str) -> Any:
    return json.loads((_DATA / name).read_text(encoding="utf-8"))


@cache
def accelerators() -> Mapping[str, CatalogAccelerator]:
    """All accelerators of the catalog, by name."""
    rows = (CatalogAccelerator(**row) for row in _read("accelerators.json")["accelerators"])
    return {row.name: row for row in rows}


@cache
def models() -> Mapping[str, CatalogModel]:
    """All models of the catalog, by name."""
    return {row["name"]: CatalogModel(**row) for row in _read("models.json")["models"]}


@cache
def links() -> Links:
    """The table of links."""
    raw = _read("links.json")
    scale_up = (ScaleUpLink(**row) for row in raw["scale_up"])
    host = raw["host_links"]
    return Links(
        scale_up={(row.technology, row.generation): row for row in scale_up},
        pcie_bandwidth_bytes_per_second={
            row["generation"]: row["bandwidth_bytes_per_second"] for row in host if row["technology"] == "pcie"
        },
        coherent_bandwidth_bytes_per_second={
            row["technology"]: row["bandwidth_bytes_per_second"] for row in host if row["technology"] != "pcie"
        },
        nic_rate_bytes_per_second={
            (row["technology"], row["generation"]): row["rate_bytes_per_second"] for row in raw["nics"]
        },
        standard_rates_bytes_per_second=tuple(raw["standard_rates_bytes_per_second"]),
    )


def pcie_bandwidth(generation: int, num_lanes: int) -> float | None:
    """One-way bytes per second of a PCIe link; None for a generation that the table lacks."""
    full = links().pcie_bandwidth_bytes_per_second.get(generation)
    return None if full is None else full * num_lanes / 16
