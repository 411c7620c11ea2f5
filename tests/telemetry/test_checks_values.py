"""Ranges, codes for no value, what is not finite, and values that look as if they were in another unit."""

from __future__ import annotations

from typing import Any

import pytest
from stream_texts import text_of, view_of
from telemetry_makers import Stream, judged, messages, refused, view

from trainspec_validate.model.metrics import metrics
from trainspec_validate.telemetry.checks.scale import suspicions

LOSS = "train.loss.mean{train.loss.name=total}"
USAGE, LIMIT = "hw.gpu.memory.usage", "hw.gpu.memory.limit"
POWER, ENERGY = "hw.power{hw.type=gpu}", "hw.energy{hw.type=gpu}"


def device(*values: dict[str, Any], seconds: float = 30, **more: Any) -> Stream:
    """Values of one device, one record after another."""
    stream = Stream("node-1", ("device", "node"), host="node-1")
    for number, one in enumerate(values):
        stream.sample(number * seconds, one, **{"device": "GPU-0", **more})
    return stream


def job(*values: dict[str, Any], seconds: float = 5) -> Stream:
    """Values of a job, one record for each update."""
    stream = Stream()
    for number, one in enumerate(values):
        stream.sample(number * seconds, one, step=number)
    return stream


# --- single values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "is_right"),
    [
        ({"hw.gpu.utilization": 1.0}, True),
        ({"hw.gpu.utilization": 1.0000000001}, True),
        ({"hw.gpu.utilization": 1.01}, False),
        ({"hw.gpu.utilization": -0.01}, False),
        ({"hw.temperature{hw.sensor_location=core}": -40}, True),
        ({"hw.temperature{hw.sensor_location=core}": 151}, False),
        ({POWER: -1}, False),
    ],
)
def test_ranges(values: dict[str, float], is_right: bool) -> None:
    assert (messages("TS-TEL-012", view(device(values))) == []) is is_right


def test_usage_is_held_to_the_limit_of_its_own_device_and_attempt() -> None:
    small = device({LIMIT: 40e9, USAGE: 39e9})
    large = Stream("node-2", ("device",), host="node-2").sample(1, {LIMIT: 80e9, USAGE: 79e9}, device="GPU-0")
    assert messages("TS-TEL-012", view(small, large)) == []
    (found,) = judged("TS-TEL-012", view(device({LIMIT: 40e9}, {USAGE: 39e9}, {USAGE: 41e9})))
    assert found.message == f"{USAGE} of device GPU-0 of node-1 reaches 41 GB, above the 40 GB of {LIMIT}"
    assert found.evidence.samples == ("41,000,000,000", "40,000,000,000")
    assert messages("TS-TEL-012", view(device({USAGE: 41e9}))) == []


@pytest.mark.parametrize("value", [2147483632, 4294967295, 9223372036854775794, 18446744073709551615])
def test_codes_for_no_value(value: int) -> None:
    (said,) = messages("TS-TEL-014", view(device({USAGE: value})))
    assert said.endswith("which drivers write where they have no value")


@pytest.mark.parametrize("value", [0, 65535, 2147483648, 85899345920])
def test_values_that_look_odd_and_are_none(value: int) -> None:
    assert messages("TS-TEL-014", view(device({USAGE: value}))) == []


def test_what_is_not_finite_depends_on_the_metric() -> None:
    assert messages("TS-TEL-015", view(job({LOSS: "NaN", "train.gradient.norm": "+Inf"}))) == []
    (said,) = messages("TS-TEL-015", view(job({"train.learning_rate": "-Inf"})))
    assert said == "train.learning_rate is infinite at 2026-01-01 00:00:00 UTC"


def test_a_bare_word_of_another_language_is_told_as_such() -> None:
    text = text_of(Stream()) + '{"k":"m","time_us":1767225601000000,"seq":0,"m":{"train.gradient.norm":NaN}}\n'
    assert messages("TS-TEL-015", view_of(text)) == ["NaN is no JSON number"]


