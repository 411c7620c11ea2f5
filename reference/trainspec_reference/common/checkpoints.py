"""Changes the directory of checkpoints: staging, commit, pointer, retention and clearing up."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainspec_reference.common.messages import File
from trainspec_validate.checkpoints import seal
from trainspec_validate.checkpoints.save_names import STEP_NAME

TRAINER_FILE = "trainer.json"
"""State of the trainer outside the backend: position in the data, loss scale, schedule."""
POINTER = "latest"
EXTENSION = "org.trainspec.reference"
_STAGED, _REPLACED, _REMOVED = ".saving-", ".replaced-", ".removed-"
"""Names that begin with a dot: no loader takes such a directory for a checkpoint."""


@dataclass(frozen=True, slots=True)
class SaveFacts:
    """Fields of the manifest of a save other than its files."""

    save_id: str
    step: int
    num_tokens: float | None
    run: str
    state: tuple[str, ...]
    """Items of state, by their names in the policy."""
    layout: dict[str, int]
    digest: str | None
    """Digest of the state that the ranks took at the snapshot."""
    config: str
    """Digest of the job."""
    trainer: bytes
    """State of the trainer, in JSON."""


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


class Vault:
    """The directory of checkpoints of one run; one process changes it at a time.

    A save is written into a directory of its own under a hidden name and becomes a checkpoint by one rename. At no
    moment is a checkpoint named that is not whole, and none is removed before a newer one is committed.
    """

    def __init__(self, root: Path, num_kept: int) -> None:
        self.root = root
        self._num_kept = num_kept
        self._refused: set[str] = set()

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

    def commit(self, facts: SaveFacts, files: Iterable[File]) -> tuple[str, int]:
        """Make a checkpoint of a save whose files are durable; gives its name and size in bytes.

        Raises:
            OSError: something cannot be written; the save is then to be discarded.
        """
        staging, name = self.root / f"{_STAGED}{facts.save_id}", name_of(facts.step)
        write_durably(staging / TRAINER_FILE, facts.trainer)
        sealed = [*files, _file(TRAINER_FILE, facts.trainer)]
        seal.write(staging, _manifest(facts, sealed))
        for folder, _, _ in os.walk(staging):
            sync(Path(folder))
        self._put(staging, name)
        self._point(name)
        self._refused.discard(name)
        self._retain()
        return name, sum(file.size_bytes for file in sealed)

    def _put(self, staging: Path, name: str) -> None:
        """Give the directory its name; what had the name stands aside until then."""
        home, aside = self.root / name, self.root / f"{_REPLACED}{name}.{staging.name[len(_STAGED) :]}"
        if home.exists() or home.is_symlink():
            home.rename(aside)
        staging.rename(home)
        sync(self.root)
        remove(aside)

    def _point(self, name: str) -> None:
        new = self.root / f"{POINTER}.tmp"
        remove(new)
        write_durably(new, f"{name}\n".encode())
        pointer = self.root / POINTER
        if pointer.is_dir() and not pointer.is_symlink():
            remove(pointer)
        new.replace(pointer)
        sync(self.root)

    def names(self) -> list[str]:
        """Directories that are named after a step, the newest first."""
        found = [path.name for path in self.root.iterdir() if STEP_NAME.match(path.name) and path.is_dir()]
        return sorted(found, key=lambda name: (int(_step(name)), name), reverse=True)

    def refuse(self, name: str) -> None:
        """Count a checkpoint as none when old ones are removed."""
        self._refused.add(name)

    def _retain(self) -> None:
        """Remove the oldest beyond the number that is kept; a checkpoint that was refused does not count."""
        whole = [name for name in self.names() if name not in self._refused]
        for name in whole[self._num_kept :]:
            gone = self.root / f"{_REMOVED}{name}"
            (self.root / name).rename(gone)
            remove(gone)


def _step(name: str) -> str:
    match = STEP_NAME.match(name)
    return match["step"] if match else "-1"


def remove(path: Path) -> None:
    """Remove a file or a directory, or nothing; what cannot be removed now is left for the next start."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _file(path: str, content: bytes) -> File:
    import hashlib  # noqa: PLC0415

    return File(path=path, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def _manifest(facts: SaveFacts, files: Iterable[File]) -> dict[str, Any]:
    from trainspec_validate._version import __version__  # noqa: PLC0415

    manifest = {
        "apiVersion": "trainspec/v1",
        "kind": "CheckpointManifest",
        "save_id": facts.save_id,
        "step": facts.step,
        "num_tokens": facts.num_tokens,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "run": facts.run,
        "tool": {"name": "trainspec_reference", "version": __version__},
        "layout": facts.layout,
        "state": facts.state,
        "files": [
            {"path": file.path, "size_bytes": file.size_bytes, "sha256": file.sha256}
            for file in sorted(files, key=lambda file: file.path)
        ],
        "extensions": {EXTENSION: {"digest": facts.digest, "config": facts.config}},
    }
    return {key: value for key, value in manifest.items() if value is not None}
