"""Makes a new formation after a fault: with which workers, from which state, under which number."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import msgspec

from trainspec_reference.common import decisions
from trainspec_reference.common import messages as say
from trainspec_reference.common.checkpoints import Vault, remove
from trainspec_reference.common.crew import Crew, Worker
from trainspec_reference.common.decisions import Episode, Way
from trainspec_reference.common.job import Job
from trainspec_reference.common.restart_state import StateChoice, StateSource
from trainspec_reference.common.run_settings import CRASH_LOOP, NOTHING_RESTORABLE, STOPPED_BY_PLAN, RunEnd, Settings
from trainspec_reference.common.saves import Saves, Terms
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.watch import Limits, Team, Watch
from trainspec_validate.documents.types import trace
from trainspec_validate.system.atomic import write_atomically


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


_COLLECTIVE_SECONDS = 30.0
_KEPT = 3


@dataclass(frozen=True, slots=True)
class Remains:
    """The rest of a formation, or of a formation that was never complete."""

    members: Sequence[Worker]
    """In the order of their ranks, dead ones too."""
    left: Mapping[int, say.Left]
    """State that each surviving worker reported when it left."""
    unsaved_step: int | None = None
    """Step of the save that was given up."""
    counters: tuple[int, dict[str, float]] | None = None
    """Counts of the recorder, with the step after which they hold."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A formation that waits for its workers to come up."""

    members: list[Worker]
    choice: StateChoice

    @property
    def is_complete(self) -> bool:
        """Whether all workers are there."""
        return all(member.channel is not None for member in self.members)


