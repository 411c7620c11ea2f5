"""Topology and placement: boundaries, published fabrics, and when there is nothing to judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate import validate
from trainspec_validate.model.finding import Verdict

Findings = Callable[..., set[tuple[str, str]]]
TOP = ("TS-TOP",)
BACKEND = "fabrics.0"


def fabric(**keys: Any) -> dict[str, Any]:
    return {"fabrics": [{"name": "backend", **keys}]}


def tiers(leaf: dict[str, Any], spine: dict[str, Any] | None = None) -> dict[str, Any]:
    rows = [{"name": "leaf", **leaf}]
    return fabric(tiers=rows if spine is None else [*rows, {"name": "spine", **spine}])


def nic(**keys: Any) -> dict[str, Any]:
    return {"node_groups": [{"name": "compute", "nics": [{"name": "rail", **keys}]}]}


def of(found: set[tuple[str, str]], requirement: str) -> set[str]:
    return {place for identifier, place in found if identifier == requirement}


# --- fabrics ---


@pytest.mark.parametrize(
    ("num_planes", "rate", "bad"),
    [(4, 12.5e9, False), (4, 12.6e9, False), (4, 12.7e9, True), (4, 12.5e9 / 8, True)],
)
def test_planes_add_up_within_one_per_cent(findings: Findings, num_planes: int, rate: float, bad: bool) -> None:
    cluster = fabric(num_planes=num_planes, plane_bandwidth_bytes_per_second=rate)
    expected = {f"{BACKEND}.plane_bandwidth_bytes_per_second"} if bad else set()
    assert of(findings(cluster=cluster), "TS-TOP-001") == expected


@pytest.mark.parametrize(
    ("num_per_node", "rate", "bad"),
    [(8, 50e9, False), (4, 50e9, True), (12, 50e9, True), (16, 50e9, False), (8, 6.25e9, False), (8, 25e9, True)],
)
def test_each_nic_is_in_one_plane(findings: Findings, num_per_node: int, rate: float, bad: bool) -> None:
    # DeepSeek, H800: 8 NICs of 400 Gb/s on a node, each in one of 8 planes (arXiv:2505.09343).
    cluster = fabric(num_planes=8, plane_bandwidth_bytes_per_second=rate, num_rails=None)
    cluster |= nic(num_per_node=num_per_node, rate_bytes_per_second=50e9)
    expected = {f"{BACKEND}.plane_bandwidth_bytes_per_second"} if bad else set()
    assert of(findings(cluster=cluster), "TS-TOP-001") == expected


def test_entropy_values_of_a_nic_in_one_plane(findings: Findings) -> None:
    spraying = {"mode": "packet", "num_entropy_values": 130, "out_of_order_delivery": True}
    cluster = fabric(num_planes=8, plane_bandwidth_bytes_per_second=50e9, spraying=spraying)
    cluster |= nic(num_per_node=8, rate_bytes_per_second=50e9)
    assert of(findings(cluster=cluster), "TS-TOP-001") == set()


def test_planes_of_whole_nics_add_up(findings: Findings) -> None:
    # Two tiers of 64-port switches in each of 8 planes hold 16,384 NICs (arXiv:2505.09343, section 5.1).
    leaf = {"num_ports": 64, "num_down_ports": 32, "num_up_ports": 32, "num_switches": None, "group_num_nodes": None}
    spine = {"num_ports": 64, "num_down_ports": 64, "num_switches": None}
    planes = {"num_planes": 8, "plane_bandwidth_bytes_per_second": 50e9, "num_rails": None, "topology": "fat-tree"}
    rates = {"port_bandwidth_bytes_per_second": 50e9}
    for most, bad in ((16384, False), (16385, True)):
        cluster = tiers({**leaf, **rates}, {**spine, **rates})
        cluster["fabrics"][0] |= planes | {"max_num_nics": most, "rails_joined": None, "cross_rail_traffic": None}
        cluster |= nic(num_per_node=8, rate_bytes_per_second=50e9)
        assert bool(of(findings(cluster=cluster), "TS-TOP-015")) is bad


def test_planes_need_their_rate(findings: Findings) -> None:
    assert of(findings(cluster=fabric(num_planes=4)), "TS-TOP-001") == {BACKEND}


@pytest.mark.parametrize(("values", "bad"), [(128, False), (130, True), (4, False)])
def test_entropy_values_divide(findings: Findings, values: int, bad: bool) -> None:
    spraying = {"mode": "packet", "num_entropy_values": values, "out_of_order_delivery": True}
    cluster = fabric(num_planes=4, plane_bandwidth_bytes_per_second=12.5e9, spraying=spraying)
    expected = {f"{BACKEND}.spraying.num_entropy_values"} if bad else set()
    assert of(findings(cluster=cluster), "TS-TOP-001") == expected


def test_one_plane_is_not_judged(verdict: Callable[..., Verdict]) -> None:
    assert verdict("TS-TOP-001") is Verdict.NOT_APPLICABLE
    assert verdict("TS-TOP-002") is Verdict.PASS


def test_a_number_of_rails_that_is_not_published_is_not_judged(verdict: Callable[..., Verdict]) -> None:
    assert verdict("TS-TOP-002", cluster=fabric(num_rails=None)) is Verdict.NOT_RUN


def test_rails_can_count_ports(findings: Findings) -> None:
    # Oracle BM.GPU.H100.8: 8 cards with two ports each, 16 rails.
    cluster = {**fabric(num_rails=16), **nic(num_ports=2)}
    assert of(findings(cluster=cluster), "TS-TOP-002") == set()
    assert of(findings(cluster=fabric(num_rails=16)), "TS-TOP-002") == {f"{BACKEND}.num_rails"}


def test_joined_rails_need_a_tier_that_joins(findings: Findings) -> None:
    leaf = {"name": "leaf", "num_switches": 8}
    assert of(findings(cluster=fabric(tiers=None), plan=None, checkpoint=None), "TS-TOP-003") == set()
    single = {"fabrics": [{"name": "single", "transport": "infiniband", "topology": "rail-optimised", "num_rails": 8}]}
    single["fabrics"][0] |= {"rails_joined": True, "tiers": [leaf]}
    assert of(findings(cluster=single, plan=None, checkpoint=None), "TS-TOP-003") == {"fabrics.1.rails_joined"}


@pytest.mark.parametrize("policy", ["allowed", "automatic"])
def test_unjoined_rails_forbid_crossing(findings: Findings, policy: str) -> None:
    cluster = fabric(rails_joined=False, cross_rail_traffic=policy)
    assert of(findings(cluster=cluster), "TS-TOP-003") == {f"{BACKEND}.rails_joined"}


@pytest.mark.parametrize("transport", ["efa-srd", "mrc", "uet", "slingshot"])
def test_transports_that_reorder_by_design(findings: Findings, transport: str) -> None:
    cluster = fabric(transport=transport, path_selection="packet-spraying")
    assert of(findings(cluster=cluster), "TS-TOP-004") == set()


def test_spraying_against_ordered_receivers(findings: Findings) -> None:
    refused = fabric(spraying={"mode": "packet", "out_of_order_delivery": False})
    assert of(findings(cluster=refused), "TS-TOP-004") == {f"{BACKEND}.spraying.out_of_order_delivery"}
    unknown = fabric(spraying={"mode": "packet"})
    assert of(findings(cluster=unknown), "TS-TOP-004") == {f"{BACKEND}.spraying.mode"}
    flowlets = fabric(spraying={"mode": "flowlet"})
    assert of(findings(cluster=flowlets), "TS-TOP-004") == set()


@pytest.mark.parametrize(
    ("transport", "loss", "place"),
    [
        ("rocev2", {"lossless": True, "priority_flow_control": True, "credit_flow_control": None}, None),
        ("mrc", {"lossless": False, "packet_trimming": True, "credit_flow_control": None}, None),
        ("rocev2", {"lossless": False, "credit_flow_control": None}, None),
        ("rocev2", {"lossless": True, "credit_flow_control": None}, None),
        ("rocev2", {"lossless": True, "credit_flow_control": False, "priority_flow_control": False}, "loss.lossless"),
        ("mrc", {"lossless": False, "priority_flow_control": True}, "loss.priority_flow_control"),
        ("uet", {"lossless": True, "packet_trimming": True}, "loss.packet_trimming"),
        ("infiniband", {"lossless": False}, "loss.lossless"),
    ],
)
def test_loss(findings: Findings, transport: str, loss: dict[str, Any], place: str | None) -> None:
    found = of(findings(cluster=fabric(transport=transport, loss=loss)), "TS-TOP-005")
    assert found == ({f"{BACKEND}.{place}"} if place else set())


def test_trimming_as_a_signal_needs_trimming(findings: Findings) -> None:
    cluster = fabric(congestion={"signal": "trimming"})
    assert of(findings(cluster=cluster), "TS-TOP-005") == {f"{BACKEND}.congestion.signal"}


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (
            {
                "transport": "mrc",
                "path_selection": None,
                "routing": {"mode": "source", "control_plane": "none"},
            },
            None,
        ),
        (
            {"path_selection": None, "routing": {"mode": "source", "control_plane": "bgp"}},
            "routing.control_plane",
        ),
        ({"routing": {"mode": "adaptive", "control_plane": "none"}}, "routing.control_plane"),
        ({"transport": "rocev2"}, "routing.control_plane"),
        (
            {
                "transport": "rocev2",
                "path_selection": "ecmp",
                "routing": {"mode": "ecmp", "control_plane": "bgp"},
            },
            None,
        ),
        ({"routing": {"control_plane": "bgp"}}, "routing.control_plane"),
        ({"path_selection": "ecmp"}, "path_selection"),
        ({"path_selection": "single"}, "path_selection"),
    ],
)
def test_paths(findings: Findings, keys: dict[str, Any], place: str | None) -> None:
    assert of(findings(cluster=fabric(**keys)), "TS-TOP-006") == ({f"{BACKEND}.{place}"} if place else set())


def test_latency_of_three_hops(findings: Findings) -> None:
    rows = [{"name": "leaf", "latency_seconds": 1e-6}, {"name": "spine", "latency_seconds": 1e-6}]
    for latency, bad in ((3e-6, False), (2.9e-6, True), (3e-9, True)):
        cluster = fabric(latency_seconds=latency, tiers=rows)
        assert of(findings(cluster=cluster), "TS-TOP-008") == ({f"{BACKEND}.latency_seconds"} if bad else set())


# --- tiers ---


def test_ports_at_the_radix(findings: Findings) -> None:
    place = f"{BACKEND}.tiers.0.num_ports"
    assert of(findings(cluster=tiers({"num_ports": 32})), "TS-TOP-009") == set()
    assert of(findings(cluster=tiers({"num_ports": 31})), "TS-TOP-009") == {place}
    top = tiers({}, {"num_up_ports": 4})
    assert of(findings(cluster=top), "TS-TOP-009") == {f"{BACKEND}.tiers.1.num_up_ports"}


def test_cables_have_two_ends(findings: Findings) -> None:
    for spines, bad in ((4, False), (3, True), (32, True)):
        found = of(findings(cluster=tiers({}, {"num_switches": spines})), "TS-TOP-010")
        assert found == ({f"{BACKEND}.tiers.1.num_switches"} if bad else set())
    faster = tiers({"up_port_bandwidth_bytes_per_second": 100e9, "num_up_ports": 8}, {})
    assert of(findings(cluster=faster), "TS-TOP-010") == set()


@pytest.mark.parametrize(("spines", "bad", "is_open"), [(4, False, False), (3, True, False), (2, False, True)])
def test_cables_are_counted_without_rates(
    findings: Findings, verdict: Callable[..., Verdict], spines: int, bad: bool, is_open: bool
) -> None:
    rate = {"port_bandwidth_bytes_per_second": None}
    cluster = tiers(rate, {**rate, "num_switches": spines})
    assert of(findings(cluster=cluster), "TS-TOP-010") == ({f"{BACKEND}.tiers.1.num_switches"} if bad else set())
    wanted = Verdict.FAIL if bad else Verdict.NOT_RUN if is_open else Verdict.PASS
    assert verdict("TS-TOP-010", cluster=cluster) is wanted


@pytest.mark.parametrize("absent", ["num_down_ports", "num_switches"])
def test_a_count_that_is_absent_between_two_tiers_is_not_judged(verdict: Callable[..., Verdict], absent: str) -> None:
    assert verdict("TS-TOP-010", cluster=tiers({}, {absent: None})) is Verdict.NOT_RUN


def test_all_counts_that_are_absent_are_named(findings: Findings, tmp_path: Path) -> None:
    findings(cluster=tiers({"num_switches": None, "num_up_ports": None}, {"num_down_ports": None}))
    (entry,) = [entry for entry in validate([tmp_path]).unjudged if "TS-TOP-010" in entry.requirements]
    assert entry.help == "add num_switches and num_up_ports of leaf, num_down_ports of spine"


NO_RATE: dict[str, Any] = {"port_bandwidth_bytes_per_second": None}


@pytest.mark.parametrize(
    ("requirement", "cluster"),
    [
        ("TS-TOP-011", tiers(NO_RATE, {})),
        ("TS-TOP-014", tiers({**NO_RATE, "group_num_nodes": 8}, NO_RATE)),
        ("TS-TOP-015", fabric(max_num_nics=128, tiers=[{"name": "leaf", **NO_RATE}, {"name": "spine", **NO_RATE}])),
        ("TS-TOP-015", fabric(max_num_nics=128, tiers=[{"name": "leaf", "num_down_ports": None}, {"name": "spine"}])),
    ],
)
def test_a_figure_of_the_tiers_that_is_absent_is_not_judged(
    verdict: Callable[..., Verdict], requirement: str, cluster: dict[str, Any]
) -> None:
    assert verdict(requirement, cluster=cluster) is Verdict.NOT_RUN


@pytest.mark.parametrize("rate", [{}, {"port_bandwidth_bytes_per_second": None}])
def test_a_tier_without_ports_up_has_none_above_it(findings: Findings, rate: dict[str, None]) -> None:
    found = findings(cluster=tiers({"num_up_ports": 0, **rate}, rate))
    assert of(found, "TS-TOP-010") == {f"{BACKEND}.tiers.1.num_switches"}


@pytest.mark.parametrize(("leaves", "bad"), [(4, False), (3, True), (32, False), (33, True)])
def test_every_group_has_a_leaf(findings: Findings, leaves: int, bad: bool) -> None:
    cluster = tiers({"num_switches": leaves, "group_num_nodes": 4}, {})
    assert of(findings(cluster=cluster), "TS-TOP-012") == ({f"{BACKEND}.tiers.0.num_switches"} if bad else set())


@pytest.mark.parametrize(("rate", "bad"), [(50e9, False), (50e9 / 8, True), (100e9, False)])
def test_leaf_ports_are_as_fast_as_nics(findings: Findings, rate: float, bad: bool) -> None:
    found = of(findings(cluster=tiers({"port_bandwidth_bytes_per_second": rate})), "TS-TOP-011")
    assert (f"{BACKEND}.tiers.0.port_bandwidth_bytes_per_second" in found) is bad


def test_two_nics_share_a_split_port(findings: Findings) -> None:
    # MegaScale: NICs of 200 Gb/s, two to a port of 400 Gb/s.
    cluster = {**tiers({"num_down_ports": 8}), **nic(rate_bytes_per_second=25e9)}
    assert of(findings(cluster=cluster), "TS-TOP-011") == set()


def test_mrc_two_tiers(findings: Findings) -> None:
    # 64 ports of 800 Gb/s run as 512 of 100 Gb/s; eight planes; 131,072 NICs (arXiv:2605.04333).
    shape = {
        "transport": "mrc",
        "topology": "fat-tree",
        "num_rails": None,
        "rails_joined": None,
        "cross_rail_traffic": None,
        "num_planes": 8,
        "plane_bandwidth_bytes_per_second": 12.5e9,
        "path_selection": "packet-spraying",
        "spraying": {"mode": "packet", "num_entropy_values": 256, "out_of_order_delivery": True},
        "routing": {"mode": "source", "control_plane": "none"},
        "loss": {"lossless": False, "credit_flow_control": None, "packet_trimming": True},
        "congestion": {"signal": "ecn", "placement": "sender"},
        "max_num_nics": 131072,
    }
    ports = {"num_ports": 512, "port_bandwidth_bytes_per_second": 12.5e9, "num_switches": None}
    leaf = {"name": "leaf", **ports, "num_down_ports": 256, "num_up_ports": 256, "group_num_nodes": None}
    spine = {"name": "spine", **ports, "num_down_ports": 512}
    cluster = {**fabric(**shape, tiers=[leaf, spine]), **nic(rate_bytes_per_second=100e9)}
    found = findings(cluster=cluster)
    assert {identifier for identifier, _ in found if identifier.startswith("TS-TOP")} == set()
    more = {
        **fabric(**{**shape, "max_num_nics": 131073}, tiers=[leaf, spine]),
        **nic(rate_bytes_per_second=100e9),
    }
    assert of(findings(cluster=more), "TS-TOP-015") == {f"{BACKEND}.max_num_nics"}


def test_a_fabric_that_is_full_already(findings: Findings) -> None:
    assert of(findings(cluster=fabric(max_num_nics=128)), "TS-TOP-015") == set()
    assert of(findings(cluster=fabric(max_num_nics=127)), "TS-TOP-015") == {f"{BACKEND}.max_num_nics"}


def test_leaves_per_group(findings: Findings) -> None:
    for leaves, spines, bad in ((8, 4, False), (9, 4, True)):
        found = of(findings(cluster=tiers({"num_switches": leaves}, {"num_switches": spines})), "TS-TOP-012")
        assert found == ({f"{BACKEND}.tiers.0.num_switches"} if bad else set())


@pytest.mark.parametrize(("stated", "bad"), [(1, False), (1.02, False), (1.03, True), (0.5, True), (8, True)])
def test_oversubscription_within_two_per_cent(findings: Findings, stated: float, bad: bool) -> None:
    found = of(findings(cluster=tiers({"oversubscription": stated})), "TS-TOP-013")
    assert found == ({f"{BACKEND}.tiers.0.oversubscription"} if bad else set())


@pytest.mark.parametrize(
    ("tier", "bad"),
    [
        ({"num_up_ports": None, "oversubscription": 7}, False),
        ({"num_up_ports": None, "oversubscription": 1}, False),
        ({"num_up_ports": None, "oversubscription": 0.985}, False),
        ({"num_up_ports": None, "oversubscription": 0.97}, True),
        ({"num_down_ports": None, "num_up_ports": None, "oversubscription": 0.143}, True),
        ({"num_down_ports": 31, "num_up_ports": 32, "oversubscription": 0.97}, False),
    ],
)
def test_a_ratio_without_ports_is_no_inverse(findings: Findings, tier: dict[str, Any], bad: bool) -> None:
    found = of(findings(cluster=tiers(tier)), "TS-TOP-028")
    assert found == ({f"{BACKEND}.tiers.0.oversubscription"} if bad else set())


def test_published_oversubscription(findings: Findings) -> None:
    # Alibaba HPN: 128 ports of 200 Gb/s down, 60 of 400 up, 1.067:1.
    leaf = {"num_ports": 188, "num_down_ports": 128, "num_up_ports": 60, "oversubscription": 1.067}
    rates = {"port_bandwidth_bytes_per_second": 25e9, "up_port_bandwidth_bytes_per_second": 50e9}
    assert of(findings(cluster=tiers(leaf | rates)), "TS-TOP-013") == set()
    assert of(findings(cluster=tiers({}, {"oversubscription": 1})), "TS-TOP-013") == {
        f"{BACKEND}.tiers.1.oversubscription"
    }


@pytest.mark.parametrize(
    ("leaf", "spine", "place"),
    [
        (2, 16, None),
        (2, 8, 1),
        (3, 16, None),
        (3, 8, 1),
        (8, 4, 1),
        (16, None, None),
        (17, None, 0),
        (128, None, 0),
        (16, 512, None),
        (16, 528, 1),
    ],
)
def test_groups_nest(findings: Findings, leaf: int, spine: int | None, place: int | None) -> None:
    found = of(findings(cluster=tiers({"group_num_nodes": leaf}, {"group_num_nodes": spine})), "TS-TOP-014")
    assert found == (set() if place is None else {f"{BACKEND}.tiers.{place}.group_num_nodes"})


@pytest.mark.parametrize(
    ("spine", "expected"),
    [
        ({"group_num_nodes": 8, "num_up_ports": 0}, Verdict.FAIL),
        ({"group_num_nodes": 8, "num_up_ports": None}, Verdict.NOT_RUN),
        ({"group_num_nodes": 8, "num_up_ports": 4}, Verdict.PASS),
        ({"group_num_nodes": 8, "num_up_ports": None, "oversubscription": 2}, Verdict.PASS),
        ({"group_num_nodes": 16, "num_up_ports": 0}, Verdict.PASS),
    ],
)
def test_groups_of_the_last_tier_meet(
    verdict: Callable[..., Verdict], spine: dict[str, int | None], expected: Verdict
) -> None:
    assert verdict("TS-TOP-014", cluster=tiers({"group_num_nodes": 4}, spine)) is expected


def test_the_dump_with_missing_uplinks(findings: Findings, verdict: Callable[..., Verdict]) -> None:
    # 31 leaves, nominally 18 uplinks; 12 have fewer (NVIDIA/topograph, ibnetdiscover sample).
    links = [18] * 19 + [16] * 7 + [17] * 2 + [15] * 2 + [14]
    leaf = {"num_up_ports": 18, "num_switches": 31, "uplinks_found": links}
    assert of(findings(cluster=tiers(leaf)), "TS-TOP-016") == {f"{BACKEND}.tiers.0.uplinks_found"}
    assert of(findings(cluster=tiers({**leaf, "num_up_ports": None})), "TS-TOP-016") != set()
    assert of(findings(cluster=tiers({**leaf, "uplinks_found": [18] * 31})), "TS-TOP-016") == set()
    assert of(findings(cluster=tiers({**leaf, "uplinks_found": [18] * 30})), "TS-TOP-016") != set()
    assert verdict("TS-TOP-016") is Verdict.NOT_APPLICABLE


def test_a_dragonfly_has_no_top(findings: Findings) -> None:
    leaf = {
        "name": "leaf",
        "num_ports": 64,
        "num_down_ports": 16,
        "num_up_ports": 17,
        "oversubscription": None,
    }
    cluster = fabric(topology="dragonfly", num_rails=None, rails_joined=None, tiers=[leaf])
    assert {i for i, _ in findings(cluster=cluster) if i in {"TS-TOP-009", "TS-TOP-010"}} == set()


def test_no_fabric_is_nothing_to_judge(verdict: Callable[..., Verdict]) -> None:
    for number in (*range(1, 10), *range(10, 17)):
        assert verdict(f"TS-TOP-{number:03}", cluster={"fabrics": None}) is Verdict.NOT_APPLICABLE


# --- placement ---


def second_group() -> dict[str, Any]:
    accelerator = {"model": "nvidia-h100-sxm-80gb", "memory_bytes": 80e9}
    extra = {"name": "old", "num_nodes": 4, "num_accelerators_per_node": 8, "accelerator": accelerator}
    return {"num_nodes": 20, "num_accelerators": 160, "node_groups": [extra]}


def test_several_groups_need_a_choice(findings: Findings) -> None:
    assert of(findings(cluster=second_group()), "TS-TOP-017") == {"parallelism.num_accelerators"}
    assert of(findings(cluster=second_group(), plan="node_group: compute"), "TS-TOP-017") == set()
    assert of(findings(cluster=second_group(), plan="node_group: gpu"), "TS-TOP-017") == {"node_group"}


@pytest.mark.parametrize(("ranks", "topology", "bad"), [(4, "switched", False), (12, "switched", True)])
def test_whole_nodes(findings: Findings, ranks: int, topology: str, bad: bool) -> None:
    plan = {"parallelism": {"num_accelerators": ranks}}
    assert bool(of(findings(plan=plan), "TS-TOP-018")) is bad


@pytest.mark.parametrize(("ranks", "bad"), [(8, False), (16, False), (2, True), (4, True), (12, True), (1, False)])
def test_whole_meshes(findings: Findings, ranks: int, bad: bool) -> None:
    cluster = {"node_groups": [{"name": "compute", "scale_up": {"topology": "full-mesh"}}]}
    plan = {"parallelism": {"num_accelerators": ranks}}
    assert bool(of(findings(cluster=cluster, plan=plan), "TS-TOP-018")) is bad


@pytest.mark.parametrize(
    ("domain", "used", "tensor", "bad"),
    [
        (8, None, 8, False),
        (72, None, 8, False),
        (72, None, 16, True),
        (72, 64, 16, False),
        (8, None, 16, True),
    ],
)
def test_tensor_groups_in_racks(findings: Findings, domain: int, used: int | None, tensor: int, bad: bool) -> None:
    scale_up = {"domain_num_accelerators": domain, "used_num_accelerators": used}
    cluster = {"node_groups": [{"name": "compute", "scale_up": scale_up}]}
    plan = {"parallelism": {"tensor": tensor, "pipeline": 2}}
    assert bool(of(findings(cluster=cluster, plan=plan), "TS-TOP-019")) is bad


def test_a_placement_on_the_fabric_takes_tensor_groups_out(findings: Findings) -> None:
    def found(**placement: str) -> set[str]:
        plan = {"parallelism": {"placements": [{"axis": "tensor", **placement}]}}
        return of(findings(plan=plan), "TS-TOP-019")

    assert found(within="fabric") == {"parallelism.placements.0.within"}
    assert found(within="fabric", reason="Switches of one rack are as fast.") == set()
    assert found(within="scale-up-domain") == found(within="node") == set()


def test_a_reason_lets_tensor_groups_out(findings: Findings) -> None:
    placements = [{"axis": "tensor", "within": "fabric", "reason": "Two nodes share a cable tray."}]
    plan = {"parallelism": {"tensor": 16, "placements": placements}}
    assert of(findings(plan=plan), "TS-TOP-019") == set()


def test_two_ranks_on_one_package(findings: Findings) -> None:
    # MI250X: four packages with two dies each are eight ranks.
    group = {
        "name": "compute",
        "num_accelerators_per_node": 4,
        "accelerator": {"num_ranks_per_accelerator": 2},
        "scale_up": {"domain_num_accelerators": 4},
    }
    assert of(findings(cluster={"node_groups": [group]}), "TS-TOP-019") == set()


@pytest.mark.parametrize(
    ("order", "axis", "within", "bad"),
    [
        (["tensor", "data", "pipeline"], "tensor", "node", False),
        (["data", "tensor", "pipeline"], "tensor", "node", True),
        (["data", "tensor", "pipeline"], "data", "node", False),
        (["tensor", "data", "pipeline"], "pipeline", "scale-up-domain", True),
        (["tensor", "data", "pipeline"], "pipeline", "fabric", False),
    ],
)
def test_placement_follows_order(findings: Findings, order: list[str], axis: str, within: str, bad: bool) -> None:
    plan = {"parallelism": {"order": order, "placements": [{"axis": axis, "within": within}]}}
    found = of(findings(plan=plan), "TS-TOP-020")
    assert found == ({"parallelism.placements.0.within"} if bad else set())


@pytest.mark.parametrize(
    ("placement", "key"),
    [
        ({"axis": "data", "within": "fabric", "fabric_tier": "leaf"}, None),
        ({"axis": "data", "within": "fabric", "fabric_tier": "leef"}, "fabric_tier"),
        ({"axis": "data", "within": "node", "fabric_tier": "leaf"}, "fabric_tier"),
    ],
)
def test_tiers_of_placements(findings: Findings, placement: dict[str, Any], key: str | None) -> None:
    found = of(findings(plan={"parallelism": {"placements": [placement]}}), "TS-TOP-020")
    assert found == ({f"parallelism.placements.0.{key}"} if key else set())


def test_a_tier_that_is_too_small(findings: Findings) -> None:
    placements = [{"axis": "data", "within": "fabric", "fabric_tier": "leaf"}]
    for nodes, bad in ((4, False), (2, True)):
        found = findings(cluster=tiers({"group_num_nodes": nodes}), plan={"parallelism": {"placements": placements}})
        assert bool(of(found, "TS-TOP-020")) is bad


def test_an_axis_is_placed_once(findings: Findings) -> None:
    placements = [{"axis": "tensor", "within": "node"}, {"axis": "tensor", "within": "fabric"}]
    assert of(findings(plan={"parallelism": {"placements": placements}}), "TS-TOP-020") == {"parallelism.placements.1"}


@pytest.mark.parametrize(("expert_tensor", "bad"), [(1, False), (None, True)])
def test_expert_groups_replace_tensor_ranks(findings: Findings, expert_tensor: int | None, bad: bool) -> None:
    # Eight experts over eight ranks fill a node only where an expert is not split.
    placements = [{"axis": "expert", "within": "node"}]
    parallelism = {
        "expert": 8,
        "expert_tensor": expert_tensor,
        "data": 8,
        "pipeline": 2,
        "placements": placements,
    }
    found = findings(plan={"parallelism": parallelism})
    assert bool(of(found, "TS-TOP-020")) is bad


@pytest.mark.parametrize(("ranks", "bad"), [(2, False), (1, True)])
def test_the_dies_of_a_package_need_no_scale_up_domain(findings: Findings, ranks: int, bad: bool) -> None:
    accelerator = {"num_ranks_per_accelerator": ranks}
    group = {"name": "compute", "num_accelerators_per_node": 4, "accelerator": accelerator, "scale_up": None}
    plan = {"parallelism": {"tensor": 2, "placements": None}}
    assert bool(of(findings(cluster={"node_groups": [group]}, plan=plan), "TS-TOP-019")) is bad


def test_no_scale_up_domain_to_place_in(findings: Findings) -> None:
    cluster = {"node_groups": [{"name": "compute", "scale_up": None}]}
    found = findings(cluster=cluster)
    assert of(found, "TS-TOP-020") == {"parallelism.placements.0.within"}
    assert of(found, "TS-TOP-019") == {"parallelism.tensor"}


@pytest.mark.parametrize(
    ("order", "bad"),
    [
        (["tensor", "context", "pipeline", "data"], False),
        (["tensor", "context", "expert", "data", "pipeline"], False),
        (["context", "tensor", "data", "pipeline"], True),
        (["tensor", "pipeline", "context", "data"], True),
    ],
)
def test_published_orders(findings: Findings, order: list[str], bad: bool) -> None:
    # Llama 3 and Megatron-LM in the first two rows.
    plan = {"parallelism": {"order": order, "context": 2, "data": 2}}
    assert bool(of(findings(plan=plan), "TS-TOP-021")) is bad


def test_rank_order_matters_beyond_one_leaf(findings: Findings, verdict: Callable[..., Verdict]) -> None:
    small = tiers({"group_num_nodes": 4})
    for order, bad in (("topology", False), ("scheduler", True), ("alphabetical", True)):
        plan = {"parallelism": {"rank_order": order}}
        assert bool(of(findings(cluster=small, plan=plan), "TS-TOP-022")) is bad
        assert of(findings(plan=plan), "TS-TOP-022") == set()
    assert verdict("TS-TOP-022", plan={"parallelism": {"rank_order": None}}) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(("ratio", "nodes", "bad"), [(2, 2, False), (7, 2, True), (7, 4, False), (7, 16, False)])
def test_data_groups_below_a_narrow_tier(findings: Findings, ratio: float, nodes: int, bad: bool) -> None:
    cluster = tiers({"group_num_nodes": nodes, "oversubscription": ratio})
    assert bool(of(findings(cluster=cluster), "TS-TOP-023")) is bad


def test_reasons_and_hierarchy_cross_a_narrow_tier(findings: Findings) -> None:
    cluster = tiers({"group_num_nodes": 2, "oversubscription": 7})
    placements = [{"axis": "data", "within": "fabric", "reason": "Gathers are fetched two layers ahead."}]
    assert of(findings(cluster=cluster, plan={"parallelism": {"placements": placements}}), "TS-TOP-023") == set()
    plan = {"communication": {"hierarchical_reduction": True}}
    assert of(findings(cluster=cluster, plan=plan), "TS-TOP-023") == set()


@pytest.mark.parametrize(
    ("tier", "place"),
    [
        ({"num_switches": 128, "port_bandwidth_bytes_per_second": 50e9}, set()),
        ({"num_switches": 129}, {("TS-TOP-012", "fabrics.0.tiers.0.num_switches")}),
        (
            {"port_bandwidth_bytes_per_second": 6.25e9},
            {("TS-TOP-011", "fabrics.0.tiers.0.port_bandwidth_bytes_per_second")},
        ),
    ],
)
def test_first_tier_of_any_topology(findings: Findings, tier: dict[str, Any], place: set[tuple[str, str]]) -> None:
    """16 nodes with 8 NICs have 128 cables, whatever the switches form."""
    leaf = {"name": "leaf", "group_num_nodes": None, **tier}
    cluster = {"fabrics": [{"name": "backend", "topology": "other", "tiers": [leaf]}]}
    found = findings(cluster=cluster, select=("TS-TOP-011", "TS-TOP-012"))
    assert {item for item in found if item[1].startswith("fabrics.0.tiers")} == place
