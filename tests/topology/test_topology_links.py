"""Links of a rank in units of one rank, and what leaves blocks, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.planner_makers import profile
from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.hardware import HostLink
from trainspec_validate.performance.costs.network import Link
from trainspec_validate.performance.costs.placement import Span
from trainspec_validate.performance.derived.job import JobNodes
from trainspec_validate.performance.derived.machine import host_rate
from trainspec_validate.performance.topology.bottlenecks import bisection_bytes_per_second, narrowings
from trainspec_validate.performance.topology.graph import (
    Block,
    Topology,
    domain_latency_seconds,
    fabric_latency_seconds,
    nic_rate,
    topology_of,
)
from trainspec_validate.performance.topology.networks import Traffic, crossed, group_network

put = msgspec.structs.replace


def graph(cluster: ClusterProfile, num_ranks: int | None = None) -> Topology:
    fabric = cluster.fabrics[0] if cluster.fabrics else None
    return topology_of(cluster, JobNodes(cluster.node_groups[0], 0), fabric, num_ranks)


def pods() -> Topology:
    """64 ranks on eight nodes of eight; two nodes make a rack, two racks a pod; an exit of 10 GB/s for a rank."""
    sizes = (("node", "node", 8), ("rack", "tier", 16), ("pod", "tier", 32))
    blocks = tuple(Block(name, kind, size, 64 // size, 10e9) for name, kind, size in sizes)  # type: ignore[arg-type]
    return replace(graph(profile("meta-llama3-24k"), 64), blocks=blocks, fabric=Link(50e9, 0.0))


def counted_all_pairs(where: Span, block: int, domain: int) -> float:
    """Of the pairs of a group with one member at rank 0 that lie in two domains, the share that lies in two blocks."""
    others = [where.stride * place for place in range(1, where.degree)]
    far = [rank for rank in others if rank // domain]
    return sum(rank // block > 0 for rank in far) / len(far)


@pytest.mark.parametrize("where", [Span(1, 64), Span(2, 32), Span(8, 8), Span(4, 16)])
def test_all_pairs_leave_blocks_as_often_as_a_count_says(where: Span) -> None:
    for crossing in crossed(pods(), Traffic(where, pattern="all-pairs")):
        assert crossing.share == pytest.approx(counted_all_pairs(where, crossing.block.num_ranks, 8))


@pytest.mark.parametrize(
    ("where", "pod"), [(Span(1, 64), 1 / 4), (Span(8, 8), 1 / 4), (Span(16, 4), 1 / 2), (Span(32, 2), 1)]
)
def test_a_ring_leaves_each_block_once(where: Span, pod: float) -> None:
    found = {crossing.block.name: crossing for crossing in crossed(pods(), Traffic(where))}
    assert found["node"].share == 1
    assert found["pod"].share == pod
    assert found["pod"].rank_bytes_per_second == 10e9 / pod


def test_other_orders_leave_a_block_as_ranks_beyond_it_do() -> None:
    # Beyond a node lie 56 ranks, beyond a rack 48 of them and beyond a pod 32, wherever members were to lie.
    for where in (Span(8, 8), Span(16, 4), Span(32, 2), Span(1, 16)):
        found = {crossing.block.name: crossing.share for crossing in crossed(pods(), Traffic(where, "scheduler"))}
        assert found == {"node": 1.0, "rack": 48 / 56, "pod": 32 / 56}


def test_a_domain_that_is_partly_used_counts() -> None:
    network = group_network(pods(), Traffic(Span(1, 12)))
    assert network is not None
    assert network.num_domains == 2


def test_what_lies_inside_a_domain_is_not_crossed() -> None:
    topology = graph(profile("mrc-131072"))
    names = [crossing.block.kind for crossing in crossed(topology, Traffic(Span(64, 2048)))]
    assert names[:2] == ["scale-up-domain", "tier"]
    one = replace(topology, num_ranks=64)
    assert group_network(one, Traffic(Span(1, 64), "alphabetical")) == group_network(one, Traffic(Span(1, 64)))


@given(
    stride=st.sampled_from([1, 2, 4, 8]),
    degree=st.sampled_from([2, 4, 8]),
    order=st.sampled_from(["topology", "scheduler"]),
)
def test_no_group_is_faster_than_its_links(stride: int, degree: int, order: str) -> None:
    network = group_network(pods(), Traffic(Span(stride, degree), order))  # type: ignore[arg-type]
    assert network is not None
    assert network.num_domains == max(1, stride * degree // 8)
    assert (network.fabric is None) == (network.num_domains == 1)
    assert network.fabric is None or network.fabric.bandwidth_bytes_per_second <= 50e9


def pairs(ranks_per_accelerator: int = 1) -> ClusterProfile:
    """Nodes of eight accelerators that fast links join two by two."""
    cluster = profile("gcp-a3-ultra-h200")
    group = cluster.node_groups[0]
    assert group.scale_up is not None
    accelerator = put(group.accelerator, num_ranks_per_accelerator=ranks_per_accelerator)
    group = put(group, accelerator=accelerator, scale_up=put(group.scale_up, domain_num_accelerators=2))
    return put(cluster, node_groups=(group,))


@pytest.mark.parametrize("ranks", [1, 2])
def test_domains_of_a_node_are_joined_by_the_host_link(ranks: int) -> None:
    cluster = pairs(ranks)
    link = cluster.node_groups[0].host_link
    assert link is not None
    rate = host_rate(link)
    assert rate is not None
    topology = graph(cluster)
    assert topology.host is not None
    assert topology.host.bandwidth_bytes_per_second == rate / ranks
    assert topology.block("scale-up-domain").leave_bytes_per_second == rate / ranks
    inside = group_network(topology, Traffic(Span(1, 8 * ranks)))
    assert inside is not None
    assert (inside.num_domains, inside.transport, inside.fabric) == (4, "other", topology.host)
    reducing = replace(topology, fabric_reduces=True, domain_reduces=True)
    near, far = (group_network(reducing, Traffic(Span(2 * ranks, degree))) for degree in (4, 8))
    assert near is not None
    assert far is not None
    assert (near.fabric_reduces, far.fabric_reduces, near.domain_reduces, far.domain_reduces) == (
        False,
        True,
        False,
        False,
    )
    across = group_network(topology, Traffic(Span(1, 16 * ranks)))
    assert across is not None
    assert (across.num_domains, across.transport, across.fabric) == (8, topology.transport, topology.fabric)


def test_a_node_that_is_one_domain_needs_no_host_link() -> None:
    assert graph(profile("meta-llama3-24k")).host is None
    assert graph(profile("mrc-131072")).host is None
    assert graph(profile("clemson-a100-pcie")).host is None


@pytest.mark.parametrize(("direct", "rate"), [(True, 50e9), (None, 50e9), (False, None)])
def test_copies_through_the_host_are_no_faster_than_its_links(direct: bool | None, rate: float | None) -> None:
    cluster = profile("gcp-a3-ultra-h200")
    group = cluster.node_groups[0]
    slow = put(group.host_link, bandwidth_bytes_per_second=20e9) if group.host_link else None
    nics = tuple(put(nic, gpu_direct=direct, host_link=None) for nic in group.nics)
    topology = graph(put(cluster, node_groups=(put(group, host_link=slow, nics=nics),)))
    assert topology.fabric is not None
    assert topology.fabric.bandwidth_bytes_per_second == (rate or 20e9)


def test_interfaces_of_other_roles_and_fabrics_carry_no_collectives() -> None:
    cluster = profile("gcp-a3-ultra-h200")
    group = cluster.node_groups[0]
    compute = next(nic for nic in group.nics if nic.role == "compute")
    more = (put(compute, name="s", role="storage"), put(compute, name="o", fabric="another"))
    topology = graph(put(cluster, node_groups=(put(group, nics=(*group.nics, *more)),)))
    assert topology.fabric == graph(cluster).fabric
    bare = graph(put(cluster, node_groups=(put(group, nics=more),)))
    assert (bare.fabric, bare.fabric_name, [block.kind for block in bare.blocks]) == (None, None, ["node"])


def test_a_stated_latency_is_kept_and_a_library_has_its_own() -> None:
    cluster = profile("gcp-a3-ultra-h200")
    fabric = cluster.fabrics[0]
    stated = graph(put(cluster, fabrics=(put(fabric, latency_seconds=7e-6),)))
    assert stated.fabric is not None
    assert stated.fabric.latency_seconds == 7e-6
    usual = graph(put(cluster, fabrics=(put(fabric, latency_seconds=None),)))
    assert usual.fabric is not None
    assert (usual.library, usual.fabric.latency_seconds) == ("nccl", 0.0)
    tpu = graph(profile("google-tpu-v4-pod"))
    assert tpu.domain is not None
    assert (tpu.library, tpu.domain.latency_seconds) == ("other", 1e-6)


def test_the_library_is_the_one_that_is_named_or_that_the_maker_ships() -> None:
    cluster = profile("gcp-a3-ultra-h200")
    group = cluster.node_groups[0]
    found = []
    for vendor, model in ((None, "nvidia-x"), (None, "amd-x"), ("amd", "nvidia-x"), (None, "x-nvidia")):
        accelerator = put(group.accelerator, vendor=vendor, model=model)
        found.append(graph(put(cluster, software=None, node_groups=(put(group, accelerator=accelerator),))).library)
    assert found == ["nccl", "rccl", "rccl", "other"]


def test_only_a_torus_has_dimensions_and_its_first_counts_ranks() -> None:
    cluster = profile("google-tpu-v4-pod")
    group = cluster.node_groups[0]
    assert group.scale_up is not None
    ring = put(cluster, node_groups=(put(group, scale_up=put(group.scale_up, topology="ring")),))
    assert graph(ring).domain_dimensions == ()
    two = put(group, accelerator=put(group.accelerator, num_ranks_per_accelerator=2))
    assert graph(put(cluster, node_groups=(two,))).domain_dimensions == (32, 16, 16)


def test_a_slot_of_unknown_rate_narrows_nothing() -> None:
    nic = profile("gcp-a3-ultra-h200").node_groups[0].nics[0]
    assert nic_rate(put(nic, host_link=HostLink(technology="other"))) == nic.rate_bytes_per_second


def test_usual_latencies_are_in_their_order() -> None:
    assert domain_latency_seconds("nvlink") < domain_latency_seconds("xgmi") < domain_latency_seconds("pcie")
    assert domain_latency_seconds("unheard-of") == 2e-6
    assert fabric_latency_seconds("unheard-of") == 10e-6
    order = ("ici", "infiniband", "efa-srd", "rocev2", "tcpxo", "tcp", "tcpx")
    times = [fabric_latency_seconds(transport) for transport in order]
    assert times == sorted(times)
    assert times[1:] == [4e-6, 27e-6, 33e-6, 64e-6, 100e-6, 500e-6]


def test_halves_of_one_domain() -> None:
    node = graph(profile("meta-llama3-24k"), 8)
    assert node.domain is not None
    assert bisection_bytes_per_second(node) == 4 * node.domain.bandwidth_bytes_per_second
    assert bisection_bytes_per_second(replace(node, domain_shape="full-mesh")) is None
    assert bisection_bytes_per_second(replace(node, domain=None)) is None
    # Four links of 45 GB/s for each rank, axes of 8 x 4: the ring along the longer axis is cut twice in four columns.
    torus = replace(
        node,
        num_ranks=32,
        domain_num_ranks=32,
        domain_shape="torus",
        domain_dimensions=(8, 4),
        domain=Link(180e9, 0),
    )
    assert bisection_bytes_per_second(torus) == 2 * 4 * 45e9
    assert bisection_bytes_per_second(replace(torus, domain_dimensions=())) is None


def test_a_block_that_loses_nothing_is_not_narrow() -> None:
    wide = replace(pods(), domain=Link(10e9, 0.0))
    assert narrowings(wide) == ()
    assert [(item.block.name, item.factor) for item in narrowings(replace(wide, domain=Link(40e9, 0.0)))] == [
        ("node", 4)
    ]


@pytest.mark.parametrize(
    ("where", "extents"),
    [
        (Span(1, 16), (16,)),
        (Span(1, 64), (16, 4)),
        (Span(1, 4096), (16, 16, 16)),
        (Span(4, 8), (4, 2)),
        (Span(16, 16), (16,)),
        (Span(256, 4), (4,)),
        (Span(8, 64), (2, 16, 2)),
    ],
)
def test_extents_in_a_torus_of_sixteen_cubed(where: Span, extents: tuple[int, ...]) -> None:
    network = group_network(graph(profile("google-tpu-v4-pod")), Traffic(where))
    assert network is not None
    assert network.domain_dimensions == extents
