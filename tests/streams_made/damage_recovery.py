"""Damages the recovery from a fault: detection, recovery, restored state, later records."""

from __future__ import annotations

from dataclasses import replace as other_shape
from typing import Any

from msgspec.structs import replace

from trainspec_validate.documents.types.stream import Event

from .damage import on_streams
from .damage_life import shifted, with_event, without_events
from .edits import (
    Record,
    Streams,
    edit,
    edit_heads,
    events,
    has,
    is_event,
    moved,
    with_values,
    without,
)
from .emitter import Stream
from .run import Run, make_run

SECOND = 1_000_000


def _with_attributes(streams: Streams, name: str, **attributes: Any) -> Streams:
    laid = {key.replace("__", "."): value for key, value in attributes.items()}
    return edit(streams, "job", lambda r: replace(r, a={**r.a, **laid}) if is_event(r, name) else r)


def paused(streams: Streams, begin: int, seconds: int, category: str, phase: str) -> Streams:
    """Everything after a moment comes later; the time is in a category, and in a phase of the recovery."""
    found = edit(streams, "", lambda r: moved(r, lambda t: t + seconds * SECOND) if r.time_us > begin else r)
    found = tuple(
        Stream(replace(stream.head, time_us=stream.head.time_us + seconds * SECOND), stream.records)
        if stream.head.time_us > begin
        else stream
        for stream in found
    )

    def change(record: Record) -> Record:
        if record.time_us <= begin:
            return record
        record = with_values(
            record, f"train.goodput.time{{train.time.category={category}}}", lambda value: value + seconds
        )
        for name in (phase, "total"):
            key = f"train.recovery.duration{{train.recovery.phase={name}}}"
            record = with_values(
                record, key, lambda v: replace(v, sum=v.sum + seconds, min=v.min + seconds, max=v.max + seconds)
            )
        return record

    return edit(found, "job", change)


@on_streams("TS-TEL-046", "TS-REC-006", base="faults")
def restore_of_uncommitted_step(run: Run) -> Streams:
    """What is restored was begun and never committed."""
    return without_events(run.streams, "train.checkpoint.commit", id="ckpt-144")


@on_streams("TS-TEL-046", "TS-REC-006", base="faults")
def restore_of_deleted_checkpoint(run: Run) -> Streams:
    """What is restored was deleted before the fault."""
    commit = next(event for event in events(run.streams, "train.checkpoint.commit") if event.id == "ckpt-144")
    attributes = {"train.checkpoint.id": "ckpt-144", "train.reason": "retention"}
    name, time = "train.checkpoint.delete", commit.time_us + 5 * SECOND
    return with_event(run.streams, Event(time_us=time, seq=0, name=name, step=commit.step, a=attributes))


@on_streams("TS-REC-006", "TS-TEL-046", base="faults")
def restore_of_unknown_checkpoint(run: Run) -> Streams:
    """The restored state has the name of a checkpoint that nobody saved."""
    found = run.streams
    for name in ("begin", "end"):
        event = f"train.checkpoint.restore.{name}"
        found = _with_attributes(found, event, train__restore__source="ckpt-of-another-run")
    return found


@on_streams("TS-TEL-047", "TS-REC-003", base="faults")
def recovery_too_slow(run: Run) -> Streams:
    """The new attempt forms ten minutes late."""
    fault = events(run.streams, "train.attempt.end")[0].time_us
    return paused(run.streams, fault, 600, "fault_wait", "restart")


@on_streams("TS-REC-003", "TS-TEL-047", base="faults")
def first_step_too_slow(run: Run) -> Streams:
    """The first step after the restore takes five minutes longer."""
    restored = events(run.streams, "train.checkpoint.restore.end")[0].time_us + 2000
    return paused(run.streams, restored, 300, "replay", "replay")


@on_streams("TS-REC-004", "TS-TEL-047", base="faults")
def fault_noticed_late(run: Run) -> Streams:
    """The fault is noticed ten minutes after the node was lost."""
    detected = events(run.streams, "train.fault.detected")[0].time_us - 1
    return paused(run.streams, detected, 600, "fault_wait", "detect")


@on_streams("TS-TEL-048", "TS-REC-001", base="faults")
def open_fault(run: Run) -> Streams:
    """Nothing answers the fault, and it is never cleared."""
    return without_events(
        run.streams, "train.recovery.begin", "train.recovery.end", "train.fault.cleared", "train.node.drained"
    )


