"""Describes the typical machines and models that the appendix takes for its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import ClusterProfile, read
from trainspec_validate.model.catalog import accelerators, links, models
from trainspec_validate.performance.costs.collective_algorithms import HOP_SECONDS
from trainspec_validate.performance.costs.network import Link, Network
from trainspec_validate.performance.costs.transformer import Shape
from trainspec_validate.performance.derived.job import JobNodes
from trainspec_validate.performance.topology.graph import Topology, topology_of

ROOT = Path(__file__).resolve().parent.parent
RANKS = (8, 32, 128, 512, 2048, 16384)
TORUS = {8: (2, 2, 2), 32: (2, 4, 4), 128: (4, 4, 8), 512: (8, 8, 8), 2048: (8, 16, 16)}


def scale_up_rate(technology: str, generation: str) -> float:
    """One-way bytes per second of one accelerator into its domain, from the table of links."""
    return links().scale_up[technology, generation].bandwidth_bytes_per_second


def nic_rate(technology: str, generation: str) -> float:
    """Bytes per second of one interface, from the table of links."""
    return links().nic_rate_bytes_per_second[technology, generation]


def switched(num_ranks: int, transport: str, *, per_domain: int = 8, generation: str = "4") -> Network:
    """Domains of NVLink, each accelerator with one interface of 400 Gb/s.

    Links have no latency of their own: what a step takes is in the constants of the library and the transport.
    """
    num_domains = max(1, num_ranks // per_domain)
    fabric = Link(nic_rate("infiniband", "ndr"), 0.0) if num_domains > 1 else None
    return Network(
        num_ranks,
        num_domains,
        Link(scale_up_rate("nvlink", generation), 0.0),
        fabric,
        domain_num_ranks=72 if per_domain == 64 else 8,
        domain_reduces=True,
        transport=transport,
    )


def mesh(num_ranks: int) -> Network:
    """Nodes of eight MI300X, a link for every pair, RoCE of 400 Gb/s for each, under RCCL."""
    num_domains = max(1, num_ranks // 8)
    return Network(
        num_ranks,
        num_domains,
        Link(scale_up_rate("xgmi", "mi300x"), 0.0),
        Link(nic_rate("infiniband", "ndr"), 0.0) if num_domains > 1 else None,
        domain_shape="full-mesh",
        domain_num_ranks=8,
        transport="rocev2",
        library="rccl",
    )


def torus(num_ranks: int) -> Network:
    """A slice of a TPU v5p with every axis closed; no library has constants for it."""
    return Network(
        num_ranks,
        domain=Link(scale_up_rate("ici", "v5p"), HOP_SECONDS),
        domain_shape="torus",
        domain_dimensions=TORUS[num_ranks],
        domain_num_ranks=num_ranks,
        library="other",
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine at several sizes."""

    title: str
    network: Callable[[int], Network]
    ranks: tuple[int, ...] = RANKS


MACHINES = (
    Machine("8 x NVLink 4, InfiniBand", lambda n: switched(n, "infiniband")),
    Machine("8 x NVLink 4, RoCE", lambda n: switched(n, "rocev2")),
    Machine("8 x NVLink 4, EFA", lambda n: switched(n, "efa-srd")),
    Machine("64 of NVL72, InfiniBand", lambda n: switched(n, "infiniband", per_domain=64, generation="5")),
    Machine("8 x MI300X, RoCE", mesh),
    Machine("TPU v5p torus", torus, tuple(TORUS)),
)


@cache
def shape(name: str) -> Shape:
    """The shape of a model of the catalog, without experts."""
    model = models()[name].model
    return Shape(
        num_layers=model["num_layers"],
        hidden_size=model["hidden_size"],
        num_heads=model["num_attention_heads"],
        num_key_value_heads=model.get("num_key_value_heads", model["num_attention_heads"]),
        head_size=model["head_size"],
        ffn_hidden_size=model["ffn_hidden_size"],
        vocabulary_size=model["vocabulary_size"],
        gated_ffn=model.get("gated_ffn", False),
        tied_embeddings=model.get("tied_embeddings", False),
    )


@cache
def example_topology(name: str) -> Topology:
    """The graph of an example cluster: its first node group over its first fabric."""
    cluster = read("ClusterProfile", load_file(ROOT / "examples" / "clusters" / f"{name}.yaml").data)
    if not isinstance(cluster, ClusterProfile):
        raise TypeError(f"{name} is no cluster profile")
    return topology_of(cluster, JobNodes(cluster.node_groups[0], 0), next(iter(cluster.fabrics), None))


def peak_flops(name: str, number_format: str = "bf16") -> float:
    """Dense peak of an accelerator of the catalog."""
    return accelerators()[name].peak_flops_per_second[number_format]
