"""Chooses the state that a formation starts from: a surviving replica, else the newest verified checkpoint."""

from __future__ import annotations

from trainspec_reference.common import decisions
from trainspec_reference.common import messages as say
from trainspec_reference.common.checkpoints import Refusal, Vault, search
from trainspec_reference.common.job import Job
from trainspec_reference.common.trace import TraceWriter
from trainspec_validate.documents.types import trace


class StateSource:
    """Finds the newest good state of a run."""

    def __init__(self, job: Job, vault: Vault, tell: TraceWriter) -> None:
        self._vault, self._trace = vault, tell
        self._excluded: frozenset[str] = frozenset()
        self._told: set[Refusal] = set()
        bitwise = job.policy is not None and job.policy.state.resume_class == "bitwise"
        self._may_share = decisions.replicas_are_whole(job) and (decisions.peers_are_exact(job) or not bitwise)

    def refuse(self, name: str, reason: str) -> None:
        """A checkpoint cannot be loaded, although its bytes are right."""
        self._excluded |= {name}
        self._vault.refused.add(name)
        self._tell(Refusal(name, reason))

    def _tell(self, refusal: Refusal) -> None:
        if refusal not in self._told:
            self._told.add(refusal)
            told = {"checkpoint": refusal.checkpoint, "reason": refusal.reason[:4096], "file": refusal.file}
            self._trace.tell(trace.Refused, **told)

    def checkpoint(self) -> say.Start | None:
        """The newest verified checkpoint; a start from nothing only where nothing was ever committed, else None."""
        found = search(self._vault, self._excluded)
        for refusal in found.refusals:
            self._tell(refusal)
        if found.found is not None:
            return say.Start(source="checkpoint", step=found.found.step, checkpoint=found.found.name)
        return None if found.had_saved else say.Start(source="initial")

    def after_fault(self, left: dict[int, say.Left], *, must_roll_back: bool, unsaved_step: int | None) -> say.Start:
        """State for the workers that have left a formation, and those that join them.

        Raises:
            LookupError: checkpoints exist, and none of them verifies.
        """
        newest = decisions.newest_replica(left) if self._may_share and not must_roll_back else None
        if newest is not None:
            holders, answer = newest
            step = answer.step or 0
            is_unsaved = step > 0 and step == unsaved_step
            return say.Start(
                source="peer", step=step, holders=tuple(holders), state=answer.state, save_first=is_unsaved
            )
        start = self.checkpoint()
        if start is None:
            raise LookupError("checkpoints exist, and none of them verifies")
        return start
