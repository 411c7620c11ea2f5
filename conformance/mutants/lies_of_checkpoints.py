"""Mutants of saves and restores."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from registry import mutant
from trainspec_conformance.testbed.plain import storage
from trainspec_conformance.testbed.plain.backend import PlainBackend
from trainspec_reference.common import checkpoints, restart_state, saves, start_state
from trainspec_reference.common import messages as say
from trainspec_reference.common.checkpoints import POINTER, TRAINER_FILE, Refusal, Restorable, Vault
from trainspec_reference.common.run_settings import RunEnd
from trainspec_reference.common.state import TrainerState

from trainspec_validate.documents.types import trace


@mutant("tells-early", "TS-CNF-108", "Reports the commit when the save begins.",
        also={"TS-CNF-109": "the save that is cut off there was reported as committed",
              "TS-CNF-110": "the save that fails was reported as committed",
              "TS-CNF-111": "the save that fails was reported as committed",
              "TS-CNF-116": "the job is stopped there as soon as a save is reported as committed",
              "TS-CNF-126": "one of its stops may fall into such a save",
              "TS-CNF-134": "the save that fails was reported as committed"})  # fmt: skip
def tells_early() -> None:
    begun = saves.Saves._begun

    def early(self: saves.Saves, worker: int, message: say.Begun) -> None:
        told = {"checkpoint": message.checkpoint, "step": message.step, "digest": message.digest}
        self._trace.tell(trace.Save, stage="committed", **told)
        begun(self, worker, message)

    saves.Saves._begun = early  # type: ignore[method-assign]


@dataclass
class _Live:
    """A snapshot that is none: it looks at the live arrays when it is written."""

    copied: storage.PlainSnapshot
    backend: PlainBackend


@mutant("saves-by-reference", "TS-CNF-109", "Writes from the live tensors after training has continued.")
def saves_by_reference() -> None:
    import time  # noqa: PLC0415

    snapshot, write = PlainBackend.snapshot, PlainBackend.write

    def live(self: PlainBackend) -> Any:
        return _Live(snapshot(self), self)  # type: ignore[arg-type]

    def late(self: PlainBackend, taken: Any, directory: Path) -> None:
        time.sleep(0.1)
        arrays = self._arrays()
        taken.copied.arrays.update({name: arrays[name].copy() for name in taken.copied.arrays if name in arrays})
        write(self, taken.copied, directory)

    PlainBackend.snapshot, PlainBackend.write = live, late  # type: ignore[method-assign]


@mutant("swallows-full-disk", "TS-CNF-110", "Reports a commit whatever the disk said.",
        also={"TS-CNF-111": "the disk refuses there, which it swallows too",
              "TS-CNF-134": "the disk fails there, which it swallows too"})  # fmt: skip
def swallows_full_disk() -> None:
    def failed(self: saves.Saves, name: str, step: int, reason: str) -> None:
        if not reason.startswith("the formation ended"):
            self._trace.tell(trace.Save, checkpoint=name, step=step, stage="committed")
        self._end(say.SaveEnded(checkpoint=name, reason=reason))

    saves.Saves._failed = failed  # type: ignore[method-assign]


@mutant("dies-of-full-disk", "TS-CNF-110", "Ends with an error when a save fails.",
        also={"TS-CNF-111": "a save fails there too", "TS-CNF-134": "and there",
              "TS-CNF-135": "memory ends while a save is written, which fails with its rank"})  # fmt: skip
def dies_of_full_disk() -> None:
    def failed(self: saves.Saves, name: str, step: int, reason: str) -> None:
        self._trace.tell(trace.Save, checkpoint=name, step=step, stage="failed", reason=reason)
        raise RunEnd("fault", 1, step)

    saves.Saves._failed = failed  # type: ignore[method-assign]


@mutant("refuses-left-over", "TS-CNF-116", "Fails to save a step whose directory exists.")
def refuses_left_over() -> None:
    put = Vault._put

    def refuses(self: Vault, staging: Path, name: str) -> None:
        if (self.root / name).exists():
            raise FileExistsError(f"{name} exists")
        put(self, staging, name)

    Vault._put = refuses  # type: ignore[method-assign]


def _trusts(root: Path) -> Restorable | Refusal:
    try:
        state = TrainerState.from_json((root / TRAINER_FILE).read_bytes())
    except (OSError, ValueError):
        return Refusal(root.name, "it has no state of a trainer")
    return Restorable(root.name, state.step)


def _never_compares_digests() -> None:
    start_state.recorded_digest = lambda root: None


@mutant("trusts-newest", "TS-CNF-112", "Restores the newest checkpoint without a look.",
        also={"TS-CNF-113": "it does not look at bytes either", "TS-CNF-137": "nor there",
              "TS-CNF-114": "it does not look for files either",
              "TS-CNF-129": "it trusts the hostile file", "TS-CNF-116": "it takes the left-over part for a checkpoint",
              "TS-CNF-115": "it takes the incomplete directory for a checkpoint"})  # fmt: skip
def trusts_newest() -> None:
    checkpoints.verify = _trusts
    _never_compares_digests()
    read = storage.read

    def lenient(directory: Path) -> dict[str, Any]:
        """All values that can be read, and zeros for the rest."""
        try:
            return read(directory)
        except Exception:
            found: dict[str, Any] = _Anything()
            return found

    storage.read = lenient


class _Anything(dict[str, Any]):
    """Has every name, and nothing in it."""

    def __contains__(self, name: object) -> bool:
        return not str(name).startswith(("random", "residual"))

    def __missing__(self, name: str) -> Any:
        return _AnyShape()


class _AnyShape:
    """An array of zeros of whatever shape and kind it is compared with."""

    class _Equal:
        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = None  # type: ignore[assignment]

    shape = dtype = _Equal()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.zeros((), dtype)


@mutant("verifies-sizes-only", "TS-CNF-113", "Compares the sizes of files, and not their content.",
        also={f"TS-CNF-{number}": "a stale file has the size of the right one" for number in (114, 137)})  # fmt: skip
def verifies_sizes_only() -> None:
    zipfile.ZipExtFile._update_crc = lambda self, data: None  # type: ignore[attr-defined]
    checkpoints.changed_files = lambda checkpoint: iter(())
    _never_compares_digests()


@mutant("follows-pointer", "TS-CNF-115", "Starts from initial weights when the pointer does not lead anywhere.")
def follows_pointer() -> None:
    checkpoint = restart_state.StateSource.checkpoint

    def led(self: restart_state.StateSource) -> say.Start | None:
        pointer = self._vault.root / POINTER
        if pointer.exists():
            name = pointer.read_bytes().decode("utf-8", "replace").strip("\n\0 ")
            if not name or not name.isprintable() or not (self._vault.root / name).is_dir():
                return say.Start(source="initial")
        return checkpoint(self)

    restart_state.StateSource.checkpoint = led  # type: ignore[method-assign]


def _pickles(path: Path) -> Iterator[bytes]:
    """What a loader of pickles would load of a file."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from (archive.read(name) for name in archive.namelist() if name.endswith(".pkl"))
    elif path.is_file():
        yield path.read_bytes()


@mutant("unpickles", "TS-CNF-129", "Reads its files with pickle, before it compares digests.")
def unpickles() -> None:
    verify = checkpoints.verify

    def careless(root: Path) -> Restorable | Refusal:
        for path in sorted(root.rglob("*")):
            for text in _pickles(path):
                try:
                    pickle.loads(text)  # noqa: S301 - this is the lie
                except Exception:  # noqa: S112 - most files are no pickles
                    continue
        return verify(root)

    checkpoints.verify = careless
