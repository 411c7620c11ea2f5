"""Chooses the state that a formation starts from: a surviving replica, else the newest verified checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainspec_reference.common import decisions
from trainspec_reference.common import messages as say
from trainspec_reference.common.checkpoints import EXTENSION, POINTER, TRAINER_FILE, Vault
from trainspec_reference.common.crew import Worker
from trainspec_reference.common.job import Job
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.trace import TraceWriter
from trainspec_validate.checkpoints.compare import absent_files, changed_files, unlisted_files
from trainspec_validate.checkpoints.formats.manifest import read
from trainspec_validate.checkpoints.inventory import inventory
from trainspec_validate.checkpoints.opening import UnreadableError, read_small
from trainspec_validate.checkpoints.pointers import pointers
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.view import MANIFEST_NAME, Checkpoint
from trainspec_validate.documents.types import trace
from trainspec_validate.system.budget import Limit

_DANGERS = frozenset({"code", "paths", "limits"})
"""What no digest vouches for: whoever wrote the manifest may have written the rest, too."""
_TRAINER_BYTES = Limit("a state of the trainer", 1 << 22, "bytes")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a checkpoint is not used."""

    checkpoint: str
    reason: str
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Restorable:
    """A checkpoint whose every byte was verified."""

    name: str
    step: int
    state: TrainerState


@dataclass(slots=True)
class Search:
    """The newest good checkpoint, and what was passed over on the way to it."""

    found: Restorable | None = None
    refusals: list[Refusal] = field(default_factory=list)
    had_saved: bool = False
    """Whether the run had committed anything: it must never begin anew then."""


def search(vault: Vault, excluded: frozenset[str] = frozenset()) -> Search:
    """Look for the newest checkpoint that is whole and unchanged.

    It is looked for by step. The pointer decides nothing, for a pointer can be stale, and a run that trusts one that
    is damaged starts from nothing.
    """
    result = Search()
    names = vault.names()
    result.refusals += _pointer_faults(vault.root, names)
    result.had_saved = (vault.root / POINTER).exists()
    for name in names:
        result.had_saved |= (vault.root / name / MANIFEST_NAME).exists()
        if name in excluded:
            continue
        verdict = verify(vault.root / name)
        if isinstance(verdict, Restorable):
            result.found = verdict
            break
        vault.refuse(name)
        result.refusals.append(verdict)
    return result


def verify(root: Path) -> Restorable | Refusal:
    """Compare a checkpoint with its manifest, and read the state of the trainer in it."""
    checkpoint = read_checkpoint(root)
    for path, reason in _faults(checkpoint):
        return Refusal(root.name, reason, path or None)
    manifest = checkpoint.manifest
    if manifest is None or manifest.step is None:
        return Refusal(root.name, "the manifest says no step", MANIFEST_NAME)
    try:
        state = TrainerState.from_json(read_small(root / TRAINER_FILE, _TRAINER_BYTES))
    except (UnreadableError, ValueError) as error:
        return Refusal(root.name, f"the file {error}", TRAINER_FILE)
    if state.step != manifest.step:
        return Refusal(root.name, f"the file says step {state.step:,}", TRAINER_FILE)
    return Restorable(root.name, manifest.step, state)


def _faults(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """What speaks against a checkpoint, the cheapest to find first."""
    if MANIFEST_NAME not in checkpoint.files:
        yield "", f"there is no {MANIFEST_NAME}: the save was never committed"
    elif checkpoint.manifest is None:
        yield MANIFEST_NAME, f"the manifest cannot be read: {checkpoint.manifest_problem}"
    yield from absent_files(checkpoint)
    yield from unlisted_files(checkpoint)
    yield from ((trouble.path, trouble.message) for trouble in checkpoint.troubles if trouble.aspect in _DANGERS)
    for claim in checkpoint.claims:
        if claim.step != checkpoint.step:
            yield claim.path, f"{claim.words} says step {claim.step:,}"
    yield from changed_files(checkpoint)


def _pointer_faults(root: Path, names: list[str]) -> Iterator[Refusal]:
    path = root / POINTER
    if path.is_symlink() or (path.exists() and not path.is_file()):
        yield Refusal(POINTER, "the pointer is no regular file", POINTER)
    for pointer in pointers(root, ()):
        if Path(pointer.name).name != POINTER:
            continue
        if pointer.problem:
            yield Refusal(POINTER, f"the pointer {pointer.problem}", POINTER)
        elif pointer.content not in names:
            yield Refusal(POINTER, "the pointer names no checkpoint that is here", POINTER)


def recorded_digest(root: Path) -> str | None:
    """State digest that the manifest of a verified checkpoint holds."""
    checkpoint = inventory(root)
    read(checkpoint)
    extension = checkpoint.manifest.extensions.get(EXTENSION, {}) if checkpoint.manifest else {}
    digest = extension.get("digest") if isinstance(extension, dict) else None
    return digest if isinstance(digest, str) else None


@dataclass(frozen=True, slots=True)
class StateChoice:
    """The state from which a formation starts."""

    source: say.Source
    step: int = 0
    checkpoint: str | None = None
    holders: tuple[int, ...] = ()
    """Numbers of the workers that hold the state."""
    state: str | None = None
    """State of the trainer, for a start from a holder."""
    counters: dict[str, float] | None = None
    """Counts of the recorder."""
    save_first: bool = False
    """Whether the save of this state was given up."""

    def start(self, members: Sequence[Worker]) -> say.Start:
        """Start messages to the members, in the order of their ranks."""
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
            LookupError: checkpoints exist, and none of them verifies.
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
            raise LookupError("checkpoints exist, and none of them verifies")
        return choice
