"""Follows the workers of one formation: their progress, their saves, and their ends."""

from __future__ import annotations

from collections.abc import Sequence

from trainspec_reference.common import messages as say
from trainspec_reference.common.crew import Worker
from trainspec_reference.common.saves import Saves
from trainspec_reference.common.watch import Watch


class Team:
    """Workers that train together, in the order of their ranks."""

    def __init__(self, number: int, members: Sequence[Worker], watch: Watch, saves: Saves) -> None:
        self.number, self.watch, self.saves = number, watch, saves
        self.members = list(members)
        self.hosts = tuple(member.host or "" for member in members)
        self.left: dict[int, say.Left] = {}
        """What each worker said when it left, by its number."""
        self.finished: dict[int, say.Finished] = {}
        self.counters: tuple[int, dict[str, float]] | None = None
        """What the recorder has counted, and after which update."""

    def rank_of(self, number: int) -> int | None:
        """Rank of a worker; None where it is none of this team."""
        return next((rank for rank, member in enumerate(self.members) if member.number == number), None)

    @property
    def living(self) -> list[Worker]:
        """Members that have a process within reach."""
        return [member for member in self.members if member.is_alive]

    @property
    def has_left(self) -> bool:
        """Whether nobody is in the formation any more."""
        return all(member.number in self.left for member in self.living)

    @property
    def has_finished(self) -> bool:
        """Whether all members have done what they were asked for."""
        return len(self.finished) == len(self.members)

    def tell(self, message: say.FromController) -> None:
        """Say something to all members that live."""
        for member in self.living:
            member.tell(message)

    def progress(self, number: int, message: say.FromWorker) -> None:
        """A worker tells of an update.

        Raises:
            DivergedError: replicas hold different states.
        """
        match message:
            case say.Ready(step=step):
                self.watch.ready(number, step)
            case say.Arrived(step=step):
                self.watch.arrived(number, step)
            case say.Done(step=step, counters=counters):
                self.watch.done(number, step)
                if counters is not None:
                    self.counters = step, counters
            case say.Pausing():
                self.watch.waits(number)
            case say.Left():
                self.left[number] = message
            case say.Finished():
                self.finished[number] = message
                self.watch.saved()
            case _:
                self.save(number, message)

    def save(self, number: int, message: say.FromWorker) -> None:
        """A worker tells of a save.

        Raises:
            DivergedError: replicas hold different states.
        """
        match message:
            case say.Begun():
                self.saves.begun(number, message)
            case say.Written():
                self.saves.written(number, message)
            case say.Hashed():
                self.saves.hashed(number, message)
            case say.Unsaved():
                self.saves.unsaved(number, message)
            case _:
                return
        self.watch.saved()
