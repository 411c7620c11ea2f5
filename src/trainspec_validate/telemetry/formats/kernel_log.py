"""Reads kernel logs: the errors of accelerators and their switches that drivers write between all other lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from trainspec_validate.documents.types.stream import Head
from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.local_times import local_us
from trainspec_validate.telemetry.formats.machine_errors import DeviceError, machine_incident, pci_address
from trainspec_validate.telemetry.formats.transcript import Transcript

ERROR = "train.device.error"
_PCI = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?{_PCI}[^)\n]{{0,60}}\): (?P<code>[0-9]{{1,5}})\b,? ?(?P<text>.*)")
_UUID = re.compile(rf"NVRM: GPU at (?:PCI:)?{_PCI}: (?P<uuid>GPU-[0-9a-fA-F-]{{36}})")
_SXID = re.compile(rf"SXid \(PCI:{_PCI}\): (?P<code>[0-9]{{4,6}}), (?P<severity>Fatal|Non-fatal), ?(?P<text>.*)")
_LOST_ALONE = re.compile(
    r"NVRM: GPU (?P<pci>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})\.[0-7]: GPU has fallen off the bus"
)
"""Older drivers write it below Xid 79, newer ones in its place."""
_LOST = re.compile(r"fallen off the bus and is not responding")
_LOST_GPU = re.compile(rf"NVRM: The NVIDIA GPU {_PCI}")
_RAS = re.compile(
    rf"amdgpu {_PCI}: (?:amdgpu: )?(?:\{{[0-9]+\}})?(?:socket: [0-9]{{1,4}},? ?)?(?:die: [0-9]{{1,4}},? ?)?"
    r"(?P<num>[0-9]{1,18}) (?:new )?(?P<kind>correctable|uncorrectable|deferred|de-ferred) hardware errors? "
    r"detected in (?P<total>total in )?(?P<block>\w{1,40}) block"
)
_RAS_FATAL = re.compile(
    rf"amdgpu {_PCI}: (?:amdgpu: )?(?:\{{[0-9]+\}})?uncorrectable hardware error ?\((?P<event>\w{{1,60}})\)"
)
_AMD_RESET = re.compile(rf"amdgpu {_PCI}: (?:amdgpu: )?GPU reset begin")
_HOT = re.compile(rf"amdgpu {_PCI}: (?:amdgpu: )?ERROR: GPU (?:over temperature range|HW Critical Temperature Fault)\b")
"""The driver turns the machine off next; torvalds/linux drivers/gpu/drm/amd/pm, SW CTF and HW CTF."""
_LINK_SEVERITY = re.compile(r"(?:^|, )[A-Z_0-9/]{3,40} +(?P<severity>Fatal|Nonfatal) ")
"""In messages of Xid 144 to 150, which name the unit of the link first."""
_RECOVERY = re.compile(r"GPU recovery action changed from 0x\w{1,8} \([^)]{0,60}\) to 0x\w{1,8} \((?P<to>[^)]{0,60})\)")
_OUT_OF_USE = frozenset({"GPU Reset Required", "Node Reboot Required"})
_HINTS = ("Xid (", "NVRM: ", "amdgpu ", "fallen off the bus")

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "|".join(_MONTHS)
_CLOCK = r"[0-9][0-9]:[0-9][0-9]:[0-9][0-9](?:[.,][0-9]{1,9})?"
_ISO = re.compile(
    rf"(?P<day>[0-9]{{4}}-[0-9][0-9]-[0-9][0-9])[T ](?P<clock>{_CLOCK})(?P<zone>Z|[+-][0-9][0-9]:?[0-9][0-9])?"
)
_CTIME = re.compile(
    rf"\w{{3}} (?P<month>{_MONTH}) {{1,2}}(?P<day>[0-9]{{1,2}}) (?P<clock>{_CLOCK}) (?P<year>[0-9]{{4}})"
)
_SYSLOG = re.compile(rf"(?P<month>{_MONTH}) {{1,2}}(?P<day>[0-9]{{1,2}}) (?P<clock>{_CLOCK})")
_BOOT = re.compile(r"\[ {0,12}(?P<seconds>[0-9]{1,12}\.[0-9]{1,9})\]")
_HOST = re.compile(r" (?P<host>[A-Za-z0-9][\w.-]{0,200}) kernel(?:\[[0-9]{1,10}\])?:")
_MAX_PREFIX = 300
_MAX_TEXT = 300
_MOST_DEVICES: Final = Limit("a kernel log", 100_000, "devices")


def device_error(text: str) -> DeviceError | None:
    """The error of a device that a line of a kernel log reports; None where it reports none.

    >>> device_error("[ 9.5] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.").code
    'xid:79'
    >>> device_error("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44").severity
    'nonfatal'
    >>> device_error("amdgpu 0000:03:00.0: amdgpu: 2 correctable hardware errors detected in umc block").code
    'ras:correctable:umc'
    """
    if found := _XID.search(text):
        return _error(found, f"xid:{int(found['code'])}", _xid_severity(found["text"]), found["text"])
    if found := _SXID.search(text):
        severity = "fatal" if found["severity"] == "Fatal" else "nonfatal"
        return _error(found, f"sxid:{int(found['code'])}", severity, found["text"])
    if found := _RAS.search(text):
        if found["total"] or int(found["num"]) == 0:
            return None  # the sum so far, which lines above have told
        kind = found["kind"].replace("-", "")
        return _error(found, f"ras:{kind}:{found['block'].lower()}", "corrected" if kind == "correctable" else None)
    if found := _RAS_FATAL.search(text):
        return _error(found, f"ras:uncorrectable:{found['event'].lower()}", "fatal")
    if found := _AMD_RESET.search(text):
        return _error(found, "amdgpu:reset", None)
    if found := _HOT.search(text):
        return _error(found, "amdgpu:over-temperature", "fatal")
    if found := _LOST_ALONE.search(text):
        return _error(found, "xid:79", None)
    return None


def _error(found: re.Match[str], code: str, severity: str | None, text: str | None = None) -> DeviceError:
    told = found[0] if text is None else text
    return DeviceError(
        pci_address(found["pci"]), code, severity, told.strip()[:_MAX_TEXT], found.string[: found.start()]
    )


def _xid_severity(text: str) -> str | None:
    if found := _LINK_SEVERITY.search(text[:_MAX_TEXT]):
        return "fatal" if found["severity"] == "Fatal" else "nonfatal"
    if found := _RECOVERY.search(text):
        return "fatal" if found["to"] in _OUT_OF_USE else "nonfatal"
    return None


class Reader:
    """Reads the lines of one log; those that report no error of a device are passed over."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._uuids: dict[str, str] = {}
        self._lost_gpu: str | None = None
        self._newest: dict[str, str] = {}
        """Code of the newest error of each device."""
        self._started = False

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The event of a line."""
        if incident := machine_incident(text):
            self._transcript.lose("incident", *incident, offset)
        if not any(hint in text for hint in _HINTS):
            return
        error = device_error(text)
        if error is None:
            error = self._noted(text)
        if error is None:
            if "NVRM: Xid (" in text:
                yield (
                    offset,
                    Refusal("the line has no address or code", "NVRM: Xid (PCI:0000:05:00): 79, text", "value"),
                )
            return
        if error.code == self._newest.get(error.pci) and _LOST_ALONE.search(text):
            return  # the same error in other words
        _MOST_DEVICES.check(len(self._newest) + 1)
        self._newest[error.pci] = error.code
        time_us, clock = self._time(error.prefix, offset)
        host = _HOST.search(error.prefix[-_MAX_PREFIX:]) if error.prefix else None
        name = (fit.identity(host["host"]) if host else None) or self._transcript.given.host
        if not self._started:
            yield offset, self._head(time_us, clock, name)
        device = self._uuids.get(error.pci)
        if device is None:
            message = "the log names no UUID of the device; its PCI address is taken, which another slot changes"
            self._transcript.lose("identity", "device", message, offset)
        attributes = {"train.fault.vendor_code": error.code, "train.reason": error.text or error.code}
        if error.severity is not None:
            attributes["train.error.severity"] = error.severity
        yield offset, self._transcript.event(time_us, ERROR, host=name, device=device or error.pci, a=attributes)

    def _noted(self, text: str) -> DeviceError | None:
        """Keep what further lines need; the error that a message of several lines reports at its end."""
        if found := _UUID.search(text):
            _MOST_DEVICES.check(len(self._uuids) + 1)
            self._uuids[pci_address(found["pci"])] = found["uuid"]
        elif found := _LOST_GPU.search(text):
            self._lost_gpu = pci_address(found["pci"])
        elif self._lost_gpu is not None and (found := _LOST.search(text)):
            pci, self._lost_gpu = self._lost_gpu, None
            return DeviceError(
                pci, "xid:79", None, "fallen off the bus and is not responding to commands", text[: found.start()]
            )
        return None

    def _head(self, time_us: int, clock: str, host: str | None) -> Head:
        self._started = True
        transcript = self._transcript
        transcript.clock = clock  # type: ignore[assignment]
        return transcript.head(time_us, ("device",), host=host)

    def _time(self, prefix: str, offset: int) -> tuple[int, str]:
        """The time of a line, and what it is worth."""
        transcript, prefix = self._transcript, prefix[:_MAX_PREFIX]
        given = transcript.given
        if found := _ISO.search(prefix) or _CTIME.search(prefix):
            zone = found.groupdict().get("zone")
            moment = f"{_day(found)}T{found['clock'].replace(',', '.')}{zone or ''}"
            time_us = local_us(moment, None if zone else given.utc_offset_seconds)
            if time_us is not None:
                if zone or given.utc_offset_seconds is not None:
                    return time_us, "utc"
                transcript.lose("time", "time", "times have no zone; they are taken for UTC", offset)
                return time_us, "local"
        if (found := _SYSLOG.search(prefix)) and given.start_us is not None:
            start = datetime.fromtimestamp(given.start_us / 1e6, UTC)
            for year in (start.year, start.year + 1):
                time_us = local_us(f"{year}-{_month_day(found)}T{found['clock']}", given.utc_offset_seconds)
                if time_us is not None and time_us >= given.start_us:
                    return time_us, "utc" if given.utc_offset_seconds is not None else "local"
        if found := _BOOT.search(prefix):
            if given.start_us is None:
                message = "times count from a start that is not stated (0; --known start= states it)"
                transcript.lose("time", "time", message, offset)
            return (given.start_us or 0) + round(float(found["seconds"]) * 1e6), "relative"
        message = "lines have no time, or one without a year; their times are 0, or --known start= states the first day"
        transcript.lose("time", "time", message, offset)
        return given.start_us or 0, "none"

    def end(self) -> Iterator[Found]:
        """Nothing: each line is complete."""
        yield from ()


def _day(found: re.Match[str]) -> str:
    return found["day"] if "-" in found["day"] else f"{found['year']}-{_month_day(found)}"


def _month_day(found: re.Match[str]) -> str:
    return f"{_MONTHS.index(found['month']) + 1:02d}-{int(found['day']):02d}"
