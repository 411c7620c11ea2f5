"""Keeps the directory of checkpoints of a run: staging, commit, pointer, retention, and the search for the newest."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from trainspec_reference.common.messages import File
from trainspec_reference.common.state import TrainerState
from trainspec_validate import __version__
from trainspec_validate.checkpoints import seal
from trainspec_validate.checkpoints.compare import absent_files, changed_files, unlisted_files
from trainspec_validate.checkpoints.formats.manifest import read as read_manifest
from trainspec_validate.checkpoints.inventory import inventory
from trainspec_validate.checkpoints.opening import UnreadableError, read_small
from trainspec_validate.checkpoints.pointers import pointers
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.save_names import STEP_NAME
from trainspec_validate.checkpoints.view import MANIFEST_NAME, Checkpoint
from trainspec_validate.system.budget import Limit

TRAINER_FILE = "trainer.json"
"""State of the trainer outside the backend: position in the data, loss scale, schedule."""
POINTER = "latest"
EXTENSION = "org.trainspec.reference"
_STAGED, _REPLACED, _REMOVED = ".saving-", ".replaced-", ".removed-"
"""Names that begin with a dot: no loader takes such a directory for a checkpoint."""
_DANGERS = frozenset({"code", "paths", "limits"})
"""What no digest vouches for: whoever wrote the manifest may have written the rest, too."""
_TRAINER_BYTES = Limit("a state of the trainer", 1 << 22, "bytes")


def name_of(step: int) -> str:
    """Name of the checkpoint of a step."""
    return f"step-{step:08}"


def sync(path: Path) -> None:
    """Make the content of a file durable, or what was created, renamed or removed in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """A new file whose content is on the storage when the call returns."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def remove(path: Path) -> None:
    """Remove a file or a directory, or nothing; what cannot be removed now is left for the next start."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


