"""The calls by which a training script reports its progress."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from types import TracebackType
from typing import Any

from trainspec_record import rank, spans
from trainspec_record import values as plain
from trainspec_record.catalog import EVENTS
from trainspec_record.clock import Clock
from trainspec_record.guard import never_raises, tell_once
from trainspec_record.redaction import COMPILATION, NOT_COMMITTED, ended_by
from trainspec_record.silent import NO_SPAN, SilentSpan
from trainspec_record.values import is_key
from trainspec_record.values import name as plain_name
from trainspec_record.words import Words
from trainspec_record.writers import Writers


class Numbering:
    """The numbers of steps in one attempt, called under the lock of the run.

    An optimizer step that is skipped, or ended by an error, can count in the script or not.
    """

    def __init__(self, writers: Writers) -> None:
        self._job, self._rank = writers.job, writers.rank
        self._next: int | None = None
        """The largest number that the next step can have, if all optimizer steps were recorded."""

    def begin(self, number: int | None) -> None:
        """A step begins. Where more are completed than were recorded, counts continue from the script's number."""
        if number is not None and self._next is not None:
            if number > self._next:
                self._miss(number - self._next)
                self._next = number
            elif number < self._rank.step:
                tell_once("a step has a number below the count of steps that are completed; the count continues")
        if self._next is not None:
            self._next += 1
        elif number is not None:
            self._next = number + 1

    def _miss(self, num_updates: int) -> None:
        tell_once("a step has a number beyond the count of steps that were recorded; the count continues from it")
        self._rank.step += num_updates
        if self._job:
            self._job.miss(num_updates)


MAX_PENDING = 10_000
"""Calls that wait at most; after so many the script does the work itself, so that memory is bounded."""
TICK_SECONDS = 0.1
"""Longest time that the thread of the pump waits for a call of the script to end."""
_PLAIN = frozenset({float, int, bool, str, type(None)})


def can_wait(words: Mapping[str, Any]) -> bool:
    """Whether values stay as they are and keep no memory of a device while they wait."""
    return _PLAIN.issuperset(map(type, words.values()))


class Pending:
    """Calls with the moment of each, in their order.

    The thread of the script only notes them. After milliseconds of training its caches hold nothing of the recorder, so
    that the work would cost several times what it costs in one go.
    """

    def __init__(self, clock: Clock, lock: threading.RLock) -> None:
        self._clock, self._lock = clock, lock
        self._calls: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._last_us = 0

    def put(self, action: Callable[..., None], *args: Any) -> None:
        """Note a call of this moment; the action takes the moment first."""
        self._calls.append((self._clock.now_us(), action, args))
        if len(self._calls) > MAX_PENDING:
            with self._lock:
                self.apply()

    def apply(self) -> None:
        """Do what was noted; called under the lock, before anything else is done under it."""
        while self._calls:
            time_us, action, args = self._calls.popleft()
            self._last_us = max(
                time_us, self._last_us
            )  # two threads can note in another order than they read the clock
            _carry_out(action, self._last_us, args)


@never_raises(None)
def _carry_out(action: Callable[..., None], time_us: int, args: tuple[Any, ...]) -> None:
    action(time_us, *args)


CATEGORIES_OF_END = {"completed": "completed", "operator": "cancelled"}
"""How a run ends whose attempt ends for a reason; for other reasons another attempt may come."""


