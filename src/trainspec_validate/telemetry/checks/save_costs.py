"""Checks the cost of saves against the policy: checkpoint stall, time to durable, bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainspec_validate.documents.types import CheckpointPolicy
from trainspec_validate.model.units import bytes_
from trainspec_validate.performance.derived.policy import durable_seconds
from trainspec_validate.telemetry.checks import Location, NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._progress import Progress, find_progress
from trainspec_validate.telemetry.checks._saves import Save, committed_saves
from trainspec_validate.telemetry.checks._words import few, seconds_in_words

ALLOWED_SHARE = 0.05
"""Share of the saves that may take longer: the policy promises a 95th percentile."""
TIME_TOLERANCE = 0.1
SIZE_TOLERANCE = 0.1
BLOCKING = "train.checkpoint.duration{train.checkpoint.phase=blocking}"


@dataclass(frozen=True, slots=True)
class _Timed:
    save: Save
    seconds: float
    location: Location


@check("TS-TEL-061")
def measured_save_time(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """Saves block training, and wait to be safe, no longer than the policy says."""
    found = committed_saves(run)
    updates = find_progress(run)
    blocking = [t for save in found if _training_waits(updates, save) and (t := _blocking(save)) is not None]
    durable = [t for save in found if (t := _durable(save)) is not None]
    if policy.save.mode == "synchronous":
        blocking = blocking or durable
    safe = durable_seconds(policy)
    if not blocking and not (durable and safe):
        raise NotApplicable("no commit of the run has the time of its save")
    yield from _slow(blocking, "blocks training", policy.save.blocking_seconds, "blocking_seconds")
    if safe and policy.save.mode == "asynchronous":
        yield from _slow(durable, "is durable after", safe, "persist_seconds_p95")


def _training_waits(updates: Progress | None, save: Save) -> bool:
    """Whether optimizer steps follow in the same attempt; the last save of a job blocks nothing."""
    begun = save.first
    return updates is None or updates.first(begun.attempt, after_us=begun.time_us + 1) is not None


def _blocking(save: Save) -> _Timed | None:
    seconds = save.value(BLOCKING)
    committed = save.committed
    return _Timed(save, seconds, committed.location) if seconds is not None and committed is not None else None


def _durable(save: Save) -> _Timed | None:
    if save.begun is None or save.committed is None:
        return None
    return _Timed(save, (save.committed.time_us - save.begun.time_us) / 1e6, save.committed.location)


def _slow(timed: Iterable[_Timed], what: str, limit: float, key: str) -> Iterator[Violation]:
    mine = list(timed)
    slow = [t for t in mine if t.seconds > limit * (1 + TIME_TOLERANCE)]
    if len(slow) <= math.floor(len(mine) * ALLOWED_SHARE):
        return
    yield from few(
        Violation(
            t.location,
            f"checkpoint {t.save.id!r} {what} {seconds_in_words(t.seconds)}, but the policy says "
            f"{seconds_in_words(limit)}, and {len(slow):,} of {len(mine):,} saves take longer",
            f"correct {key} of the policy, or make saves faster; 1 of 20 may take longer",
        )
        for t in slow
    )


@check("TS-TEL-062")
def measured_checkpoint_size(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """Checkpoints are as large as the policy says."""
    declared = policy.save.size_bytes
    sized = [(save, size) for save in committed_saves(run) if (size := save.value("train.checkpoint.size")) is not None]
    if not sized:
        raise NotApplicable("no commit of the run has the size of its checkpoint")
    yield from few(
        Violation(
            (save.committed or save.first).location,
            f"checkpoint {save.id!r} has {bytes_(size)}, but the policy says {bytes_(declared)}",
            "look for shards that are missing, or correct size_bytes of the policy",
        )
        for save, size in sized
        if abs(size - declared) > SIZE_TOLERANCE * declared
    )
