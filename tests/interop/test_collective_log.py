"""Logs of NCCL and RCCL: transport, interfaces, ranks, direct connections and what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_files import assert_recognised, assert_sound, damaged, fixture, sample, survives, told, value

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers.collective_log import NAME, read


def lines(*said: str) -> Fragment:
    fragment = read(ForeignText("job.log", "".join(f"node:1:2 [0] NCCL INFO {line}\n" for line in said)))
    assert_sound(fragment, NAME)
    return fragment


def test_a_log() -> None:
    text = fixture("nccl.log")
    assert_recognised(text, NAME)
    fragment = read(text)
    assert_sound(fragment, NAME)
    assert set(fragment.facts) == {"observations"}
    own = value(fragment, "observations", 0)
    assert own["library"] == {"name": "nccl", "version": "2.27.3+cuda12.9"}
    assert (own["transport"], own["interfaces"], own["link_layers"]) == (
        "infiniband",
        ["mlx5_0", "mlx5_1"],
        ["infiniband"],
    )
    assert (own["num_ranks"], own["num_nodes"]) == (16, 2)
    assert own["gpu_direct_share"] == pytest.approx(2 / 3)
    assert own["forced_settings"] == ["NCCL_SOCKET_IFNAME"]
    assert own["in_switch_reduction"] == "seen"
    assert len(own["warnings"]) == 1
    assert "only 2 of 3 network connections go direct" in told(fragment)
    assert [remark.line for remark in fragment.remarks if "warning of the library" in remark.message] == [15]


def test_sockets_of_rccl() -> None:
    text = fixture("rccl-sockets.log")
    assert_recognised(text, NAME)
    fragment = read(text)
    own = value(fragment, "observations", 0)
    assert (own["transport"], own["interfaces"]) == ("tcp", ["eth0", "eth1"])
    assert own["library"] == {"name": "rccl", "version": "2.22.3-HEAD"}
    assert own["gpu_direct_share"] == 0
    assert "link_layers" not in own
    assert "found no InfiniBand or RoCE device" in told(fragment)


@pytest.mark.parametrize(
    ("said", "transport"),
    [
        (["NET/OFI Selected Provider is efa (found 4 nics)", "Using network AWS Libfabric"], "efa-srd"),
        (["NET/OFI Selected provider is tcp, fabric is x", "Using network Libfabric"], "tcp"),
        (["NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB a", "Using network IBext_v8"], None),
        (
            [
                *("NCCL_IB_ROCE_VERSION_NUM set by environment to 2.", "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB a"),
                "Using network IB",
            ],
            "rocev2",
        ),
        (["Using network GPUDirectTCPX_v7"], "tcpx"),
        (["Using network FasTrak"], "tcpxo"),
        (["Using network Something"], None),
        (["Using network IB", "Using network Socket"], None),
        (["NET/IB : Using [0]a:1/RoCE [1]b:1/IB [RO]; OOB a", "Using network IB"], None),
    ],
)
def test_transports(said: list[str], transport: str | None) -> None:
    assert value(lines(*said), "observations", 0).get("transport") == transport


def test_driver_runtime_and_plugin_are_told() -> None:
    fragment = lines(
        "cudaDriverVersion 12040",
        "cudaDriverVersion 12040",
        "ROCr version 1.15",
        "Plugin Path : /opt/hpcx/lib/libnccl-net.so",
        "NET/Plugin: Loaded net plugin Libfabric (v10)",
        "NET/Plugin: Failed to find ncclCollNetPlugin_v10 symbol.",
        "Using network Libfabric",
    )
    own = {remark.message: remark.line for remark in fragment.remarks if "no key for it" in remark.message}
    assert own == {
        "cudaDriverVersion 12040: the driver serves CUDA up to 12.4; an observation has no key for it": 1,
        "ROCr version 1.15; an observation has no key for it": 3,
        "path of the network plug-in: /opt/hpcx/lib/libnccl-net.so; an observation has no key for it": 4,
        "network plug-in: Loaded net plugin Libfabric (v10); an observation has no key for it": 5,
    }


def test_ranks_that_differ_in_their_driver_are_told() -> None:
    fragment = lines("cudaDriverVersion 12060", "cudaDriverVersion 12040", "Using network IB")
    assert "ranks differ in cudaDriverVersion: 12040, 12060; an observation has no key for it" in told(fragment)
    assert "up to" not in told(fragment)


def test_no_driver_line_no_remark() -> None:
    assert "no key for it" not in told(lines("Using network IB", "Channel 00/0 : cudaDriverVersion 12040 via P2P/IPC"))


def test_very_many_values_are_bounded() -> None:
    fragment = lines(*(f"Plugin Path : /opt/{number}/libnccl-net.so" for number in range(500)), "Using network IB")
    assert len([remark for remark in fragment.remarks if "no key for it" in remark.message]) == 1


def test_the_version_of_roce_is_no_fact_of_the_word() -> None:
    fragment = lines("NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB a", "Using network IB")
    [reason] = [item.reason for item in fragment.unknown if item.pointer[-1] == "transport"]
    assert reason.startswith("RoCE version 1 or 2")
    assert value(fragment, "observations", 0, "link_layers") == ["ethernet"]


def test_communicators_of_one_rank_do_not_span_the_hosts_of_the_log() -> None:
    ranks = "NCCL INFO comm 0x55{} rank 0 nranks 1 cudaDev 0 busId d8000 commId 0x42{} - Init START"
    text = "".join(f"host-{host}:1:2 [0] {ranks.format(host, host)}\n" for host in range(2))
    fragment = read(ForeignText("job.log", text))
    own = value(fragment, "observations", 0)
    assert "num_ranks" not in own
    assert "num_nodes" not in own
    for key in ("num_ranks", "num_nodes"):
        [reason] = [item.reason for item in fragment.unknown if item.pointer[-1] == key]
        assert reason.startswith("2 devices wrote lines, and the largest communicator has 1 rank")


def test_two_link_layers_are_told() -> None:
    fragment = lines("NET/IB : Using [0]a:1/RoCE [1]b:1/IB [RO]; OOB x", "Using network IB")
    assert value(fragment, "observations", 0, "link_layers") == ["ethernet", "infiniband"]
    assert "two link layers: 1 RoCE, 1 IB" in told(fragment)


def test_a_list_that_the_log_cut_is_left_out() -> None:
    fragment = lines("NET/IB : Using [0]a:1/RoCE [1]b:1/Ro", "Using network IB")
    assert "interfaces" not in value(fragment, "observations", 0)
    assert "the list of interfaces is cut off after 1" in told(fragment)
    [reason] = [item.reason for item in fragment.unknown if item.pointer[-1] == "interfaces"]
    assert reason == "the list of interfaces is cut off after 1"


def test_reduction_that_was_switched_off() -> None:
    fragment = lines("NCCL_NVLS_ENABLE set by environment to 0.", "NVLS Head  0:  0  8")
    assert value(fragment, "observations", 0, "in_switch_reduction") == "disabled"


def test_ranks_follow_from_trees_where_rings_are_cut() -> None:
    fragment = lines("Channel 00/16 :    0   1   2", "Trees [0] 1/-1/-1->47->46 [1] 2/-1/-1->47->46")
    assert value(fragment, "observations", 0, "num_ranks") == 48


def test_hosts_count_as_nodes_only_where_every_rank_wrote() -> None:
    ranks = "NCCL INFO Init rank 0 nranks {} done"
    both = "".join(f"host-{host}:1:2 [{device}] {ranks.format(4)}\n" for host in range(2) for device in range(2))
    own = value(read(ForeignText("job.log", both)), "observations", 0)
    assert (own["num_ranks"], own["num_nodes"]) == (4, 2)
    partial = read(ForeignText("job.log", f"host-0:1:2 [0] {ranks.format(4)}\nhost-0:3:4 [1] {ranks.format(4)}\n"))
    assert "num_nodes" not in value(partial, "observations", 0)
    assert [item.reason for item in partial.unknown if item.pointer[-1] == "num_nodes"] == [
        "only 2 ranks wrote lines, so other nodes may be missing"
    ]


def test_what_is_no_log() -> None:
    with pytest.raises(ForeignFormatError, match="no line is one of NCCL"):
        read(ForeignText("text", "NCCL is a library\n"))


@examples(80)
@given(damaged("nccl.log") | damaged("rccl-sockets.log") | st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    survives(read, text)


def test_the_published_logs() -> None:
    roce = value(read(sample("nccl-info-2x8-h200-roce-10hca.txt")), "observations", 0)
    assert (roce.get("transport"), len(roce["interfaces"]), roce["num_ranks"]) == (None, 10, 16)
    assert roce["in_switch_reduction"] == "disabled"
    band = value(read(sample("nccl-info-6x8-h100-ib.txt")), "observations", 0)
    assert (band["transport"], len(band["interfaces"]), band["num_ranks"]) == ("infiniband", 8, 48)
    assert band["gpu_direct_share"] == 1
    merged = read(sample("rccl-info-2x8-mi325x-merged-nics.txt"))
    assert value(merged, "observations", 0, "link_layers") == ["ethernet"]
    assert "the list of interfaces is cut off after 13" in told(merged)
