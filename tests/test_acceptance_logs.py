"""Kernel logs of nodes: errors of the hosts that other lines name are charged to no node, and are said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node_reports import smi
from tests.test_toolbox_accept import GOOD, accept
from trainspec_validate.pipeline.acceptance_logs import node_log

XID = "NVRM: Xid (PCI:0000:20:00): 79, pid=1, GPU has fallen off the bus."
STAMPS = {
    "RFC 3164": "Nov 26 12:00:00 {} kernel: ",
    "with a priority": "<3>Nov 26 12:00:00 {} kernel: ",
    "RFC 5424": "<3>1 2026-11-26T12:00:00.000Z {} kernel - - - ",
    "ISO": "2026-11-26T12:00:00.000000+00:00 {} kernel: ",
    "short-iso": "2026-11-26T12:00:00+0000 {} kernel[1]: ",
    "short-full": "Thu 2026-11-26 12:00:00 UTC {} kernel: ",
    "short-unix": "1795694400.000000 {} kernel: ",
    "short-monotonic": "[   12.000000] {} kernel: ",
    "JSON": '{{"_HOSTNAME":"{}","MESSAGE":"',
}
VERBOSE = "Thu 2026-11-26 12:00:00 UTC [s=1]\n    _HOSTNAME={}\n    MESSAGE={}\n"


def line(stamp: str, host: str, words: str = XID) -> str:
    return f"{STAMPS[stamp].format(host)}{words}" + ('"}' if stamp == "JSON" else "") + "\n"


@pytest.mark.parametrize("stamp", STAMPS)
def test_errors_of_another_host_are_not_charged(stamp: str) -> None:
    found = node_log(line(stamp, "gpu-12", "NVRM: loaded") + line(stamp, "gpu-12"), "node-0")
    assert found is not None
    assert (found.devices, found.is_of_node) == ([], False)
    assert found.unread == [" (a kernel log of another host: gpu-12, with 1 error)"]


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("host", ["node-0", "NODE-0", "node-0.example.org", "localhost"])
def test_errors_of_the_host_are_charged(stamp: str, host: str) -> None:
    found = node_log(line(stamp, host), "node-0")
    assert found is not None
    assert (found.is_of_node, found.unread) == (True, [])
    assert [device["faults"] for device in found.devices] == [["xid:79"]]


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_log_of_several_hosts_has_its_own_errors_alone(stamp: str) -> None:
    other = XID.replace("20:00", "28:00").replace(" 79,", " 95,")
    found = node_log(line(stamp, "node-0") + line(stamp, "node-1", other), "node-0")
    assert found is not None
    assert [device["pci"] for device in found.devices] == ["0000:20:00"]
    assert found.unread == [" (lines of other hosts: node-1, with 1 error)"]


@pytest.mark.parametrize(("host", "number"), [("node-0", 1), ("gpu-12", 0)])
def test_an_entry_of_several_lines_has_the_host_of_the_log(host: str, number: int) -> None:
    found = node_log(VERBOSE.format(host, XID), "node-0")
    assert found is not None
    assert len(found.devices) == number


def test_entries_of_several_lines_and_several_hosts_are_not_charged() -> None:
    found = node_log(VERBOSE.format("node-1", XID) + VERBOSE.format("node-0", "NVRM: loaded"), "node-0")
    assert found is not None
    assert (found.devices, found.unread) == ([], [" (lines of other hosts: node-1, with 1 error)"])


@pytest.mark.parametrize(
    "text",
    [
        "[   12.000000] usb usb1: New USB device\n",
        "2026-11-26T12:00:00,000000+00:00 usb usb1: kernel: x\n",
        "[Thu Nov 26 12:00:00 2026] pci 0000:20:00.0: x\n",
    ],
)
def test_lines_of_dmesg_name_no_host(text: str) -> None:
    found = node_log(text + f"[   13.000000] {XID}\n", "node-0")
    assert found is not None
    assert (list(found.hosts), len(found.devices), found.is_of_node) == ([], 1, True)


@pytest.mark.parametrize("known", [True, False])
def test_a_node_is_not_judged_by_the_log_of_another(tmp_path: Path, known: bool) -> None:
    log = line("RFC 3164", "node-1.example.org" if known else "gpu-12")
    quiet = {key: text for key, text in GOOD.items() if key != "nccl.txt"} | {"smi.txt": smi()}
    found = accept(tmp_path, {"node-0": {**quiet, "kernel.log": log}, "node-1": GOOD}, "--fail-on", "unjudged")
    words = " ".join(found.output.split())
    assert found.exit_code == 1
    assert "xid:79" not in words
    assert "node-0/kernel.log (a kernel log of another host: " in words
    assert "no file states errors of the kernel of 2 of 2 nodes (node-0, node-1)" in words
