from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_machines import COMMANDS, HOST_NAME, broken_node, h100_node, host, mi300x_node, switched_slots

from tests.examples import examples
from trainspec_validate.interop.discover import LocalMachine, RecordedMachine, discover
from trainspec_validate.interop.fragment import Fragment
from trainspec_validate.interop.shape import fitting

RECORDINGS = Path(__file__).parent / "recordings"
MACHINES = {
    "h100": h100_node,
    "mi300x": mi300x_node,
    "broken": broken_node,
    "cpu-only": lambda: RecordedMachine.load(RECORDINGS / "cpu-only"),
    "empty": RecordedMachine,
}


def by_format(machine: RecordedMachine) -> dict[str, Fragment]:
    found = {fragment.format: fragment for fragment in discover(machine)}
    for fragment in found.values():
        kept, refused = fitting("ClusterProfile", fragment.facts)
        assert refused == []
        assert kept == fragment.facts
    return found


def group(fragment: Fragment) -> dict[str, Any]:
    [only] = fragment.facts["node_groups"]
    return dict(only)


def messages(fragment: Fragment) -> str:
    return "\n".join(remark.message for remark in fragment.remarks)


def unknown(fragment: Fragment) -> set[str]:
    return {".".join(map(str, item.pointer[2:])) for item in fragment.unknown}


def test_a_node_with_eight_accelerators_and_rails() -> None:
    found = by_format(h100_node())
    assert list(found) == ["linux-kernel", "nvidia-smi-query-csv", "nvidia-smi-topology-matrix"]
    assert group(found["linux-kernel"]) == {
        "name": "nodes",
        "host": {
            "num_sockets": 2,
            "num_cores": 96,
            "virtualised": False,
            "num_numa_nodes": 2,
            "memory_bytes": 2113409024 * 1024.0,
        },
        "accelerator": {"model": "nvidia-h100-sxm-80gb", "vendor": "nvidia"},
        "num_accelerators_per_node": 8,
        "host_link": {"technology": "pcie", "num_lanes": 16},
        "nics": [
            {
                "name": "nics",
                "num_per_node": 8,
                "technology": "infiniband",
                "generation": "ndr",
                "num_ports": 1,
                "rate_bytes_per_second": 50e9,
                "devices": [f"mlx5_{k}" for k in range(8)],
                "host_link": {"technology": "pcie", "generation": 5, "num_lanes": 16},
                "nearest_path": "PIX",
                "same_numa_node": True,
                "num_accelerators_served": 1,
            }
        ],
    }
    assert found["linux-kernel"].facts["software"] == {"operating_system": {"name": "ubuntu", "version": "22.04"}}
    assert group(found["nvidia-smi-query-csv"])["host_link"]["generation"] == 5
    assert group(found["nvidia-smi-topology-matrix"])["scale_up"]["topology"] == "switched"


def test_an_idle_link_is_not_taken_for_the_slot() -> None:
    kernel = by_format(h100_node())["linux-kernel"]
    assert "host_link.generation" in unknown(kernel)
    assert "PCIe generation 1 of 5; idle devices save power" in messages(kernel)
    assert "layout" not in kernel.facts


def test_what_is_left_out_is_said() -> None:
    told = messages(by_format(h100_node())["linux-kernel"])
    assert "network interfaces without RDMA are left out: 0000:00:05.0" in told
    assert "this Slurm job has 16 nodes" in told
    assert "Slurm gave this job 8 accelerators" in told


def test_a_node_of_another_maker() -> None:
    found = by_format(mi300x_node())
    assert list(found) == ["linux-kernel", "rocm-smi-list", "rocm-smi-topology"]
    kernel = group(found["linux-kernel"])
    assert kernel["accelerator"] == {"model": "amd-mi300x-192gb", "vendor": "amd"}
    assert kernel["host_link"] == {"technology": "pcie", "generation": 5, "num_lanes": 16}
    assert kernel["nics"][0]["technology"] == "ethernet"
    assert "generation" not in kernel["nics"][0], "the speed of a lane is no generation of Ethernet"
    assert group(found["rocm-smi-list"])["accelerator"]["model"] == "amd-mi300x-192gb"
    assert group(found["rocm-smi-topology"])["scale_up"]["topology"] == "full-mesh"


