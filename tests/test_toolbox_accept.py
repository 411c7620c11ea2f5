"""`trainspec accept`: nodes as declared, damaged in each way, silent, absent; what is not judged is said."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.node_reports import benchmark, diagnostic, links, of_node, ports, profile, smi
from tests.telemetry.telemetry_makers import Stream
from tests.trees import deep_tree
from trainspec_validate.cli.toolbox import command
from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.node_tools import node_facts
from trainspec_validate.pipeline import acceptance

GOOD = {"smi.txt": smi(), "ibstat.txt": ports(), "diag.txt": diagnostic(), "nccl.txt": benchmark(365.0)}
ALL = {"dmesg.txt": "[  1.0] Linux\n", "nvlink.txt": links()}
"""What else is wanted for nothing to be left unjudged."""

UNKNOWN = ("accelerator.memory_bytes", "host.acs_enabled", "nics", "scale_up")


DCGM_4 = diagnostic().replace(
    "| EUD Test ",
    "".join(
        f"| {name:<26}| {result:<47}|\n"
        for name, result in [("memory", "Fail"), *(("", f"GPU{i}: {'Fail' if i == 5 else 'Pass'}") for i in range(8))]
    )
    + "| EUD Test ",
)


def discovered(text: str) -> str:
    """A profile as `trainspec discover` writes it in a virtual machine, which shows neither interfaces nor links."""
    kept = text[: text.index("    scale_up:")] + "    host: {virtualised: true}\n" + text[text.index("software:") :]
    return f"{kept}unknowns: [{', '.join(f'node_groups.0.{key}' for key in UNKNOWN)}]\n"


def accept(
    root: Path,
    nodes: dict[str, dict[str, str]],
    *more: str,
    num_nodes: int | None = None,
    change: Callable[[str], str] = str,
    own: Callable[[int, str], str] = of_node,
) -> Result:
    """What the command says of nodes with these files."""
    (root / "cluster.yaml").write_text(change(profile(num_nodes or len(nodes))), encoding="utf-8")
    for node, files in nodes.items():
        (root / "nodes" / node).mkdir(parents=True, exist_ok=True)
        number = node.partition("/")[0].removeprefix("node-")
        for name, text in files.items():
            content = own(int(number), text) if number.isdigit() else text
            (root / "nodes" / node / name).write_text(content, encoding="utf-8")
    arguments = ["accept", f"{root}/cluster.yaml", "--from", f"{root}/nodes", *more]
    return CliRunner().invoke(command, arguments, prog_name="trainspec")


def test_nodes_as_declared_are_accepted(tmp_path: Path) -> None:
    found = accept(tmp_path, {f"node-{i}": {**GOOD, **ALL} for i in range(3)})
    assert found.exit_code == 0, found.output
    assert "no findings" in found.output
    assert found.output.count("nodes: not judged: ") == 1, "stragglers alone"
    assert "holds no stream of a training run" in found.output


def short_run() -> str:
    """A stream of three ranks that compute equally fast, on three nodes."""
    stream = Stream("ranks", ("rank",), world_size=3)
    values = {"train.step.duration": 1.0, "train.step.phase.time{train.phase=forward_backward}": 0.5}
    for step in range(1, 6):
        for rank in range(3):
            stream.sample(10 * step, values, rank=rank, step=step, host=f"node-{rank}")
    return "".join(json.dumps(line) + "\n" for line in stream.lines)


@pytest.mark.parametrize(
    ("files", "result"),
    [({**GOOD, **ALL}, "PASSED"), (GOOD, "WARNED"), ({**GOOD, **ALL, "smi.txt": smi(7)}, "FAILED")],
)
def test_only_what_passed_is_accepted_where_unjudged_fails(tmp_path: Path, files: dict[str, str], result: str) -> None:
    """The word has the exit code follow the result of the statement, which without it is 0 for `WARNED` too."""
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "ranks.jsonl").write_text(short_run(), encoding="utf-8")
    nodes = {f"node-{i}": files for i in range(3)}
    found = accept(tmp_path, nodes, "--statement", f"{tmp_path}/statement.json")
    assert json.loads((tmp_path / "statement.json").read_text())["predicate"]["result"] == result, found.output
    assert found.exit_code == int(result == "FAILED")
    assert accept(tmp_path, nodes, "--fail-on", "unjudged").exit_code == int(result != "PASSED")
    assert accept(tmp_path, nodes, "--fail-on", "uncovered").exit_code == int(result == "FAILED")


@pytest.mark.parametrize("word", ["never", "error", "unjudged,warning"])
def test_every_finding_fails_an_acceptance(tmp_path: Path, word: str) -> None:
    assert accept(tmp_path, {"node-0": GOOD}, "--fail-on", word).exit_code == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, ""),
        ({"smi.txt": smi(7)}, "node-1: 7 of 8 accelerators"),
        ({"smi.txt": smi(driver="525.60")}, "node-1: driver 525.60, declared is 535.183.01"),
        ({"smi.txt": smi(width="8x")}, "8 of 16 lanes of the host link"),
        ({"smi.txt": smi(errors=2)}, "000020: 2 uncorrected memory errors"),
        ({"smi.txt": smi(clock=1410)}, "000020: clocks up to 1410 MHz, others up to 1980 MHz"),
    ],
)
@pytest.mark.parametrize("has_ports", [False, True])
def test_what_a_discovered_profile_knows_is_compared(
    has_ports: bool, files: dict[str, str], message: str, tmp_path: Path
) -> None:
    """Interfaces and links that the profile does not know leave accelerators, drivers and errors to be judged."""
    good = {"smi.txt": smi(), **({"ibstat.txt": ports()} if has_ports else {})}
    found = accept(tmp_path, {"node-0": good, "node-1": {**good, **files}}, change=discovered)
    assert (message in found.output, found.exit_code) == (True, int(bool(files))), found.output


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"smi.txt": smi(7)}, "node-0: 7 of 8 accelerators"),
        (
            {"smi.txt": smi(width="8x")},
            "node-0/GPU-00000000-0000-0000-0000-000000000020: 8 of 16 lanes of the host link",
        ),
        ({"smi.txt": smi(errors=2)}, "000020: 2 uncorrected memory errors"),
        ({"smi.txt": smi(pending="Yes")}, "000020: row-remap:pending"),
        ({"smi.txt": smi(thermal="Active")}, "000020: throttle:thermal"),
        ({"smi.txt": smi(clock=1410)}, "000020: clocks up to 1410 MHz, others up to 1980 MHz"),
        ({"smi.txt": smi(reset="Yes")}, "000020: reset:required (the GPU needs a reset before it can be used)"),
        ({"smi.txt": smi(drain="Yes")}, "000020: reset:recommended (finish what runs on the GPU, then reset it)"),
        ({"smi.txt": smi(action="Drain and Reset")}, "000020: recovery-action:drain-and-reset (a device"),
        ({"smi.txt": smi(sram="Yes")}, "000020: sram:threshold-exceeded (uncorrected errors of its SRAM exceed"),
        ({"smi.txt": smi(retired="Yes")}, "000020: page-retirement:pending (restart the node"),
        ({"smi.txt": smi(fabric="In Progress", status="N/A")}, "000020: fabric:in-progress (not registered with"),
        ({"smi.txt": smi(status="Insufficient Resources")}, "000020: fabric:insufficient-resources (a device"),
        ({"smi.txt": smi(health="Unhealthy")}, "000020: fabric:unhealthy (the NVLink fabric is degraded)"),
        ({"smi.txt": smi(mig="Enabled")}, "000020: mig:enabled (divided into instances"),
        ({"smi.txt": smi(ecc="Disabled")}, "000020: ECC is off, and on for others"),
        ({"smi.txt": smi(errors="Unknown Error")}, "000020: driver:unknown-error (the driver cannot read"),
        ({"smi.txt": smi(fabric="GPU is lost")}, "000020: driver:gpu-is-lost (the GPU does not answer"),
        ({"smi.txt": smi(power="400.00")}, "000020: has a power limit of 400 W, others of 700 W"),
        ({"smi.txt": smi(application=1200)}, "000020: has an application clock of 1200 MHz, others of 1980 MHz"),
        ({"smi.txt": smi(most=3)}, "000020: generation 3 of the host link, declared is 5"),
        ({"smi.txt": smi(state="P0")}, "000020: generation 1 of the host link, declared is 5"),
        ({"ibstat.txt": ports(layer="Ethernet")}, "node-0/mlx5_2: the link layer is ethernet, declared is infiniband"),
        ({"smi.txt": smi(driver="525.60")}, "node-0: driver 525.60, declared is 535.183.01"),
        ({"ibstat.txt": ports(state="Down")}, "node-0/mlx5_2: the link is down"),
        ({"ibstat.txt": ports(rate=200)}, "node-0/mlx5_2: 25 GB/s, declared are 50 GB/s"),
        ({"ibstat.txt": ports(device="mlx5_9")}, "node-0: no mlx5_2"),
        ({"diag.txt": diagnostic("Fail - GPU: 3")}, "node-0: PCIe: Fail - GPU: 3"),
        ({"diag.txt": DCGM_4}, "node-0: memory: Fail, GPU5: Fail "),
        ({"nccl.txt": benchmark(365.0, num_wrong="5")}, "node-0: all-reduce: 5 wrong values"),
        ({"nccl.txt": benchmark(365.0, num_wrong="1.34218e+08")}, "node-0: all-reduce: 134218000 wrong values"),
        ({"nccl.txt": benchmark(365.0) + "# Out of bounds values : 7 FAILED\n"}, "node-0: collective: 7 wrong values"),
        ({"nccl.txt": benchmark(110.0)}, "node-0: all-reduce of 8 ranks has a bus bandwidth of 110 GB/s, predicted is"),
        ({"nccl.txt": benchmark(300.0)}, "300 GB/s, 82.19 % of the median of 3 nodes"),
        (
            {"dmesg.txt": "[ 9.5] NVRM: Xid (PCI:0000:20:00): 95, pid=1, Uncontained\n"},
            "node-0/GPU-00000000-0000-0000-0000-000000000020: xid:95 (Uncontained memory error; NVIDIA: reset the GPU)",
        ),
        (
            {"dmesg.txt": "[ 9.5] nvidia-nvswitch0: SXid (PCI:0000:04:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"},
            "node-0/0000:04:00: sxid:20034 fatal",
        ),
        (
            {
                "nvlink.txt": "GPU 0: NVIDIA H100 (UUID: GPU-00000000-0000-0000-0000-000000000020)\n"
                + "".join(f"\t Link {i}: {'<inactive>' if i == 3 else '26.562 GB/s'}\n" for i in range(18))
            },
            "17 of 18 scale-up links are up",
        ),
    ],
)
def test_a_damaged_node_is_named_with_device_and_number(tmp_path: Path, files: dict[str, str], message: str) -> None:
    found = accept(tmp_path, {"node-0": {**GOOD, **files}, "node-1": GOOD, "node-2": GOOD})
    assert found.exit_code == 1
    findings = [line for line in found.output.splitlines() if " error[" in line or " warning[" in line]
    assert any(message in line for line in findings), findings
    assert len(findings) <= 2, findings


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"smi.txt": smi(vbios="1.0")}, "firmware of nvidia-h100-sxm-80gb is 1.0 on node-0/GPU-"),
        ({"ibstat.txt": ports(firmware="28.1")}, "firmware of compute NICs is 28.1 on node-0/mlx5_2"),
    ],
)
def test_other_firmware_is_a_warning(tmp_path: Path, files: dict[str, str], message: str) -> None:
    found = accept(tmp_path, {"node-0": {**GOOD, **files}, "node-1": GOOD, "node-2": GOOD})
    lines = [line for line in found.output.splitlines() if "[TS-" in line]
    assert found.exit_code == 1
    assert lines
    assert all("warning[TS-CLU-080]" in line and message in line for line in lines), lines


@pytest.mark.parametrize(
    ("rate", "found"),
    [
        ("2.5", "312.5 MB/s, declared are 50 GB/s"),
        ("40 (FDR10)", "5 GB/s, declared are 50 GB/s"),
        ("0", "node-0: rate of active port 1 of mlx5_2 is 0"),
        ("abc", "node-0/ibstat.txt (rate of active port 1 of mlx5_2 is abc)"),
    ],
)
def test_a_rate_that_cannot_be_read_is_said(tmp_path: Path, rate: str, found: str) -> None:
    result = accept(tmp_path, {"node-0": {**GOOD, "ibstat.txt": ports(rate=rate)}})
    assert found in " ".join(result.output.split())


OLDER = """  - name: older
    num_nodes: 1
    num_accelerators_per_node: 8
    accelerator: {model: nvidia-a100-sxm-80gb}
