"""Finds errors of the machine in kernel logs that the kernel itself calls fatal or uncorrected."""

from __future__ import annotations

import re

from trainspec_validate.telemetry.formats.kernel_log import DeviceError, pci_address

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
            r"(?:device's health compromised|Fatal error \d{1,9} detected|health.{0,40}\bfatal\b)"
        ),
        "mlx5:health",
    ),
    # drivers/edac/edac_mc.c: edac_ue_error.
    (re.compile(r"EDAC (?P<device>MC\d{1,4}): [1-9]\d{0,5} UE "), "memory:uncorrected"),
    # drivers/edac/mce_amd.c: amd_decode_mce.
    (re.compile(r"\[Hardware Error\]: (?:System Fatal error|Uncorrected\b)"), "processor:uncorrected"),
    # drivers/firmware/efi/cper.c: cper_estatus_print.
    (re.compile(r"\[Hardware Error\]: event severity: fatal"), "firmware:fatal"),
)
_NO_DEVICE = "host"


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