def test_a_node_without_accelerators_says_so() -> None:
    found = by_format(MACHINES["cpu-only"]())
    assert list(found) == ["linux-kernel", "hwloc-xml"]
    kernel = found["linux-kernel"]
    assert group(kernel)["host"] == {
        "num_sockets": 2,
        "num_cores": 4,
        "virtualised": False,
        "num_numa_nodes": 2,
        "memory_bytes": 263840000 * 1024.0,
    }
    assert "no accelerator was found: this describes the host alone" in messages(kernel)
    assert {"accelerator", "num_accelerators_per_node", "nics", "scale_up"} <= unknown(kernel)
    assert group(found["hwloc-xml"])["host"]["num_cores"] == 4


def test_a_broken_node_gives_what_is_left() -> None:
    found = by_format(broken_node())
    assert list(found) == ["linux-kernel"]
    kernel = found["linux-kernel"]
    told = messages(kernel)
    assert "printed something unexpected: has no header" in told
    assert "`nvidia-smi topo -m` printed something unexpected" in told
    assert "`lstopo-no-graphics --of xml` printed something unexpected: is not XML" in told
    assert "there are accelerators of NVIDIA, but its tools gave no usable answer" in told
    assert "accelerator-1: the link has 8 of 16 lanes" in told
    assert "mlx5_1: a port is 1: DOWN" in told
    facts = group(kernel)
    assert facts["num_accelerators_per_node"] == 8
    assert facts["host_link"]["num_lanes"] == 8
    assert [nic["num_per_node"] for nic in facts["nics"]] == [7, 1]
    [node] = kernel.facts["layout"]["nodes"]
    assert [item.get("link_num_lanes") for item in node["accelerators"]] == [16, 8, *[16] * 6]
    assert "numa_node" not in node["accelerators"][2]
    assert {"host.num_cores", "host.memory_bytes", "host.virtualised"} <= unknown(kernel)


def test_a_tool_that_is_there_but_gives_no_answer_is_told() -> None:
    told = "failed, took too long or printed nothing; run it by hand"
    machine = replace(MACHINES["cpu-only"](), silent=frozenset({"nvidia-smi"}))
    remarks = messages(by_format(machine)["linux-kernel"])
    assert f"`nvidia-smi topo -m` {told}" in remarks
    assert remarks.count(told) == 2
    assert told not in messages(by_format(MACHINES["cpu-only"]())["linux-kernel"])


def test_an_empty_machine_is_described_as_unknown() -> None:
    [kernel] = discover(RecordedMachine())
    assert group(kernel) == {"name": "nodes"}
    assert {"host.num_sockets", "host.memory_bytes", "host.num_numa_nodes", "accelerator"} <= unknown(kernel)


