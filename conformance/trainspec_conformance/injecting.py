"""Damages a running job from outside: its processes, its memory and its time."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from trainspec_conformance.agent import NoTargetError
from trainspec_conformance.host_faults import COMMAND, DISK, KINDS, UNDOING
from trainspec_conformance.nodes import NodeError
from trainspec_conformance.processes import marked
from trainspec_conformance.records import Injected, Started
from trainspec_conformance.targets import HERE, MisplacedError, Target, Targets
from trainspec_conformance.view import View
from trainspec_validate.documents.types.scenario import Inject
from trainspec_validate.documents.types.trace import Save

if TYPE_CHECKING:
    from trainspec_conformance.hosts import AnyHosts
    from trainspec_conformance.means import Means


@dataclass(frozen=True)
class Aim:
    """Processes that an injection is about."""

    targets: tuple[Target, ...]
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()


def aim(target: str, view: View, among: Targets) -> Aim:
    """The living processes of a target, by the records of the trace since the last start.

    Raises:
        NoTargetError: there is none.
        MisplacedError: a rank is on none of the nodes of the run.
    """
    if target == "everything":
        pids = _tree(view) or tuple(process.pid for process in marked(among.mark))
        return Aim((*(Target(HERE, pid) for pid in pids), *among.on_nodes()))
    told = view.processes(view.start_seconds)
    if target == "controller":
        found = tuple(among.of(one) for (role, _), one in told.items() if role == "controller")
        if not found:
            raise NoTargetError("the trace names no process with the role `controller`")
        return Aim(found)
    by_rank = {rank: one for (role, rank), one in told.items() if role == "rank" and rank is not None}
    placed = {rank: among.of(one) for rank, one in by_rank.items()}
    living = among.alive(tuple(placed.values()))
    alive = sorted(rank for rank, one in placed.items() if one in living)
    if not alive:
        raise NoTargetError("the trace names no living process with the role `rank`")
    chosen = _ranks(target, alive, view)
    if target == "host":
        host = by_rank[chosen[0]].host
        chosen = [rank for rank in alive if by_rank[rank].host == host]
    hosts = sorted({host for rank in chosen if (host := by_rank[rank].host) is not None})
    return Aim(tuple(placed[rank] for rank in chosen), tuple(chosen), tuple(hosts))


def aim_at_hosts(target: str, view: View, among: Targets, hosts: AnyHosts) -> Aim:
    """The hosts of a target, and the living ranks that really run there.

    Raises:
        NoTargetError: there are none.
        MisplacedError: a rank runs somewhere else.
    """
    living = aim("all-ranks", view, among)
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
    return Aim(tuple(among.of(placed[rank]) for rank in ranks), ranks, tuple(chosen))


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

    def __init__(self, targets: Targets, means: Means) -> None:
        self._targets, self._means = targets, means
        self._timers: list[threading.Timer] = []

    def inject(self, act: Inject, view: View) -> Injected:
        """Do it, and say to whom; it is in force when the call returns.

        Raises:
            NoTargetError: there is no process that it could be done to.
            MisplacedError: a rank does not run where it says.
        """
        if act.kind in DISK:
            if self._means.disk is not None:
                getattr(self._means.disk, act.kind.replace("-", "_"))()
            else:
                self._means.hosts.inject(act, self._aim_at_hosts(act, view).hosts)
            return Injected(kind=act.kind, target="store", step=view.largest_step())
        if act.kind in KINDS:
            found = self._aim_at_hosts(act, view)
            value = self._means.hosts.inject(act, found.hosts)
        else:
            found = aim(act.target, view, self._targets)
            if act.kind == "kill" and act.seconds:
                self._pause_others(found, act.seconds, view)
            value = self._do(act, found.targets) or (float(act.seconds) if act.kind == "kill" else 0.0)
        return Injected(
            kind=act.kind,
            target=act.target,
            ranks=found.ranks,
            pids=tuple(one.pid for one in found.targets),
            hosts=found.hosts,
            step=view.largest_step(),
            value=value,
        )

    def _aim_at_hosts(self, act: Inject, view: View) -> Aim:
        """Whom it is about; what mends is about all, whoever lives."""
        if act.kind.startswith(UNDOING):
            return Aim((), (), self._means.hosts.names)
        return aim_at_hosts(act.target, view, self._targets, self._means.hosts)

    def _pause_others(self, struck: Aim, seconds: float, view: View) -> None:
        """Stop all other ranks for a time, so that none of them ends by itself before the loss can be noticed."""
        others = [one for one in aim("all-ranks", view, self._targets).targets if one not in struck.targets]
        self._reach(others, signal.SIGSTOP)
        self._later(seconds, others, signal.SIGCONT)

    def _later(self, seconds: float, targets: Sequence[Target], number: signal.Signals) -> None:
        timer = threading.Timer(seconds, self._send, (tuple(targets), number))
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def _send(self, targets: Sequence[Target], number: signal.Signals) -> None:
        with contextlib.suppress(NodeError):  # the trial asks the node again
            self._targets.act("send", targets, number=int(number))

    def _do(self, act: Inject, targets: Sequence[Target]) -> float:
        signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "continue": signal.SIGCONT}
        if act.kind in signals:
            self._reach(targets, signals[act.kind])
            return 0.0
        if act.kind == "terminate":
            self._reach(targets, signal.SIGTERM)
            self._later(act.grace_seconds, targets, signal.SIGKILL)
            return act.grace_seconds
        if act.kind == "slow":
            factor = act.factor or 2.0
            self._targets.act("slow", targets, factor=factor, seconds=act.seconds)
            return factor
        if act.kind == "limit-memory":
            self._targets.act("limit_memory", targets, more_bytes=int(act.size_bytes or 0))
            return float(act.size_bytes or 0)
        if act.kind == "kill-at-memory-limit" and self._means.memory is not None:
            try:
                self._means.memory.take([one.pid for one in targets])
            except OSError as error:
                raise NoTargetError(f"a process cannot be limited: {error}") from error
            return 0.0
        raise NoTargetError(f"{act.kind} cannot be done on this machine")

    def _reach(self, targets: Sequence[Target], number: signal.Signals) -> None:
        self._targets.reach(targets, int(number))

    def end(self) -> None:
        """Undo what lasts."""
        for timer in self._timers:
            timer.cancel()
        self._targets.rest()
