"""Names, units, instruments, scopes and attributes: what is called wrong, and what is meant instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stream_texts import view_of
from telemetry_makers import Stream, judged, messages, refused, view

from trainspec_validate.telemetry.view.run_view import KeyInfo, RunView

LOSS = "train.loss.mean{train.loss.name=total}"


def helps(requirement: str, *streams: Stream) -> list[str]:
    return [violation.help for violation in judged(requirement, view(*streams))]


def job(values: dict[str, Any], **more: Any) -> Stream:
    return Stream().sample(1, values, step=1, **more)


def device(values: dict[str, Any], **head: Any) -> Stream:
    return Stream("node-1", ("device",), host="node-1", **head).sample(1, values, device="GPU-0")


def vendor(name: str, unit: str = "s") -> Stream:
    own = {name: {"unit": unit, "instrument": "gauge"}}
    return Stream(extension_metrics=own).sample(1, {name: 1.5})


def stated(run: RunView, **facts: Any) -> RunView:
    """The run as if the input stated facts of its first metric."""
    first, *others = run.keys
    changed: KeyInfo = replace(first, **facts)
    return replace(run, keys=(changed, *others))


# --- names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("train.los.mean", "did you mean 'train.loss.mean'?"),
        ("dcgm_fi_dev_fb_used", "write hw.gpu.memory.usage: value x 1048576"),
        ("org.example.thing", "declare it in extension_metrics of the head, with unit and instrument"),
        ("train.something.else.altogether", "names that start with 'train.' are kept for the catalog"),
    ],
)
def test_unknown_names_say_what_to_write(name: str, said: str) -> None:
    assert helps("TS-TEL-005", job({name: 1.0})) == [said]


def test_a_head_declares_what_can_be_declared() -> None:
    assert messages("TS-TEL-005", view(vendor("org.example.wait"))) == []
    reserved = messages("TS-TEL-005", view(vendor("train.example.wait")))
    assert reserved == [
        "the head declares train.example.wait, and names that start with 'train.' are kept for the catalog"
    ]
    known = messages("TS-TEL-005", view(vendor("train.gradient.norm", "1")))
    assert known == ["the head declares train.gradient.norm as a metric of its own, which the catalog has"]


def test_names_in_heads_are_names_too() -> None:
    run = view(
        Stream(unsupported={"train.gradient.norms": "none"}, declared={"train.flops.peek": 1.0}).sample(1, {LOSS: 1.0})
    )
    assert len(messages("TS-TEL-005", run)) == 2
    own = {"org.example.wait": {"unit": "s", "instrument": "gauge"}}
    run = view(Stream(unsupported={"org.example.wait": "none"}, extension_metrics=own).sample(1, {LOSS: 1.0}))
    assert messages("TS-TEL-005", run) == []


def test_events_of_vendors_are_free() -> None:
    stream = Stream().event(1, "checkpoint.done").event(2, "checkpoint.done")
    (found,) = judged("TS-TEL-005", view(stream))
    assert found.message == "train.checkpoint.done is no event of the catalog (2 records)"
    stream.lines[1:] = [{**line, "name": "org.example.done"} for line in stream.lines[1:]]
    assert messages("TS-TEL-005", view(stream)) == []


def test_two_names_in_two_files_are_one_metric() -> None:
    first = device({"hw.gpu.utilization": 0.5, "hw.gpu.memory.limit": 8e10})
    second = Stream("node-2", ("device",), host="node-2").sample(1, {"train.accelerator.busy": 0.5}, device="TPU-0")
    (found,) = judged("TS-TEL-006", view(first, second))
    assert found.place.file == 1
    assert found.related[0][0].file == 0
    assert messages("TS-TEL-006", view(second)) == []
    assert refused("TS-TEL-006", view(vendor("org.example.wait"))) == "no metric of the catalog"


# --- units and instruments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "unit", "said"),
    [
        ("org.example.wait", "s", []),
        ("org.example.wait", "{record}", []),
        ("org.example.wait", "ms", ["org.example.wait is declared in ms, which is 0.001 s"]),
        ("org.example.share", "%", ["org.example.share is declared in %, which is 0.01 1"]),
        ("org.example.wait", "seconds", ["org.example.wait is declared in 'seconds', which is no unit code"]),
        (
            "org.example.wait_ms",
            "s",
            ["the name org.example.wait_ms ends in 'ms', which repeats or contradicts its unit s"],
        ),
        ("org.example.items", "1", []),
    ],
)
def test_units_of_vendors(name: str, unit: str, said: list[str]) -> None:
    assert messages("TS-TEL-007", view(vendor(name, unit))) == said


def test_a_stated_unit_is_that_of_the_catalog_or_converts() -> None:
    run = view(job({"train.step.duration": 5.0}))
    assert refused("TS-TEL-007", run).startswith("no unit is stated")
    for unit, said in {"s": 0, "ms": 0, "By": 1, "parsec": 1}.items():
        assert len(messages("TS-TEL-007", stated(run, unit=unit))) == said, unit
    assert messages("TS-TEL-007", stated(run, unit="By")) == [
        "train.step.duration has the unit 'By', and train.step.duration is in s"
    ]


@pytest.mark.parametrize(
    ("name", "instrument", "is_right"),
    [
        ("train.step.count", "counter", True),
        ("train.step.count", "gauge", False),
        ("train.step.duration", "histogram", True),
        ("train.step.duration", "gauge", True),
        ("train.step.duration", "counter", False),
        ("train.batch.size", "updowncounter", True),
        ("train.batch.size", "histogram", False),
    ],
)
def test_stated_instruments(name: str, instrument: str, is_right: bool) -> None:
    assert (messages("TS-TEL-008", stated(view(job({name: 1.0})), instrument=instrument)) == []) is is_right


def test_numbers_and_histograms_of_one_metric() -> None:
    histogram = {"count": 2, "sum": 10.0}
    mixed = Stream().sample(1, {"train.step.duration": 5.0}).sample(2, {"train.step.duration": histogram})
    assert messages("TS-TEL-008", view(mixed)) == []
    key = "train.checkpoint.duration{train.checkpoint.phase=total}"
    mixed = Stream().sample(1, {key: 5.0}).sample(2, {key: histogram})
    assert messages("TS-TEL-008", view(mixed)) == [f"{key} is a histogram, and is written as numbers and as histograms"]
    assert refused("TS-TEL-008", view_of(":::MLLOG {}\n", suffix="mllog")).startswith("no input states")


# --- scopes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scopes", "values", "more", "said"),
    [
        (("rank",), {"train.rank.step": 1}, {}, "is of scope rank, and its record names no rank"),
        (("device",), {"hw.gpu.utilization": 0.5}, {}, "is of scope device, and its record names no device"),
        (("node",), {"train.clock.error": 1e-5}, {}, "is of scope node, and its record names no host"),
        (
            ("job",),
            {"train.batch.size": 8},
            {"rank": 0},
            "of rank 0 is of the job, and its record names a rank or device",
        ),
        (("rank",), {"train.batch.size": 8}, {}, "is of scope job, and the head of emitter 'w' names rank"),
        (("job", "device"), {"hw.power{hw.type=gpu}": 9.0, "train.batch.size": 8}, {"host": "n"}, None),
    ],
)
def test_scopes(scopes: tuple[str, ...], values: dict[str, float], more: dict[str, Any], said: str | None) -> None:
    found = messages("TS-TEL-009", view(Stream("w", scopes).sample(1, values, **more)))
    assert [message.split(" ", 1)[1] for message in found] == ([said] if said else [])


# --- attributes ---------------------------------------------------------------------------------------------


def test_attributes_of_series() -> None:
    lacks = "hw.errors{hw.type=gpu} lacks the attribute error.type"
    assert messages("TS-TEL-011", view(device({"hw.errors{hw.type=gpu}": 0}))) == [lacks]
    assert messages("TS-TEL-011", view(device({"hw.errors{error.type=odd,hw.type=npu}": 0}))) == []
    other = messages("TS-TEL-011", view(job({"train.goodput.time{train.time.category=lunch}": 0})))
    assert other == ["train.goodput.time{train.time.category=lunch}: 'lunch' is no value of train.time.category"]
    surplus = messages("TS-TEL-011", view(job({"train.gradient.norm{layer=3}": 1.0})))
    assert surplus == ["train.gradient.norm{layer=3} has the attribute layer, which train.gradient.norm does not have"]
    assert messages("TS-TEL-011", view(job({"train.gradient.norm{step=3}": 1.0}))) == []


def test_attributes_of_heads() -> None:
    declared = {"train.flops.convention": "6n", "train.flops.per_token": 6e9, "train.flops.peak": 1e15}
    values = {"train.flops.utilization": 0.4}
    (said,) = messages("TS-TEL-011", view(Stream(declared=declared).sample(1, values)))
    assert said.endswith("does not declare train.flops.precision, which train.flops.utilization needs")
    declared |= {"train.flops.precision": "bf16", "train.loss.reduction": "median"}
    (said,) = messages("TS-TEL-011", view(Stream(declared=declared).sample(1, values)))
    assert said.endswith("'median' is no value of train.loss.reduction")
    declared |= {"train.loss.reduction": "sum", "train.flops.peak": "much"}
    (said,) = messages("TS-TEL-011", view(Stream(declared=declared).sample(1, values)))
    assert said.endswith("train.flops.peak is 'much'")


def test_attributes_beside_values() -> None:
    name = "train.gradient.signal"
    without = messages("TS-TEL-011", view(job({name: 1.0})))
    assert f"no record of {name} has the attribute train.gradient.ci95 next to the value" in without
    beside = messages("TS-TEL-011", view(job({name: 1.0}, a={"train.gradient.ci95": [0.5, 1.5]})))
    assert not [message for message in beside if "ci95" in message]
    assert messages("TS-TEL-011", view(job({"train.step.duration": 5.0}))) == []


def test_attributes_of_events() -> None:
    attributes = {"train.run.attempt": 0, "train.rank.map": "map.txt", "train.restore.step": 0}
    lacks = messages("TS-TEL-011", view(Stream().event(1, "attempt.start", attributes)))
    assert lacks == ["train.attempt.start: it lacks the attribute train.world.size"]
    assert messages("TS-TEL-011", view(Stream(world_size=8).event(1, "attempt.start", attributes))) == []
    attributes |= {"train.restore.step": "none", "train.restore.stepp": 1}
    wrong = messages("TS-TEL-011", view(Stream(world_size=8).event(1, "attempt.start", attributes)))
    assert wrong == [
        "train.attempt.start: train.restore.step is 'none'",
        "train.attempt.start: the catalog does not have the attribute train.restore.stepp",
    ]


def test_the_same_slip_in_many_events_is_told_once() -> None:
    stream = Stream()
    for seconds in range(50):
        stream.event(seconds, "nonfinite.detected")
    (found,) = judged("TS-TEL-011", view(stream))
    assert found.evidence.count == 50
    assert found.help == 'write it into "a": where the value appeared'
    assert refused("TS-TEL-011", view(vendor("org.example.wait"))) == "no metric or event of the catalog"


def test_operations_are_not_owed_where_utilisation_is_declared_unsupported() -> None:
    def lacking(**head: Any) -> int:
        stream = Stream(**head).event(1, "run.start", {"train.run.id": "made"}).sample(2, {LOSS: 1.0})
        return sum("train.flops." in text for text in messages("TS-TEL-011", view(stream)))

    assert lacking() == 4
    assert lacking(unsupported={"train.flops.utilization": "operations of this model are not counted"}) == 0