class Run:
    """One attempt of a run, as one process sees it.

    Every call can be made at any time and from any thread, on every rank alike: what is of the job is written by rank 0
    alone. No call raises, waits for a device or for a file. In a forked child all of them do nothing.
    """

    def __init__(self, writers: Writers) -> None:
        self.lock = threading.RLock()
        self.clock, self.ledger, self.job, self.rank = writers.clock, writers.ledger, writers.job, writers.rank
        self.open_saves: dict[str, spans.Save] = {}
        self.restored_step: int | None = None
        self.alive_us = writers.formed_us
        """When the last step was completed."""
        self.pending = Pending(self.clock, self.lock)
        self._writers = writers
        self._words = Words(writers)
        self._numbering = Numbering(writers)
        self._numbers = count(1)
        writers.pump.ticks.append(self._tick)

    @property
    def is_active(self) -> bool:
        """Whether something is recorded: not after the end, and not in a forked child."""
        return self._writers.pump.is_alive

    @property
    def num_steps(self) -> int:
        """Optimizer steps that this rank has completed."""
        with self.lock:
            self.pending.apply()
            return self.rank.step

    def __enter__(self) -> Run:
        """The run goes on until the block ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The attempt ends: completed, stopped by hand, or by the fault of which only the type is told."""
        if kind is None or (isinstance(error, SystemExit) and not error.code):
            self.end("completed")
        elif issubclass(kind, KeyboardInterrupt):
            self.end("operator")
        else:
            self.end("fault", error=kind.__name__)

    # --- blocks ---------------------------------------------------------------------------------------------

    @never_raises(NO_SPAN)
    def step(self, number: int | None = None) -> spans.Span | SilentSpan:
        """One optimizer step; `number` is how many are completed before it, as `range` counts.

        Each step that is not skipped counts. A number beyond the count shows optimizer steps that were not recorded.
        """
        return spans.Step(self, plain.step(number))

    @never_raises(NO_SPAN)
    def phase(self, name: str) -> spans.Span | SilentSpan:
        """A part of a step of this rank: data_wait, forward_backward, communication_exposed or optimizer."""
        if name not in rank.PHASES:
            tell_once(f"{name!r} is no phase: one of {', '.join(rank.PHASES)}")
            return NO_SPAN
        return spans.Phase(self, name)

    @never_raises(NO_SPAN)
    def evaluation(self, name: str = "validation") -> spans.Evaluation | SilentSpan:
        """An evaluation on a named set that training waits for; `log` on it takes the losses."""
        return spans.Evaluation(self, plain_name(name), self._identifier("evaluation"))

    @never_raises(NO_SPAN)
    def checkpoint(
        self,
        name: str | None = None,
        *,
        location: str = "shared-file-system",
        durability: str = "site",
        size_bytes: int | None = None,
        asynchronous: bool = False,
    ) -> spans.Save | SilentSpan:
        """A save of the state after the step that was completed last; the block is what training waits for.

        It is committed at the end of the block. An asynchronous one is committed by `commit` on it, or given up by
        `fail`. Location and durability are words of `train.checkpoint.location` and `train.checkpoint.durability`.
        """
        identifier = plain_name(name if name is not None else f"step-{self.num_steps}")
        places = {spans.PLACES["location"]: location, spans.PLACES["durability"]: durability}
        return spans.Save(self, identifier, asynchronous=asynchronous, size_bytes=size_bytes, places=places)

    @never_raises(NO_SPAN)
    def restore(
        self, source: str, step: int, *, state: Mapping[str, float] | None = None
    ) -> spans.Restore | SilentSpan:
        """Loading of the checkpoint `source`, which is of step `step`, before the first step of an attempt.

        `state` is what `state()` gave when it was saved; without it counters are read from the files of the run.
        """
        return spans.Restore(
            self, plain_name(source), plain.step(step) or 0, dict(state or {}), self._identifier("restore")
        )

    @never_raises(NO_SPAN)
    def fault(
        self, kind: str = "process", *, domain: str = "unknown", action: str = "retry", **details: Any
    ) -> spans.Fault | SilentSpan:
        """A fault that the job recovers from in this attempt: the block is the action against it.

        Kind, domain and action are words of `train.fault.class`, `train.fault.domain` and `train.recovery.action`;
        details are `vendor_code`, `component`, `first_rank` and `reason`.
        """
        told = {("train.reason" if key == "reason" else f"train.fault.{key}"): value for key, value in details.items()}
        return spans.Fault(self, str(kind), str(domain), plain_name(action).replace("/", "-"), told)

    def _identifier(self, what: str) -> str:
        return f"{what}-{self._writers.who.attempt}-{next(self._numbers)}"

    # --- calls ----------------------------------------------------------------------------------------------

    @never_raises(None)
    def log(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        attributes: Mapping[str, Any] | None = None,
        synchronise: bool = False,
        **words: Any,
    ) -> None:
        """Values of the step that is under way, by word; of this moment, by the name of a metric of the catalog.

        Words are loss, largest_loss, learning_rate and gradient_norm of the job; samples, tokens, non_padding_tokens
        and clipped, which count; skipped, the reason that a step was not applied; active_ranks; and of the rank
        allocator_reserved_bytes, allocator_active_bytes, slowdown, allocator_retries and out_of_memory. A tensor is
        refused, for reading it waits for its device, unless `synchronise` says to wait.
        """
        if not self.is_active:  # a forked child may find the lock held for ever
            return
        if not values and can_wait(words):
            self.pending.put(lambda _: self._words.update(words, synchronise=False))
            return
        with self.lock:
            if self.is_active:
                self.pending.apply()
                self._words.update(words, synchronise=synchronise)
                if values:
                    self._words.moment(self.clock.now_us(), values, attributes or {}, synchronise=synchronise)

    @never_raises(None)
    def event(
        self,
        name: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        values: Mapping[str, Any] | None = None,
        identifier: str | None = None,
    ) -> None:
        """An event of the catalog, with its attributes and values by their names; two of an interval share one id."""
        entry = EVENTS.get(name)
        if entry is None:
            tell_once(f"{name!r} is no event of the catalog")
            return
        carried = {key: value for key, value in (values or {}).items() if is_key(key)}
        told: dict[str, Any] = {"a": dict(attributes or {}), "m": carried or None}
        told["id"] = plain_name(identifier) if identifier is not None else None
        if not self.is_active:
            return
        with self.lock:
            if not self.is_active:
                return
            self.pending.apply()
            if entry.scope != "job":
                self.rank.stream.event(self.clock.now_us(), name, step=self.rank.step, **told)
            elif self.job:
                self.job.event(self.clock.now_us(), name, **told)

    @never_raises(None)
    def warm_up_again(self, reason: str = COMPILATION) -> None:
        """The next step compiles, tunes or fills caches, so that its time is no sign of the pace."""
        if not self.is_active:  # a forked child may find the lock held for ever
            return
        with self.lock:
            if self.is_active:
                self.pending.apply()
                self.rank.warm_up_again()
                if self.job:
                    self.job.warm_up_again(self.clock.now_us(), reason)

    @never_raises(dict[str, float]())
    def state(self) -> dict[str, float]:
        """Present counters of the job, to be saved with a checkpoint; empty on ranks that do not write them."""
        if not self.is_active:
            return {}
        with self.lock:
            self.pending.apply()
            return dict(self.job.progress.counters) if self.job else {}

    @never_raises(None)
    def flush(self, seconds: float = 5.0) -> None:
        """Wait until what was recorded is in the files, or for so long."""
        self._writers.pump.flush(seconds)

    @never_raises(None)
    def end(self, reason: str = "completed", *, status: str | None = None, error: str | None = None) -> None:
        """The attempt ends, for a word of `train.attempt.reason`; nothing is recorded after it.

        The run ends too, with a `status` of `train.run.status`, where the reason is `completed` or `operator`, or the
        launcher will start the job no more.
        """
        self.flush()  # so that a full queue does not drop the end
        if not self.is_active:
            return
        with self.lock:
            if not self.is_active:
                return
            if status is None:
                status = CATEGORIES_OF_END.get(reason)
            if status is None and reason == "fault" and self._writers.who.is_last_attempt:
                status = "failed"
            self._end(reason, status, error)
        self._writers.close()

    def _end(self, reason: str, status: str | None, error: str | None) -> None:
        self.pending.apply()
        now_us = self.clock.now_us()
        for save in tuple(self.open_saves.values()):
            save.end(now_us, NOT_COMMITTED)
        self._writers.pump.ticks.remove(self._tick)
        if self.job:
            if reason == "fault" and not any(fault.attempt == self._writers.who.attempt for fault in self.job.faults):
                told = {"train.reason": ended_by(error)}
                self.job.detect(now_us, "unknown", "process", told, self.alive_us)
            self.job.end(now_us + 1, reason, status)
        self.rank.tick(now_us, is_due=True)

    # --- called by blocks and by the thread of the pump, under the lock ------------------------------------------

    def begin_training(self, number: int | None, now_us: int) -> None:
        """An optimizer step begins; the first one says where the attempt starts."""
        self._numbering.begin(number)
        if self.ledger.trains:
            return
        if self.restored_step is None:
            self.restored_step = self.rank.step = number or 0
        if self.job:
            self.job.begin_training(self.restored_step, now_us)
        else:
            self.ledger.settle("productive", now_us)
        self.alive_us = now_us

    def complete_step(self, now_us: int) -> None:
        """An optimizer step was computed; it is completed unless it was skipped."""
        of_job, of_rank, counted, skipped = self._words.take()
        if skipped is not None:
            if self.job:
                self.job.skip(now_us, skipped, of_job)
            return
        duration_us = self.ledger.complete(now_us)
        self.alive_us = now_us
        self.rank.complete(now_us, duration_us, of_rank)
        if self.job:
            self.job.complete(now_us, duration_us, counted, of_job)

    @never_raises(None)
    def _tick(self) -> None:
        if not self.lock.acquire(timeout=TICK_SECONDS):
            return  # whoever holds it may be waiting for this thread to write
        try:
            if self.is_active:
                self.pending.apply()
                now_us = self.clock.now_us()
                self.rank.tick(now_us)
                if self.job:
                    self.job.tick(now_us)
        finally:
            self.lock.release()
