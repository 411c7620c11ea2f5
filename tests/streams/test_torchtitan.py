"""The structured log of torchtitan: spans become events, durations and counters of a rank."""

from __future__ import annotations

import json
from typing import Any

import pytest
from reading import read_text


class Log:
    """Writes lines as torchtitan does."""

    def __init__(self, rank: int = 0) -> None:
        self.text = ""
        self.seq = 0
        self.rank = rank

    def add(self, name: str, time_us: int, log_type: str = "event", **more: Any) -> Log:
        entry = {
            "delta_ms": 0.1,
            "tid": 7,
            "rank": self.rank,
            "global_rank": self.rank,
            "local_rank": 0,
            "source": "training",
            "host_name": "node-1",
            "pid": 5,
            "time": time_us // 10**6,
            "time_ms": time_us // 1000,
            "time_us": time_us,
            "log_type": log_type,
            "log_type_name": name,
            "event_name": None,
            "caller": "trainer.py:796:train_step",
            "seq_id": self.seq,
            "message": "",
            **more,
        }
        self.text += json.dumps(entry) + "\n"
        self.seq += 1
        return self


def test_a_step() -> None:
    log = Log(3).add("step_start", 1_000_000, step=5, relative_step=1)
    for name, value in (("fetching_batch", 100.0), ("fwd_bwd", 600.0), ("fwd_bwd", 100.0), ("optim", 50.0)):
        log.add(f"{name}_start", 1_100_000, step=5).add(f"{name}_end", 1_200_000, step=5, value=value)
    log.add("step_end", 2_000_000, step=5, relative_step=1, value=900.0)
    found = read_text(log.text)
    (head,) = found.heads
    assert (head.emitter, head.rank, head.host, head.scopes) == ("training.rank3", 3, "node-1", ("rank",))
    assert head.producer is not None
    assert head.producer.name == "torchtitan"
    (sample,) = found.samples
    assert (sample.step, sample.emitter, sample.att, sample.time_us) == (5, "training.rank3", 0, 2_000_000)
    assert sample.a == {"train.step.warmup": True}
    assert sample.m == {
        "train.step.duration": 0.9,
        "train.rank.step": 5.0,
        "train.step.phase.time{train.phase=data_wait}": 0.1,
        "train.step.phase.time{train.phase=forward_backward}": 0.7,
        "train.step.phase.time{train.phase=optimizer}": 0.05,
        "train.data.wait.time": 0.1,
    }
    log.add("optim_end", 2_500_000, step=6, value=50.0).add("step_end", 3_000_000, step=6, relative_step=2, value=1.0)
    later = read_text(log.text).samples[1]
    assert later.a == {}
    assert later.m["train.step.phase.time{train.phase=optimizer}"] == 0.1


def test_spans_of_the_job_are_events_of_rank_0() -> None:
    def spans(rank: int) -> str:
        log = Log(rank)
        for name in ("checkpoint_load", "eval", "checkpoint_save"):
            log.add(f"{name}_start", 1_000_000, step=2).add(f"{name}_end", 2_000_000, step=2, value=1_500.0)
        return log.text

    found = read_text(spans(0))
    assert [(event.name, event.id) for event in found.events] == [
        ("train.checkpoint.restore.begin", "checkpoint_load-1"),
        ("train.checkpoint.restore.end", "checkpoint_load-1"),
        ("train.evaluation.begin", "eval-2"),
        ("train.evaluation.end", "eval-2"),
        ("train.checkpoint.begin", "checkpoint_save-3"),
        ("train.checkpoint.commit", "checkpoint_save-3"),
    ]
    saved = found.events[-1].m["train.checkpoint.duration{train.checkpoint.phase=blocking}"]
    assert saved.sum == 1.5  # type: ignore[union-attr]
    assert found.events[-1].a == {"train.checkpoint.id": "checkpoint_save-3"}
    other = read_text(spans(1))
    assert not other.events
    assert other.lost["meaning", "eval"] == 2


def test_an_error_in_a_span() -> None:
    log = Log()
    for name in ("checkpoint_save", "eval", "checkpoint_load"):
        log.add(f"{name}_start", 1, step=2).add(f"{name}_error", 2, step=2).add(f"{name}_end", 3, step=2, value=1.0)
    events = read_text(log.text).events
    assert (events[1].name, events[1].a["train.reason"], events[1].m) == ("train.checkpoint.fail", "an error", {})
    assert events[3].a["train.evaluation.outcome"] == "aborted"
    assert (events[5].name, events[5].a["train.reason"]) == ("train.checkpoint.restore.end", "an error")


