"""Takes a save from the snapshots of the ranks to its commit, or abandons it on all of them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainspec_reference.common.checkpoints import EXTENSION, Vault
from trainspec_reference.common.crew import Worker
from trainspec_reference.common.decisions import replicas_are_whole
from trainspec_reference.common.job import Job
from trainspec_reference.common.messages import (
    Begun,
    File,
    FromWorker,
    Hash,
    Hashed,
    SaveEnded,
    Unsaved,
    Write,
    Written,
)
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.watch import Watch
from trainspec_validate.documents.types import trace


@dataclass(slots=True)
class _Save:
    name: str
    step: int
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

    def __init__(self, job: Job, vault: Vault, members: Sequence[Worker], tell: TraceWriter, watch: Watch) -> None:
        self._vault, self._trace, self._now, self._timeout_seconds = vault, tell, watch.now, watch.limits.save
        self._facts = _facts(job, len(members))
        self._are_replicas = replicas_are_whole(job)
        """Whether each rank holds all of the state, so that all have to have the same."""
        self._members = {worker.number: worker for worker in members}
        self._save: _Save | None = None
        self._late: dict[str, set[int]] = {}
        """Workers that have not begun a save that was given up, by its name."""

    @property
    def step(self) -> int | None:
        """Step of the save that is under way."""
        return self._save.step if self._save else None

    def hear(self, worker: int, message: FromWorker) -> None:
        """Take a worker's report of a save.

        Raises:
            DivergedError: replicas hold different states.
        """
        match message:
            case Begun():
                self._begun(worker, message)
            case Written() | Hashed() | Unsaved() if self._save and self._save.name == message.checkpoint:
                self._advanced(self._save, worker, message)

    def _begun(self, worker: int, message: Begun) -> None:
        """A rank has copied its state."""
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
        self.give_up(f"the save {message.checkpoint} began before its end")
        save_id = uuid.uuid4().hex
        try:
            directory = self._vault.stage(save_id)
        except OSError as error:
            self._failed(message.checkpoint, message.step, f"no directory can be made: {_reason(error)}")
            return
        self._save = _Save(message.checkpoint, message.step, save_id, directory, self._now())

    def _compare(self, save: _Save) -> None:
        """Judge once the states of all replicas are known, and not before: the odd one out is to blame."""
        digests = {number: begun.digest for number, begun in save.begun.items()}
        if not self._are_replicas or len(digests) < len(self._members) or len(set(digests.values())) == 1:
            return
        worker = odd_one_out(digests)
        self.give_up("replicas hold different states")
        raise DivergedError(worker)

    def _advanced(self, save: _Save, worker: int, message: Written | Hashed | Unsaved) -> None:
        match message:
            case Unsaved(reason=reason):
                self.give_up(f"worker {worker}: {reason}")  # no rank's part counts
            case Written():
                save.written.add(worker)
                if len(save.written) == len(self._members):
                    self._ask(save)
            case Hashed(files=files) if worker in save.asked:
                if {file.path for file in files} != set(save.asked[worker]):
                    self.give_up("a rank has read other files than it was asked for")
                    return
                save.hashed[worker] = files
                if len(save.hashed) == len(self._members):
                    self._commit(save)

    def _ask(self, save: _Save) -> None:
        """Share the work of reading the files back, which are durable, the largest first."""
        paths = [path for _, path in sorted(_files(save.directory), reverse=True)]
        if not paths:
            self.give_up("no rank has written a file")
            return
        for place, (number, member) in enumerate(self._members.items()):
            save.asked[number] = tuple(paths[place :: len(self._members)])
            member.tell(Hash(checkpoint=save.name, paths=save.asked[number]))

    def _commit(self, save: _Save) -> None:
        first = save.begun[next(iter(self._members))]  # rank 0 alone knows what the recorder has counted
        try:
            state = TrainerState.from_json(first.state.encode())
            files = [file for files in save.hashed.values() for file in files]
            facts = {**self._facts, "extensions": {EXTENSION: {"digest": first.digest}}}
            size_bytes = self._vault.commit(save.save_id, state, files, facts)
        except (OSError, ValueError) as error:
            self.give_up(f"the save cannot be committed: {_reason(error)}")
            return
        self._save = None
        self._trace.tell(trace.Save, checkpoint=save.name, step=save.step, stage="committed", digest=first.digest)
        self._end(SaveEnded(checkpoint=save.name, size_bytes=size_bytes))

    def tick(self) -> None:
        """Give up a save that does not end."""
        if self._save and self._now() - self._save.since > self._timeout_seconds:
            self.give_up(f"not all ranks were done within {self._timeout_seconds:g} s")

    def give_up(self, reason: str) -> None:
        """End the save that is under way on all ranks, if there is one; what was committed before is as it was."""
        save, self._save = self._save, None
        if save is not None:
            self._late[save.name] = self._members.keys() - save.begun.keys()
            self._vault.discard(save.save_id)
            self._failed(save.name, save.step, reason)

    def _failed(self, name: str, step: int, reason: str) -> None:
        self._trace.tell(trace.Save, checkpoint=name, step=step, stage="failed", reason=reason)
        self._end(SaveEnded(checkpoint=name, reason=reason))

    def _end(self, message: SaveEnded) -> None:
        for member in self._members.values():
            member.tell(message)


def _facts(job: Job, num_ranks: int) -> dict[str, Any]:
    """Fields of the manifest of each save of so many ranks."""
    plan, policy = job.plan.parallelism, job.policy
    split = {"tensor": plan.tensor, "pipeline": plan.pipeline, "context": plan.context}
    split |= {"expert": plan.expert} if plan.expert > 1 else {}
    num_data_ranks = num_ranks // (plan.tensor * plan.pipeline * plan.context)
    layout = {"num_ranks": num_ranks, "data": num_data_ranks, **split}
    return {"layout": layout, "state": policy.state.items if policy else ()}


def odd_one_out(digests: dict[int, str | None]) -> int | None:
    """The only rank whose digest differs from all others, which agree; None where there is no such rank."""
    for number, digest in digests.items():
        others = {value for other, value in digests.items() if other != number}
        if len(digests) > 2 and len(others) == 1 and digest not in others:
            return number
    return None


def _files(directory: Path) -> Iterator[tuple[int, str]]:
    """Size and path of every file below a directory."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder) / name
            yield path.lstat().st_size, path.relative_to(directory).as_posix()


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
