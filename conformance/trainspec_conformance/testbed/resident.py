"""Reads how much memory this process holds."""

from __future__ import annotations

from pathlib import Path

from trainspec_conformance.testbed.probe_parts import UnsupportedError

_STATUS = Path("/proc/self/status")
_KEY, _BYTES_OF_UNIT = "VmRSS:", 1024


def resident_bytes() -> int:
    """Memory that this process holds now, with its interpreter and libraries.

    Raises:
        UnsupportedError: this system does not report it.
    """
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError as error:
        raise UnsupportedError(f"this system does not report the memory of a process: {error}") from error
    told = [line.split()[1] for line in lines if line.startswith(_KEY)]
    if not told:
        raise UnsupportedError(f"{_STATUS} reports no {_KEY}")
    return int(told[0]) * _BYTES_OF_UNIT
