"""Errors of devices in kernel logs: lines of published logs, their times, and what is no error."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from reading import read_text

from trainspec_validate.cli.validate import command
from trainspec_validate.model.xids import xid, xids
from trainspec_validate.telemetry.formats.kernel_log import device_error
from trainspec_validate.telemetry.formats.machine_errors import pci_address

GPU = "GPU-979426f2-893a-7cbb-c4cf-81472f89a462"
# akash-network/support issue 209.
LOST = f"""\
[Thu Apr  4 18:03:56 2024] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024
[Fri Apr  5 21:29:39 2024] NVRM: GPU at PCI:0000:a1:00: {GPU}
[Fri Apr  5 21:29:39 2024] NVRM: Xid (PCI:0000:a1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[Fri Apr  5 21:29:39 2024] NVRM: GPU 0000:a1:00.0: GPU has fallen off the bus.
[Fri Apr  5 21:29:39 2024] NVRM: A GPU crash dump has been created. If possible, please run
                           NVRM: nvidia-bug-report.sh as root to collect this data before
                           NVRM: the NVIDIA kernel module is unloaded.
"""


@pytest.mark.parametrize(
    ("line", "device", "code", "severity"),
    [
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00", "xid:14", None),
        (
            "NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH",
            *("0000:cb:00", "xid:109", None),
        ),
        (
            "NVRM: Xid (PCI:0018:01:00): 145, pid=876767, name=ray::Worker, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0)",
            *("0018:01:00", "xid:145", "nonfatal"),
        ),
        (
            "NVRM: Xid (PCI:0000:04:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x0)",
            "0000:04:00",
            "xid:149",
            "fatal",
        ),
        (
            "NVRM: Xid (PCI:0019:01:00): 154, GPU recovery action changed from 0x4 (Drain) to 0x1 (GPU Reset Required)",
            *("0019:01:00", "xid:154", "fatal"),
        ),
        (
            "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
            *("0009:01:00", "xid:154", "nonfatal"),
        ),
        ("NVRM: GPU 18:00.0: GPU has fallen off the bus.", "0000:18:00", "xid:79", None),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt",
            *("0000:04:00", "sxid:22013", "nonfatal"),
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            *("0000:a9:00", "sxid:20034", "fatal"),
        ),
        (
            "amdgpu 0000:68:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
            *("0000:68:00", "ras:uncorrectable:errevent_athub_interrupt", "fatal"),
        ),
        (
            "amdgpu 0000:03:00.0: amdgpu: socket: 0, die: 0, 2 new correctable hardware errors detected in umc block",
            *("0000:03:00", "ras:correctable:umc", "corrected"),
        ),
        ("amdgpu 0000:e3:00.0: amdgpu: GPU reset begin!", "0000:e3:00", "amdgpu:reset", None),
        (
            "amdgpu 0000:03:00.0: amdgpu: ERROR: GPU over temperature range(SW CTF) detected!",
            *("0000:03:00", "amdgpu:over-temperature", "fatal"),
        ),
        (
            "amdgpu 0000:03:00.0: amdgpu: ERROR: GPU HW Critical Temperature Fault(aka CTF) detected!",
            *("0000:03:00", "amdgpu:over-temperature", "fatal"),
        ),
    ],
)
def test_an_error_of_a_device(line: str, device: str, code: str, severity: str | None) -> None:
    found = device_error(f"[ 9.5] {line}")
    assert found is not None
    assert (found.pci, found.code, found.severity) == (device, code, severity)


@pytest.mark.parametrize(
    "line",
    [
        "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Data {0x0000002b, 0x0000002b, 0x00000000}",
        "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Severity 0 Engine instance 44 Sub-engine instance 00",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.195.03",
        "NVRM: A GPU crash dump has been created. If possible, please run",
        "amdgpu 0000:e3:00.0: amdgpu: MEM ECC is active.",
        "amdgpu 0000:03:00.0: amdgpu: 5 correctable hardware errors detected in total in umc block",
        "amdgpu 0000:03:00.0: amdgpu: ERROR: System is going to shutdown due to GPU SW CTF!",
        "input: GPU over temperature range(SW CTF) detected as /devices/virtual/input/input45",
        "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE",
        "if 'NVRM: Xid (PCI' in line:",
    ],
)
def test_what_is_no_error(line: str) -> None:
    assert device_error(line) is None


def test_a_log_names_each_error_once_and_the_device_by_its_uuid() -> None:
    found = read_text(LOST)
    assert [(event.name, event.device, event.a["train.fault.vendor_code"]) for event in found.events] == [
        ("train.device.error", GPU, "xid:79")
    ]
    assert found.losses.clock == "local"
    assert found.events[0].time_us == 1712352579_000000
    assert found.heads[0].scopes == ("device",)
    assert read_text(LOST, utc_offset_seconds=3600).losses.clock == "utc"


def test_the_message_of_several_lines() -> None:
    """NVIDIA/NVSentinel issue 155: a GPU that is lost while the driver probes it has no Xid."""
    lost = """\
[ 1800.000000] NVRM: Xid (PCI:0000:44:00): 43, pid=1, name=a, Ch 8
[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:26b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
"""
    found = read_text(lost)
    assert [(event.device, event.a["train.fault.vendor_code"]) for event in found.events] == [
        ("0000:44:00", "xid:43"),
        ("0000:b3:00", "xid:79"),
    ]


@pytest.mark.parametrize(
    ("prefix", "start_us", "time_us", "clock", "host"),
    [
        ("[ 269.516977] ", None, 269_516_977, "relative", None),
        ("[ 269.5] ", 1_000_000, 270_500_000, "relative", None),
        ("2024-08-18T01:19:31.351160+02:00 minipc kernel: ", None, 1723936771_351160, "utc", "minipc"),
        ("2024-08-18T01:19:31,351160+0000 ", None, 1723943971_351160, "utc", None),
        ("Feb 14 05:03:41 gpu-1 kernel: [  12.5] ", 1767225600_000000, 1771045421_000000, "local", "gpu-1"),
        ("Jan  2 00:00:00 gpu-1 kernel: ", 1798675200_000000, 1798848000_000000, "local", "gpu-1"),
        ("Feb 14 05:03:41 gpu-1 kernel: ", None, 0, "none", "gpu-1"),
        ("", None, 0, "none", None),
    ],
)
def test_times_and_hosts(prefix: str, start_us: int | None, time_us: int, clock: str, host: str | None) -> None:
    found = read_text(f"{prefix}NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.\n", start_us=start_us)
    assert (found.events[0].time_us, found.losses.clock, found.events[0].host) == (time_us, clock, host)


def test_a_line_that_is_torn_is_refused() -> None:
    found = read_text("[1.0] NVRM: Xid (PCI:0000:05:00): 13, a\n[1.1] NVRM: Xid (PCI:0000:05\n")
    assert len(found.events) == len(found.refusals) == 1


def test_the_table_of_xids() -> None:
    assert {code for code, row in xids().items() if row.reset} >= {46, 62, 64, 79, 95, 119, 120, 140}
    assert all(row.restart for row in xids().values() if row.reset)
    assert xid("xid:31") is not None
    assert xid("xid:") is xid("31") is xid("xid:-1") is None
    assert pci_address("00000000:CB:00.0") == "0000:cb:00"


XID = "2026-05-01T11:00:00,1+00:00 node1 kernel: NVRM: Xid (PCI:0000:05:00): 79, pid=1, GPU has fallen off the bus.\n"
KILLED = "[12.5] Out of memory: Killed process 4242 (python) total-vm:123456kB, anon-rss:12345kB\n"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (KILLED, "the kernel killed process 4242 (python): out of memory"),
        (KILLED * 3, "the kernel killed process 4242 (python): out of memory (3 times)"),
        (
            "[12.5] Memory cgroup out of memory: Kill process 7 (pt_main_thread) score 991 or sacrifice child\n",
            "the kernel killed process 7 (pt_main_thread): memory cgroup out of memory",
        ),
        (
            "[12.5] pcieport 0000:80:01.1: AER: Uncorrected (Fatal) error received: 0000:81:00.0\n",
            "the kernel reports pcie:fatal of 0000:81:00: AER: Uncorrected (Fatal) error received: 0000:81:00.0",
        ),
        ("[12.5] EDAC MC0: 1 CE memory read error on DIMM_A1 (channel:0 slot:0)\n", None),
    ],
)
def test_kills_and_errors_of_the_machine_are_incidents(lines: str, words: str | None, tmp_path: Path) -> None:
    """The last line of the report, which a pipeline prints, does not read as if nothing happened."""
    path = tmp_path / "dmesg.log"
    path.write_text(XID + lines, encoding="utf-8")
    output = CliRunner().invoke(command, [str(path), "--format", "full"]).output
    assert (words or "device error: xid:79") in output
    number = "1 incident" if words is None else "2 incidents"
    assert output.splitlines()[-1].startswith(f"no findings, but the streams state {number}: ")
