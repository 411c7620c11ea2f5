"""Follows a fault from its first sign until training continues: detected, fenced, decided, formed."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from trainspec_reference.common import decisions
from trainspec_reference.common import messages as say
from trainspec_reference.common.channel import free_address
from trainspec_reference.common.checkpoints import Vault, remove
from trainspec_reference.common.crew import Crew, Worker
from trainspec_reference.common.decisions import Episode
from trainspec_reference.common.job import Job
from trainspec_reference.common.restart_state import StateSource
from trainspec_reference.common.run_settings import (
    COMPLETED,
    CRASH_LOOP,
    NOTHING_RESTORABLE,
    PREEMPTED,
    STOPPED_BY_PLAN,
    RunEnd,
    Settings,
)
from trainspec_reference.common.saves import DivergedError, Saves
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.watch import Limits, Watch
from trainspec_validate.documents.types import trace
from trainspec_validate.system.atomic import write_atomically

_SETTLE_SECONDS = 0.3
"""Time in which a peer that was lost shows whether it is dead."""
_TOGETHER_SECONDS = 0.05
"""Time in which all ranks of a node that is lost are gone."""
_LEAVE_SECONDS = 3.0
"""Time that a worker has to leave a formation that is over."""
_ANEW_SECONDS = 0.5
"""The same where all are started anew, so that nothing waits for what they hold."""
_COLLECTIVE_SECONDS = 30.0
_KEPT = 3


class Attempts:
    """Numbers that only grow, kept in a small file."""

    def __init__(self, path: Path, least: int) -> None:
        self._path = path
        self.next_number = max(least, self._read() + 1)
        """Number of the next formation."""

    def _read(self) -> int:
        """The last number that was taken; -1 where there is none. A file that holds none is no reason to stop."""
        try:
            text = self._path.read_text(encoding="ascii")[:20].strip()
        except (OSError, UnicodeDecodeError):
            return -1
        return int(text) if text.isdecimal() else -1

    def take(self) -> int:
        """The next number, which no formation will have again.

        Raises:
            OSError: the file cannot be written.
        """
        number = self.next_number
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, f"{number}\n")
        self.next_number = number + 1
        return number


@dataclass(frozen=True, slots=True)
class Team:
    """A formation that trains."""

    number: int
    watch: Watch
    saves: Saves
    finished: dict[int, say.Finished] = field(default_factory=dict)
    """Report of each worker that has done all that it was asked for, by its number."""


class Recovery:
    """Teams of workers, one after the other, each with the newest good state."""

    def __init__(self, job: Job, settings: Settings, crew: Crew, tell: TraceWriter) -> None:
        self.limits = Limits.of_policy(job.policy, job.device)
        self.attempts = Attempts(settings.directory / "attempt", settings.first_attempt)
        self._job, self._settings, self._crew, self._trace = job, settings, crew, tell
        num_kept = job.policy.retention.num_kept if job.policy else _KEPT
        self._vault = Vault(settings.checkpoint_directory, num_kept, settings.run)
        self._source = StateSource(job, self._vault, tell)
        self._restarts = decisions.RestartLimits(job.policy)
        self._members: list[Worker] = []
        """Workers of the formation, or of the next one while that waits for them, in the order of their ranks."""
        self._start = say.Start(source="initial")
        """State that the members start from."""
        self._left: dict[int, say.Left] = {}
        """What each worker of the last formation said when it left, by its number."""
        self._unsaved_step: int | None = None
        """Step of a save of the last formation that was given up."""
        self._counters: tuple[int, dict[str, float]] | None = None
        """What the recorder has counted in the last formation, and after which step."""
        self._team: Team | None = None
        """None while members are awaited."""
        self._episode: Episode | None = None
        self._best = 0
        """Largest step that all members have completed."""
        self._num_standby_allowed = 0
        self._is_stopping = False

    def begin(self) -> None:
        """Start the first workers, which come up while the state that they start from is looked for.

        Raises:
            RunEnd: checkpoints exist, and none of them verifies.
            OSError: programs of an earlier start cannot be removed.
        """
        self._forget_programs()
        self._members = [self._crew.start(host) for host in self._settings.hosts]
        self._vault.tidy()
        start = self._source.checkpoint()
        if start is None:
            raise RunEnd("fault", NOTHING_RESTORABLE, 0)
        self._start = start

    def _forget_programs(self) -> None:
        """Programs are code, and nobody knows who wrote what lies in the directory of a run: only our own are run."""
        path = self._settings.programs_directory
        remove(path)
        path.mkdir(mode=0o700)

    def close(self) -> None:
        """Remove what saves that came to nothing left behind, now or at the next start; no worker lives any more."""
        with contextlib.suppress(OSError):
            self._vault.tidy()

    def stop(self) -> None:
        """Have all workers save and finish, now or as soon as they train."""
        self._is_stopping = True
        if self._team:
            self._tell_members(say.Stop())

    # --- signs ----------------------------------------------------------------------------------------------

    def hear(self, worker: Worker, message: say.FromWorker) -> None:
        """Take a worker's report of its training; reports of an older formation are dropped."""
        team = self._team
        if team is None or worker not in self._members or getattr(message, "formation", team.number) != team.number:
            return
        match message:
            case say.Ended():
                self._ended(self._members.index(worker), message)
            case say.Left():
                self._left[worker.number] = message
            case say.Finished():
                team.finished[worker.number] = message
            case say.Done(counters=counters) if counters is not None:
                self._counters = message.step, counters
        team.watch.hear(worker.number, message)
        try:
            team.saves.hear(worker.number, message)
        except DivergedError as error:
            blamed = next((rank for rank, one in enumerate(self._members) if one.number == error.worker), None)
            self._fault(Episode("corruption", str(error), blamed, must_roll_back=True))
        self._best = max(self._best, team.watch.completed)

    def _ended(self, rank: int, message: say.Ended) -> None:
        """A fault has ended the formation for a rank; whoever has lost a peer holds a state that can be used."""
        reason, is_network = message.reason, message.kind == "network"
        if is_network:
            reason = f"rank {rank}: {reason}"
        if message.checkpoint is not None:
            self._source.refuse(message.checkpoint, reason)
            reason = f"{message.checkpoint} cannot be loaded: {reason}"
        sign = Episode(message.kind, reason, message.rank, is_certain=not is_network, must_roll_back=not is_network)
        sign.is_final = message.is_final
        self._fault(sign)

    def lost(self, worker: Worker, reason: str) -> None:
        """The process of a worker is gone."""
        if worker in self._members:
            episode = self._fault(Episode(worker.kind, reason, self._members.index(worker)))
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
                self._unsaved_step = self._team.saves.step
                self._team.saves.give_up(f"the formation ended: {sign.reason}")
                self._tell_members(say.Leave(formation=self._team.number))
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
        elif self._team:
            self._look_after(self._team)
        elif all(member.channel is not None for member in self._members):
            self._gather()

    def _gather(self) -> None:
        """Form up, now that all workers are there."""
        self._form(free_address())

    def _look_after(self, team: Team) -> None:
        team.saves.tick()
        if len(team.finished) == len(self._members):
            raise self._finished(team)
        if team.watch.completed > 0:
            self._stand_by()
        if team.watch.is_stalled:
            seconds = team.watch.timeout_seconds
            culprits = team.watch.culprits()
            if culprits:
                self.blame(culprits, f"no progress for {seconds:.1f} s")
            else:
                self._fault(Episode("network", f"all ranks wait for each other for {seconds:.1f} s", is_certain=False))

    def _stand_by(self) -> None:
        """Start standby workers up to the configured number; workers that end by themselves are not replaced."""
        num_wanted = min(self._settings.num_standby - self._crew.num_standing_by, self._num_standby_allowed)
        for _ in range(num_wanted):
            self._num_standby_allowed -= 1
            self._crew.start(None)

    def _settle(self, episode: Episode, now: float) -> None:
        """Wait until all workers have left, so that nothing of the old attempt can write; then decide."""
        age = now - episode.since
        inside = [member for member in self._living if self._team and member.number not in self._left]
        if not episode.is_certain:
            episode.is_certain = age > _SETTLE_SECONDS and not inside
        has_nodes = len({member.host for member in self._members}) > 1
        if episode.is_certain and not episode.is_told and (age > _TOGETHER_SECONDS or not has_nodes):
            self._tell(episode)
        if inside:
            if age > (_LEAVE_SECONDS if any(member.can_rejoin for member in self._living) else _ANEW_SECONDS):
                stuck = [member.number for member in inside]
                self.blame(stuck, "the worker does not leave a formation that is over")
        elif episode.is_told:
            if self._is_stopping:
                raise self.preempted()
            self._after(episode)
            self._team = self._episode = None

    @property
    def _living(self) -> list[Worker]:
        """Members that have a process within reach."""
        return [member for member in self._members if member.is_alive]

    def _tell_members(self, message: say.FromController) -> None:
        for member in self._living:
            member.tell(message)

    def _tell(self, episode: Episode) -> None:
        episode.is_told = True
        hosts = [member.host or "" for member in self._members]
        if decisions.hosts_lost(hosts, episode.lost_hosts) and episode.kind == "process":
            episode.kind = "node"
        self._trace.tell(trace.FaultSeen, kind=episode.kind, rank=episode.rank, reason=episode.reason[:4096])

    # --- the next formation ---------------------------------------------------------------------------------

    def _after(self, episode: Episode) -> None:
        """Choose the next formation. All of the old one have left it or are dead: none of them can write.

        Raises:
            RunEnd: there is none, by the plan, the limits of the policy, or for lack of a state.
        """
        if episode.is_final:
            self._decided("stop", episode.reason)
            raise RunEnd("fault", STOPPED_BY_PLAN, self._best)
        refusal = self._restarts.refusal(self._best)
        if refusal is not None:
            self._decided("stop", refusal)
            raise RunEnd("crash-loop", CRASH_LOOP, self._best)
        for member in self._living:
            if not member.can_rejoin and member.number in self._left:
                self._crew.end(member)
        way = decisions.way_back(episode.kind, self._job.policy, self._settings.way)
        kept = self._shrunk() if way == "shrink" else None
        going_on = self._living if kept is None else kept
        self._start = self._state(episode, going_on)
        unsent = self._unsent(going_on, kept) if self._start.source == "peer" else ""
        reason = f"{episode.reason}; {unsent}" if unsent else episode.reason
        self._decided("restart" if way == "shrink" and kept is None else way, reason)
        self._members = self._refilled() if kept is None else kept

    def _decided(self, action: str, reason: str) -> None:
        self._trace.tell(trace.Decision, action=action, reason=reason[:4096])

    def _shrunk(self) -> list[Worker] | None:
        """The workers that go on alone; None where the plan does not work with fewer, or none were lost.

        Workers that are too many then stand by.
        """
        living, policy = self._living, self._job.policy
        size = decisions.shrunk_size(self._job, len(living)) if len(living) < len(self._members) else None
        least = policy.job.min_num_nodes if policy else None
        if size is None or (least is not None and len({member.host for member in living[:size]}) < least):
            return None
        return living[:size]

    def _unsent(self, going_on: Sequence[Worker], kept: Sequence[Worker] | None) -> str:
        """What becomes of gradients that compression has not sent; empty where nothing does."""
        lost = [rank for rank, member in enumerate(self._members) if member not in going_on]
        num_before = len(self._members)
        return decisions.unsent(self._job, lost, num_before, num_before if kept is None else len(kept))

    def _state(self, episode: Episode, going_on: Sequence[Worker]) -> say.Start:
        """The state that all start from: the newest of those that go on, else that of a checkpoint."""
        left = {member.number: self._left[member.number] for member in going_on if member.number in self._left}
        try:
            start = self._source.after_fault(
                left, must_roll_back=episode.must_roll_back, unsaved_step=self._unsaved_step
            )
        except LookupError as error:
            self._decided("stop", str(error))
            raise RunEnd("fault", NOTHING_RESTORABLE, self._best) from error
        is_known = self._counters is not None and self._counters[0] == start.step
        return msgspec.structs.replace(start, counters=self._counters[1] if is_known and self._counters else None)

    def _refilled(self) -> list[Worker]:
        """The same places, with workers that stand by or new ones where one is gone."""
        found: list[Worker] = []
        for member in self._members:
            spare = member if member.is_alive else self._crew.spare(member.host)
            found.append(spare if spare is not None else self._crew.start(member.host))
        return found

    def _form(self, address: str) -> None:
        """Have the members join, at an address of the first one, and train."""
        number, members = self.attempts.take(), self._members
        hosts = tuple(member.host or "" for member in members)
        self._trace.attempt = number
        self._num_standby_allowed = self._settings.num_standby
        self._left, self._unsaved_step, self._counters = {}, None, None
        watch = Watch(self.limits, frozenset(member.number for member in members), self._crew.clock)
        saves = Saves(self._job, self._vault, members, self._trace, watch)
        self._team = Team(number, watch, saves)
        start = self._start.of([member.number for member in members])
        for rank, member in enumerate(members):
            form = say.Form(
                formation=number,
                rank=rank,
                hosts=hosts,
                address=address,
                timeout_seconds=self._collective_seconds,
                start=start,
            )
            member.tell(form)
        if self._is_stopping:
            self._tell_members(say.Stop())

    @property
    def _collective_seconds(self) -> float:
        """Longer than the watch waits, which knows better who is to blame."""
        communication = self._job.plan.communication
        stated = communication.timeout_seconds if communication else None
        return stated or max(_COLLECTIVE_SECONDS, 2 * self.limits.most)

    # --- the end --------------------------------------------------------------------------------------------

    def _finished(self, team: Team) -> RunEnd:
        first = team.finished[self._members[0].number]
        if not first.was_stopped:
            return RunEnd("completed", COMPLETED, first.step, first.digest)
        return self.preempted(first)

    def preempted(self, finished: say.Finished | None = None) -> RunEnd:
        """The end after a termination notice: the next start resumes from the newest committed checkpoint."""
        status = PREEMPTED if self._vault.names() else NOTHING_RESTORABLE
        step, digest = (finished.step, finished.digest) if finished else (self._best, None)
        return RunEnd("preempted", status, step, digest)