"""
LIKE = """  - name: compute-2
    num_nodes: 1
    num_accelerators_per_node: 4
    accelerator: {model: nvidia-h100-sxm-80gb}
"""
LISTED = """layout:
  nodes:
    - {name: node-0, group: compute}
    - {name: node-1, group: compute-2}
"""


@pytest.mark.parametrize(
    ("group", "layout", "found"),
    [
        (OLDER, "", "node-0: 7 of 8 accelerators"),
        (LIKE, LISTED, "node-0: 7 of 8 accelerators"),
        (LIKE, "", "node-0 is of no node group of the profile"),
    ],
    ids=["by-its-accelerators", "by-the-layout", "by-nothing"],
)
def test_a_node_of_one_of_several_groups_is_judged_by_its_own(
    tmp_path: Path, group: str, layout: str, found: str
) -> None:
    accept(tmp_path, {"node-0": {**GOOD, "smi.txt": smi(7)}})
    text = profile(2).replace("software:", f"{group}{layout}software:")
    text = text.replace("    num_nodes: 2\n", "    num_nodes: 1\n").replace(
        "num_accelerators: 16", f"num_accelerators: {16 if group is OLDER else 12}"
    )
    (tmp_path / "cluster.yaml").write_text(text, encoding="utf-8")
    called = ["accept", str(tmp_path / "cluster.yaml"), "--from", str(tmp_path / "nodes"), "--format", "concise"]
    result = CliRunner().invoke(command, called)
    assert result.exit_code == 1, result.output
    assert found in result.output


def undeclared(text: str) -> str:
    """A profile that says nothing of host links and of the number of scale-up links."""
    found = re.sub(r"\n *host_link: [^\n]*", "", text)
    return re.sub(r",? *num_links: \d+", "", found)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"smi.txt": smi(width="8x")}, "000020: 8 lanes of the host link, others have 16"),
        ({"smi.txt": smi(most=3)}, "000020: generation 3 of the host link, others have 5"),
        (
            {"nvlink.txt": links().replace("\t Link 7: 26.562 GB/s\n", "\t Link 7: <inactive>\n", 1)},
            "000010: 17 scale-up links are up, of others 18",
        ),
        (
            {"nvlink.txt": links().replace("\t Link 7: 26.562 GB/s\n", "\t Link 7: 1.562 GB/s\n", 1)},
            "000010: a scale-up link runs at 1.562 GB/s, declared are 25 GB/s",
        ),
    ],
)
def test_a_device_that_is_behind_the_others_is_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    found = accept(tmp_path, {"node-0": {**GOOD, **ALL, **files}, "node-1": {**GOOD, **ALL}}, change=undeclared)
    findings = [line for line in found.output.splitlines() if "error[" in line]
    assert [message in line for line in findings] == [True], found.output


@pytest.mark.parametrize(
    "odd",
    [
        {"state": "P8", "generation": 1},
        {"reset": "Requested functionality has been deprecated", "drain": "N/A", "retired": "No", "sram": "N/A"},
        {"fabric": "N/A", "status": "N/A", "health": "N/A"},
        {"status": "N/A", "health": "N/A"},
        {"action": "N/A", "mig": "N/A", "ecc": "N/A"},
        {"power": "N/A", "application": "Requested functionality has been deprecated"},
    ],
)
def test_states_of_sound_devices_are_no_findings(tmp_path: Path, odd: dict[str, Any]) -> None:
    """Of an idle device, of another driver, of a machine without a switched fabric, and of what a device lacks."""
    found = accept(tmp_path, {f"node-{i}": {**GOOD, **ALL, "smi.txt": smi(**odd)} for i in range(2)})
    assert (found.exit_code, "no findings" in found.output) == (0, True), found.output


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        (
            {"width": "8x"},
            "has 16 accelerators with fewer lanes of the host link than board and slot can have, on 2 nodes",
        ),
        ({"ecc": "Disabled"}, "has 16 accelerators whose ECC is off"),
    ],
)
def test_what_all_devices_have_in_common_is_said(tmp_path: Path, odd: dict[str, Any], told: str) -> None:
    """Such as slots of 8 lanes, or boards that are sold with ECC switched off."""
    usual = smi(of_all=True, **odd)
    found = accept(tmp_path, {f"node-{i}": {**GOOD, **ALL, "smi.txt": usual} for i in range(2)}, change=undeclared)
    assert (found.exit_code, told in " ".join(found.output.split())) == (0, True), found.output


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"nvlink.txt": links()}, "the state of accelerators"),
        ({"dmesg.txt": "[ 9.5] NVRM: Xid (PCI:0000:20:00): 31, pid=1\n"}, "the state of accelerators"),
        ({"smi.txt": re.sub(r"    ECC Errors\n(?:        .*\n)+", "", smi())}, "memory errors of accelerators"),
        ({"smi.txt": re.sub(r"    PCI\n(?:        .*\n)+", "", smi())}, "host links of accelerators"),
        ({"smi.txt": re.sub(r"    Clocks Event Reasons\n(?:        .*\n)+", "", smi())}, "slowdowns of accelerators"),
    ],
    ids=["links alone", "kernel alone", "no errors", "no links", "no slowdowns"],
)
def test_a_part_of_the_state_is_no_whole(tmp_path: Path, files: dict[str, str], told: str) -> None:
    """Where a tool names a device, and no report or a part of one says in which state it is."""
    found = accept(tmp_path, {"node-0": files, "node-1": {**GOOD, **ALL}})
    assert f"no file states {told} of 1 of 2 nodes (node-0)" in " ".join(found.output.split())


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    found = accept(tmp_path, {"node-0": {**GOOD, **ALL, "dcgmi.txt": "\n"}, "node-1": {**GOOD, **ALL}})
    assert "holds a file of no known format: node-0/dcgmi.txt (empty)" in " ".join(found.output.split())


@pytest.mark.parametrize(
    "printed",
    [
        "Unable to determine the device handle for GPU 0000:1B:00.0: Unknown Error",
        "Failed to initialize NVML: Driver/library version mismatch",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "No devices were found",
    ],
)
def test_a_tool_that_failed_is_a_failed_check(tmp_path: Path, printed: str) -> None:
    found = accept(tmp_path, {"node-0": {**GOOD, "smi.txt": f"{printed}\n"}, "node-1": GOOD})
    assert (found.exit_code, f"node-0: nvidia-smi: {printed} (every check passes)" in found.output) == (1, True)


@pytest.mark.parametrize("has_report", [True, False])
def test_a_benchmark_of_some_accelerators_is_said(tmp_path: Path, *, has_report: bool) -> None:
    half = "\n".join(line for line in GOOD["nccl.txt"].split("\n") if not re.match(r"#  Rank  [4-7]", line))
    found = accept(tmp_path, {"node-0": {**(GOOD if has_report else {}), "nccl.txt": half}, "node-1": {**GOOD, **ALL}})
    assert "has benchmarks of 1 nodes that left accelerators out: node-0 (4 of 8)" in " ".join(found.output.split())


def test_a_last_line_without_an_end_is_whole(tmp_path: Path) -> None:
    """Of the link layer, as in copies that lack the end of the file."""
    nodes = {f"node-{i}": {**GOOD, **ALL, "ibstat.txt": ports().rstrip("\n")} for i in range(2)}
    found = accept(tmp_path, nodes)
    assert (found.exit_code, "no findings" in found.output) == (0, True), found.output


def test_a_board_with_less_memory_is_named_with_both_figures(tmp_path: Path) -> None:
    less = smi().replace("81559 MiB", "40960 MiB")
    found = accept(tmp_path, {"node-0": {**GOOD, "smi.txt": less}, "node-1": GOOD})
    words = "is nvidia-h100-80gb-hbm3 with 42.95 GB, declared is nvidia-h100-sxm-80gb with 85.52 GB"
    assert words in found.output


def test_errors_of_applications_say_nothing_against_a_node(tmp_path: Path) -> None:
    log = "".join(f"[ 9.{code}] NVRM: Xid (PCI:0000:20:00): {code}, pid=1\n" for code in (13, 31, 43, 45, 63, 94))
    found = accept(tmp_path, {f"node-{i}": {**GOOD, "dmesg.txt": log} for i in range(3)})
    assert found.exit_code == 0, found.output


def test_nodes_that_do_not_answer_are_named_and_absent_ones_counted(tmp_path: Path) -> None:
    found = accept(tmp_path, {"node-0": GOOD, "node-1": {}}, num_nodes=4)
    assert found.exit_code == 1
    assert "node-1 did not answer" in found.output
    assert "2 of 4 nodes are absent" in found.output
    more = accept(tmp_path, {"node-2": GOOD}, num_nodes=2)
    assert "3 nodes were observed, and the profile has 2" in more.output
    layout = "layout:\n  nodes:\n" + "".join(f"    - {{name: node-{i}, group: compute}}\n" for i in range(4))
    (tmp_path / "cluster.yaml").write_text(profile(4) + layout, encoding="utf-8")
    named = CliRunner().invoke(command, ["accept", f"{tmp_path}/cluster.yaml", "--from", f"{tmp_path}/nodes"])
    assert "node-3 did not answer" in named.output


UUIDS = "UUID GPU-00000000-0000-0000-0000-000000000010, GPU-00000000-0000-0000-0000-000000000018 and 6 more"
SERIALS = "serial number 1650000000000, 1650000000001 and 6 more"
GUIDS = "node GUID a088c20300000000 (mlx5_0), a088c20300000001 (mlx5_1) and 6 more"


@pytest.mark.parametrize(("name", "told"), [("smi.txt", f"{UUIDS}; {SERIALS}"), ("ibstat.txt", GUIDS)])
@pytest.mark.parametrize("is_copy", [True, False])
def test_one_machine_that_is_given_as_two_nodes_is_named(
    tmp_path: Path, name: str, told: str, *, is_copy: bool
) -> None:
    """The second has the bytes of the first, or the devices in another text."""
    nodes = {"node-0": {name: GOOD[name]}, "node-1": {name: GOOD[name] + ("" if is_copy else "\n")}}
    found = accept(tmp_path, nodes, own=lambda _, text: text)
    lines = [line for line in found.output.splitlines() if "error[TS-CLU-054]" in line]
    assert [f"node-1 has devices of node-0: {told} (gather" in line for line in lines] == [True], found.output


def test_one_device_of_another_node_is_enough(tmp_path: Path) -> None:
    odd = {**GOOD, "ibstat.txt": ports(guid="b088c20700000007")}
    found = accept(tmp_path, {"node-0": odd, "node-1": odd})
    assert "node-1 has devices of node-0: node GUID b088c20700000007 (mlx5_2) (gather" in found.output


@pytest.mark.parametrize("serial", ["N/A", "0", "0000000000000", "Unknown Error"])
@pytest.mark.parametrize("guid", ["0000000000000000"])
def test_a_placeholder_is_no_identity(tmp_path: Path, serial: str, guid: str) -> None:
    odd = {**GOOD, **ALL, "smi.txt": smi(serial=serial), "ibstat.txt": ports(guid=guid)}
    found = accept(tmp_path, {f"node-{i}": odd for i in range(3)})
    assert (found.exit_code, "no findings" in found.output) == (0, True), found.output


def test_two_captures_of_one_node_are_one_machine(tmp_path: Path) -> None:
    twice = {**GOOD, **ALL, "again.txt": GOOD["smi.txt"], "later.txt": GOOD["ibstat.txt"]}
    found = accept(tmp_path, {"node-0": twice, "node-1": {**GOOD, **ALL}})
    assert (found.exit_code, "no findings" in found.output) == (0, True), found.output


def test_a_serial_number_on_more_devices_than_on_other_boards_is_named(tmp_path: Path) -> None:
    found = accept(tmp_path, {"node-0": {**GOOD, "smi.txt": smi(serial="1650000000000")}, "node-1": GOOD})
    assert "node-0: 2 devices have the serial number 1650000000000, boards of it carry 1" in found.output


def test_boards_with_two_devices_are_sound(tmp_path: Path) -> None:
    """As of GB200 and K80, whose devices have the serial number of their board."""
    pairs = {
        **GOOD,
        **ALL,
        "smi.txt": re.sub(r"(: 16500000000)(\d\d)", lambda found: f"{found[1]}0{int(found[2]) // 2}", smi()),
    }
    found = accept(tmp_path, {f"node-{i}": pairs for i in range(2)})
    assert (found.exit_code, "no findings" in found.output) == (0, True), found.output


HOST = "2026-01-01T00:02:41.650722+00:00 {} kernel: Linux\n"


@pytest.mark.parametrize(
    ("log", "finding", "note"),
    [
        (HOST.format("node-1"), "node-0: a file of it states the host name node-1, which is the node node-1", ""),
        ("Jan  1 00:02:41 Node-1.example.org kernel: Linux\n", "node-0: a file of it states the host name Node-1.", ""),
        (HOST.format("NODE-0.example.org"), "", ""),
        (HOST.format("localhost") + HOST.format("node-0"), "", ""),
        (HOST.format("node-0") + HOST.format("node-1"), "", ""),
        (HOST.format("gpu-12"), "", "holds files of 1 nodes that state other host names: node-0 (gpu-12)"),
    ],
    ids=["swapped", "syslog", "own", "before its name", "of several", "by another name"],
)
def test_a_file_of_another_host_is_named(tmp_path: Path, log: str, finding: str, note: str) -> None:
    quiet = {key: text for key, text in GOOD.items() if key != "nccl.txt"}
    found = accept(tmp_path, {"node-0": {**quiet, "dmesg.txt": log}, "node-1": GOOD})
    assert (finding in found.output, found.exit_code) == (True, int(bool(finding))), found.output
    assert ("state other host names" in found.output) == bool(note)
    assert note in " ".join(found.output.split())


def test_a_benchmark_of_another_node_is_named(tmp_path: Path) -> None:
    swapped = {"node-0": GOOD, "node-1": {**GOOD, "nccl.txt": of_node(0, GOOD["nccl.txt"])}}
    found = accept(tmp_path, swapped)
    assert "node-1: a file of it states the host name node-0, which is the node node-0" in found.output


def test_what_is_not_judged_is_said(tmp_path: Path) -> None:
    found = accept(tmp_path, {"node-0": {"smi.txt": smi(), "notes.txt": "see ticket"}, "node-1": GOOD})
    assert found.exit_code == 0
    assert "no file states the ports of 1 of 2 nodes (node-0)" in found.output
    assert "holds a file of no known format: node-0/notes.txt" in found.output


LOST = "[5.0] NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.\n"


@pytest.mark.parametrize("order", [1, -1])
def test_every_tool_and_the_kernel_log_of_one_file_are_read(tmp_path: Path, order: int) -> None:
    quiet = "[1.0] Linux version 6.8\n"
    whole = "\n".join([ports(), quiet * 5_000 + LOST, benchmark(365.0), links(7), smi(7)][::order]) + "\n"
    found = accept(tmp_path, {"node-0": {"all.txt": whole}, "node-1": {**GOOD, **ALL}})
    assert found.exit_code == 1
    assert "xid:79" in found.output
    assert "7 of 8 accelerators" in found.output
    assert "no file states" not in found.output


def test_parts_that_are_not_read_are_named(tmp_path: Path) -> None:
    log = "[5.0] NVRM: Xid (PCI:0000:18:00): 999, pid=1\n[6.0] NVRM: Xid (0000:18): text\n"
    good = {**GOOD, "dmesg.txt": log, ".more.txt": LOST}
    found = accept(tmp_path, {"node-0": good, "node-1": GOOD, "node-1/.old": {"dmesg.txt": LOST}, "": {"a.txt": LOST}})
    assert "has xid:999 of node-0/GPU-" in found.output
    assert (
        "a file of which a part is not read: node-0/dmesg.txt:2 (an error without its device or code)" in found.output
    )
    assert "2 hidden entries, which are not read: node-0/.more.txt, node-1/.old" in found.output
    assert "holds a file of no node: a.txt" in found.output
    mixed = accept(tmp_path, {"node-0": {"ibstat.txt": ports() + "<nvidia_smi_log></nvidia_smi_log>"}})
    assert mixed.exit_code == 2
    assert "has the XML of nvidia-smi after other text" in mixed.output


@pytest.mark.parametrize("end", ["    Max Clocks", "/A\n\nGPU 00000000:28", "\n\nGPU 00000000:28"])
def test_a_file_that_is_cut_off_is_a_failure_and_not_a_verdict(tmp_path: Path, end: str) -> None:
    head, middle, _ = smi(8).partition("GPU 00000000:20")
    cut = head + middle + smi(8).partition(middle)[2].partition(end)[0]
    found = accept(tmp_path, {"node-0": {**GOOD, "smi.txt": cut}, "node-1": GOOD})
    assert found.exit_code == 2
    assert "node-0/smi.txt: is cut off: the file lists 3 of 8 attached GPUs" in found.output
    assert "of 8 accelerators" not in found.output


XML_GPU = "<gpu id='00000000:{0:02x}:00.0'><product_name>NVIDIA H100 80GB HBM3</product_name><uuid>GPU-{0}</uuid></gpu>"


def log(attached: str, *gpus: int) -> str:
    """What `nvidia-smi -q -x` prints of some GPUs of a node."""
    listed = "".join(XML_GPU.format(gpu) for gpu in gpus)
    return f"<nvidia_smi_log><attached_gpus>{attached}</attached_gpus>{listed}</nvidia_smi_log>\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (smi(8).split("GPU 00000000:18")[0], "1 of 8 attached GPUs"),
        (smi(8).split("GPU 00000000:28")[0], "3 of 8 attached GPUs"),
        (log("8", 0), "1 of 8 attached GPUs"),
        (log("8", *range(7)), "7 of 8 attached GPUs"),
        (log("999999999", 0), "1 of 999999999 attached GPUs"),
    ],
    ids=["text-one", "text-three", "xml-one", "xml-seven", "xml-odd"],
)
def test_a_report_of_some_gpus_leaves_their_number_open(tmp_path: Path, text: str, reason: str) -> None:
    found = accept(tmp_path, {"node-0": {**GOOD, "smi.txt": text}, "node-1": GOOD})
    words = " ".join(found.output.split())
    assert found.exit_code == 0, found.output
    assert "no file states the number of accelerators of 1 of 2 nodes (node-0)" in words
    listed = "holds a list that does not show each accelerator once"
    assert f"{listed}: node-0/smi.txt (the file lists {reason})" in words
    assert "what: nothing judged" not in found.output


def test_a_gpu_that_the_tool_does_not_reach_is_missing(tmp_path: Path) -> None:
    lost = (
        smi(7).replace(": 7\n", ": 8\n", 1)
        + "Unable to determine the device handle for GPU 0000:48:00.0: Unknown Error\n"
    )
    found = accept(tmp_path, {"node-0": {**GOOD, "smi.txt": lost}, "node-1": GOOD})
    assert (found.exit_code, "node-0: 7 of 8 accelerators" in found.output) == (1, True)


@pytest.mark.parametrize("text", [smi(4) + smi(4), log("2", 0, 0), log("8", *range(7), 0)])
def test_several_reports_in_one_file_are_refused(tmp_path: Path, text: str) -> None:
    """Their states differ, and the first would hide an error that the second has."""
    found = accept(tmp_path, {"node-0": {**GOOD, "smi.txt": text}})
    assert (found.exit_code, "GPUs several times" in found.output) == (2, True), found.output


def query(*indices: int) -> str:
    """What `nvidia-smi --query-gpu` prints."""
    return "index, name\n" + "".join(f"{index}, NVIDIA H100 80GB HBM3\n" for index in indices)


@pytest.mark.parametrize(
    ("indices", "finding", "note"),
    [
        (range(8), "", ""),
        ([*range(8), *range(8)], "", ""),
        ([*range(7), 0], "node-0: 7 of 8 accelerators", "(index 0 is listed twice)"),
        ([*range(4), *range(4)], "node-0: 4 of 8 accelerators", ""),
        ([*range(8), 0, 1, 0], "", "(index 0, 1 are listed several times)"),
    ],
)
def test_rows_of_one_device_are_one_accelerator(tmp_path: Path, indices: list[int], finding: str, note: str) -> None:
    files = {key: text for key, text in GOOD.items() if key != "smi.txt"}
    found = accept(tmp_path, {"node-0": {**files, "smi.csv": query(*indices)}, "node-1": GOOD})
    assert (found.exit_code, "of 8 accelerators" in found.output) == (int(bool(finding)), bool(finding)), found.output
    assert finding in found.output
    listed = f"holds a list that does not show each accelerator once: node-0/smi.csv {note}"
    assert (listed in " ".join(found.output.split())) == bool(note), found.output


NVLINK = links(2)
DEVINFO = (
    "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t28.39.1002\n\tphys_port_cnt:\t\t\t1\n"
    "\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tactive_width:\t\t4X (2)\n"
    "\t\t\tactive_speed:\t\t100.0 Gbps (128)\n\t\t\tlink_layer:\t\tInfiniBand\n\n"
)


@pytest.mark.parametrize(
    "text", [ports(), DEVINFO, NVLINK, diagnostic("Fail - GPU: 3")], ids=["ib", "ibv", "nvl", "dcgm"]
)
def test_no_part_of_an_output_says_what_the_whole_does_not(text: str) -> None:
    """Cut off at any place, an output is refused, or states no fact that the whole does not state."""
    whole = node_facts(text)
    assert whole is not None
    num_refused = 0
    for end in range(text.find("GPU 1:") + 1, len(text)):  # of the first GPU alone nothing shows how many links it has
        try:
            part = node_facts(text[:end])
        except ForeignFormatError as error:
            num_refused += "cut off" in str(error)
            continue
        for key, facts in (part or {}).items():
            if key == "unread":  # what was cut off is named
                continue
            same = [fact for fact in facts if fact not in whole[key]]
            lesser = [fact for fact in same if not any(fact.items() <= one.items() for one in whole[key])]
            assert not lesser, text[:end][-200:]
        if part is not None and "failed_checks" in part:
            assert part == whole, text[:end][-200:]
    assert num_refused > 10


def test_ports_that_are_cut_off_are_no_links_that_are_down(tmp_path: Path) -> None:
    cut = ports().rpartition("\t\tState")[0]
    found = accept(tmp_path, {"node-0": {**GOOD, "ibstat.txt": cut}, "node-1": GOOD})
    assert found.exit_code == 2
    assert "node-0/ibstat.txt: is cut off: port 1 of mlx5_7 has no state" in found.output
    assert "the link is down" not in found.output


def test_a_list_of_gpus_says_nothing_of_links() -> None:
    """`nvidia-smi -L`."""
    listed = "".join(line + "\n" for line in NVLINK.split("\n") if line.startswith("GPU"))
    assert all("num_active_links" not in one for one in (node_facts(listed) or {})["devices"])
    none = listed.replace("\n", "\n\tUnable to retrieve NVLink information as all links are inActive\n")
    assert [one["num_active_links"] for one in (node_facts(none) or {})["devices"]] == [0, 0]


def test_links_in_the_directory_of_nodes_are_named(tmp_path: Path) -> None:
    (tmp_path / "nodes" / "node-0" / "more").mkdir(parents=True)
    (tmp_path / "nodes" / "node-0" / "more" / "ibstat.txt").symlink_to("nowhere")
    (tmp_path / "nodes" / "node-0" / "other").symlink_to(tmp_path)
    (tmp_path / "nodes" / "node-1").symlink_to("node-0")
    found = accept(tmp_path, {"node-0": GOOD}, num_nodes=1)
    words = "holds 3 links, which are not followed: node-0/more/ibstat.txt, node-0/other, node-1"
    assert words in " ".join(found.output.split())


def test_a_directory_that_is_not_there_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(profile(1), encoding="utf-8")
    told = CliRunner().invoke(command, ["accept", f"{tmp_path}/cluster.yaml", "--from", "nope"])
    assert (told.exit_code, told.stderr) == (2, "Error: nope: no such file or directory\n")


def test_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    found = accept(tmp_path, {}, num_nodes=1)
    assert (found.exit_code, "no directory of a node" in found.output) == (2, True)
    (tmp_path / "nodes" / "a node").mkdir()
    found = accept(tmp_path, {}, num_nodes=1)
    assert (found.exit_code, "is no name of a node" in found.output) == (2, True)


def test_both_parties_verify_the_same_result(tmp_path: Path) -> None:
    written, signed = tmp_path / "accepted.yaml", tmp_path / "statement.json"
    nodes = {"node-0": {**GOOD, **ALL}, "node-1": {**GOOD, **ALL}}
    assert accept(tmp_path, nodes, "--output", f"{written}", "--statement", f"{signed}").exit_code == 0
    statement = json.loads(signed.read_text(encoding="utf-8"))
    assert statement["predicate"]["result"] == "WARNED", "an acceptance without streams judges no straggler"
    assert statement["predicate"]["warnedTests"] == ["TS-TEL-035"]
    same = accept(tmp_path, nodes, "--verify", f"{written}")
    assert same.exit_code == 0
    assert statement["subject"][0]["digest"]["sha256"] in same.output
    other = accept(tmp_path, {"node-0": {**GOOD, "smi.txt": smi(clock=1410)}}, "--verify", f"{written}", num_nodes=2)
    assert other.exit_code == 1
    assert "differs from what" in other.output


@pytest.mark.parametrize(
    ("lacks", "fact", "requirement"),
    [
        ("nccl.txt", "the bus bandwidth", "TS-CLU-074"),
        ("ibstat.txt", "the ports, the compute NICs", "TS-CLU-054"),
        ("nvlink.txt", "the scale-up links of each accelerator", "TS-CLU-073"),
        ("dmesg.txt", "errors of the kernel", "TS-CLU-073"),
    ],
)
def test_a_statement_on_what_was_not_judged_is_no_pass(lacks: str, fact: str, requirement: str, tmp_path: Path) -> None:
    node = {**GOOD, **ALL}
    signed = tmp_path / "statement.json"
    part = {name: text for name, text in node.items() if name != lacks}
    accept(tmp_path, {"node-0": node, "node-1": {**part, "notes.txt": "a"}}, "--statement", f"{signed}")
    predicate = json.loads(signed.read_text(encoding="utf-8"))["predicate"]
    assert predicate["result"] == "WARNED"
    assert requirement in predicate["warnedTests"]
    ranks = "whether its ranks are slow in a run"
    facts = {one["node"]: one["facts"] for one in predicate["unjudged"]}
    assert facts == {"node-0": [ranks], "node-1": [*fact.split(", "), ranks, "what node-1/notes.txt says"]}


@pytest.mark.parametrize("notation", ["concise", "full", "json", "sarif", "junit"])
def test_every_bad_node_is_named_in_every_format(notation: str, tmp_path: Path) -> None:
    bad = {f"node-{i:02d}": {**GOOD, "ibstat.txt": ports(firmware="28.1")} for i in range(6)}
    good = {f"node-{i:02d}": GOOD if i < 14 else {} for i in range(6, 20)}
    found = accept(tmp_path, {**bad, **good}, "--format", notation)
    assert all(f"node-{i:02d} did not answer" in found.stdout for i in range(14, 20))
    assert all(f"28.1 on node-{i:02d}/mlx5_2" in found.stdout for i in range(6))


def test_links_of_files_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text(smi(7), encoding="utf-8")
    (tmp_path / "nodes" / "node-0").mkdir(parents=True)
    (tmp_path / "nodes" / "node-0" / "link.txt").symlink_to(secret)
    found = accept(tmp_path, {"node-0": {}, "node-1": GOOD})
    assert "node-0 did not answer" in found.output


def test_ports_of_ibv_devinfo() -> None:
    found = node_facts(
        "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t28.39.1002\n\t\tport:\t1\n"
        "\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tactive_width:\t\t4X (2)\n\t\t\tactive_speed:\t\t100.0 Gbps (128)\n"
    )
    assert found is not None
    port = {"device": "mlx5_0", "port": 1, "active": True, "firmware": "28.39.1002", "rate_bytes_per_second": 50e9}
    assert found["ports"] == [port]


def test_a_report_of_nvidia_smi_in_xml() -> None:
    gpu = (
        "<gpu id='00000000:07:00.0'><product_name>NVIDIA H100 80GB HBM3</product_name><uuid>GPU-1</uuid>"
        "<pci><pci_bus_id>00000000:07:00.0</pci_bus_id><pci_gpu_link_info><link_widths><current_link_width>8x"
        "</current_link_width></link_widths></pci_gpu_link_info></pci><remapped_rows><remapped_row_failure>Yes"
        "</remapped_row_failure></remapped_rows><ecc_errors><volatile><dram_uncorrectable>1</dram_uncorrectable>"
        "</volatile></ecc_errors></gpu>"
    )
    found = node_facts(f"<nvidia_smi_log><driver_version>550.1</driver_version>{gpu}</nvidia_smi_log>")
    assert found is not None
    device = found["devices"][0]
    assert (found["driver"], found["num_accelerators"]) == ("550.1", 1)
    assert (device["host_link_num_lanes"], device["num_uncorrected_errors"], device["faults"]) == (
        *(8, 1),
        ["row-remap:failure"],
    )


def test_texts_of_other_programs_are_none_of_these_tools() -> None:
    assert node_facts("Epoch 1\n") is None
    with pytest.raises(ForeignFormatError):
        node_facts("<nvidia_smi_log><gpu>")


# --- hostile files -------------------------------------------------------------------------------------------


def num_lines_of_kernel_log(root: Path, line: Callable[[int], str], num: int) -> int:
    """How many lines of this package are executed for a kernel log of so many errors."""
    (root / "node-0").mkdir(parents=True)
    (root / "node-0" / "dmesg.txt").write_text("".join(map(line, range(num))), encoding="utf-8")
    (root / "cluster.yaml").write_text(profile(1), encoding="utf-8")
    count = 0

    def seen(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith("acceptance.py"):
            return None
        count += event == "line"
        return seen

    sys.settrace(seen)
    try:
        acceptance.gather(root / "cluster.yaml", root)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize(
    "line",
    [
        lambda n: f"[1.0] NVRM: Xid (PCI:{n:04x}:01:00): 79, x\n",
        lambda n: f"[1.0] NVRM: Xid (PCI:0000:01:00): {n}, x\n",
    ],
    ids=["devices", "codes"],
)
def test_the_work_grows_with_the_files_alone(line: Callable[[int], str], tmp_path: Path) -> None:
    few, more, many = (num_lines_of_kernel_log(tmp_path / str(num), line, num) for num in (50, 200, 800))
    assert many - more < 6 * (more - few)  # 4 times as much in proportion to the size, 16 times with its square


def test_more_devices_than_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "_MOST_FACTS", replace(acceptance._MOST_FACTS, most=3))
    log = "".join(f"[1.0] NVRM: Xid (PCI:{n:04x}:01:00): 79, x\n" for n in range(9))
    found = accept(tmp_path, {"node-0": {"dmesg.txt": log}})
    assert found.exit_code == 2
    assert "a directory of nodes may have at most 3 devices, faults of devices, ports and failed checks" in found.stderr


@pytest.mark.parametrize("name", ["_MOST_NODES", "_MOST_FILES"])
def test_more_nodes_or_files_than_the_limit_are_wrong_use(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = replace(getattr(acceptance, name), most=1)
    monkeypatch.setattr(acceptance, name, limit)
    found = accept(tmp_path, {f"node-{i}": GOOD for i in range(2)})
    assert (found.exit_code, limit.refusal in found.stderr) == (2, True)


def test_a_tree_that_is_too_deep_is_a_failure_of_its_node(tmp_path: Path) -> None:
    accept(tmp_path, {"node-0": GOOD})
    with deep_tree(tmp_path / "nodes" / "node-0"):
        found = accept(tmp_path, {"node-0": GOOD})
    assert (found.exit_code, "a directory may have at most 100 levels of directories" in found.stderr) == (2, True)
