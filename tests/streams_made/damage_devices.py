"""Damages the agreement of errors of devices with the faults of a job, and with the use of the devices."""

from __future__ import annotations

from trainspec_validate.documents.types.stream import Event, Sample

from .damage import on_streams
from .damage_life import with_event
from .edits import Record, Streams, edit, moment
from .run import Run

SECOND = 1_000_000
EARLY = 0.2
"""Share of the run after which the device has its error."""


def _with_error(run: Run, code: str, reason: str) -> tuple[Streams, Event]:
    """The streams with one error of a device early in the run, and its event."""
    after = moment(run.streams, EARLY)
    added: list[Event] = []

    def change(record: Record) -> list[Record]:
        if added or not isinstance(record, Sample) or record.device is None or record.time_us < after:
            return [record]
        attributes = {"train.fault.vendor_code": code, "train.reason": reason}
        place = {"device": record.device, "host": record.host, "time_us": record.time_us}
        added.append(Event(name="train.device.error", seq=0, a=attributes, **place))
        return [record, added[0]]

    return edit(run.streams, "node/", change), added[0]


def _with_fault(streams: Streams, error: Event, code: str) -> Streams:
    """The streams with a fault of the device that had the error."""
    attributes = {
        "train.fault.id": "fault-device",
        "train.fault.domain": "infrastructure",
        "train.fault.class": "device",
        "train.fault.vendor_code": code,
        "train.fault.component": error.device,
    }
    detected = error.time_us + SECOND
    return with_event(
        streams, Event(name="train.fault.detected", seq=0, time_us=detected, id="fault-device", a=attributes)
    )


@on_streams("TS-TEL-085", "TS-TEL-087")
def device_error_without_fault(run: Run) -> Streams:
    """A device falls off the bus, and no fault is reported."""
    return _with_error(run, "xid:79", "GPU has fallen off the bus")[0]


@on_streams("TS-TEL-086", "TS-TEL-048")
def fault_blamed_on_another_error(run: Run) -> Streams:
    """A fault names a device whose only error has another code."""
    streams, error = _with_error(run, "xid:63", "Row remapping event")
    return _with_fault(streams, error, "xid:79")


@on_streams("TS-TEL-087", "TS-TEL-048")
def device_used_after_its_error(run: Run) -> Streams:
    """A device works until the end of the run after an error that asks for its reset."""
    streams, error = _with_error(run, "xid:95", "Uncontained memory error")
    return _with_fault(streams, error, "xid:95")
