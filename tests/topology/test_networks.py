"""What a parallel group talks over: domains, narrowed exits, order of hosts; and the roles of ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import ClusterProfile, read
from trainspec_validate.performance.costs.placement import Span
from trainspec_validate.performance.derived.job import JobNodes
from trainspec_validate.performance.topology.graph import Topology, topology_of
from trainspec_validate.performance.topology.networks import Traffic, crossed, group_network
from trainspec_validate.performance.topology.roles import double_tree, group_of, num_groups, ring, roles_of, stage_edges

CLUSTERS = Path(__file__).resolve().parents[2] / "examples" / "clusters"


def graph(name: str) -> Topology:
    cluster = read("ClusterProfile", load_file(CLUSTERS / f"{name}.yaml").data)
    assert isinstance(cluster, ClusterProfile)
    fabric = cluster.fabrics[0] if cluster.fabrics else None
    return topology_of(cluster, JobNodes(cluster.node_groups[0], 0), fabric)


def test_a_tensor_group_stays_on_the_fast_links() -> None:
    network = group_network(graph("meta-llama3-24k"), Traffic(Span(1, 8)))
    assert network is not None
    assert (network.num_domains, network.fabric, network.num_crossed_tiers) == (1, None, 0)


def test_a_ring_in_order_leaves_a_pod_once() -> None:
    topology = graph("meta-llama3-24k")
    where = Span(128, 128)
    in_order = {item.block.name: item.share for item in crossed(topology, Traffic(where))}
    assert in_order == {"node": 1.0, "rack": 1.0, "pod": 1 / 24}
    by_name = {item.block.name: item.share for item in crossed(topology, Traffic(where, "alphabetical"))}
    assert by_name["pod"] == (24576 - 3072) / (24576 - 8)


def test_order_decides_what_a_narrow_tier_lets_through() -> None:
    topology = graph("meta-llama3-24k")
    rates = {}
    for order in ("topology", "alphabetical"):
        network = group_network(topology, Traffic(Span(128, 128), order))
        assert network is not None
        assert network.fabric is not None
        rates[order] = network.fabric.bandwidth_bytes_per_second
    assert rates["topology"] == 50e9
    assert rates["alphabetical"] == pytest.approx(50e9 / 7 / ((24576 - 3072) / (24576 - 8)))


def test_all_pairs_gain_nothing_from_a_ring() -> None:
    topology = graph("meta-llama3-24k")
    network = group_network(topology, Traffic(Span(8, 3072), pattern="all-pairs"))
    assert network is not None
    assert network.fabric is not None
    assert network.fabric.bandwidth_bytes_per_second == pytest.approx(50e9 / 7 / ((3072 - 384) / (3072 - 1)))


def test_other_orders_break_domains_that_span_nodes() -> None:
    topology = graph("mrc-131072")
    where = Span(1, 64)
    by_topology, by_name = (group_network(topology, Traffic(where, order)) for order in ("topology", "alphabetical"))
    assert by_topology is not None
    assert by_name is not None
    assert (by_topology.num_domains, by_name.num_domains) == (1, 16)


def test_a_group_in_a_torus_has_the_extents_of_its_axes() -> None:
    network = group_network(graph("google-tpu-v4-pod"), Traffic(Span(1, 256)))
    assert network is not None
    assert network.domain_dimensions == (16, 16)


def test_domains_that_nothing_joins_are_refused() -> None:
    topology = graph("graphcore-bow-pod256")
    with pytest.raises(ValueError, match="no fabric joins"):
        group_network(replace(topology, fabric=None), Traffic(Span(64, 4)))


def test_a_single_rank_talks_to_nobody() -> None:
    assert group_network(graph("meta-llama3-24k"), Traffic(Span(8, 1))) is None


@given(stride=st.sampled_from([1, 2, 4, 8, 16]), degree=st.integers(2, 40), block=st.integers(0, 5))
def test_groups_partition_the_ranks(stride: int, degree: int, block: int) -> None:
    where, total = Span(stride, degree), stride * degree * (block + 1)
    groups = {group_of(where, rank) for rank in range(total)}
    assert sorted(rank for group in groups for rank in group) == list(range(total))
    assert len(groups) == num_groups(where, total)


@given(size=st.integers(2, 200))
def test_each_tree_spans_the_group_and_inner_ranks_differ(size: int) -> None:
    members = tuple(range(100, 100 + size))
    roles = {rank: double_tree(members, rank) for rank in members}
    for tree in (0, 1):
        roots = [rank for rank in members if roles[rank][tree].parent is None]
        edges = {(rank, child) for rank in members for child in roles[rank][tree].children}
        assert len(roots) == 1
        assert edges == {(roles[rank][tree].parent, rank) for rank in members if rank not in roots}
        assert all(len(roles[rank][tree].children) <= 2 for rank in members)
    both = [rank for rank in members if all(role.children for role in roles[rank])]
    assert both in ([], members[:1], [members[0]])


def test_a_ring_closes() -> None:
    members = (5, 13, 21, 29)
    after = {rank: ring(members, rank).next for rank in members}
    seen, rank = [], 5
    while rank not in seen:
        seen.append(rank)
        rank = after[rank]
    assert seen == [5, 13, 21, 29]
    assert all(ring(members, after[rank]).previous == rank for rank in members)


def test_roles_name_every_axis_that_is_used() -> None:
    roles = list(roles_of(["tensor", "context", "data", "pipeline"], {"tensor": 8, "data": 4, "pipeline": 2}, 13))
    assert [(role.axis, role.members) for role in roles] == [
        ("tensor", tuple(range(8, 16))),
        ("data", (5, 13, 21, 29)),
        ("pipeline", (13, 45)),
    ]
    assert stage_edges(Span(32, 2), 13) == (None, 45)
