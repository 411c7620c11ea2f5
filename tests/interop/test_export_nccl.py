"""The environment of NCCL and RCCL: every variable that a document implies, and none besides."""

from __future__ import annotations

import doctest
import shlex
import subprocess
from typing import Any

import pytest
from export_jobs import DELETED, job, unknown_requirements
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.interop.document import NotExpressible
from trainspec_validate.interop.writers import _target, nccl_environment
from trainspec_validate.interop.writers.nccl_environment import ib_timeout, settings, write

AMD = {"node_groups.0.accelerator.model": "amd-mi300x-192gb"}
ROCE = {"fabrics.0.transport": "rocev2", "node_groups.0.nics.0.technology": "ethernet"}
KNOWN = {
    # NCCL 2.30.7: NCCL_PARAM and ncclGetEnv in src/
    *("NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_IB_GID_INDEX", "NCCL_IB_TIMEOUT", "NCCL_NET_GDR_LEVEL"),
    *("NCCL_CROSS_NIC", "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE", "NCCL_TOPO_FILE", "NCCL_ALGO", "NCCL_PROTO"),
    # aws-ofi-nccl 1.21.1: doc/efa-env-var.md
    *("FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA"),
    # PyTorch: torch_nccl_environment_variables.md, c10/core/AllocatorConfig
    *("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "PYTORCH_ALLOC_CONF"),
}


def values(plan: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> dict[str, str]:
    return {setting.name: setting.value for setting in settings(job(plan, cluster))[0]}


def told(plan: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> str:
    return "\n".join(settings(job(plan, cluster))[1])


def test_worked_examples() -> None:
    for module in (nccl_environment, _target):
        result = doctest.testmod(module)
        assert result.attempted >= 1
        assert result.failed == 0


def test_the_interfaces_of_collectives_are_named_exactly_and_no_others() -> None:
    assert values() == {"NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_10,mlx5_11"}
    assert told() == ""


@pytest.mark.parametrize(
    ("plan", "cluster", "expected"),
    [
        ({}, ROCE | {"node_groups.0.nics.0.gid_index": 3}, {"NCCL_IB_GID_INDEX": "3"}),
        ({}, {"node_groups.0.nics.0.gid_index": 3}, {"NCCL_IB_GID_INDEX": None}),
        ({}, {"fabrics.0.transport": "tcp"}, {"NCCL_SOCKET_IFNAME": "=mlx5_0,mlx5_1,mlx5_10,mlx5_11"}),
        ({}, {"fabrics.0.transport": "efa-srd"}, {"FI_PROVIDER": "efa", "NCCL_IB_HCA": None}),
        (
            {},
            {"fabrics.0.transport": "efa-srd", "node_groups.0.nics.0.gpu_direct": True},
            {"FI_EFA_USE_DEVICE_RDMA": "1"},
        ),
        ({}, {"node_groups.0.nics.0.gpu_direct_level": "PXB"}, {"NCCL_NET_GDR_LEVEL": "PXB"}),
        ({}, {"node_groups.0.nics.0.gpu_direct_level": "NET"}, {"NCCL_NET_GDR_LEVEL": None}),
        ({}, {"node_groups.0.nics.0.gpu_direct": False}, {"NCCL_NET_GDR_LEVEL": "LOC"}),
        ({}, {"fabrics.0.cross_rail_traffic": "forbidden"}, {"NCCL_CROSS_NIC": "0"}),
        ({}, {"fabrics.0.cross_rail_traffic": "allowed"}, {"NCCL_CROSS_NIC": "1"}),
        ({}, {"fabrics.0.cross_rail_traffic": "automatic"}, {"NCCL_CROSS_NIC": "2"}),
        ({}, {"node_groups.0.scale_up.in_network_reduction": False}, {"NCCL_NVLS_ENABLE": "0"}),
        ({}, {"node_groups.0.scale_up.in_network_reduction": True}, {"NCCL_NVLS_ENABLE": None}),
        ({}, AMD | {"node_groups.0.scale_up.in_network_reduction": False}, {"NCCL_NVLS_ENABLE": None}),
        ({}, {"fabrics.0.failover_seconds": 1}, {"NCCL_IB_TIMEOUT": None}),
        ({}, {"fabrics.0.failover_seconds": 45}, {"NCCL_IB_TIMEOUT": "21"}),
        ({}, {"node_groups.0.host.topology_file": "/etc/topo.xml"}, {"NCCL_TOPO_FILE": "/etc/topo.xml"}),
        (
            {"communication.timeout_seconds": 29.5},
            {},
            {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "30", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"},
        ),
        (
            {"memory": {"activation_policy": "none", "allocator": "expandable-segments"}},
            {},
            {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
        ),
        ({"communication.nic_names": ["store"], "communication.fabric": "back"}, {}, {"NCCL_IB_HCA": None}),
    ],
)
def test_a_key_becomes_its_variable(
    plan: dict[str, Any], cluster: dict[str, Any], expected: dict[str, str | None]
) -> None:
    found = values(plan, cluster)
    assert {name: found.get(name) for name in expected} == expected
    assert set(found) <= KNOWN


@pytest.mark.parametrize(
    ("plan", "cluster", "words"),
    [
        ({}, {"node_groups.0.nics.0.devices": ["mlx5_0"]}, "lists no devices"),
        ({}, {"node_groups.0.nics.0.gpu_direct_level": "NET"}, "gpu_direct_level is NET"),
        ({}, {"fabrics.0.transport": "slingshot"}, "back uses slingshot"),
        ({}, {"node_groups.0.nics.0.fabric": DELETED}, "is not decided"),
        ({"communication.library.name": "ncclx"}, {}, "the library is ncclx"),
        ({"communication.timeout_seconds": 30}, {}, "timedelta(seconds=30)"),
        ({}, {"node_groups.0.host.topology_file": "a\nb"}, "line break"),
    ],
)
def test_what_no_variable_can_say_is_told(plan: dict[str, Any], cluster: dict[str, Any], words: str) -> None:
    assert words in told(plan, cluster)


RING = {"operation": "all-reduce", "algorithm": "ring"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([RING | {"axis": "data"}, RING | {"axis": "tensor"}], "allreduce:ring"),
        ([RING | {"axis": "data"}], "hold for tensor ranks too"),
        ([RING | {"axis": "data", "max_bytes": 1e6}, RING | {"axis": "tensor"}], "a choice per size"),
        ([RING | {"axis": "data"}, RING | {"axis": "tensor", "algorithm": "tree"}], "a choice per group"),
        ([{"operation": "all-to-all", "axis": "data", "algorithm": "pairwise"}], "says nothing of all-to-all"),
        ([RING | {"axis": a, "algorithm": "halving-doubling"} for a in ("data", "tensor")], "no halving-doubling"),
        ([RING | {"axis": a, "operation": "all-gather", "algorithm": "tree"} for a in ("data", "tensor")], "no tree"),
        ([RING | {"axis": a, "algorithm": "in-network"} for a in ("data", "tensor")], "reduces in the fabric"),
        ([RING | {"axis": a, "algorithm": "automatic"} for a in ("data", "tensor")], ""),
        (
            [RING | {"axis": a} for a in ("data", "tensor")]
            + [{"operation": "reduce-scatter", "axis": a, "algorithm": "ring"} for a in ("data", "tensor")],
            "allreduce:ring;reducescatter:ring",
        ),
    ],
)
def test_algorithms_are_forced_only_where_one_holds_for_all_sizes_and_groups(
    rows: list[dict[str, Any]], expected: str
) -> None:
    plan = {"communication.collectives": rows}
    forced = values(plan).get("NCCL_ALGO")
    assert forced == expected if ":" in expected else (forced is None and expected in told(plan))


def test_a_protocol_goes_with_its_operation() -> None:
    rows = [RING | {"axis": axis, "protocol": "low-latency-128"} for axis in ("data", "tensor")]
    assert values({"communication.collectives": rows})["NCCL_PROTO"] == "allreduce:LL128"
    rows = [RING | {"axis": axis, "algorithm": "automatic", "protocol": "simple"} for axis in ("data", "tensor")]
    found = values({"communication.collectives": rows})
    assert (found.get("NCCL_ALGO"), found["NCCL_PROTO"]) == (None, "allreduce:Simple")


def test_nvls_is_named_for_groups_inside_a_domain_only() -> None:
    rows = [RING | {"axis": "tensor", "algorithm": "in-network"}]
    inside = {"parallelism": {"num_accelerators": 8, "tensor": 8}, "communication.collectives": rows}
    assert values(inside)["NCCL_ALGO"] == "allreduce:nvls"


def test_an_old_library_gets_no_lists() -> None:
    rows = [RING | {"axis": axis} for axis in ("data", "tensor")]
    plan = {"communication.collectives": rows, "communication.library.version": "2.21.5"}
    assert "NCCL_ALGO" not in values(plan)
    assert "2.21.5 takes no list" in told(plan)


def test_reduction_in_the_fabric_switches_collnet_on() -> None:
    rows = [RING | {"axis": axis, "algorithm": "in-network"} for axis in ("data", "tensor")]
    cluster = {"fabrics.0.in_network_reduction": True}
    assert values({"communication.collectives": rows}, cluster)["NCCL_COLLNET_ENABLE"] == "1"
    assert "NCCL_COLLNET_ENABLE" not in values({}, cluster)


@given(st.floats(0, 3600))
def test_the_time_out_of_a_queue_pair_outlasts_a_failover_and_is_the_smallest(seconds: float) -> None:
    exponent = ib_timeout(seconds)
    if exponent is None:
        assert seconds <= 4.096e-6 * 2**18 * 7
    else:
        assert exponent >= 20
        assert 4.096e-6 * 2**exponent * 7 >= seconds
        assert exponent == 20 or 4.096e-6 * 2 ** (exponent - 1) * 7 < seconds


@pytest.mark.parametrize("seconds", [-1.0, 1e6])
def test_no_time_out_for_impossible_failovers(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"failover|outlasts"):
        ib_timeout(seconds)


def test_every_variable_stands_below_the_key_that_it_follows_from() -> None:
    cluster = ROCE | {
        "node_groups.0.nics.0.gid_index": 3,
        "fabrics.0.cross_rail_traffic": "forbidden",
        "fabrics.0.failover_seconds": 45,
    }
    text = write(job({"communication.timeout_seconds": 30}, cluster)).text
    lines = text.splitlines()
    exports = [number for number, line in enumerate(lines) if line.startswith("export ")]
    assert len(exports) == 6
    assert all(lines[number - 1].startswith(("# plan: ", "# cluster: ")) for number in exports)
    assert not unknown_requirements(text)


@pytest.mark.parametrize("path", ["/etc/to po.xml", "'; touch owned; '", "$(touch owned)", "`id`\\", "日本.xml"])
def test_what_a_document_holds_stays_a_value_in_the_shell(path: str, tmp_path: Any) -> None:
    text = write(job(cluster={"node_groups.0.host.topology_file": path})).text
    script = text + 'printf "%s" "${NCCL_TOPO_FILE}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, cwd=tmp_path)
    assert done.stdout.decode() == path
    assert not list(tmp_path.iterdir())
    assert shlex.split(text, comments=True).count("export") == 2


def test_accelerators_of_other_makers_are_refused() -> None:
    with pytest.raises(NotExpressible, match="google-tpu-v5p by google"):
        write(job(cluster={"node_groups.0.accelerator.model": "google-tpu-v5p"}))


def test_a_job_whose_node_group_is_open_is_refused() -> None:
    nodes = job().num_nodes
    groups = [{"name": name, "num_nodes": nodes, "num_accelerators_per_node": 8} for name in ("a", "b")]
    groups = [group | {"accelerator": {"model": "nvidia-h100-sxm-80gb"}} for group in groups]
    with pytest.raises(NotExpressible, match="which node group") as caught:
        write(job(cluster={"node_groups": groups}))
    assert "a, b" in caught.value.help
    with pytest.raises(NotExpressible, match="span the node groups a, b") as caught:
        write(job(cluster={"node_groups": [group | {"num_nodes": nodes - 1} for group in groups]}))
    assert caught.value.help == f"use at most {(nodes - 1) * 8} ranks"
    roomy = job(cluster={"node_groups": [groups[0] | {"num_nodes": nodes - 1}, groups[1]]})
    assert roomy.nodes.group.name == "b"
