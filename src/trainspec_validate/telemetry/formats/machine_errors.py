"""Finds errors of the machine in kernel logs that the kernel itself calls fatal or uncorrected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_PCI = r"(?P<device>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_FATAL = r"Uncorrect(?:ed|able) \(Fatal\)"
HINTS = ("(Fatal)", "mlx5_core ", "[Hardware Error]", "EDAC ")
"""Parts of lines that may report such an error."""
_ERRORS = (
    # drivers/pci/pcie/aer.c: aer_print_error and aer_print_port_info, older and newer words.
    (re.compile(rf"{_PCI}: (?:AER: )?PCIe Bus Error: severity={_FATAL}"), "pcie:fatal"),
    (re.compile(rf"AER: (?:Multiple )?{_FATAL} error (?:message )?received(?: from)?:? {_PCI}"), "pcie:fatal"),
    # drivers/net/ethernet/mellanox/mlx5/core/health.c: poll_health; other drivers of the adapter say "health … fatal".
    (
        re.compile(
            rf"mlx5_core {_PCI}: .{{0,80}}?"
            r"(?:device's health compromised|Fatal error [0-9]{1,9} detected|health.{0,40}\bfatal\b)"
        ),
        "mlx5:health",
    ),
    # drivers/edac/edac_mc.c: edac_ue_error.
    (re.compile(r"EDAC (?P<device>MC[0-9]{1,4}): [1-9][0-9]{0,5} UE "), "memory:uncorrected"),
    # drivers/edac/mce_amd.c: amd_decode_mce.
    (re.compile(r"\[Hardware Error\]: (?:System Fatal error|Uncorrected\b)"), "processor:uncorrected"),
    # drivers/firmware/efi/cper.c: cper_estatus_print.
    (re.compile(r"\[Hardware Error\]: event severity: fatal"), "firmware:fatal"),
)
_NO_DEVICE = "host"
_KILLED = re.compile(
    r"(?P<what>[Oo]ut of memory|[Mm]emory cgroup out of memory): Kill(?:ed)? process (?P<process>[0-9]{1,10})"
    r"(?:,? ?\((?P<name>[^)\n]{1,40})\))?"
)
"""Source: torvalds/linux, mm/oom_kill.c: __oom_kill_process and oom_kill_process of older kernels."""
_HINTS_OF_INCIDENTS: Final = (*HINTS, "ut of memory: Kill")


@dataclass(frozen=True, slots=True)
class DeviceError:
    """An error of a device as one line has it."""

    pci: str
    code: str
    severity: str | None
    text: str
    prefix: str
    """Time and host before the message: the time, and the host."""


def machine_error(text: str) -> DeviceError | None:
    """The error of a PCIe link, a network adapter, a processor or memory that a line reports; None where it has none.

    Corrected errors and those of PCIe links that are not fatal are none. An error without an address is of the host.

    >>> machine_error("pcieport 0000:80:01.1: AER: Uncorrected (Fatal) error received: 0000:81:00.0").pci
    '0000:81:00'
    >>> machine_error("EDAC MC0: 1 UE memory read error on DIMM_A1 (channel:0 slot:0)").code
    'memory:uncorrected'
    >>> machine_error("EDAC MC0: 1 CE memory read error on DIMM_A1 (channel:0 slot:0)") is None
    True
    """
    for pattern, code in _ERRORS:
        if found := pattern.search(text):
            device = found.groupdict().get("device") or _NO_DEVICE
            name = pci_address(device) if ":" in device else device
            return DeviceError(name, code, "fatal", found[0], text[: found.start()])
    return None


def machine_incident(text: str) -> tuple[str, str] | None:
    """Key and words of an incident in a line: a process that the kernel killed, or an error of the machine.

    >>> machine_incident("[ 9.5] Out of memory: Killed process 4242 (python) total-vm:1kB")
    ('out of memory', 'the kernel killed process 4242 (python): out of memory')
    >>> machine_incident("[ 9.5] EDAC MC0: 1 UE memory read error on DIMM_A1")
    ('memory:uncorrected MC0', 'the kernel reports memory:uncorrected of MC0: EDAC MC0: 1 UE')
    """
    if not any(hint in text for hint in _HINTS_OF_INCIDENTS):
        return None
    if killed := _KILLED.search(text):
        name = f" ({killed['name']})" if killed["name"] else ""
        what = killed["what"].lower()
        return what, f"the kernel killed process {killed['process']}{name}: {what}"
    error = machine_error(text)
    if error is None:
        return None
    return f"{error.code} {error.pci}", f"the kernel reports {error.code} of {error.pci}: {error.text.strip()}"


def pci_address(text: str) -> str:
    """An address of the PCI bus, without its function, as the kernel writes it.

    >>> pci_address("00000000:0A:00.0")
    '0000:0a:00'
    """
    *domains, bus, slot = text.lower().partition(".")[0].split(":")
    domain = domains[0] if domains else "0"
    return f"{int(domain, 16):04x}:{bus}:{slot}"
