"""Takes a save from the snapshots of the ranks to its commit, or abandons it on all of them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainspec_reference.common.checkpoints import SaveFacts, Vault
from trainspec_reference.common.crew import Worker
from trainspec_reference.common.messages import Begun, File, Hash, Hashed, SaveEnded, Unsaved, Write, Written
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.trace import TraceWriter
from trainspec_validate.documents.types import trace


@dataclass(frozen=True, slots=True)
class Terms:
    """Values common to every save of a formation."""

    run: str
    state: tuple[str, ...]
    """Items of state that the policy names."""
    layout: dict[str, int]
    config: str
    """Digest of the job."""
    are_replicas: bool
    """Whether each rank holds all of the state, so that all have to have the same."""
    timeout_seconds: float


@dataclass(slots=True)
class _Save:
    name: str
    save_id: str
    directory: Path
    since: float
    begun: dict[int, Begun] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    asked: dict[int, tuple[str, ...]] = field(default_factory=dict)
    hashed: dict[int, tuple[File, ...]] = field(default_factory=dict)


class DivergedError(Exception):
    """Replicas that have to hold the same state do not.

    Attributes:
        worker: the one whose state no other has, where there is one.
    """

    def __init__(self, worker: int | None) -> None:
        super().__init__("replicas hold different states")
        self.worker = worker


class Saves:
    """The saves of one formation, one at a time. Only this process commits, so no rank that dies leaves one hanging."""

    def __init__(
        self, vault: Vault, terms: Terms, members: Sequence[Worker], tell: TraceWriter, now: Callable[[], float]
    ) -> None:
        self._vault, self._terms, self._trace, self._now = vault, terms, tell, now
        self._members = {worker.number: worker for worker in members}
        self._save: _Save | None = None
        self._late: dict[str, set[int]] = {}
        """Workers that have not begun a save that was given up, by its name."""

    @property
    def step(self) -> int | None:
        """Step of the save that is under way."""
        return next((begun.step for begun in self._save.begun.values()), None) if self._save else None

    def begun(self, worker: int, message: Begun) -> None:
        """A rank has copied its state.

        Raises:
            DivergedError: it is another one than that of other replicas.
        """
        late = self._late.get(message.checkpoint, set())
        if worker in late:
            late.discard(worker)
            self._members[worker].tell(SaveEnded(checkpoint=message.checkpoint, reason="the save was given up"))
            return
        if self._save is None or self._save.name != message.checkpoint:
            self._open(message)
        save = self._save
        if save is None:
            self._late[message.checkpoint] = self._members.keys() - {worker}
            return
        save.begun[worker] = message
        self._compare(save)
        self._members[worker].tell(Write(checkpoint=save.name, directory=str(save.directory)))

    def _open(self, message: Begun) -> None:
        if self._save is not None:
            self.give_up(f"the save {message.checkpoint} began before its end")
        save_id = uuid.uuid4().hex
        try:
            directory = self._vault.stage(save_id)
        except OSError as error:
            self._failed(message.checkpoint, message.step, f"no directory can be made: {_reason(error)}")
            return
        self._save = _Save(message.checkpoint, save_id, directory, self._now())

    def _compare(self, save: _Save) -> None:
        """Judge once the states of all replicas are known, and not before: the odd one out is to blame."""
        digests = {number: begun.digest for number, begun in save.begun.items()}
        if not self._terms.are_replicas or len(digests) < len(self._members) or len(set(digests.values())) == 1:
            return
        worker = odd_one_out(digests)
        self.give_up("replicas hold different states")
        raise DivergedError(worker)

    def written(self, worker: int, message: Written) -> None:
        """The files of a rank are durable; when all are, the ranks share the work of reading them back."""
        save = self._of(message.checkpoint)
        if save is None:
            return
        save.written.add(worker)
        if len(save.written) < len(self._members):
            return
        files = sorted(_files(save.directory))
        if not files:
            self.give_up("no rank has written a file")
            return
        numbers = list(self._members)
        shares: dict[int, list[str]] = {number: [] for number in numbers}
        for place, (_, path) in enumerate(reversed(files)):
            shares[numbers[place % len(numbers)]].append(path)
        for number, paths in shares.items():
            save.asked[number] = tuple(paths)
            self._members[number].tell(Hash(checkpoint=save.name, paths=tuple(paths)))

    def hashed(self, worker: int, message: Hashed) -> None:
        """A rank has read its share; with the last one the save is committed."""
        save = self._of(message.checkpoint)
        if save is None or worker not in save.asked:
            return
        if {file.path for file in message.files} != set(save.asked[worker]):
            self.give_up("a rank has read other files than it was asked for")
            return
        save.hashed[worker] = message.files
        if len(save.hashed) == len(self._members):
            self._commit(save)

    def _commit(self, save: _Save) -> None:
        first = save.begun[next(iter(self._members))]  # rank 0 alone knows what the recorder has counted
        try:
            name, size_bytes = self._vault.commit(
                self._facts(save, first), [file for files in save.hashed.values() for file in files]
            )
        except (OSError, ValueError) as error:
            self.give_up(f"the save cannot be committed: {_reason(error)}")
            return
        self._save = None
        self._trace.tell(trace.Save, checkpoint=name, step=first.step, stage="committed", digest=first.digest)
        self._end(SaveEnded(checkpoint=save.name, size_bytes=size_bytes))

    def _facts(self, save: _Save, first: Begun) -> SaveFacts:
        return SaveFacts(
            save_id=save.save_id,
            step=first.step,
            num_tokens=TrainerState.from_json(first.state.encode()).num_tokens,
            run=self._terms.run,
            state=self._terms.state,
            layout=self._terms.layout,
            digest=first.digest,
            config=self._terms.config,
            trainer=first.state.encode(),
        )

    def unsaved(self, worker: int, message: Unsaved) -> None:
        """A rank cannot do its part: no rank's part counts."""
        if self._of(message.checkpoint):
            self.give_up(f"worker {worker}: {message.reason}")

    def tick(self) -> None:
        """Give up a save that does not end."""
        if self._save and self._now() - self._save.since > self._terms.timeout_seconds:
            self.give_up(f"not all ranks were done within {self._terms.timeout_seconds:g} s")

    def give_up(self, reason: str) -> None:
        """End the save that is under way on all ranks; what was committed before is as it was."""
        save, step = self._save, self.step
        if save is None or step is None:
            return
        self._save = None
        self._late[save.name] = self._members.keys() - save.begun.keys()
        self._vault.discard(save.save_id)
        self._failed(save.name, step, reason)

    def _failed(self, name: str, step: int, reason: str) -> None:
        self._trace.tell(trace.Save, checkpoint=name, step=step, stage="failed", reason=reason)
        self._end(SaveEnded(checkpoint=name, reason=reason))

    def _end(self, message: SaveEnded) -> None:
        for member in self._members.values():
            member.tell(message)

    def _of(self, name: str) -> _Save | None:
        return self._save if self._save and self._save.name == name else None


def odd_one_out(digests: dict[int, str | None]) -> int | None:
    """The only rank whose digest differs from all others, which agree; None where there is no such rank."""
    for number, digest in digests.items():
        others = {value for other, value in digests.items() if other != number}
        if len(digests) > 2 and len(others) == 1 and digest not in others:
            return number
    return None


def _files(directory: Path) -> Iterable[tuple[int, str]]:
    """Size and path of every file below a directory."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder) / name
            yield path.lstat().st_size, path.relative_to(directory).as_posix()


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