def test_an_instant_that_looks_like_a_span() -> None:
    found = read_text(Log().add("eval_start", 1, log_type="instant").text)
    assert not found.events
    assert found.lost["unknown-name", "eval_start"] == 1


def test_scalars_and_spans_without_a_name_in_the_catalog() -> None:
    log = Log().add("metric_value", 1, log_type="instant", event_name="local_valid_tokens", value=5.0)
    log.add("metric_value", 1, log_type="instant", event_name="grad_norm", value=5.0).add(
        "gc_collect_end", 3, value=1.0
    )
    found = read_text(log.text)
    assert not found.samples
    assert set(found.lost) >= {("unknown-name", "local_valid_tokens"), ("unknown-name", "gc_collect")}
    messages = {loss.what: loss.message for loss in found.losses.entries}
    assert messages["grad_norm"] == "grad_norm of the trace is of one rank; train.gradient.norm is of the job"


def test_ranks_in_one_file_have_a_head_each() -> None:
    one = Log(0).add("step_end", 1_000, step=1, value=5.0).text.splitlines()
    two = Log(1).add("step_end", 1_001, step=1, value=5.0).add("step_end", 1_002, step=2, value=5.0).text.splitlines()
    found = read_text("\n".join([*one, *two]))
    assert [head.rank for head in found.heads] == [0, 1]
    assert [(sample.emitter, sample.seq) for sample in found.samples] == [
        ("training.rank0", 0),
        ("training.rank1", 0),
        ("training.rank1", 1),
    ]


def test_missing_records_are_told() -> None:
    log = Log().add("step_end", 1, step=1, value=5.0)
    log.seq = 5
    found = read_text(log.add("step_end", 2, step=2, value=5.0).text)
    assert [(r.code, r.message) for r in found.refusals] == [
        ("sequence", "seq_id of training.rank0 goes from 0 to 5: 4 are missing")
    ]
    assert len(found.samples) == 2


def test_a_span_that_stays_open_is_told() -> None:
    found = read_text(Log().add("eval_start", 1, step=1).text)
    assert found.lost["meaning", "eval_start"] == 1


@pytest.mark.parametrize("line", ["{}", '{"log_type_name": "a"}', '{"log_type_name": 5, "time_us": 1}', "[1]", "5"])
def test_what_is_no_record_is_refused(line: str) -> None:
    assert [refusal.code for refusal in read_text(line, "torchtitan").refusals] == ["value"]


@pytest.mark.parametrize("more", [{"value": -5.0}, {"value": "x"}, {"step": -1}, {"step": 1.5}, {"global_rank": "a"}])
def test_odd_values_give_no_unsound_record(more: dict[str, Any]) -> None:
    entry = {"log_type_name": "step_end", "time_us": 5, "global_rank": 0, "step": 3, "value": 1.0, "seq_id": 0} | more
    found = read_text(json.dumps(entry))
    assert len(found.samples) == 1
    assert (found.samples[0].m.get("train.step.duration") is None) == ("value" in more)


def test_milliseconds_stand_in_for_microseconds() -> None:
    found = read_text('{"log_type_name": "step_end", "time_ms": 5, "step": 1, "value": 2, "rank": 0}\n')
    assert found.samples[0].time_us == 5_000
    assert found.lost["meaning", "seq_id"] == 1


def test_a_rank_that_starts_again_begins_an_attempt() -> None:
    """A job that restarts appends to the log of its rank, and numbers its lines anew."""

    def life(start_us: int) -> str:
        log = Log(0)
        for step in (1, 2, 3):
            log.add("step_end", start_us + step * 1_000_000, step=step, value=900.0)
        return log.add("checkpoint_save_start", start_us + 4_000_000, step=3).text

    found = read_text(life(1_000_000) + life(9_000_000))
    assert [(head.emitter, head.att) for head in found.heads] == [("training.rank0", 0), ("training.rank0", 1)]
    assert [(sample.step, sample.att, sample.seq) for sample in found.samples] == [
        *((step, 0, step - 1) for step in (1, 2, 3)),
        *((step, 1, step - 1) for step in (1, 2, 3)),
    ]
    assert [event.id for event in found.events] == ["checkpoint_save-1", "checkpoint_save-2"]
    assert found.lost["step", "attempt"] == 1
    assert found.lost["meaning", "checkpoint_save_start"] == 2
    assert not found.refusals