def test_arm_processors_are_counted_from_sysfs() -> None:
    topology = {
        f"/sys/devices/system/cpu/cpu{k}/topology/{name}": f"{value}\n"
        for k in range(8)
        for name, value in (("physical_package_id", k // 4), ("core_id", k % 4))
    }
    machine = RecordedMachine({}, {"/proc/cpuinfo": "processor\t: 0\nCPU part\t: 0xd4f\n\n", **topology})
    facts = group(by_format(machine)["linux-kernel"])["host"]
    assert (facts["num_sockets"], facts["num_cores"]) == (2, 8)


def test_memory_of_accelerators_is_not_the_hosts() -> None:
    nodes = {
        "/sys/devices/system/node/node0/cpulist": "0-71\n",
        "/sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       500000000 kB\n",
        "/sys/devices/system/node/node1/cpulist": "\n",
        "/sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:       97000000 kB\n",
        "/proc/meminfo": "MemTotal:       597000000 kB\n",
    }
    kernel = by_format(RecordedMachine({}, nodes))["linux-kernel"]
    assert group(kernel)["host"] == {"num_numa_nodes": 2, "memory_bytes": 500000000 * 1024.0}
    assert "1 NUMA nodes have no processor" in messages(kernel)


def test_virtual_machines_and_virtual_functions() -> None:
    machine = h100_node()
    functions = {
        path.replace("0000:14:00.0", "0000:14:00.1"): text
        for path, text in machine.files.items()
        if "0000:14:00.0" in path
    }
    inner = next(path for path in functions if path.endswith("/class")).rpartition("/")[0]
    files = {**machine.files, **functions, f"{inner}/physfn/class": "0x020700\n", **host(2, "fpu hypervisor")}
    kernel = by_format(replace(machine, files=files))["linux-kernel"]
    assert group(kernel)["host"]["virtualised"] is True
    assert group(kernel)["nics"][0]["num_per_node"] == 8


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_no_host_name_is_recorded(name: str) -> None:
    for fragment in discover(MACHINES[name]()):
        whole = msgspec.json.encode((fragment.facts, fragment.name, messages(fragment)))
        assert HOST_NAME.encode() not in whole


@pytest.mark.parametrize("lost", ["class", "vendor", "current_link_width", "numa_node", "rate", "link_layer", "state"])
def test_a_lost_file_never_brings_a_new_figure(lost: str) -> None:
    slots = switched_slots(4, *_IDENTITIES, "400 Gb/sec (4X NDR)", "InfiniBand")
    whole = RecordedMachine({}, {**host(2), **slots})
    files = {path: text for path, text in whole.files.items() if path.rpartition("/")[2] != lost}
    before = group(by_format(whole)["linux-kernel"])
    after = group(by_format(replace(whole, files=files))["linux-kernel"])
    for key in ("accelerator", "host_link"):
        assert after.get(key, {}).items() <= before[key].items()
    assert len(after.get("nics", ())) <= 1


_IDENTITIES = (("0x030200", "0x10de", "0x2330"), ("0x020700", "0x15b3", "0x1021"))


@examples(60)
@given(st.dictionaries(st.sampled_from(sorted(COMMANDS)), st.text(max_size=200)), st.integers(0, 2**32))
def test_garbage_never_stops_discovery(printed: dict[str, str], seed: int) -> None:
    machine, random = h100_node(), Random(seed)  # a draw for each of some hundred files takes longer than the discovery
    commands = {**machine.commands, **{COMMANDS[name]: text for name, text in printed.items()}}
    files = {path: text if random.random() < 0.9 else "\x00?" for path, text in machine.files.items()}
    assert by_format(RecordedMachine(commands, files, {"SLURM_NNODES": "x"}))["linux-kernel"]


def test_the_local_machine_runs_reads_and_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, body in {
        "fine": "print('hello')",
        "fails": "print('no'); raise SystemExit(3)",
        "slow": "import time; print('x', flush=True); time.sleep(60)",
        "loud": "print('x' * 100_000)",
        "orphan": "import os, sys, time\nif os.fork() == 0:\n    time.sleep(60)\nprint('gone', flush=True)",
    }.items():
        script = tools / name
        script.write_text(f"#!{sys.executable}\n{body}\n", encoding="utf-8")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    machine = LocalMachine(root=tmp_path, timeout_seconds=20, max_output_bytes=10_000)
    impatient = replace(machine, timeout_seconds=0.5)
    assert machine.run(("fine",)) == "hello\n"
    assert machine.run(("fails",)) is None
    assert machine.run(("loud",)) is None
    assert impatient.run(("slow",)) is None
    assert impatient.run(("orphan",)) is None
    assert machine.run(("missing",)) is None
    assert machine.run(("../bin/fine",)) is None
    assert machine.run((str(tools / "fine"),)) is None
    assert machine.run(()) is None
    assert [machine.has(name) for name in ("fine", "fails", "missing", "../bin/fine")] == [True, True, False, False]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "bin")
    assert machine.run(("fine",)) is None
    assert not machine.has("fine")


def test_the_local_machine_reads_within_bounds(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "small").write_bytes(b"a\xffb")
    (tmp_path / "sys" / "large").write_bytes(b"x" * (4 * 2**20 + 1))
    machine = LocalMachine(root=tmp_path)
    assert machine.read("/sys/small") == "a\ufffdb"
    assert machine.read("/sys/large") is None
    assert machine.read("/sys") is None
    assert machine.read("/sys/\x00") is None
    assert machine.list("/sys") == ("large", "small")
    assert machine.list("/sys/small") == ()
    assert machine.list("/none") == ()


def test_this_very_machine_is_described() -> None:
    fragments = discover(LocalMachine(timeout_seconds=20))
    assert fragments[0].format == "linux-kernel"
    for fragment in fragments:
        assert fitting("ClusterProfile", fragment.facts)[1] == []
