"""Damages the life of a run in its events: intervals, order, saves."""

from __future__ import annotations

from msgspec.structs import replace

from trainspec_validate.documents.types.stream import Event

from .damage import on_streams
from .edits import Record, Streams, edit, events, is_event, moved, numbered
from .emitter import Stream
from .run import Run

SECOND = 1_000_000


def without_events(streams: Streams, *names: str, id: str | None = None) -> Streams:  # noqa: A002
    """The streams without events of some names, or without those of one interval."""
    change = lambda r: None if is_event(r, *names) and id in {None, r.id} else r  # type: ignore[union-attr]  # noqa: E731
    return edit(streams, "job", change)


def with_event(streams: Streams, event: Event, attempt: int = 0) -> Streams:
    """The streams with one more event of the job, in its place by time."""
    found = []
    for stream in streams:
        if stream.head.emitter == "job" and stream.head.att == attempt:
            records = sorted((*stream.records, event), key=lambda record: record.time_us)
            found.append(Stream(stream.head, numbered(records)))
        else:
            found.append(stream)
    return tuple(found)


def shifted(streams: Streams, name: str, seconds: float, id: str | None = None) -> Streams:  # noqa: A002
    """The streams with events of a name earlier or later, each in its place by time."""
    found = []
    for stream in streams:
        if stream.head.emitter != "job":
            found.append(stream)
            continue
        records = [
            moved(r, lambda time: time + round(seconds * SECOND)) if is_event(r, name) and id in {None, r.id} else r  # type: ignore[union-attr]
            for r in stream.records
        ]
        found.append(Stream(stream.head, numbered(sorted(records, key=lambda record: record.time_us))))
    return tuple(found)


@on_streams("TS-TEL-043")
def unbalanced_interval(run: Run) -> Streams:
    """An evaluation begins and never ends."""
    return without_events(run.streams, "train.evaluation.end", id="eval-0-60")


@on_streams("TS-TEL-043")
def end_without_begin(run: Run) -> Streams:
    """An evaluation ends that never began."""
    return without_events(run.streams, "train.evaluation.begin", id="eval-0-60")


@on_streams("TS-TEL-043")
def ends_before_it_begins(run: Run) -> Streams:
    """An evaluation ends before it begins."""
    return shifted(run.streams, "train.evaluation.end", -20, id="eval-0-60")


@on_streams("TS-TEL-043")
def begun_twice(run: Run) -> Streams:
    """A save begins twice with the same identifier."""
    begin = next(event for event in events(run.streams, "train.checkpoint.begin") if event.id == "ckpt-48")
    return with_event(run.streams, moved(begin, lambda time: time + 100_000))  # type: ignore[arg-type]


@on_streams("TS-TEL-043")
def other_identifier_at_the_end(run: Run) -> Streams:
    """A save is committed under another identifier than it began with."""

    def change(record: Record) -> Record:
        return replace(record, id="ckpt-final") if is_event(record, "train.checkpoint.commit") else record

    return edit(run.streams, "job", change)


@on_streams("TS-TEL-044", "TS-TEL-043")
def events_after_the_end(run: Run) -> Streams:
    """An evaluation stands after the end of the run."""
    found = run.streams
    end = events(run.streams, "train.run.end")[0].time_us
    for event in events(run.streams, "train.evaluation.begin")[:1] + events(run.streams, "train.evaluation.end")[:1]:
        found = with_event(found, replace(event, time_us=end + event.time_us % SECOND, id="late", observed_us=None))
    return found


@on_streams("TS-TEL-044")
def values_after_the_end(run: Run) -> Streams:
    """The run ends a minute before its last values."""
    return shifted(run.streams, "train.run.end", -60)


@on_streams("TS-TEL-044", "TS-TEL-043")
def missing_run_end(run: Run) -> Streams:
    """The run has no end."""
    return without_events(run.streams, "train.run.end")


@on_streams("TS-TEL-044", "TS-TEL-043")
def missing_attempt_start(run: Run) -> Streams:
    """Optimizer steps are completed in an attempt that never started."""
    return without_events(run.streams, "train.attempt.start")


@on_streams("TS-TEL-044")
def attempt_starts_late(run: Run) -> Streams:
    """The attempt starts after its first updates."""
    return shifted(run.streams, "train.attempt.start", 60)


@on_streams("TS-TEL-044", base="faults")
def restore_after_the_first_updates(run: Run) -> Streams:
    """The state is restored after the attempt has completed updates."""
    found = shifted(run.streams, "train.checkpoint.restore.begin", 45)
    return shifted(found, "train.checkpoint.restore.end", 45)


@on_streams("TS-TEL-044", "TS-TEL-043")
def run_starts_twice(run: Run) -> Streams:
    """The run starts a second time in its middle."""
    start = events(run.streams, "train.run.start")[0]
    again = replace(start, time_us=start.time_us + 300 * SECOND, id="run-again", observed_us=None)
    return with_event(run.streams, again)


@on_streams("TS-TEL-045")
def late_checkpoints(run: Run) -> Streams:
    """Every second save of the policy is left out."""

    def change(record: Record) -> Record | None:
        saves = ("train.checkpoint.begin", "train.checkpoint.commit")
        return None if is_event(record, *saves) and record.id in {"ckpt-48", "ckpt-144"} else record  # type: ignore[union-attr]

    return edit(run.streams, "job", change)


@on_streams("TS-TEL-045")
def no_checkpoints(run: Run) -> Streams:
    """Nothing is ever saved."""
    return without_events(run.streams, "train.checkpoint.begin", "train.checkpoint.commit")


@on_streams("TS-TEL-045")
def failing_saves(run: Run) -> Streams:
    """All saves but the last fail."""

    def change(record: Record) -> Record:
        if not is_event(record, "train.checkpoint.commit") or record.id == "ckpt-160":  # type: ignore[union-attr]
            return record
        reason = {"train.checkpoint.id": record.a["train.checkpoint.id"], "train.reason": "no space left"}
        return replace(record, name="train.checkpoint.fail", a=reason, m={})

    return edit(run.streams, "job", change)


@on_streams("TS-TEL-050", "TS-TEL-043")
def commit_before_begin(run: Run) -> Streams:
    """A checkpoint is committed before its save begins."""
    return shifted(run.streams, "train.checkpoint.commit", -40, id="ckpt-96")
