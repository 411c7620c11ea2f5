"""The graph of a machine: links of a rank, nested blocks, and what is narrow or uneven in it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.every import every
from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import ClusterProfile, read
from trainspec_validate.documents.types.fabric import ExplicitDevice, ExplicitNode, Layout
from trainspec_validate.documents.types.hardware import HostLink
from trainspec_validate.performance.derived.job import JobNodes
from trainspec_validate.performance.topology.bottlenecks import bisection_bytes_per_second, narrowings, unlike_nodes
from trainspec_validate.performance.topology.graph import Topology, nic_rate, topology_of

CLUSTERS = Path(__file__).resolve().parents[2] / "examples" / "clusters"


def profile(name: str) -> ClusterProfile:
    document = read("ClusterProfile", load_file(CLUSTERS / f"{name}.yaml").data)
    assert isinstance(document, ClusterProfile)
    return document


def graph(name: str, num_ranks: int | None = None) -> Topology:
    cluster = profile(name)
    return topology_of(
        cluster, JobNodes(cluster.node_groups[0], 0), cluster.fabrics[0] if cluster.fabrics else None, num_ranks
    )


def test_pods_share_what_leaves_them() -> None:
    topology = graph("meta-llama3-24k")
    assert [(block.name, block.num_ranks, block.num_blocks) for block in topology.blocks] == [
        ("node", 8, 3072),
        ("rack", 16, 1536),
        ("pod", 3072, 8),
        ("core", 24576, 1),
    ]
    assert topology.block("rack").leave_bytes_per_second == 50e9
    assert topology.block("pod").leave_bytes_per_second == pytest.approx(50e9 / 7)
    assert topology.block("core").leave_bytes_per_second is None


def test_a_job_in_one_pod_leaves_none() -> None:
    assert graph("meta-llama3-24k", 2048).block("pod").leave_bytes_per_second is None


def test_a_domain_of_several_nodes_holds_them() -> None:
    topology = graph("mrc-131072")
    assert [block.kind for block in topology.blocks] == ["node", "scale-up-domain", "tier", "tier"]
    assert (topology.domain_num_ranks, topology.physical_domain_num_ranks) == (64, 72)
    assert topology.block("node").leave_bytes_per_second == 900e9


def test_ranks_of_a_package_share_its_links() -> None:
    topology = graph("frontier")
    assert topology.domain is not None
    assert topology.fabric is not None
    assert topology.domain.bandwidth_bytes_per_second == 350e9 / 2
    assert topology.fabric.bandwidth_bytes_per_second == 4 * 25e9 / 8


def test_accelerators_without_fast_links_talk_over_the_host() -> None:
    topology = graph("clemson-a100-pcie")
    assert topology.domain is not None
    assert topology.domain.bandwidth_bytes_per_second == 31e9
    assert topology.domain_num_ranks == 2


def test_an_unknown_rate_stays_unknown() -> None:
    assert graph("graphcore-bow-pod256").domain is None


def test_a_slot_narrows_its_interface() -> None:
    nic = profile("dgx-superpod-h100").node_groups[0].nics[0]
    slot = HostLink(technology="pcie", generation=3, num_lanes=16)
    assert nic_rate(msgspec.structs.replace(nic, host_link=slot)) == 15.75e9
    shared = HostLink(
        technology="pcie",
        generation=5,
        num_lanes=16,
        num_devices_per_upstream_link=4,
        upstream_bandwidth_bytes_per_second=64e9,
    )
    assert nic_rate(msgspec.structs.replace(nic, host_link=shared)) == 16e9


def test_an_interface_on_the_other_socket_is_as_fast_as_the_link_between_them() -> None:
    nic = profile("dgx-superpod-h100").node_groups[0].nics[0]
    assert nic_rate(msgspec.structs.replace(nic, accelerator_path="SYS")) == 22e9
    assert nic_rate(msgspec.structs.replace(nic, accelerator_path="PIX")) == nic.rate_bytes_per_second


def test_bisection_is_cut_between_the_largest_blocks() -> None:
    assert bisection_bytes_per_second(graph("meta-llama3-24k")) == pytest.approx(24576 / 2 * 50e9 / 7)
    assert bisection_bytes_per_second(graph("mrc-131072")) == 131072 / 2 * 100e9
    assert bisection_bytes_per_second(graph("google-tpu-v4-pod")) == 2 * 4096 / 16 * 45e9


def test_the_narrowest_block_comes_first() -> None:
    found = narrowings(graph("meta-llama3-24k"))
    assert [(item.block.name, round(item.factor, 3)) for item in found] == [("node", 9.0), ("pod", 7.0)]


def explicit(name: str, nics: dict[int, int], rate: float = 50e9) -> ExplicitNode:
    return ExplicitNode(
        name=name,
        group="h100",
        accelerators=tuple(ExplicitDevice(name=f"gpu{i}", numa_node=i // 4) for i in range(8)),
        nics=tuple(
            ExplicitDevice(name=f"mlx{numa}{i}", numa_node=numa, rate_bytes_per_second=rate)
            for numa, count in nics.items()
            for i in range(count)
        ),
    )


def test_nodes_with_uneven_interfaces_are_found() -> None:
    cluster = profile("meta-llama3-24k")
    nodes = (explicit("even", {0: 4, 1: 4}), explicit("uneven", {0: 4}), explicit("few", {0: 2, 1: 2}))
    found = list(unlike_nodes(msgspec.structs.replace(cluster, layout=Layout(nodes=nodes))))
    assert [(node.name, node.index, node.nics_per_numa_node) for node in found] == [
        ("uneven", 1, ((0, 4, 4), (1, 4, 0)))
    ]
    assert not list(unlike_nodes(cluster))


def test_nodes_with_unlike_rates_are_found() -> None:
    cluster = profile("meta-llama3-24k")
    slow = explicit("slow", {0: 1, 1: 1}, rate=25e9).nics
    mixed = msgspec.structs.replace(explicit("mixed", {0: 1, 1: 1}), nics=(*explicit("", {0: 1, 1: 1}).nics, *slow))
    silent = tuple(msgspec.structs.replace(nic, rate_bytes_per_second=None) for nic in slow)
    unknown = msgspec.structs.replace(mixed, name="unknown", nics=(*mixed.nics[:2], *silent))
    bare = msgspec.structs.replace(explicit("bare", {0: 4}), accelerators=())
    plain = msgspec.structs.replace(explicit("plain", {0: 4}), nics=())
    layout = Layout(nodes=(mixed, unknown, bare, plain))
    found = list(unlike_nodes(msgspec.structs.replace(cluster, layout=layout)))
    assert [(node.name, node.nic_rates_bytes_per_second) for node in found] == [("mixed", (25e9, 50e9))]


@every("path", sorted(CLUSTERS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_has_nested_blocks(path: Path) -> None:
    topology = graph(path.stem)
    sizes = [block.num_ranks for block in topology.blocks]
    assert sizes == sorted(sizes)
    assert topology.blocks
    assert topology.num_ranks == topology.blocks[0].num_blocks * topology.blocks[0].num_ranks


def coherent(num_per_node: int) -> Topology:
    """The first node group of an example without a scale-up domain, on a coherent host link of 450 GB/s."""
    cluster = profile("meta-llama3-24k")
    group = msgspec.structs.replace(
        cluster.node_groups[0],
        scale_up=None,
        num_accelerators_per_node=num_per_node,
        host_link=HostLink(technology="nvlink-c2c", bandwidth_bytes_per_second=450e9),
    )
    return topology_of(cluster, JobNodes(group, 0), cluster.fabrics[0])


def test_a_coherent_host_link_makes_no_domain() -> None:
    alone = coherent(1)
    assert (alone.domain, alone.domain_num_ranks, alone.has_scale_up) == (None, 1, False)
    four = coherent(4)
    assert four.domain is not None
    assert four.domain.bandwidth_bytes_per_second < 50e9