@pytest.mark.parametrize("requirement", ["TS-TEL-012", "TS-TEL-014", "TS-TEL-015"])
def test_nothing_seen_is_not_judged(requirement: str) -> None:
    assert refused(requirement, view(Stream())) == "no value of a metric"


# --- scale --------------------------------------------------------------------------------------------------


def test_per_cent_is_seen_by_the_most_values() -> None:
    per_cent = [{"hw.gpu.utilization": value} for value in (0, 97, 98, 99)]
    (found,) = judged("TS-TEL-013", view(device(*per_cent)))
    assert "has 3 of 4 values above 1.5, up to 99" in found.message
    outlier = [{"hw.gpu.utilization": value} for value in (0.9, 97, 0.98, 0.99)]
    assert messages("TS-TEL-013", view(device(*outlier))) == []


def test_memory_that_is_no_number_of_bytes() -> None:
    assert len(messages("TS-TEL-013", view(device({LIMIT: 81920, USAGE: 54000})))) == 2
    assert messages("TS-TEL-013", view(device({LIMIT: 85899345920, USAGE: 0}))) == []
    assert messages("TS-TEL-013", view(device({USAGE: 2**20}))) == []


def test_power_of_a_device_and_of_a_node() -> None:
    assert messages("TS-TEL-013", view(device({POWER: 700.0}, {POWER: 650.0}))) == []
    (said,) = messages("TS-TEL-013", view(device({POWER: 700e3}, {POWER: 650e3})))
    assert said == f"{POWER} of device GPU-0 of node-1 is 675,000 W on average"
    rack = Stream("node-1", ("node",), host="node-1").sample(0, {POWER: 90e3}).sample(30, {POWER: 95e3})
    assert messages("TS-TEL-013", view(rack)) == []


def test_energy_by_its_growth() -> None:
    assert messages("TS-TEL-013", view(device({ENERGY: 9e12}, {ENERGY: 9e12 + 700 * 30}))) == []
    (said,) = messages("TS-TEL-013", view(device({ENERGY: 0.0}, {ENERGY: 700e3 * 30})))
    assert said.endswith("grows by 700,000 J in a second")
    assert messages("TS-TEL-013", view(device({ENERGY: 9e12}))) == []


def test_clocks() -> None:
    name = "train.accelerator.clock.frequency"
    assert len(messages("TS-TEL-013", view(device({name: 1980})))) == 1
    assert messages("TS-TEL-013", view(device({name: 1.98e9}))) == []


@pytest.mark.parametrize(
    ("duration", "said"),
    [
        (5.0, None),
        (4.1, None),
        (0.6, None),
        (5000.0, "milliseconds"),
        (4.2e6, "microseconds"),
        (0.0051, "thousands of seconds"),
    ],
)
def test_step_times_against_the_clock(duration: float, said: str | None) -> None:
    values = [{"train.step.duration": duration}] * 4
    found = messages("TS-TEL-013", view(job(*values)))
    assert [message.rsplit("; this looks like ", 1)[1] for message in found] == ([said] if said else [])


def test_step_times_need_steps_to_be_compared_with() -> None:
    assert messages("TS-TEL-013", view(job(*[{"train.step.duration": 5000.0}] * 2))) == []
    stream = Stream().every(range(0, 50, 5), {"train.step.duration": 5000.0})
    assert messages("TS-TEL-013", view(stream)) == []


def test_many_devices_share_a_finding() -> None:
    stream = Stream("node-1", ("device",), host="node-1")
    for number in range(20):
        stream.sample(1, {USAGE: 54000 + number}, device=f"GPU-{number:02}")
    (found,) = judged("TS-TEL-013", view(stream))
    assert found.evidence.count == 20
    assert found.evidence.subjects.endswith("GPU-07 of node-1 and 12 more")


def test_what_has_a_size_is_a_metric_of_the_catalog() -> None:
    assert {suspicion.metric for suspicion in suspicions()} <= set(metrics())
    assert refused("TS-TEL-013", view(job({LOSS: 1.0}))) == "no value of a metric whose size shows its unit"
