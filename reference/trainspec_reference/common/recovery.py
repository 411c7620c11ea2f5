"""Follows a fault from its first sign until training continues: detected, fenced, decided, formed."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from trainspec_reference.common import decisions
from trainspec_reference.common import messages as say
from trainspec_reference.common.channel import free_address
from trainspec_reference.common.crew import Crew, Worker
from trainspec_reference.common.decisions import Episode
from trainspec_reference.common.job import Job
from trainspec_reference.common.regroup import Planned, Regroup, Remains
from trainspec_reference.common.run_settings import COMPLETED, NOTHING_RESTORABLE, PREEMPTED, RunEnd, Settings
from trainspec_reference.common.saves import DivergedError
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.watch import Limits, Team
from trainspec_validate.documents.types import trace

_SETTLE_SECONDS = 0.3
"""Time in which a peer that was lost shows whether it is dead."""
_TOGETHER_SECONDS = 0.05
"""Time in which all ranks of a node that is lost are gone."""
_LEAVE_SECONDS = 3.0
"""Time that a worker has to leave a formation that is over."""
_ANEW_SECONDS = 0.5
"""The same where all are started anew, so that nothing waits for what they hold."""


class Recovery:
    """Teams of workers, one after the other, each with the newest good state."""

    regroup: ClassVar[type[Regroup]] = Regroup

    def __init__(self, job: Job, settings: Settings, crew: Crew, tell: TraceWriter) -> None:
        self.limits = Limits.of_policy(job.policy, job.device)
        self._crew, self._trace = crew, tell
        self._regroup = self.regroup(job, settings, crew, tell, self.limits)
        self._team: Team | None = None
        self._planned: Planned | None = None
        self._episode: Episode | None = None
        self._remains = Remains((), {})
        self._best = 0
        self._is_stopping = False

    @property
    def next_number(self) -> int:
        """Number of the next formation."""
        return self._regroup.attempts.next_number

    def begin(self) -> None:
        """Start the first workers.

        Raises:
            RunEnd: checkpoints exist, and none of them verifies.
        """
        self._planned = self._regroup.first()

    def close(self) -> None:
        """Remove what saves that came to nothing left behind; no worker lives any more."""
        self._regroup.tidy()

    def stop(self) -> None:
        """Have all workers save and finish, now or as soon as they train."""
        self._is_stopping = True
        if self._team:
            self._team.tell(say.Stop())

    # --- signs ----------------------------------------------------------------------------------------------

    def hear(self, worker: Worker, message: say.FromWorker) -> None:
        """Take a worker's report of its training; reports of an older formation are dropped."""
        team = self._team
        rank = team.rank_of(worker.number) if team else None
        if team is None or rank is None or getattr(message, "formation", team.number) != team.number:
            return
        match message:
            case say.Lost(reason=reason):
                self._fault(Episode("network", f"rank {rank}: {reason}", is_certain=False))
            case say.Trouble(kind=kind, reason=reason):
                self._fault(Episode(kind, reason, message.rank, must_roll_back=True, is_final=message.is_final))
            case say.Refused(checkpoint=name, reason=reason):
                self._regroup.source.refuse(name, reason)
                self._fault(Episode("storage", f"{name} cannot be loaded: {reason}", must_roll_back=True))
            case _:
                self._progress(team, worker, message)

    def _progress(self, team: Team, worker: Worker, message: say.FromWorker) -> None:
        try:
            team.progress(worker.number, message)
        except DivergedError as error:
            blamed = None if error.worker is None else team.rank_of(error.worker)
            self._fault(Episode("corruption", str(error), blamed, must_roll_back=True))
        self._best = max(self._best, team.watch.completed)

    def lost(self, worker: Worker, reason: str) -> None:
        """The process of a worker is gone."""
        members = self._members
        if worker in members:
            episode = self._fault(Episode(worker.kind, reason, members.index(worker)))
            if worker.process.returncode != -signal.SIGABRT:  # by which JAX ends a rank on any host, with rank 0
                episode.lost_hosts.append(worker.host or "")

    def blame(self, numbers: Iterable[int], reason: str) -> None:
        """Workers are of no use any more, although they have a process: end it."""
        for worker in [worker for worker in self._crew.workers if worker.number in set(numbers)]:
            worker.kind = "hang"
            self._crew.end(worker)
            self.lost(worker, reason)

    def _fault(self, sign: Episode) -> Episode:
        """Take a sign of a fault; all signs until training goes on belong to one."""
        episode = self._episode
        if episode is None:
            self._episode = episode = sign
            episode.since = self._crew.clock()
            if self._team:
                self._remains = replace(self._remains, unsaved_step=self._team.saves.step)
                self._team.saves.give_up(f"the formation ended: {sign.reason}")
                self._team.tell(say.Leave(formation=self._team.number))
        elif sign.is_certain and not episode.is_certain:
            episode.kind, episode.reason, episode.rank, episode.is_certain = sign.kind, sign.reason, sign.rank, True
        episode.must_roll_back |= sign.must_roll_back
        episode.is_final |= sign.is_final
        return episode

    # --- time -----------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Advance work that waits for time to pass, or for workers.

        Raises:
            RunEnd: the run is over.
        """
        if self._episode:
            self._settle(self._episode, now)
        elif self._planned:
            if self._planned.is_complete:
                self._gather(self._planned)
        elif self._team:
            self._look_after(self._team)

    def _gather(self, planned: Planned) -> None:
        """Form up, now that all workers are there."""
        self._form(planned, free_address())

    def _form(self, planned: Planned, address: str) -> None:
        self._team, self._planned = self._regroup.form(planned, address), None
        self._remains = Remains((), {})
        if self._is_stopping:
            self._team.tell(say.Stop())

    def _look_after(self, team: Team) -> None:
        team.saves.tick()
        if team.has_finished:
            raise self._finished(team)
        if team.watch.completed > 0:
            self._regroup.stand_by()
        if team.watch.is_stalled:
            seconds = team.watch.timeout_seconds
            culprits = team.watch.culprits()
            if culprits:
                self.blame(culprits, f"no progress for {seconds:.1f} s")
            else:
                self._fault(Episode("network", f"all ranks wait for each other for {seconds:.1f} s", is_certain=False))

    def _settle(self, episode: Episode, now: float) -> None:
        """Wait until all workers have left, so that nothing of the old attempt can write; then decide."""
        team, age = self._team, now - episode.since
        if not episode.is_certain:
            episode.is_certain = age > _SETTLE_SECONDS and (team is None or team.has_left)
        if episode.is_certain and not episode.is_told and (age > _TOGETHER_SECONDS or not self._has_nodes):
            self._tell(episode)
        if team is not None and not team.has_left:
            if age > (_LEAVE_SECONDS if any(member.can_rejoin for member in team.living) else _ANEW_SECONDS):
                stuck = [member.number for member in team.living if member.number not in team.left]
                self.blame(stuck, "the worker does not leave a formation that is over")
        elif episode.is_told:
            self._decide(episode)

    @property
    def _members(self) -> list[Worker]:
        """Of the formation, or of the one that waits for its workers."""
        return self._planned.members if self._planned else self._team.members if self._team else []

    @property
    def _has_nodes(self) -> bool:
        return len({member.host for member in self._members}) > 1

    def _tell(self, episode: Episode) -> None:
        episode.is_told = True
        hosts = [member.host or "" for member in self._members]
        if decisions.hosts_lost(hosts, episode.lost_hosts) and episode.kind == "process":
            episode.kind = "node"
        self._trace.tell(trace.FaultSeen, kind=episode.kind, rank=episode.rank, reason=episode.reason[:4096])

    def _decide(self, episode: Episode) -> None:
        if self._is_stopping:
            raise self.preempted()
        self._remains = replace(self._remains, members=tuple(self._members))
        if self._team:  # workers of a formation that never came together hold what they held before
            self._remains = replace(self._remains, left=self._team.left, counters=self._team.counters)
        self._planned = self._regroup.after(episode, self._remains, self._best)
        self._team = self._episode = None

    # --- the end --------------------------------------------------------------------------------------------

    def _finished(self, team: Team) -> RunEnd:
        first = team.finished[team.members[0].number]
        if not first.was_stopped:
            return RunEnd("completed", COMPLETED, first.step, first.digest)
        return self.preempted(first)

    def preempted(self, finished: say.Finished | None = None) -> RunEnd:
        """The end after a termination notice: the next start resumes from the newest committed checkpoint."""
        status = PREEMPTED if self._regroup.source.has_checkpoint else NOTHING_RESTORABLE
        step, digest = (finished.step, finished.digest) if finished else (self._best, None)
        return RunEnd("preempted", status, step, digest)
