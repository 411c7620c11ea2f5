"""Writes what hierarchy, meshes, order of hosts and roles of ranks do to collectives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from appendix_machines import example_topology, mesh, switched
from appendix_text import GIB, MIB, digits, section, size, table

from trainspec_validate.performance.costs import collectives
from trainspec_validate.performance.costs.collective_algorithms import domain_rate
from trainspec_validate.performance.costs.network import Link
from trainspec_validate.performance.costs.placement import Span, span
from trainspec_validate.performance.topology.networks import Pattern, RankOrder, Traffic, group_network
from trainspec_validate.performance.topology.roles import TreeRole, roles_of, stage_edges

CLUSTERS = ("meta-llama3-24k", "alibaba-hpn", "dgx-superpod-b200", "azure-gb300", "coreweave-gb200", "mrc-131072")
WAYS: tuple[tuple[RankOrder, Pattern], ...] = (
    ("topology", "neighbours"),
    ("alphabetical", "neighbours"),
    ("topology", "all-pairs"),
)
GROUP = Span(8, 128)
ORDER = ("tensor", "pipeline", "data")
DEGREES = {"tensor": 4, "pipeline": 2, "data": 4}
SHOWN_RANKS = (0, 13)
HIERARCHY = ("ring", "tree", "halving-doubling", "hierarchical")


def hierarchy() -> Iterator[tuple[str, ...]]:
    """Ranks, message, and milliseconds by algorithm where no switch reduces."""
    for num_ranks in (32, 128, 1024):
        where = replace(switched(num_ranks, "infiniband"), domain_reduces=False)
        for message in (MIB, 64 * MIB, GIB):
            rows = collectives.estimates("all-reduce", message, where)
            known = {row.algorithm: row.seconds for row in rows if row.algorithm in HIERARCHY}
            cells = [digits(known[name] * 1e3) for name in HIERARCHY]
            yield digits(num_ranks), size(message), *cells, next(iter(known))


def pairs() -> Iterator[tuple[str, ...]]:
    """Ranks of a mesh of eight in the group, their rate, and predicted bus bandwidth."""
    for num_ranks in (2, 4, 8):
        part = replace(mesh(8), num_ranks=num_ranks)
        best = collectives.best("all-reduce", GIB, part)
        rate = domain_rate("all-reduce", "ring", part)
        yield digits(num_ranks), digits(rate / 1e9), digits(best.bus_bandwidth_bytes_per_second / 1e9)


def narrow() -> Iterator[tuple[str, ...]]:
    """Oversubscription that a group crosses with all its traffic, and what is left."""
    for factor in (1, 2, 4, 7):
        where = replace(switched(1024, "rocev2"), fabric=Link(50e9 / factor, 0.0))
        best = collectives.best("all-reduce", 16 * GIB, where)
        rate = best.bus_bandwidth_bytes_per_second / 1e9
        yield f"{factor}:1", digits(50 / factor), best.algorithm, digits(best.seconds), digits(rate)


def orders() -> Iterator[tuple[str, ...]]:
    """Example cluster, order and pattern, domains of the group, rate of a rank, milliseconds of 1 GiB."""
    for name in CLUSTERS:
        for order, pattern in WAYS:
            where = group_network(example_topology(name), Traffic(GROUP, order, pattern))
            if where is None or where.fabric is None:
                raise ValueError(f"the group does not leave its domain in {name}")
            operation = "all-to-all" if pattern == "all-pairs" else "all-reduce"
            best = collectives.best(operation, GIB, where)
            rate = digits(where.fabric.bandwidth_bytes_per_second / 1e9)
            domains, milliseconds = digits(where.num_domains), digits(best.seconds * 1e3)
            yield name, order, operation, domains, rate, best.algorithm, milliseconds


def _tree(role: TreeRole) -> str:
    parent = "root" if role.parent is None else f"under {role.parent}"
    return f"{parent}, over {' and '.join(map(str, role.children))}" if role.children else f"{parent}, leaf"


def roles() -> Iterator[tuple[str, ...]]:
    """Rank, axis, members, ring neighbours and both trees."""
    for rank in SHOWN_RANKS:
        for role in roles_of(ORDER, DEGREES, rank):
            ring = f"from {role.ring.previous}, to {role.ring.next}"
            members = " ".join(map(str, role.members))
            yield str(rank), role.axis, members, ring, *(_tree(tree) for tree in role.trees)


def _edges() -> str:
    where = span(ORDER, DEGREES, "pipeline")
    rank = SHOWN_RANKS[1]
    before, after = ("no rank" if other is None else f"rank {other}" for other in stage_edges(where, rank))
    return f"In the pipeline rank {rank} receives activations from {before} and sends them to {after}."


def _hierarchy_section() -> list[str]:
    return section(
        "Hierarchy",
        "All-reduce in milliseconds by `collectives.estimates`, nodes of eight NVLink 4 over InfiniBand, switches that "
        "do not reduce. Rings and trees of a library already leave each node once. No library that is calibrated here "
        "offers the last two for all-reduce, so they have the latencies of the simple ring. Hierarchical is the middle "
        "between phases that overlap and phases that take turns.",
        table(("ranks", "message", *HIERARCHY, "least"), hierarchy()),
    )


def _order_section() -> list[str]:
    return section(
        "Rank order",
        "The data group of the example clusters: 128 ranks, eight apart, 1 GiB, by `topology.networks.group_network`. "
        "A ring in the order of the topology leaves each block once. A ring in the order of host names sends most of "
        "its traffic out of every block. An all-to-all sends to every member and gains nothing from the order of a "
        "ring. A rate that stays means that no tier on the way is declared narrower than the interfaces. Where a "
        "profile names no library with constants, every algorithm competes, uncalibrated.",
        table(("cluster", "order", "operation", "domains", "rate of a rank, GB/s", "choice", "ms"), orders()),
    )


def sections() -> list[str]:
    """The lines of all sections."""
    degrees = ", ".join(f"{axis} {DEGREES[axis]}" for axis in ORDER)
    return [
        *_hierarchy_section(),
        *section(
            "A link for every pair",
            "In a mesh a group that is smaller than the mesh has only the links between its members. Eight MI300X, 1 "
            "GiB.",
            table(("ranks", "rate of a rank, GB/s", "bus bandwidth, GB/s"), pairs()),
        ),
        *section(
            "Oversubscription",
            "All-reduce of 16 GiB over 1,024 ranks, when all that leaves a node crosses a tier with so much less "
            "capacity.",
            table(
                ("oversubscription", "rate of a rank, GB/s", "algorithm", "seconds", "bus bandwidth, GB/s"), narrow()
            ),
        ),
        *_order_section(),
        *section(
            "Roles of ranks",
            f"A job of 32 ranks: {degrees}, numbered in this order from adjacent ranks outwards. `topology.roles` "
            "gives each rank its groups, its ring neighbours and its places in two trees, of which one makes leaves of "
            f"the other's inner ranks. {_edges()}",
            table(("rank", "axis", "members", "ring", "first tree", "second tree"), roles()),
        ),
    ]