class Regroup:
    """Makes formations."""

    def __init__(self, job: Job, settings: Settings, crew: Crew, tell: TraceWriter, limits: Limits) -> None:
        self._job, self._settings, self._crew, self._trace, self._limits = job, settings, crew, tell, limits
        self._vault = Vault(settings.checkpoint_directory, job.policy.retention.num_kept if job.policy else _KEPT)
        self._num_standby_allowed = 0
        self._restarts = decisions.RestartLimits(job.policy)
        self.source = StateSource(job, self._vault, tell)
        self.attempts = Attempts(settings.directory / "attempt", settings.first_attempt)

    def first(self) -> Planned:
        """The first formation; workers come up while the state that they start from is looked for.

        Raises:
            RunEnd: checkpoints exist, and none of them verifies.
            OSError: programs of an earlier start cannot be removed.
        """
        self._forget_programs()
        members = [self._crew.start(host) for host in self._settings.hosts]
        self._vault.tidy()
        choice = self.source.checkpoint()
        if choice is None:
            raise RunEnd("fault", NOTHING_RESTORABLE, 0)
        return Planned(members, choice)

    def _forget_programs(self) -> None:
        """Programs are code, and nobody knows who wrote what lies in the directory of a run: only our own are run."""
        path = self._settings.programs_directory
        remove(path)
        path.mkdir(mode=0o700)

    def tidy(self) -> None:
        """Clear up after the last worker; what cannot be removed now is removed at the next start."""
        with contextlib.suppress(OSError):
            self._vault.tidy()

    def after(self, episode: Episode, remains: Remains, best: int) -> Planned:
        """The formation after a fault. All of the old one have left it or are dead: none of them can write.

        Raises:
            RunEnd: there is none, by the plan, the limits of the policy, or for lack of a state.
        """
        if episode.is_final:
            self._decided("stop", episode.reason)
            raise RunEnd("fault", STOPPED_BY_PLAN, best)
        refusal = self._restarts.refusal(best)
        if refusal is not None:
            self._decided("stop", refusal)
            raise RunEnd("crash-loop", CRASH_LOOP, best)
        living = [member for member in remains.members if member.is_alive]
        for member in [member for member in living if not member.can_rejoin and member.number in remains.left]:
            self._crew.end(member)
        living = [member for member in living if member.is_alive]
        way = decisions.way_back(episode.kind, self._job.policy, self._settings.way)
        kept = self._shrunk(living, len(remains.members)) if way == "shrink" else None
        choice = self._state(episode, remains, living, best)
        self._decided(
            "restart" if way == "shrink" and kept is None else way, self._reason(episode, remains, kept, choice)
        )
        return Planned(kept if kept is not None else self._refilled(remains.members), choice)

    def _reason(self, episode: Episode, remains: Remains, kept: list[Worker] | None, choice: StateChoice) -> str:
        """Why there is a new formation, and what that costs beside the step that was broken off."""
        members = remains.members
        lost = [
            r for r, member in enumerate(members) if not member.is_alive or (kept is not None and member not in kept)
        ]
        num_after = len(members) if kept is None else len(kept)
        unsent = decisions.unsent(self._job, lost, len(members), num_after) if choice.source == "peer" else ""
        return f"{episode.reason}; {unsent}" if unsent else episode.reason

    def _state(self, episode: Episode, remains: Remains, living: Sequence[Worker], best: int) -> StateChoice:
        left = {member.number: remains.left[member.number] for member in living if member.number in remains.left}
        try:
            choice = self.source.after_fault(
                left, must_roll_back=episode.must_roll_back, unsaved_step=remains.unsaved_step
            )
        except LookupError as error:
            self._decided("stop", str(error))
            raise RunEnd("fault", NOTHING_RESTORABLE, best) from error
        known = remains.counters if remains.counters and remains.counters[0] == choice.step else None
        return replace(choice, counters=known[1] if known else None)

    def _decided(self, way: Way | str, reason: str) -> None:
        self._trace.tell(trace.Decision, action=way, reason=reason[:4096])

    def _shrunk(self, living: list[Worker], before: int) -> list[Worker] | None:
        """The workers that go on alone; None where the plan does not work with fewer, or none were lost.

        Workers that are too many then stand by.
        """
        size = decisions.shrunk_size(self._job, len(living)) if len(living) < before else None
        least = self._job.policy.job.min_num_nodes if self._job.policy else None
        if size is None or (least is not None and len({member.host for member in living[:size]}) < least):
            return None
        return living[:size]

    def _refilled(self, members: Sequence[Worker]) -> list[Worker]:
        """The same places, with workers that stand by or new ones where one is gone."""
        found: list[Worker] = []
        for member in members:
            spare = member if member.is_alive else self._crew.spare(member.host)
            found.append(spare if spare is not None else self._crew.start(member.host))
        return found

    def form(self, planned: Planned, address: str) -> Team:
        """Have the workers join, at an address of the first one, and train."""
        number = self.attempts.take()
        hosts = tuple(member.host or "" for member in planned.members)
        start = planned.choice.start(planned.members)
        self._trace.attempt = number
        self._num_standby_allowed = self._settings.num_standby
        watch = Watch(self._limits, frozenset(member.number for member in planned.members), self._crew.clock)
        saves = Saves(self._vault, self._terms(len(hosts)), planned.members, self._trace, self._crew.clock)
        for rank, member in enumerate(planned.members):
            message = say.Form(
                formation=number,
                rank=rank,
                hosts=hosts,
                address=address,
                timeout_seconds=self._collective_seconds,
                start=start,
                save_first=planned.choice.save_first,
            )
            member.tell(message)
        return Team(number, planned.members, watch, saves)

    @property
    def _collective_seconds(self) -> float:
        """Longer than the watch waits, which knows better who is to blame."""
        communication = self._job.plan.communication
        stated = communication.timeout_seconds if communication else None
        return stated or max(_COLLECTIVE_SECONDS, 2 * self._limits.most)

    def _terms(self, num_ranks: int) -> Terms:
        parallelism, policy = self._job.plan.parallelism, self._job.policy
        split = {"tensor": parallelism.tensor, "pipeline": parallelism.pipeline, "context": parallelism.context}
        split |= {"expert": parallelism.expert} if parallelism.expert > 1 else {}
        replica = parallelism.tensor * parallelism.pipeline * parallelism.context
        return Terms(
            run=self._settings.run,
            state=policy.state.items if policy else (),
            layout={"num_ranks": num_ranks, "data": num_ranks // replica, **split},
            config=f"sha256:{sha256(msgspec.json.encode(self._job)).hexdigest()}",
            are_replicas=decisions.replicas_are_whole(self._job),
            timeout_seconds=self._limits.save,
        )

    def stand_by(self) -> None:
        """Start standby workers up to the configured number; workers that end by themselves are not replaced."""
        num_wanted = min(self._settings.num_standby - self._crew.num_standing_by, self._num_standby_allowed)
        for _ in range(num_wanted):
            self._num_standby_allowed -= 1
            self._crew.start(None)
