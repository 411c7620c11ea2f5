"""Errors of devices against faults of the job and against the work of the device."""

from __future__ import annotations

import pytest
from telemetry_makers import Stream, judged, messages, refused, view

GPU, OTHER = "GPU-1", "GPU-2"
MINUTES = 60.0


def job(until: float = 600.0) -> Stream:
    """A job with a step every 30 s."""
    stream = Stream()
    for number, seconds in enumerate(range(30, int(until) + 1, 30)):
        stream.sample(seconds, {"train.step.count": number + 1}, step=number + 1)
    return stream


def log(*errors: tuple[float, str], device: str = GPU, **more: str) -> Stream:
    """The kernel log of one node."""
    stream = Stream("kernel-log", ("device",), host="n1")
    for seconds, code in errors:
        attributes = {"train.fault.vendor_code": code, **more}
        stream.event(seconds, "device.error", attributes, device=device)
    return stream


def fault(stream: Stream, seconds: float, **more: str) -> Stream:
    attributes = {"train.fault.id": "f", "train.fault.domain": "infrastructure", "train.fault.class": "device", **more}
    return stream.event(seconds, "fault.detected", attributes, id="f")


@pytest.mark.parametrize(
    ("code", "more", "num"),
    [
        ("xid:79", {}, 1),
        ("xid:13", {}, 1),
        ("xid:43", {}, 0),
        ("xid:63", {}, 0),
        ("xid:149", {"train.error.severity": "fatal"}, 1),
        ("xid:149", {"train.error.severity": "nonfatal"}, 0),
        ("sxid:20034", {"train.error.severity": "fatal"}, 1),
        ("ras:uncorrectable:umc", {}, 1),
        ("ras:correctable:umc", {"train.error.severity": "corrected"}, 0),
        ("xid:99999", {}, 0),
    ],
)
def test_errors_that_are_faults(code: str, more: dict[str, str], num: int) -> None:
    run = view(job(), log((100.0, code), (101.0, code), **more))
    if num:
        assert len(messages("TS-TEL-085", run)) == num
    else:
        assert "asks for a restart" in refused("TS-TEL-085", run)


def test_a_fault_answers_the_errors_that_it_can_be_of() -> None:
    code, component = "train.fault.vendor_code", "train.fault.component"
    for more in ({}, {code: "xid:79"}, {component: GPU}, {component: "n1"}):
        assert not messages("TS-TEL-085", view(fault(job(), 110.0, **more), log((100.0, "xid:79"))))
    for more in ({code: "xid:31"}, {component: "n2"}):
        assert messages("TS-TEL-085", view(fault(job(), 110.0, **more), log((100.0, "xid:79"))))
    late = view(fault(job(3_000.0), 100.0 + 31 * MINUTES), log((100.0, "xid:79")))
    assert messages("TS-TEL-085", late) == [
        (
            "no fault event for xid:79 on GPU-1 of n1 at 2026-01-01 00:01:40 UTC "
            "(GPU has fallen off the bus; NVIDIA: restart the node)"
        )
    ]


def test_errors_outside_of_the_job_are_not_its_faults() -> None:
    assert "while the job ran" in refused("TS-TEL-085", view(job(), log((5.0, "xid:79"), (5_000.0, "xid:79"))))
    assert "train.step.count" in refused("TS-TEL-085", view(log((100.0, "xid:79"))))
    assert "records no errors" in refused("TS-TEL-085", view(job()))


def test_a_device_that_repeats_an_error_for_hours_has_one_finding() -> None:
    flood = log(*((100.0 + seconds, "xid:31") for seconds in range(0, 8_000, 20)))
    assert len(messages("TS-TEL-085", view(job(9_000.0), flood))) == 1


def test_a_fault_needs_a_cause_where_errors_of_its_device_are_recorded() -> None:
    code, component = "train.fault.vendor_code", "train.fault.component"
    errors = log((100.0, "xid:79"))
    assert not messages("TS-TEL-086", view(fault(job(), 110.0, **{code: "xid:79", component: GPU}), errors))
    assert not messages("TS-TEL-086", view(fault(job(), 110.0, **{component: "n1"}), errors))
    assert len(messages("TS-TEL-086", view(fault(job(), 110.0, **{code: "xid:95", component: GPU}), errors))) == 1
    assert len(messages("TS-TEL-086", view(fault(job(3_000.0), 2_000.0, **{component: GPU}), errors))) == 1
    for unwatched in ({component: OTHER}, {code: "xid:95"}, {}):
        assert "whose errors are recorded" in refused("TS-TEL-086", view(fault(job(), 110.0, **unwatched), errors))


def working(device: str, *values: tuple[float, float]) -> Stream:
    stream = Stream("node-1", ("device",), host="n1")
    for seconds, value in values:
        stream.sample(seconds, {"hw.gpu.utilization": value}, device=device)
    return stream


def test_a_device_that_needs_a_reset_does_not_work_on() -> None:
    on = working(GPU, (30, 0.9), (90, 0.9), (150, 0.9), (210, 0.9))
    found = judged("TS-TEL-087", view(job(), log((100.0, "xid:95")), on))
    assert [violation.message for violation in found] == [
        (
            "xid:95 on GPU-1 of n1 asks for a reset (Uncontained memory error; NVIDIA: reset the GPU), "
            "and the device is in use 110 s later in the same attempt"
        )
    ]
    idle = working(GPU, (30, 0.9), (90, 0.9), (150, 0.0), (210, 0.0))
    assert "shows the work" in refused("TS-TEL-087", view(job(), log((100.0, "xid:95")), idle))
    other = working(OTHER, (30, 0.9), (210, 0.9))
    assert "shows the work" in refused("TS-TEL-087", view(job(), log((100.0, "xid:95")), other))
    assert "asks for a reset" in refused("TS-TEL-087", view(job(), log((100.0, "xid:31")), on))


def test_steps_of_the_rank_of_a_device_are_work() -> None:
    rank = Stream("rank-0", ("rank",), rank=0, host="n1", device=GPU)
    for number, seconds in enumerate(range(30, 301, 30)):
        rank.sample(seconds, {"train.rank.step": number + 1}, step=number + 1)
    assert len(messages("TS-TEL-087", view(job(), log((100.0, "xid:119")), rank))) == 1


def test_a_recovery_excuses_further_work() -> None:
    on = working(GPU, (30, 0.9), (90, 0.9), (150, 0.9), (210, 0.9))
    cleared = fault(job(), 105.0).event(140.0, "fault.cleared", {"train.fault.id": "f"}, id="f")
    assert not messages("TS-TEL-087", view(cleared, log((100.0, "xid:95")), on))
