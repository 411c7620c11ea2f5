"""Derives figures of a node group: its catalog entry, domains, and NIC rates."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile, changed
from trainspec_validate.documents.types.hardware import HostLink, Nic, NodeGroup, ScaleUp
from trainspec_validate.model.catalog import CatalogAccelerator, accelerators, links, pcie_bandwidth

PATHS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")
"""Path classes, nearest first."""
_SOLD_SHARE = 0.9
"""The least share of the memory that a device reports which the rounded figure of its data sheet is: H100, 0.935."""


def within(value: float, wanted: float, tolerance: float) -> bool:
    """Whether a value is within a fraction of another."""
    return abs(value - wanted) <= tolerance * abs(wanted)


def listed(group: NodeGroup) -> CatalogAccelerator | None:
    """The catalog entry of a group's accelerator."""
    return accelerators().get(group.accelerator.model)


def memory_bytes(group: NodeGroup) -> float | None:
    """Device memory of one accelerator: the document's figure, else the catalog's."""
    known = listed(group)
    return group.accelerator.memory_bytes or (known.memory_bytes if known else None)


def capacity_bytes(group: NodeGroup) -> float | None:
    """Device memory that programs can take: that of the catalog where the document has the figure of a data sheet.

    Such a figure is in whole gigabytes and a little less: an H100 is sold with 80 GB and reports 85.5 GB.
    """
    own, known = memory_bytes(group), listed(group)
    if own is None or known is None or own % 1e9:
        return own
    return known.memory_bytes if _SOLD_SHARE * known.memory_bytes <= own < known.memory_bytes else own


def power_watts(group: NodeGroup) -> float | None:
    """Power of one accelerator: the cap that is set, else the document's limit, else the catalog's."""
    own, known = group.accelerator, listed(group)
    return own.power_cap_watts or own.power_watts or (known.power_watts if known else None)


def total(group: NodeGroup) -> int:
    """Accelerators of a group."""
    return group.num_nodes * group.num_accelerators_per_node


def ranks_per_node(group: NodeGroup) -> int:
    """Ranks that a job places on one node."""
    return group.num_accelerators_per_node * group.accelerator.num_ranks_per_accelerator


def used_domain(scale_up: ScaleUp) -> int:
    """Accelerators of a domain that jobs use."""
    return scale_up.used_num_accelerators or scale_up.domain_num_accelerators


def scale_up_rate(scale_up: ScaleUp) -> float | None:
    """Rate of one accelerator into its domain: stated, else links times the rate of one, else the table's."""
    if scale_up.bandwidth_bytes_per_second is not None:
        return scale_up.bandwidth_bytes_per_second
    if scale_up.num_links is not None and scale_up.link_bandwidth_bytes_per_second is not None:
        return scale_up.num_links * scale_up.link_bandwidth_bytes_per_second
    row = links().scale_up.get((scale_up.technology, (scale_up.generation or "").casefold()))
    return row.bandwidth_bytes_per_second if row else None


def names_generation(stated: str | None, listed_as: str) -> bool:
    """Whether a generation of links is the one of the catalog, which names a product with fewer links after it.

    >>> names_generation("4", "4-h800"), names_generation("5", "4-h800")
    (True, False)
    """
    return stated is None or stated.casefold() in {listed_as, listed_as.partition("-")[0]}


def domain_rate(group: NodeGroup) -> float | None:
    """Rate of one accelerator into its domain, with the links of the catalog where the profile states no others."""
    scale_up, known = group.scale_up, listed(group)
    if scale_up is None:
        return None
    own = known.scale_up if known else {}
    if own.get("technology") == scale_up.technology and names_generation(scale_up.generation, own["generation"]):
        scale_up = changed(scale_up, generation=own["generation"])
    return scale_up_rate(scale_up)


def compute_nics(group: NodeGroup) -> list[tuple[int, Nic]]:
    """Interfaces that carry collectives, with their position."""
    return [(j, nic) for j, nic in enumerate(group.nics) if nic.role == "compute"]


def all_nics(cluster: ClusterProfile, *, compute: bool = False) -> Iterator[tuple[int, int, Nic]]:
    """Every kind of interface with the positions of its group and itself."""
    for i, group in enumerate(cluster.node_groups):
        for j, nic in enumerate(group.nics):
            if not compute or nic.role == "compute":
                yield i, j, nic


def host_link_rate(link: HostLink) -> float | None:
    """Nominal rate of a host link from its generation and lanes, or by its name."""
    if link.technology == "pcie":
        if link.generation is None or link.num_lanes is None:
            return None
        one = pcie_bandwidth(link.generation, link.num_lanes)
        return None if one is None else one * link.num_links
    return links().coherent_bandwidth_bytes_per_second.get(link.technology)


def own_pcie_rate(group: NodeGroup) -> float | None:
    """Nominal rate of the PCIe link of the accelerator itself, from the catalog."""
    known = listed(group)
    return pcie_bandwidth(known.pcie["generation"], known.pcie["num_lanes"]) if known and known.pcie else None
