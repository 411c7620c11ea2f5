"""What a run owes depends on its scopes, its length, its progress and what it declares: phase by phase."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stream_texts import text_of, view_of
from telemetry_makers import Stream, judged, messages, refused, view

from trainspec_validate.model.metrics import metrics
from trainspec_validate.telemetry.checks import Unsupported, all_checks
from trainspec_validate.telemetry.checks.owed import CAPABILITIES, SCOPES

SELF = {"train.telemetry.dropped": 0, "train.telemetry.lag": 0.01}
ENERGY = "hw.energy{hw.type=gpu}"


def missing(*streams: Stream, requirement: str = "TS-TEL-004") -> set[str]:
    """The metrics that the check says have no value."""
    found = set()
    for message in messages(requirement, view(*streams)):
        names, _, _ = message.removeprefix("no value of ").partition(" in attempt")
        found |= set(names.split(", "))
    return found


def agent(seconds: int = 700, **head: Any) -> Stream:
    """An agent that writes of itself alone, though its head names devices too."""
    stream = Stream("node-1", ("device", "emitter"), host="node-1", **head)
    return stream.every(range(0, seconds, 60), SELF)


def job(num_steps: int, step_seconds: float = 10.0, **head: Any) -> Stream:
    """A job that writes the count of its steps alone."""
    stream = Stream("job", ("job",), **head)
    for step in range(num_steps + 1):
        stream.sample(step * step_seconds, {"train.step.count": step}, step=step)
    return stream


# --- scopes -------------------------------------------------------------------------------------------------


def test_every_scope_of_a_head_has_a_value() -> None:
    assert messages("TS-TEL-003", view(agent())) == [
        "emitter 'node-1' in attempt 0 names the scope device and writes no value of it"
    ]
    assert messages("TS-TEL-003", view(Stream("silent"))) == ["emitter 'silent' in attempt 0 has a head and no value"]


def test_an_attempt_that_ends_at_once_owes_no_scope_that_others_show() -> None:
    long = agent().sample(701, {"hw.gpu.utilization": 0.5}, device="GPU-0")
    short = Stream("node-1", ("device", "emitter"), host="node-1", att=1).sample(710, SELF)
    assert messages("TS-TEL-003", view(long, short)) == []
    assert len(messages("TS-TEL-003", view(agent(), short))) == 2


def test_a_run_that_has_just_begun_owes_nothing_yet() -> None:
    assert len(messages("TS-TEL-003", view(agent(30)))) == 1
    assert messages("TS-TEL-003", view(agent(30), is_live=True)) == []
    assert len(messages("TS-TEL-003", view(agent(300), is_live=True))) == 1


def test_a_metric_of_a_vendor_counts_for_any_scope() -> None:
    own = {"org.example.fans": {"unit": "1", "instrument": "gauge"}}
    stream = Stream("node-1", ("device",), host="node-1", extension_metrics=own).sample(1, {"org.example.fans": 2.0})
    assert messages("TS-TEL-003", view(stream)) == []


def test_without_heads_one_value_is_enough() -> None:
    sample = text_of(job(0)).splitlines()[1]
    assert messages("TS-TEL-003", view_of(sample + "\n")) == []
    nothing = '{"resourceMetrics":[]}\n'
    assert messages("TS-TEL-003", view_of(nothing, suffix="json")) == ["the stream holds no value of any metric"]


def test_lines_that_cannot_be_read_are_not_called_silence_too() -> None:
    head = text_of(Stream("job"))
    assert messages("TS-TEL-003", view_of(head + "garbled\n")) == []


def test_scopes_are_covered_by_all_heads_together() -> None:
    assert messages("TS-TEL-071", view(*(Stream(scope, (scope,)) for scope in SCOPES))) == []
    assert messages("TS-TEL-071", view(Stream("a", SCOPES[1:]))) == ["no head names the scope job"]


def test_a_scope_whose_required_metrics_are_declared_unsupported_is_not_absent() -> None:
    of_devices = ("hw.gpu.utilization", "train.accelerator.matrix.active", "hw.gpu.memory.usage")
    of_devices = (*of_devices, "hw.gpu.memory.limit", "hw.energy", "hw.errors")
    others = tuple(scope for scope in SCOPES if scope != "device")
    without = Stream("a", others, unsupported=dict.fromkeys(of_devices, "no accelerator"))
    assert messages("TS-TEL-071", view(without)) == []
    some = Stream("a", others, unsupported=dict.fromkeys(of_devices[1:], "no accelerator"))
    assert messages("TS-TEL-071", view(some)) == ["no head names the scope device"]


# --- metrics by phase ---------------------------------------------------------------------------------------


def test_metrics_are_owed_after_two_of_their_cadences() -> None:
    assert refused("TS-TEL-004", view(agent(60))).startswith("no attempt is long enough")
    of_devices = {"hw.gpu.utilization", "train.accelerator.matrix.active", "hw.gpu.memory.usage"}
    assert missing(agent(130)) == of_devices
    assert missing(agent(190)) == of_devices | {"hw.energy", "hw.errors"}
    assert missing(agent(700)) == of_devices | {"hw.energy", "hw.errors", "hw.gpu.memory.limit"}


def test_metrics_of_steps_are_owed_by_progress_and_not_by_time() -> None:
    waiting = Stream("job", ("job",)).every(range(0, 7000, 60), {"train.step.count": 0}, step=0)
    assert missing(waiting) == {"train.goodput.time", "train.checkpoint.step"}
    assert "train.loss.mean" not in missing(job(1, 300.0))
    assert {"train.loss.mean", "train.gradient.norm", "train.step.skipped"} <= missing(job(2, 100.0))
    assert "train.loss.mean" not in missing(job(15, 10.0, report_interval_steps=10))
    assert "train.loss.mean" in missing(job(20, 10.0, report_interval_steps=10))


def test_a_restored_attempt_counts_from_the_step_that_it_restored() -> None:
    started = {"train.run.attempt": 0, "train.restore.step": 498}
    stream = Stream("job", ("job",)).event(0, "attempt.start", started, id="a", step=498)
    for step in (499, 500):
        stream.sample(step - 400, {"train.step.count": step}, step=step)
    assert "train.loss.mean" in missing(stream)
    started["train.restore.step"] = 499
    assert missing(stream) == {"train.token.rate", "train.flops.utilization"}


def test_an_attempt_that_says_nothing_counts_from_its_first_step() -> None:
    stream = Stream("job", ("job",), att=1)
    for step in (499, 500):
        stream.sample(step - 400, {"train.step.count": step}, step=step)
    assert refused("TS-TEL-004", view(stream)).startswith("no attempt is long enough")
    assert "train.loss.mean" in missing(stream.sample(101, {"train.step.count": 501}, step=501))


def test_each_attempt_owes_by_itself() -> None:
    values = {**SELF, "train.clock.offset": 0.0, "train.clock.error": 1e-5}
    streams = [Stream("node-1", ("node", "emitter"), att=n, host="node-1") for n in range(3)]
    for number, stream in enumerate(streams):
        stream.every(range(1000 * number, 1000 * number + 300, 60), values if number == 1 else SELF)
    (found,) = judged("TS-TEL-004", view(*streams))
    assert found.message == "no value of train.clock.offset, train.clock.error in attempts 0, 2"
    assert found.evidence.count == 4
    assert found.place == (0, 0)


@pytest.mark.parametrize("ends_at", [20, 300])
def test_the_time_until_a_fault_is_detected_is_no_time_of_training(ends_at: int) -> None:
    stream = job(2).event(ends_at, "attempt.end", {"train.run.attempt": 0, "train.attempt.reason": "fault"})
    stream.event(400, "fault.detected", {"train.fault.id": "f"}, id="f")
    assert ("train.token.rate" in missing(stream)) == (ends_at == 300)


def test_a_snapshot_owes_what_has_no_steps() -> None:
    run = replace(view(agent(1).sample(1, {"hw.gpu.utilization": 0.5}, device="GPU-0")), snapshot=True)
    (said,) = messages("TS-TEL-004", run)
    assert "hw.gpu.memory.limit" in said
    assert "hw.gpu.utilization" not in said
    (said,) = messages("TS-TEL-004", replace(view(job(0)), snapshot=True))
    assert said == "no value of train.checkpoint.step, train.goodput.time in attempt 0"


# --- what is declared, and what depends ---------------------------------------------------------------------


def test_what_is_declared_unsupported_is_not_missing() -> None:
    reasons = dict.fromkeys({*missing(agent()), "hw.power"}, "this driver has no counters")
    run = view(agent(unsupported=reasons))
    with pytest.raises(Unsupported, match=r"hw\.energy: this driver has no counters; hw\.errors: "):
        list(all_checks()["TS-TEL-004"].function(run))
    del reasons["hw.errors"]
    assert missing(agent(unsupported=reasons)) == {"hw.errors"}


def test_a_reason_holds_for_its_attempt() -> None:
    reasons = dict.fromkeys({*missing(agent()), "hw.power"}, "no counters")
    later = Stream("node-1", ("device",), att=1, host="node-1")
    later.every(range(1000, 1200, 30), {"hw.gpu.utilization": 0.5}, device="GPU-0")
    (said,) = messages("TS-TEL-004", view(agent(unsupported=reasons), later))
    assert said.endswith("in attempt 1")


def test_a_synonym_is_the_metric() -> None:
    stream = agent(130).sample(1, {"train.accelerator.busy": 0.5}, device="TPU-0")
    assert "hw.gpu.utilization" not in missing(stream)
    reasons = {"train.accelerator.memory.usage": "not readable"}
    assert "hw.gpu.memory.usage" not in missing(agent(130, unsupported=reasons))


def test_power_is_owed_in_place_of_energy() -> None:
    assert "hw.power" not in missing(agent())
    assert "hw.power" in missing(agent(unsupported={"hw.energy": "no counter"}))
    assert "hw.power" not in missing(agent(unsupported={"hw.energy": "no counter"}).sample(9, {ENERGY: 1.0}))


def test_tokens_are_owed_where_there_are_any() -> None:
    assert "train.token.count" not in missing(job(20))
    assert "train.token.count" in missing(job(20).sample(201, {"train.token.rate": 5e5}))


def test_the_result_of_an_evaluation_is_owed_where_it_was_completed() -> None:
    name = {"train.evaluation.set": "held-out"}
    aborted = {**name, "train.evaluation.outcome": "aborted"}
    completed = {**name, "train.evaluation.outcome": "completed"}
    assert "train.evaluation.loss" not in missing(job(20))
    assert "train.evaluation.loss" not in missing(job(20).event(205, "evaluation.end", aborted))
    assert "train.evaluation.loss" in missing(job(20).event(205, "evaluation.end", completed))
    loss = {"train.evaluation.loss{train.evaluation.set=held-out,train.loss.name=total}": 2.5}
    assert "train.evaluation.loss" not in missing(job(20).event(205, "evaluation.end", completed, m=loss))


def test_the_full_profile_is_a_requirement_of_its_own() -> None:
    assert missing(job(70), requirement="TS-TEL-070") == {"train.gradient.variance", "train.gradient.signal"}
    assert refused("TS-TEL-070", view(job(20))).startswith("no attempt is long enough")
    assert "train.gradient.variance" not in missing(job(70))


def test_every_capability_of_the_catalog_is_known() -> None:
    assert {metric.capability for metric in metrics().values() if metric.level == "conditional"} == set(CAPABILITIES)