@on_streams("TS-REC-001", "TS-TEL-043", "TS-TEL-048", base="faults")
def recovery_without_end(run: Run) -> Streams:
    """The recovery begins and never ends."""
    return without_events(run.streams, "train.recovery.end")


@on_streams("TS-REC-002", "TS-TEL-044", "TS-TEL-050", base="faults")
def answered_before_it_was_noticed(run: Run) -> Streams:
    """The recovery begins before the fault is detected."""
    return shifted(run.streams, "train.recovery.begin", -30)


@on_streams("TS-REC-005", "TS-TEL-046", base="faults")
def more_work_lost_than_promised(run: Run) -> Streams:
    """The save before the newest one is restored, so that a whole interval is lost on top."""
    return make_run(other_shape(run.shape, restores_older=True)).streams


@on_streams("TS-REC-007", "TS-TEL-031", "TS-TEL-046", base="faults")
def silent_restart_from_nothing(run: Run) -> Streams:
    """The second attempt says that it restored step 144 and counts from 0."""
    restored = 144

    def change(record: Record) -> Record:
        record = replace(record, step=None if record.step is None else max(0, record.step - restored))
        for metric in ("train.step.count", "train.rank.step"):
            record = with_values(record, metric, lambda value: max(0, value - restored))
        return record

    return edit(run.streams, "", change, attempt=1)


@on_streams("TS-REC-007", "TS-TEL-031", base="faults")
def updates_left_out(run: Run) -> Streams:
    """The first two steps after the restore are never seen."""

    def change(record: Record) -> Record | None:
        return None if has(record, "train.step.duration") and record.step in {145, 146} else record

    return edit(run.streams, "job", change, attempt=1)


@on_streams("TS-REC-009", base="faults")
def crash_loop(run: Run) -> Streams:
    """Five attempts in a row end before an optimizer step is completed."""
    loops = 5
    second = [stream for stream in run.streams if stream.head.att == 1]
    begin = min(stream.head.time_us for stream in second) - 1
    found = paused(run.streams, begin, 60 * loops, "fault_wait", "restart")
    start = events(run.streams, "train.attempt.start")[1]
    short: list[Stream] = []
    for number in range(1, loops + 1):
        time = start.time_us + 60 * SECOND * (number - 1)
        named = {"id": f"attempt-{number}", "observed_us": None}
        opened = {**start.a, "train.run.attempt": number}
        closed = {"train.run.attempt": number, "train.attempt.reason": "fault"}
        ended = Event(time_us=time + 40 * SECOND, seq=1, name="train.attempt.end", step=144, a=closed, id=named["id"])
        records = (replace(start, time_us=time, seq=0, a=opened, **named), replace(ended, m={"train.step.count": 144}))
        head = next(stream.head for stream in second if stream.head.emitter == "job")
        short.append(Stream(replace(head, att=number, time_us=time), records))
    last = loops + 1
    renamed = [Stream(replace(s.head, att=last), s.records) if s.head.att == 1 else s for s in found]
    return _with_attempt((*renamed, *short), last)


def _with_attempt(streams: Streams, number: int) -> Streams:
    """The events of the last attempt under its number."""

    def change(record: Record) -> Record:
        if is_event(record, "train.attempt.start", "train.attempt.end"):
            return replace(record, id=f"attempt-{number}", a={**record.a, "train.run.attempt": number})
        return record

    return edit(streams, "job", change, attempt=number)


@on_streams("TS-REC-010", "TS-TEL-030", base="faults")
def smaller_world_without_a_word(run: Run) -> Streams:
    """The second attempt runs on half of the ranks with half of the batch, and no event says so."""
    num_left = run.shape.world_size // 2
    gone = {f"rank-{rank:06}" for rank in range(num_left, run.shape.world_size)}
    host = run.shape.hosts_of(1)[-1]
    kept = tuple(s for s in run.streams if not (s.head.att == 1 and s.head.emitter in {*gone, f"node/{host}"}))
    found = edit_heads(kept, "", attempt=1, world_size=num_left)
    batch = run.shape.batch_sequences // 2
    for metric, value in (("train.world.active", num_left), ("train.batch.size", batch)):
        found = edit(found, "job", lambda r, m=metric, v=value: with_values(r, m, lambda _: v), attempt=1)

    def change(record: Record) -> Record:
        if is_event(record, "train.attempt.start"):
            return replace(record, a={**record.a, "train.world.size": num_left})
        return record

    return edit(found, "job", change, attempt=1)


