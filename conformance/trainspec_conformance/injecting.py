"""Damages a running job from outside: its processes, its memory and its time."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from trainspec_conformance.hosts import COMMAND, KINDS, Hosts
from trainspec_conformance.processes import marked, send
from trainspec_conformance.records import Injected, Started
from trainspec_conformance.view import View
from trainspec_validate.documents.types.scenario import Inject
from trainspec_validate.documents.types.trace import Save

if TYPE_CHECKING:
    from trainspec_conformance.means import Means

DUTY_SECONDS = 0.02
"""Period of stopping and continuing, for ranks that are made slow: well below a step."""


ARRIVAL_SECONDS = 30.0
"""Longest time until a signal is seen at a process."""
GONE = "gone"
_ENDED = frozenset({GONE, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})
_STOPPED = _ENDED | {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}
_GOES_ON = _ENDED | {psutil.STATUS_RUNNING, psutil.STATUS_SLEEPING, psutil.STATUS_DISK_SLEEP}
ARRIVED = {signal.SIGKILL: _ENDED, signal.SIGSTOP: _STOPPED, signal.SIGCONT: _GOES_ON}
"""Statuses of a process at which a signal has arrived; one that was stopped may have been killed by its own."""


class NoTargetError(Exception):
    """The trace names no living process that the scenario aims at."""


class MisplacedError(NoTargetError):
    """A rank does not run where the task says, so that nothing done to a host would reach it; waiting is of no use."""


@dataclass(frozen=True)
class Aim:
    """Processes that an injection is about."""

    pids: tuple[int, ...]
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()


def aim(target: str, view: View, mark: str) -> Aim:
    """The living processes of a target, by the records of the trace since the last start.

    Raises:
        NoTargetError: there is none.
    """
    if target == "everything":
        return Aim(_tree(view) or tuple(process.pid for process in marked(mark)))
    told = view.processes(view.start_seconds)
    if target == "controller":
        pids = tuple(one.pid for (role, _), one in told.items() if role == "controller")
        if not pids:
            raise NoTargetError("the trace names no process with the role `controller`")
        return Aim(pids)
    by_rank = {rank: one for (role, rank), one in told.items() if role == "rank" and rank is not None}
    alive = {rank: one for rank, one in by_rank.items() if psutil.pid_exists(one.pid)}
    if not alive:
        raise NoTargetError("the trace names no living process with the role `rank`")
    chosen = _ranks(target, sorted(alive), view)
    if target == "host":
        host = alive[chosen[0]].host
        chosen = [rank for rank, one in alive.items() if one.host == host]
    hosts = sorted({one.host for rank in chosen if (one := alive[rank]).host is not None})
    return Aim(tuple(alive[rank].pid for rank in chosen), tuple(chosen), tuple(hosts))


def aim_at_hosts(target: str, view: View, mark: str, hosts: Hosts) -> Aim:
    """The hosts of a target, and the living ranks that really run there.

    Raises:
        NoTargetError: there are none.
        MisplacedError: a rank runs somewhere else.
    """
    living = aim("all-ranks", view, mark)
    told = view.processes(view.start_seconds)
    placed = {rank: told["rank", rank] for rank in living.ranks}
    for rank, one in placed.items():
        if one.host is None or one.host not in hosts.names or not hosts.holds(one.host, one.pid):
            raise MisplacedError(
                f"rank {rank} says that it is on {one.host!r}, and does not run on that host of the task"
            )
    chosen = {
        "controller": (COMMAND,),
        "half": hosts.names[(len(hosts.names) + 1) // 2 :],
        "coordinator": (str(placed[living.ranks[0]].host),),
        "all-ranks": hosts.names,
    }.get(target, (str(placed[living.ranks[-1]].host),))
    ranks = tuple(rank for rank, one in placed.items() if one.host in chosen)
    return Aim(tuple(placed[rank].pid for rank in ranks), ranks, tuple(chosen))


def _tree(view: View) -> tuple[int, ...]:
    """The command and what descends from it: a look at all processes of the machine would take longer than a save."""
    started = [record.pid for _, record in view.of(Started)]
    try:
        root = psutil.Process(started[-1])
        return (root.pid, *(process.pid for process in root.children(recursive=True)))
    except (IndexError, psutil.Error):
        return ()


def _ranks(target: str, ranks: list[int], view: View) -> list[int]:
    if target == "coordinator":
        return ranks[:1]
    if target == "all-ranks":
        return ranks
    if target == "other-rank":
        if len(ranks) < 2:
            raise NoTargetError("one rank is left, so there is no other one")
        return ranks[-2:-1]
    if target == "writer":
        writing = [record.rank for _, record in view.of(Save) if record.stage in {"begin", "snapshot"}]
        return [next((rank for rank in reversed(writing) if rank is not None and rank in ranks), ranks[-1])]
    return ranks[-1:]


class Injector:
    """Carries out the injections of one trial, and undoes what lasts when the trial ends."""

    def __init__(self, mark: str, means: Means) -> None:
        self._mark, self._means = mark, means
        self._slowed: list[_DutyCycle] = []
        self._timers: list[threading.Timer] = []

    def inject(self, act: Inject, view: View) -> Injected:
        """Do it, and say to whom; it is in force when the call returns.

        Raises:
            NoTargetError: there is no process that it could be done to.
        """
        if act.kind in {"fill-disk", "free-disk", "fail-writes", "mend-writes"}:
            if self._means.disk is None:
                raise NoTargetError("the storage target is not on a disk of its own")
            getattr(self._means.disk, act.kind.replace("-", "_"))()
            return Injected(kind=act.kind, target="store", step=view.largest_step())
        if act.kind in KINDS:
            found = self._aim_at_hosts(act, view)
            value = self._means.hosts.inject(act, found.hosts)
        else:
            found = aim(act.target, view, self._mark)
            if act.kind == "kill" and act.seconds:
                self._pause_others(found, act.seconds, view)
            value = self._do(act, found.pids) or (float(act.seconds) if act.kind == "kill" else 0.0)
        return Injected(
            kind=act.kind,
            target=act.target,
            ranks=found.ranks,
            pids=found.pids,
            hosts=found.hosts,
            step=view.largest_step(),
            value=value,
        )

    def _aim_at_hosts(self, act: Inject, view: View) -> Aim:
        """Whom it is about; what mends is about all, whoever lives."""
        if act.kind.startswith("mend-"):
            return Aim((), (), self._means.hosts.names)
        return aim_at_hosts(act.target, view, self._mark, self._means.hosts)

    def _pause_others(self, struck: Aim, seconds: float, view: View) -> None:
        """Stop all other ranks for a time, so that none of them ends by itself before the loss can be noticed."""
        pids = tuple(pid for pid in aim("all-ranks", view, self._mark).pids if pid not in struck.pids)
        self._reach(pids, signal.SIGSTOP)
        timer = threading.Timer(seconds, send, (pids, signal.SIGCONT, self._mark))
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def _do(self, act: Inject, pids: Sequence[int]) -> float:
        signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "continue": signal.SIGCONT}
        if act.kind in signals:
            self._reach(pids, signals[act.kind])
            return 0.0
        if act.kind == "terminate":
            self._reach(pids, signal.SIGTERM)
            timer = threading.Timer(act.grace_seconds, send, (tuple(pids), signal.SIGKILL, self._mark))
            timer.daemon = True
            timer.start()
            self._timers.append(timer)
            return act.grace_seconds
        if act.kind == "slow":
            self._reach(pids, signal.SIGCONT)
            factor = act.factor or 2.0
            self._slowed.append(_DutyCycle(pids, factor, act.seconds, self._mark))
            _wait_for(pids, _STOPPED)
            return factor
        if act.kind == "limit-memory":
            for pid in pids:
                _limit_memory(psutil.Process(pid), int(act.size_bytes or 0))
            return float(act.size_bytes or 0)
        if act.kind == "kill-at-memory-limit" and self._means.memory is not None:
            try:
                self._means.memory.take(pids)
            except OSError as error:
                raise NoTargetError(f"a process cannot be limited: {error}") from error
            return 0.0
        raise NoTargetError(f"{act.kind} cannot be done on this machine")

    def _reach(self, pids: Sequence[int], number: signal.Signals) -> None:
        if set(send(pids, number, self._mark)) != set(pids):
            raise NoTargetError("a process that the trace names does not belong to the trial, or has ended")
        if number in ARRIVED:
            _wait_for(pids, ARRIVED[number])

    def end(self) -> None:
        """Undo what lasts."""
        for timer in self._timers:
            timer.cancel()
        for one in self._slowed:
            one.end()


def _limit_memory(process: psutil.Process, more_bytes: int) -> None:
    limit = process.memory_info().vms + more_bytes
    process.rlimit(psutil.RLIMIT_AS, (limit, limit))
    if process.rlimit(psutil.RLIMIT_AS) != (limit, limit):
        raise RuntimeError(f"process {process.pid}: limit-memory has not arrived")


def _wait_for(pids: Sequence[int], statuses: frozenset[str]) -> None:
    """Wait until a signal is seen at each process.

    Raises:
        RuntimeError: it is not, in a time that is ample.
    """
    end = time.monotonic() + ARRIVAL_SECONDS
    for pid in pids:
        while (found := _status(pid)) not in statuses:
            if time.monotonic() > end:
                raise RuntimeError(f"a signal had no effect: process {pid} is {found}")
            time.sleep(0.001)


def _status(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return GONE


class _DutyCycle:
    """Makes processes slower by stopping them for a share of each short period."""

    def __init__(self, pids: Sequence[int], factor: float, seconds: float, mark: str) -> None:
        self._pids, self._mark = tuple(pids), mark
        self._run_seconds = DUTY_SECONDS / factor
        self._rest_seconds = DUTY_SECONDS - self._run_seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._cycle, args=(seconds,), daemon=True)
        self._thread.start()

    def _cycle(self, seconds: float) -> None:
        left = seconds / DUTY_SECONDS if seconds else float("inf")
        while left > 0 and not self._end.is_set() and send(self._pids, signal.SIGSTOP, self._mark):
            self._end.wait(self._rest_seconds)
            send(self._pids, signal.SIGCONT, self._mark)
            self._end.wait(self._run_seconds)
            left -= 1

    def end(self) -> None:
        """Let the processes run as before."""
        self._end.set()
        self._thread.join(timeout=5)
        with contextlib.suppress(psutil.Error):
            send(self._pids, signal.SIGCONT, self._mark)
