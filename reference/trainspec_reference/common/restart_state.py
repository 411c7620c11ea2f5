"""Chooses the state that a formation starts from: a surviving replica, else a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainspec_reference.common import decisions
from trainspec_reference.common import messages as say
from trainspec_reference.common.checkpoints import Vault
from trainspec_reference.common.crew import Worker
from trainspec_reference.common.job import Job
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.verification import Refusal, search
from trainspec_validate.documents.types import trace


@dataclass(frozen=True, slots=True)
class StateChoice:
    """What a formation starts from."""

    source: say.Source
    step: int = 0
    checkpoint: str | None = None
    holders: tuple[int, ...] = ()
    """Numbers of the workers that hold the state."""
    state: str | None = None
    """State of the trainer, for a start from a holder."""
    counters: dict[str, float] | None = None
    """What the recorder had counted."""
    save_first: bool = False
    """Whether the save of this state was given up."""

    def start(self, members: Sequence[Worker]) -> say.Start:
        """What the members are told, in the order of their ranks."""
        if self.source in {"initial", "checkpoint"}:
            return say.Start(source=self.source, step=self.step, checkpoint=self.checkpoint)
        ranks = [rank for rank, member in enumerate(members) if member.number in self.holders]
        if len(ranks) == len(members):
            return say.Start(source="memory", step=self.step, counters=self.counters)
        return say.Start(source="peer", step=self.step, donor=ranks[0], state=self.state, counters=self.counters)


class StateSource:
    """Finds the newest good state of a run."""

    def __init__(self, job: Job, vault: Vault, tell: TraceWriter) -> None:
        self._vault, self._trace = vault, tell
        self._excluded: frozenset[str] = frozenset()
        self._told: set[Refusal] = set()
        bitwise = job.policy is not None and job.policy.state.resume_class == "bitwise"
        self._may_share = decisions.replicas_are_whole(job) and (decisions.peers_are_exact(job) or not bitwise)

    @property
    def has_checkpoint(self) -> bool:
        """Whether anything is committed."""
        return bool(self._vault.names())

    def refuse(self, name: str, reason: str) -> None:
        """A checkpoint cannot be loaded, although its bytes are right."""
        self._excluded |= {name}
        self._vault.refuse(name)
        self._tell(Refusal(name, reason))

    def _tell(self, refusal: Refusal) -> None:
        if refusal not in self._told:
            self._told.add(refusal)
            self._trace.tell(
                trace.Refused, checkpoint=refusal.checkpoint, reason=refusal.reason[:4096], file=refusal.file
            )

    def checkpoint(self) -> StateChoice | None:
        """The newest verified checkpoint; a start from nothing only where nothing was ever committed, else None."""
        found = search(self._vault, self._excluded)
        for refusal in found.refusals:
            self._tell(refusal)
        if found.found is not None:
            return StateChoice("checkpoint", found.found.step, found.found.name)
        return None if found.had_saved else StateChoice("initial")

    def after_fault(self, left: dict[int, say.Left], *, must_roll_back: bool, unsaved_step: int | None) -> StateChoice:
        """State for the workers that have left a formation, and those that join them.

        Raises:
            LookupError: there were checkpoints, and none can be trusted.
        """
        newest = decisions.newest_replica(left) if self._may_share and not must_roll_back else None
        if newest is not None:
            numbers, answer = newest
            step = answer.step or 0
            return StateChoice(
                "peer", step, None, tuple(numbers), answer.state, save_first=step > 0 and step == unsaved_step
            )
        choice = self.checkpoint()
        if choice is None:
            raise LookupError("there were checkpoints, and none can be trusted")
        return choice
