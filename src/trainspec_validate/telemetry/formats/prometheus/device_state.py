"""Takes apart what exporters write of the state of a device: the code of its last error, and masks of reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

THROTTLED = "train.accelerator.throttled"
_REASONS = {"power": 0x84, "thermal": 0x60, "sync": 0x10, "hardware": 0x08}
"""Bits of a mask by the reason of this specification; nvml.h, nvmlClocksEventReasons. Idle clocks and those that an
application or a display asked for hold nothing down."""
_MASKS = frozenset({"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"})
_LAST_CODE = "DCGM_FI_DEV_XID_ERRORS"
_COUNTS = frozenset({"DCGM_EXP_XID_ERRORS_COUNT", "accelerator_nvidia_xid_errors_total"})
"""Errors by code, which is the label `xid`: of the DCGM exporter in a window, and of GPUd."""
_FLAGS = {
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "row-remap:failure",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "row-remap:pending",
}
NAMES = frozenset({_LAST_CODE, *_COUNTS, *_FLAGS, *_MASKS})
_MOST_CODE = 99_999
_MOST_MASK = 2**53


def vendor_code(name: str, value: float, labels: Mapping[str, str]) -> str | None:
    """The code of the error that a value says a device has had; None where it has had none, or the value is no code.

    >>> vendor_code("DCGM_FI_DEV_XID_ERRORS", 79.0, {}), vendor_code("DCGM_FI_DEV_XID_ERRORS", 0.0, {})
    ('xid:79', None)
    >>> vendor_code("DCGM_EXP_XID_ERRORS_COUNT", 2.0, {"xid": "43"})
    'xid:43'
    """
    if name in _MASKS or not value > 0:
        return None
    if name in _FLAGS:
        return _FLAGS[name]
    code = labels.get("xid", "") if name in _COUNTS else f"{value:.0f}" if value <= _MOST_CODE else ""
    is_code = code.isascii() and code.isdigit() and len(code) <= len(str(_MOST_CODE)) and int(code) > 0
    return f"xid:{int(code)}" if is_code else None


def throttled(name: str, value: float) -> Iterator[tuple[str, float]]:
    """The metrics of a mask of reasons: 1 for each reason that holds, and 0 for the others.

    >>> [value for _, value in throttled("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 68.0)]
    [1.0, 1.0, 0.0, 0.0]
    """
    if name in _MASKS and 0 <= value <= _MOST_MASK:
        for reason, bits in _REASONS.items():
            yield f"{THROTTLED}{{train.throttle.reason={reason}}}", float(bool(int(value) & bits))