class Vault:
    """The directory of checkpoints of one run; one process changes it at a time.

    A save is written into a directory of its own under a hidden name and becomes a checkpoint by one rename. At no
    moment is a checkpoint named that is not whole, and none is removed before a newer one is committed.
    """

    def __init__(self, root: Path, num_kept: int, run: str) -> None:
        self.root = root
        self.refused: set[str] = set()
        """Checkpoints that count as none when old ones are removed."""
        self._num_kept, self._run = num_kept, run

    def tidy(self) -> None:
        """Finish or undo what a process that was killed had begun.

        Raises:
            OSError: the directory cannot be changed.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        for path in sorted(self.root.iterdir()):
            if path.name.startswith(_REPLACED):
                home = self.root / path.name[len(_REPLACED) :].partition(".")[0]
                if not home.exists():
                    path.rename(home)
                    continue
            if path.name.startswith((_STAGED, _REPLACED, _REMOVED)) or path.name == f"{POINTER}.tmp":
                remove(path)
        sync(self.root)

    def stage(self, save_id: str) -> Path:
        """An empty directory for the files of a save.

        Raises:
            OSError: it cannot be made.
        """
        path = self.root / f"{_STAGED}{save_id}"
        path.mkdir()
        return path

    def discard(self, save_id: str) -> None:
        """Give a save up; committed checkpoints are as they were.

        The directory loses its name first: a rank that still writes cannot put a file into what is being removed.
        """
        staging, gone = self.root / f"{_STAGED}{save_id}", self.root / f"{_REMOVED}{save_id}"
        with contextlib.suppress(OSError):
            staging.rename(gone)
        remove(gone)

    def commit(self, save_id: str, state: TrainerState, files: Iterable[File], facts: Mapping[str, Any]) -> int:
        """Make a checkpoint of a save whose files are durable; gives its size in bytes.

        Args:
            save_id: as it was staged.
            state: of the trainer, after the step that is saved.
            files: what the ranks have written.
            facts: further fields of the manifest.

        Raises:
            OSError: something cannot be written; the save is then to be discarded.
        """
        staging, name, trainer = self.root / f"{_STAGED}{save_id}", name_of(state.step), state.to_json()
        write_durably(staging / TRAINER_FILE, trainer)
        own = File(path=TRAINER_FILE, size_bytes=len(trainer), sha256=sha256(trainer).hexdigest())
        sealed = sorted([*files, own], key=lambda file: file.path)
        head = {
            "apiVersion": "trainspec/v1",
            "kind": "CheckpointManifest",
            "save_id": save_id,
            "step": state.step,
            "num_tokens": state.num_tokens,
            "run": self._run,
            "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tool": {"name": "trainspec_reference", "version": __version__},
        }
        seal.write(staging, {**head, **facts, "files": msgspec.to_builtins(sealed)})
        for folder, _, _ in os.walk(staging):
            sync(Path(folder))
        self._put(staging, name)
        self._point(name)
        self.refused.discard(name)
        self._retain()
        return sum(file.size_bytes for file in sealed)

    def _put(self, staging: Path, name: str) -> None:
        """Give the directory its name; what had the name stands aside until then."""
        home, aside = self.root / name, self.root / f"{_REPLACED}{name}.{staging.name[len(_STAGED) :]}"
        if home.exists() or home.is_symlink():
            home.rename(aside)
        staging.rename(home)
        sync(self.root)
        remove(aside)

    def _point(self, name: str) -> None:
        new, pointer = self.root / f"{POINTER}.tmp", self.root / POINTER
        remove(new)
        write_durably(new, f"{name}\n".encode())
        if pointer.is_dir() and not pointer.is_symlink():
            remove(pointer)
        new.replace(pointer)
        sync(self.root)

    def names(self) -> list[str]:
        """Directories that are named after a step, the newest first."""
        found = [STEP_NAME.match(path.name) for path in self.root.iterdir() if path.is_dir()]
        by_step = sorted(filter(None, found), key=lambda match: (int(match["step"]), match.string), reverse=True)
        return [match.string for match in by_step]

    def _retain(self) -> None:
        """Remove the oldest beyond the number that is kept; a checkpoint that was refused does not count."""
        whole = [name for name in self.names() if name not in self.refused]
        for name in whole[self._num_kept :]:
            gone = self.root / f"{_REMOVED}{name}"
            (self.root / name).rename(gone)
            remove(gone)


# --- the newest checkpoint that is whole ------------------------------------------------------------------------


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
    names = vault.names()
    result = Search(refusals=list(_pointer_faults(vault.root, names)), had_saved=(vault.root / POINTER).exists())
    for name in names:
        result.had_saved |= (vault.root / name / MANIFEST_NAME).exists()
        if name in excluded:
            continue
        verdict = verify(vault.root / name)
        if isinstance(verdict, Restorable):
            result.found = verdict
            break
        vault.refused.add(name)
        result.refusals.append(verdict)
    return result


def verify(root: Path) -> Restorable | Refusal:
    """Compare a checkpoint with its manifest, and the state of the trainer in it with both."""
    checkpoint = read_checkpoint(root)
    for path, reason in _faults(checkpoint):
        return Refusal(root.name, reason, path or None)
    manifest = checkpoint.manifest
    if manifest is None or manifest.step is None:
        return Refusal(root.name, "the manifest says no step", MANIFEST_NAME)
    try:
        step = TrainerState.from_json(read_small(root / TRAINER_FILE, _TRAINER_BYTES)).step
    except (UnreadableError, ValueError) as error:
        return Refusal(root.name, f"the file {error}", TRAINER_FILE)
    if step != manifest.step:
        return Refusal(root.name, f"the file says step {step:,}", TRAINER_FILE)
    return Restorable(root.name, step)


def _faults(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """What speaks against a checkpoint, the cheapest to find first."""
    if MANIFEST_NAME not in checkpoint.files:
        yield "", f"there is no {MANIFEST_NAME}: the save was never committed"
    elif checkpoint.manifest is None:
        yield MANIFEST_NAME, f"the manifest {checkpoint.manifest_problem}"
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
    read_manifest(checkpoint)
    extension = checkpoint.manifest.extensions.get(EXTENSION, {}) if checkpoint.manifest else {}
    digest = extension.get("digest") if isinstance(extension, dict) else None
    return digest if isinstance(digest, str) else None