@on_streams("TS-REC-011", base="faults")
def lemon_comes_back(run: Run) -> Streams:
    """The node that was blamed and drained is part of the next attempt, without having returned."""
    lost, spare = run.shape.hosts_of(0)[-1], run.shape.hosts_of(1)[-1]
    names = dict(zip(run.shape.devices(spare), run.shape.devices(lost), strict=True))
    names |= dict(zip(run.shape.ports(spare), run.shape.ports(lost), strict=True)) | {spare: lost}

    def renamed(text: str) -> str:
        for old, new in names.items():
            text = text.replace(old, new)
        return text

    found = []
    for stream in run.streams:
        if stream.head.att == 0:
            found.append(stream)
            continue
        named = {key: renamed(getattr(stream.head, key) or "") or None for key in ("emitter", "host", "device")}
        records = tuple(replace(r, device=names.get(r.device or "", r.device)) for r in stream.records)
        records = tuple(replace(r, m={renamed(key): value for key, value in r.m.items()}) for r in records)
        found.append(Stream(replace(stream.head, **named), records))
    change = lambda r: (  # noqa: E731
        replace(r, a={**r.a, "train.rank.map": renamed(str(r.a["train.rank.map"]))})
        if is_event(r, "train.attempt.start")
        else r
    )
    return edit(tuple(found), "job", change, attempt=1)


@on_streams("TS-REC-012", base="faults")
def other_loss_after_the_restore(run: Run) -> Streams:
    """The loss after the restore is a fifth above what it was at the same steps before."""

    def change(record: Record) -> Record:
        return with_values(record, "train.loss.mean", lambda value: value * 1.2)

    return edit(run.streams, "job", change, attempt=1)


@on_streams("TS-REC-018", "TS-REC-012", base="faults")
def other_learning_rate_after_the_restore(run: Run) -> Streams:
    """The learning rate starts its warm-up again after the restore."""

    def change(record: Record) -> Record:
        return with_values(record, "train.learning_rate", lambda value: value * 0.05)

    return edit(run.streams, "job", change, attempt=1)


@on_streams("TS-REC-013", base="faults")
def corruption_restored(run: Run) -> Streams:
    """The fault is silent corruption, which can be as old as the policy says, and the newest save is restored."""
    found = _with_attributes(run.streams, "train.fault.detected", train__fault__class="silent_corruption")
    detect = "train.recovery.duration{train.recovery.phase=detect}"
    return edit(found, "job", lambda record: without(record, detect) if has(record, detect) else record)


@on_streams("TS-REC-014", base="faults")
def many_more_faults_than_declared(run: Run) -> Streams:
    """Seven more faults are met by retries within minutes."""
    fault = events(run.streams, "train.fault.detected")[0]
    found = run.streams
    for number in range(2, 9):
        named = {"id": f"fault-{number}", "observed_us": None}
        attributes = {**fault.a, "train.fault.id": f"fault-{number}", "train.fault.class": "link"}
        time = fault.time_us - (number * 40 + 30) * SECOND
        found = with_event(found, replace(fault, time_us=time, a=attributes, step=None, **named))
        answer = {"train.fault.id": f"fault-{number}", "train.recovery.action": "retry"}
        for name, more in (("begin", {}), ("end", {"train.recovery.outcome": "resumed"})):
            later = time + SECOND * (1 + len(more))
            retry = replace(fault, name=f"train.recovery.{name}", time_us=later, a={**answer, **more}, step=None)
            found = with_event(found, replace(retry, id=f"recovery-{number}", observed_us=None))
    return found


@on_streams("TS-TEL-044", "TS-TEL-048", base="faults")
def fault_without_recovery_of_its_own(run: Run) -> Streams:
    """The recovery answers a fault that nobody detected."""
    found = _with_attributes(run.streams, "train.recovery.begin", train__fault__id="fault-9")
    return _with_attributes(found, "train.recovery.end", train__fault__id="fault-9")
