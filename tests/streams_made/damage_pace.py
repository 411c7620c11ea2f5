"""Damages how a run moves on: steps, ranks that drift apart, hangs, slow parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from trainspec_validate.documents.types.stream import Sample

from .damage import on_streams
from .edits import Record, Streams, edit, has, is_of, metric_of, moment, moved, numbered, with_values
from .emitter import Stream
from .run import Run

SECOND = 1_000_000


def _later(run: Run, emitter: str, metric: str, change: Callable[[Any], Any]) -> Streams:
    begin = moment(run.streams, 0.5)
    return edit(run.streams, emitter, lambda r: with_values(r, metric, change) if r.time_us > begin else r)


@on_streams("TS-TEL-031")
def step_jump(run: Run) -> Streams:
    """The count of steps jumps by 10 in the middle of an attempt."""
    found = _later(run, "job", "train.step.count", lambda value: value + 10)
    begin = moment(run.streams, 0.5)
    return edit(found, "job", lambda r: replace(r, step=(r.step or 0) + 10) if r.time_us > begin else r)


@on_streams("TS-TEL-031", "TS-TEL-024")
def step_falls(run: Run) -> Streams:
    """The count of steps falls by 20 in the middle of an attempt."""
    found = _later(run, "job", "train.step.count", lambda value: value - 20)
    begin = moment(run.streams, 0.5)
    return edit(found, "job", lambda r: replace(r, step=(r.step or 0) - 20) if r.time_us > begin else r)


@on_streams("TS-TEL-031", "TS-TEL-038", "TS-TEL-037")
def step_counts_samples(run: Run) -> Streams:
    """The count of steps counts samples."""
    batch = run.shape.batch_sequences
    return edit(run.streams, "job", lambda r: with_values(r, "train.step.count", lambda v: v * batch))


@on_streams("TS-TEL-032")
def lagging_rank(run: Run) -> Streams:
    """One rank is four optimizer steps behind all others from the middle of the run on."""
    return _later(run, "rank-000003", "train.rank.step", lambda value: value - 4)


@on_streams("TS-TEL-034")
def rank_off_by_one_collective(run: Run) -> Streams:
    """One rank has completed three operations less in a process group than its peers, and never catches up."""
    key = "train.collective.sequence{train.group.name=dp-1}"
    return _later(run, "rank-000001", key, lambda value: value - 3)


@on_streams("TS-TEL-035")
def straggler(run: Run) -> Streams:
    """One rank is busy 1.7 times as long as its peers, in all windows."""
    return edit(run.streams, "rank-000006", lambda r: with_values(r, "train.rank.slowdown", lambda v: v * 1.7))


@on_streams("TS-TEL-037")
def shortened_steps(run: Run) -> Streams:
    """Times of steps leave a fifth of the time out."""
    return edit(run.streams, "job", lambda r: with_values(r, "train.step.duration", lambda value: value * 0.8))


@on_streams("TS-TEL-041")
def busy_without_work(run: Run) -> Streams:
    """Devices of a node are busy, and their matrix units do nothing from the middle of the run on."""
    host = run.shape.hosts[1]
    return _later(run, f"node/{host}", "train.accelerator.matrix.active", lambda value: value / 1000)


@on_streams("TS-TEL-036", base="long")
def slow_down(run: Run) -> Streams:
    """Optimizer steps take 8 % longer from the middle of the run on, and nothing says why."""
    return stretch(run.streams, moment(run.streams, 0.45), 1.08)


GROWS_WITH_TIME = ("train.goodput.time", "train.step.phase.time", "train.data.wait.time")
FALLS_WITH_TIME = ("train.token.rate", "train.flops.utilization", "train.flops.hardware_utilization")


def stretch(streams: Streams, begin: int, factor: float) -> Streams:
    """Let everything after a moment take longer by a factor; heads keep their cadences."""
    stands: dict[tuple[str, str], float] = {}

    def value(emitter: str, key: str, old: Any, is_later: bool) -> Any:
        metric = metric_of(key)
        if metric in GROWS_WITH_TIME:
            if not is_later:
                stands[emitter, key] = old
                return old
            before = stands.get((emitter, key), 0.0)
            return before + (old - before) * factor
        if not is_later or metric not in (*FALLS_WITH_TIME, "train.step.duration"):
            return old
        return old / factor if metric in FALLS_WITH_TIME else old * factor

    found = streams
    for stream in streams:
        emitter = stream.head.emitter

        def change(record: Record, emitter: str = emitter) -> Record:
            is_later = record.time_us > begin
            values = {key: value(emitter, key, old, is_later) for key, old in record.m.items()}
            stretched = moved(record, lambda time: begin + round((time - begin) * factor)) if is_later else record
            return replace(stretched, m=values)

        found = edit(found, emitter, change, attempt=stream.head.att)
    return found


@on_streams("TS-TEL-033")
def hang(run: Run) -> Streams:
    """No step completes for ten minutes while devices read busy and ranks still give signs of life."""
    return hung(run, 600)


def hung(run: Run, seconds: int) -> Streams:
    """Insert a pause in which agents and ranks go on to write and nothing advances; its time is idle."""
    begin = moment(run.streams, 0.5)
    found = []
    for stream in run.streams:
        before = [record for record in stream.records if record.time_us <= begin]
        after = [moved(r, lambda time: time + seconds * SECOND) for r in stream.records if r.time_us > begin]
        beats: list[Record] = []
        if not is_of(stream, "job"):
            beats = _beats(before, begin, seconds)
        if is_of(stream, "job"):
            idle = "train.goodput.time{train.time.category=idle}"
            after = [with_values(record, idle, lambda value: value + seconds) for record in after]
        found.append(Stream(stream.head, numbered([*before, *beats, *after])))
    return tuple(found)


def _beats(before: list[Record], begin: int, seconds: int) -> list[Record]:
    """The last record of each kind again and again, with busy devices that do no work."""
    recent = (r for r in before if isinstance(r, Sample) and r.time_us > begin - 10 * SECOND)
    last = list({(record.device, next(iter(record.m))): record for record in recent}.values())
    found: list[Record] = []
    for beat in range(1, math.ceil(seconds / 10)):
        for record in last:
            here = moved(record, lambda time, beat=beat: time + beat * 10 * SECOND)
            if has(here, "train.step.duration"):
                kept = ("train.rank.step", "train.data.wait.time", "train.collective.sequence")
                here = replace(here, a={}, m={k: v for k, v in here.m.items() if metric_of(k) in kept})
            here = with_values(here, "hw.gpu.utilization", lambda _, beat=beat: 0.99 + beat * 1e-5)
            here = with_values(here, "train.accelerator.matrix.active", lambda _, beat=beat: beat * 1e-6)
            found.append(here)
    return found
