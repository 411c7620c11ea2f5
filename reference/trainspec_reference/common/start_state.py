"""Gives a worker the state that its formation starts from, and verifies its digest."""

from __future__ import annotations

from pathlib import Path

from trainspec_reference.common import messages as say
from trainspec_reference.common.backend import Backend, CheckpointUnreadableError
from trainspec_reference.common.checkpoints import TRAINER_FILE, recorded_digest
from trainspec_reference.common.job import Job
from trainspec_reference.common.ports import Surroundings
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.weights import initial_weights
from trainspec_validate.checkpoints.opening import UnreadableError, read_small
from trainspec_validate.documents.types import trace

HELD = "peers"
"""Source of a restore that loads no checkpoint, in the stream."""


class StartState:
    """The state of one worker: what it holds, and how it gets it."""

    def __init__(self, job: Job, backend: Backend, checkpoint_directory: Path) -> None:
        self._job, self._backend, self._checkpoints = job, backend, checkpoint_directory
        self._is_built = False
        self._digested: tuple[int, str] | None = None
        """Optimizer steps in the state that was digested last, and its digest."""
        self.held: TrainerState | None = None
        """State of the trainer that belongs to the tensors of the backend; None where those are undefined."""

    @property
    def digest(self) -> str | None:
        """Of the state that is held, to be asked for before the formation is left; None where nothing is held."""
        if self.held is None:
            return None
        if self._digested is None or self._digested[0] != self.held.step:
            self._digested = self.held.step, self._backend.digest()
        return self._digested[1]

    def forget(self) -> None:
        """The state in the backend must not be used."""
        self.held = None

    def take(self, start: say.Start, surroundings: Surroundings) -> TrainerState:
        """Get the state; afterwards this worker holds it.

        Raises:
            CheckpointUnreadableError: the checkpoint cannot be loaded, or gives another state than was saved.
            PeerLostError: the rank that holds the state is gone.
        """
        match start.source:
            case "memory":
                state, digest = self._kept(start, surroundings)
            case "peer":
                state, digest = self._from_peer(start, surroundings)
            case "checkpoint":
                state, digest = self._from_checkpoint(start, surroundings)
            case "initial":
                self._build()
                state, digest = TrainerState.first(self._job.plan), self._backend.digest()
        self.held, self._digested = state, (state.step, digest)
        surroundings.trace.tell(
            trace.Restore,
            rank=surroundings.formation.rank,
            step=state.step,
            source=start.source,
            checkpoint=start.checkpoint,
            digest=digest,
        )
        return state

    def _build(self) -> None:
        self.held = None
        self._backend.build(initial_weights(self._job.model, self._job.seed))
        self._is_built = True

    def _kept(self, start: say.Start, surroundings: Surroundings) -> tuple[TrainerState, str]:
        state = self.held
        if state is None or state.step != start.step:
            raise CheckpointUnreadableError(f"this worker does not hold step {start.step:,}")
        with surroundings.recorder.restore(HELD, start.step, state=start.counters):
            return state, self._backend.digest()

    def _from_peer(self, start: say.Start, surroundings: Surroundings) -> tuple[TrainerState, str]:
        is_donor = surroundings.formation.rank == start.donor
        state = self.held if is_donor else TrainerState.from_json((start.state or "").encode())
        if state is None:
            raise CheckpointUnreadableError("the rank that is to share its state holds none")
        if not self._is_built:
            self._build()
        if not is_donor:
            self.held = None
        with surroundings.recorder.restore(HELD, start.step, state=start.counters):
            self._backend.share(start.donor or 0)
            return state, self._backend.digest()

    def _from_checkpoint(self, start: say.Start, surroundings: Surroundings) -> tuple[TrainerState, str]:
        directory = self._checkpoints / (start.checkpoint or "")
        try:
            state = TrainerState.from_json(read_small(directory / TRAINER_FILE))
        except (UnreadableError, ValueError) as error:
            raise CheckpointUnreadableError(f"{directory / TRAINER_FILE}: {error}") from error
        self._build()
        with surroundings.recorder.restore(directory.name, state.step, state=state.counters):
            self._backend.restore(directory)
            digest = self._backend.digest()
        saved = recorded_digest(directory)
        if saved is not None and saved != digest:
            raise CheckpointUnreadableError(f"{directory.name} gives the state {digest}, and {saved} was saved")
        return state, digest
