"""Mutants of the recovery from process failures."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from registry import mutant
from trainspec_reference.common import (
    channel,
    controller,
    crew,
    data,
    decisions,
    recovery,
    restart_state,
    watch,
    worker,
)
from trainspec_reference.common import messages as say
from trainspec_reference.common.decisions import Episode
from trainspec_reference.common.run_settings import RunEnd
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.trainer import Trainer

from trainspec_validate.documents.types.trace import FaultSeen

COMPARED = (*range(101, 117), 118, 119, 122, 123, *range(125, 129), *range(132, 136), 205, 207, 312, 314, 315)
"""Scenarios that compare samples with another run, or with an order."""
AFTER_LOSS = "it ends at the loss of a rank, which this scenario brings about too"


def _ends_if(is_too_much: Callable[[Sequence[crew.Worker]], bool]) -> None:
    """Let the run end at a fault after which too much is gone."""
    after = recovery.Recovery._after

    def ends(self: recovery.Recovery, episode: Episode) -> None:
        if any(map(_is_gone, self._members)) and is_too_much(self._members):
            raise RunEnd("fault", 1, self._best)
        after(self, episode)

    recovery.Recovery._after = ends  # type: ignore[method-assign]


def _is_gone(member: crew.Worker) -> bool:
    return member.process.returncode is not None


@mutant(
    "no-recovery",
    "TS-CNF-101",
    "Claims recovery, and ends with an error when a rank is lost.",
    also={f"TS-CNF-{number}": AFTER_LOSS for number in (*range(102, 108), 135, 137, 120, 123, 124, 128, 308)},
)
def no_recovery() -> None:
    _ends_if(lambda _: True)


@mutant(
    "silent-recovery",
    "TS-CNF-101",
    "Recovers, and reports no fault.",
    also={
        f"TS-CNF-{number}": "it reports no fault, which this scenario waits for or judges too"
        for number in (102, 103, 104, 105, 106, 107, 122, 123, 135)
    },
)
def silent_recovery() -> None:
    def tell(self: recovery.Recovery, episode: Episode) -> None:
        episode.is_told = True

    recovery.Recovery._tell = tell  # type: ignore[method-assign]


@mutant(
    "one-loss-only",
    "TS-CNF-102",
    "Ends with an error when it loses two ranks at once.",
    also={
        "TS-CNF-105": "a host has two ranks there",
        "TS-CNF-106": "so has half of the hosts",
        "TS-CNF-128": "all ranks are lost at once there",
        "TS-CNF-137": "and there",
        "TS-CNF-123": "the second rank may be lost before the first one is replaced",
    },
)
def one_loss_only() -> None:
    _ends_if(lambda members: sum(map(_is_gone, members)) > 1)


@mutant(
    "sacred-coordinator",
    "TS-CNF-107",
    "Ends with an error when rank 0 is lost.",
    also={f"TS-CNF-{number}": "rank 0 is among the ranks that are ended there" for number in (105, 106, 123, 128, 137)},
)
def sacred_coordinator() -> None:
    _ends_if(lambda members: _is_gone(members[0]))


@mutant("no-second-fault", "TS-CNF-123", "Ends with an error when a second rank is lost before it trains again.",
        also={"TS-CNF-102": "ranks of a host are lost one by one", "TS-CNF-128": "so are all ranks",
              "TS-CNF-137": "so are all ranks there",
              "TS-CNF-105": "ranks of a host fall silent one by one",
              "TS-CNF-106": "ranks of several hosts do",
              "TS-CNF-124": "an attempt is lost there before it has trained"})  # fmt: skip
def no_second_fault() -> None:
    lost = recovery.Recovery.lost

    def gives_up(self: recovery.Recovery, worker: crew.Worker, reason: str) -> None:
        # An episode without a lost host is what a peer has told of this loss.
        if self._team is None or (self._episode is not None and self._episode.lost_hosts):
            raise RunEnd("fault", 1, self._best)
        lost(self, worker, reason)

    recovery.Recovery.lost = gives_up  # type: ignore[method-assign]


@mutant("fresh-without-donor", "TS-CNF-128", "Starts from initial weights when no rank has survived.",
        also={"TS-CNF-137": "no rank survives there either",
              "TS-CNF-105": "ranks that wait for the silent ones are ended there",
              "TS-CNF-106": "ranks that wait for each other are ended there"})  # fmt: skip
def fresh_without_donor() -> None:
    after_fault = restart_state.StateSource.after_fault

    def fresh(self: restart_state.StateSource, left: dict[int, say.Left], **more: Any) -> say.Start:
        if not left and not more["must_roll_back"]:
            return say.Start(source="initial")
        return after_fault(self, left, **more)

    restart_state.StateSource.after_fault = fresh  # type: ignore[method-assign]


@mutant("two-lineages", "TS-CNF-132", "Leaves its ranks to train on when their controller is gone.")
def two_lineages() -> None:
    def say_or_not(self: channel.Link, message: say.FromWorker) -> None:
        try:
            with self._lock:
                self._connection.sendall(channel._encoder.encode(message) + b"\n")
        except OSError:
            pass

    def read(self: channel.Link, heard: Callable[[say.FromController], None]) -> None:
        lines = channel.Lines()
        try:
            while content := self._connection.recv(1 << 16):
                for line in lines.feed(content):
                    heard(channel._from_controller.decode(line))
        except OSError:
            pass
        threading.Timer(30, os._exit, (0,)).start()

    worker.die_with_parent = lambda: None
    channel.Link.say, channel.Link._read = say_or_not, read  # type: ignore[method-assign]


@mutant("waits-for-stopped", "TS-CNF-103", "Waits for a rank that does not answer for as long as it takes.",
        also={"TS-CNF-104": "a rank that spins makes no progress either",
              "TS-CNF-105": "a host that is cut off does not answer", "TS-CNF-106": "nor do hosts there"})  # fmt: skip
def waits_for_stopped() -> None:
    watch.Watch.is_stalled = property(lambda self: False)  # type: ignore[method-assign, assignment]

    def nobody(heard: Iterable[tuple[int, float]], limit_seconds: float, now: float) -> frozenset[int]:
        return frozenset()

    controller.silent = nobody


@mutant("heartbeat-only", "TS-CNF-104", "Takes a rank for healthy as long as its process answers.",
        also={"TS-CNF-106": "ranks that do not reach their peers answer there"})  # fmt: skip
def heartbeat_only() -> None:
    watch.Watch.is_stalled = property(lambda self: False)  # type: ignore[method-assign, assignment]


@mutant("blames-wrong-rank", "TS-CNF-117", "Reports the first rank, whichever is slow.",
        also={"TS-CNF-207": "the rank that is slow has to be reported there, or relieved"})  # fmt: skip
def blames_wrong_rank() -> None:
    _changes_traces(lambda kind, told: {**told, "rank": 0} if kind is FaultSeen and told["kind"] == "slow" else told)


@mutant("blames-rank-0", "TS-CNF-139", "Reports each fault as one of rank 0.",
        also={f"TS-CNF-{number}": "the rank to blame is judged there too" for number in (104, 117, 207)})  # fmt: skip
def blames_rank_0() -> None:
    _changes_traces(lambda kind, told: {**told, "rank": 0} if kind is FaultSeen else told)


def _changes_traces(change: Callable[[type, dict[str, Any]], dict[str, Any]]) -> None:
    tell = TraceWriter.tell

    def changed(self: TraceWriter, kind: Any, /, **told: Any) -> None:
        tell(self, kind, **change(kind, told))

    TraceWriter.tell = changed  # type: ignore[method-assign]


@mutant("ignores-notice", "TS-CNF-119", "Continues until it is killed.")
def ignores_notice() -> None:
    controller.Controller._on_signal = lambda self, number, frame: None  # type: ignore[method-assign]


@mutant(
    "loops-on-crash",
    "TS-CNF-124",
    "Starts again without a limit.",
    also={"TS-CNF-120": "each attempt meets the same limit of memory there"},
)
def loops_on_crash() -> None:
    decisions.RestartLimits.refusal = lambda self, best: None  # type: ignore[method-assign]


@mutant("false-alarm", "TS-CNF-130", "Reports a fault now and then.",
        also={"TS-CNF-101": "one fault is reported too many", "TS-CNF-102": "one fault is reported too many",
              "TS-CNF-131": "nothing is wrong there either", "TS-CNF-117": "the alarm comes before the report",
              "TS-CNF-103": "the alarm comes before the report", "TS-CNF-104": "the alarm comes before the report",
              "TS-CNF-122": "the alarm comes before the report", "TS-CNF-105": "one fault is reported too many",
              "TS-CNF-135": "the alarm comes before the report", "TS-CNF-118": "nothing is wrong there either",
              "TS-CNF-133": "nothing is wrong there either"})  # fmt: skip
def false_alarm() -> None:
    between = Trainer._between_steps

    def alarmed(self: Trainer) -> None:
        between(self)
        if self.state.step == 20 and self.surroundings.formation.rank == 0:
            self.surroundings.trace.tell(FaultSeen, kind="process", rank=1)

    Trainer._between_steps = alarmed  # type: ignore[method-assign]


@mutant(
    "wanders",
    "TS-CNF-130",
    "Draws its samples from the clock.",
    also={f"TS-CNF-{number}": "no two runs of it are the same" for number in COMPARED},
)
def wanders() -> None:
    ids = data.SampleOrder.ids
    day = int(time.time()) // 2

    def drawn(self: data.SampleOrder, position: int, count: int) -> tuple[int, ...]:
        return ids(self, position + day % 999, count)

    data.SampleOrder.ids = drawn  # type: ignore[method-assign]


@mutant("impatient", "TS-CNF-131", "Kills a rank whose step takes three times as long as the median.",
        also={"TS-CNF-133": "steps are longer while packets are late",
              "TS-CNF-304": "a rank is held for a second there"})  # fmt: skip
def impatient() -> None:
    def soon(self: watch.Watch) -> float:
        return 3 * watch.median(self._durations) if self._durations else self.limits.start

    watch.Watch.timeout_seconds = property(soon)  # type: ignore[method-assign, assignment]
