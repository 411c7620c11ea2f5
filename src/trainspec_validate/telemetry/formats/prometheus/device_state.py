"""Takes apart what exporters write of the state of a device: the code of its last error, and masks of reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainspec_validate.system.digits import is_digits

THROTTLED = "train.accelerator.throttled"
_REASONS = {"power": 0x84, "thermal": 0x60, "sync": 0x10, "hardware": 0x08}
"""Bits of a mask by the reason of this specification; nvml.h, nvmlClocksEventReasons. Idle clocks and those that an
application or a display asked for hold nothing down."""
_MASKS = frozenset({"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"})
_HELD = {
    "accelerator_nvidia_clock_hw_slowdown": "hardware",
    "accelerator_nvidia_clock_hw_slowdown_power_brake": "power",
    "accelerator_nvidia_clock_hw_slowdown_thermal": "thermal",
}
"""Reasons of GPUd, which are those of the hardware: 0 says nothing of the limits that software keeps."""
_LAST_CODE = "DCGM_FI_DEV_XID_ERRORS"
_SWITCHES = {"DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS": "fatal", "DCGM_FI_DEV_NVSWITCH_NON_FATAL_ERRORS": "nonfatal"}
"""Values are the SXid of the last error of a switch; dcgm_fields.h, fields 856 and 857."""
_COUNTS = frozenset({"DCGM_EXP_XID_ERRORS_COUNT", "accelerator_nvidia_xid_errors_total"})
"""Errors by code, which is the label `xid`: of the DCGM exporter in a window, and of GPUd."""
_FLAGS = {
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "row-remap:failure",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "row-remap:pending",
    "accelerator_nvidia_remapped_rows_remapping_failed": "row-remap:failure",
    "accelerator_nvidia_remapped_rows_remapping_pending": "row-remap:pending",
}
NAMES = frozenset({_LAST_CODE, *_COUNTS, *_FLAGS, *_HELD, *_MASKS, *_SWITCHES})
_MOST_CODE = 99_999
_MOST_MASK = 2**53


def vendor_code(name: str, value: float, labels: Mapping[str, str]) -> str | None:
    """The code of the error that a value says a device has had; None where it has had none, or the value is no code.

    >>> vendor_code("DCGM_FI_DEV_XID_ERRORS", 79.0, {}), vendor_code("DCGM_FI_DEV_XID_ERRORS", 0.0, {})
    ('xid:79', None)
    >>> vendor_code("DCGM_EXP_XID_ERRORS_COUNT", 2.0, {"xid": "43"})
    'xid:43'
    >>> vendor_code("DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS", 22013.0, {})
    'sxid:22013'
    """
    if name in _MASKS or name in _HELD or not value > 0:
        return None
    if name in _FLAGS:
        return _FLAGS[name]
    code = labels.get("xid", "") if name in _COUNTS else f"{value:.0f}" if value <= _MOST_CODE else ""
    is_code = is_digits(code) and len(code) <= len(str(_MOST_CODE)) and int(code) > 0
    kind = "sxid" if name in _SWITCHES else "xid"
    return f"{kind}:{int(code)}" if is_code else None


def is_code(label: str, name: str) -> bool:
    """Whether a label has the code of the errors that a series counts."""
    return label == "xid" and name in _COUNTS


def severity(name: str) -> str | None:
    """How bad the errors are that a series is of; None where its name does not say so.

    >>> severity("DCGM_FI_DEV_NVSWITCH_NON_FATAL_ERRORS"), severity("DCGM_FI_DEV_XID_ERRORS")
    ('nonfatal', None)
    """
    return _SWITCHES.get(name)


def throttled(name: str, value: float) -> Iterator[tuple[str, float]]:
    """The metrics of a mask of reasons: 1 for each that holds, and 0 for the others; or of one that holds.

    >>> [value for _, value in throttled("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 68.0)]
    [1.0, 1.0, 0.0, 0.0]
    >>> list(throttled("accelerator_nvidia_clock_hw_slowdown_thermal", 0.0))
    []
    """
    if name in _HELD and value == 1:
        yield f"{THROTTLED}{{train.throttle.reason={_HELD[name]}}}", value
    if name in _MASKS and 0 <= value <= _MOST_MASK:
        for reason, bits in _REASONS.items():
            yield f"{THROTTLED}{{train.throttle.reason={reason}}}", float(bool(int(value) & bits))
