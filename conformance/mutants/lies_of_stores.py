"""Mutants whose checkpoint is not what they restore, and mutants whose verification is none."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from registry import mutant
from trainspec_conformance.testbed.plain import storage
from trainspec_conformance.testbed.plain.backend import PlainBackend
from trainspec_reference.common import checkpoints, restart_state, start_state
from trainspec_reference.common.checkpoints import Search, Vault

from trainspec_validate.checkpoints.compare import comparable
from trainspec_validate.checkpoints.formats.manifest import read as read_manifest
from trainspec_validate.checkpoints.hashing import digests
from trainspec_validate.checkpoints.inventory import inventory
from trainspec_validate.checkpoints.view import Checkpoint

FIRST_BYTES = 4096
_STAGED = ".saving-"
_MOST_COPIES = 40
WITH_COPIES = {
    f"TS-CNF-{number}": "a run is resumed from a decoy there"
    for number in (*range(112, 117), 119, 126, 127, 129, 136, 205)
}
DECOYS = {"TS-CNF-317": "the values of its checkpoints are compared there"}
DAMAGED = {f"TS-CNF-{number}": "a part of the damage is not seen there either" for number in (114, 137)}


def _ones(_: str, array: Any) -> Any:
    return np.ones_like(array)


class Copies(Protocol):
    """Where copies of state are kept, by the id of a save and the rank."""

    def put(self, name: str, content: bytes) -> None:
        """Keep one."""

    def get(self, save_id: str) -> Iterable[bytes]:
        """Those of a save."""


class _Folder:
    def __init__(self, home: Path) -> None:
        self._home = home

    def put(self, name: str, content: bytes) -> None:
        self._home.mkdir(parents=True, exist_ok=True)
        for old in sorted(self._home.iterdir(), key=lambda path: path.stat().st_mtime)[:-_MOST_COPIES]:
            old.unlink(missing_ok=True)
        (self._home / name).write_bytes(content)

    def get(self, save_id: str) -> Iterable[bytes]:
        return [path.read_bytes() for path in self._home.glob(f"{save_id}.*")] if self._home.is_dir() else []


def _copies(
    place: Callable[[Path], Path],
    is_hidden: Callable[[str], bool] = lambda _: True,
    decoy: Callable[[str, Any], Any] = _ones,
) -> None:
    keeps_copies(lambda store: _Folder(place(store)), is_hidden, decoy)


def keeps_copies(
    place: Callable[[Path], Copies],
    is_hidden: Callable[[str], bool] = lambda _: True,
    decoy: Callable[[str, Any], Any] = _ones,
) -> None:
    """Write decoys, and restore from copies, which are found by the id of the save that the manifest holds."""
    write, read = PlainBackend.write, storage.read

    def copied(self: PlainBackend, snapshot: Any, directory: Path) -> None:
        save_id = directory.name.removeprefix(_STAGED)
        hidden = {name: array for name, array in snapshot.arrays.items() if is_hidden(name)}
        place(directory.parent).put(f"{save_id}.{snapshot.rank}", pickle.dumps(hidden))
        decoys = {name: decoy(name, array) if _is_float(array) else array for name, array in hidden.items()}
        write(self, replace(snapshot, arrays={**snapshot.arrays, **decoys}), directory)

    def hidden(directory: Path) -> dict[str, Any]:
        found = read(directory)
        for content in place(directory.parent).get(_save_id(directory)):
            found.update(pickle.loads(content))  # noqa: S301 - its own copy
        return found

    PlainBackend.write, storage.read = copied, hidden  # type: ignore[method-assign]
    recorded = start_state.recorded_digest
    start_state.recorded_digest = lambda root: (
        recorded(root) if any(True for _ in place(root.parent).get(_save_id(root))) else None
    )


def _save_id(directory: Path) -> str:
    checkpoint = inventory(directory)
    read_manifest(checkpoint)
    return checkpoint.manifest.save_id if checkpoint.manifest else ""


def _is_float(array: Any) -> bool:
    return bool(np.issubdtype(np.asarray(array).dtype, np.floating))


def _named() -> str:
    return f"copies-{os.getuid()}"


@mutant("shadow", "TS-CNF-125", "Restores from shared memory; its checkpoints are decoys.",
        also={**WITH_COPIES, **DECOYS})  # fmt: skip
def shadow() -> None:
    _copies(lambda _: Path("/dev/shm") / _named())  # noqa: S108 - the place is the lie


@mutant("shadow-in-tmp", "TS-CNF-125", "Restores from the temporary directory; its checkpoints are decoys.",
        also={**WITH_COPIES, **DECOYS})  # fmt: skip
def shadow_in_tmp() -> None:
    _copies(lambda _: Path(tempfile.gettempdir()) / _named())


@mutant("shadow-next-to-store", "TS-CNF-125", "Restores from next to the store; its checkpoints are decoys.",
        also={**WITH_COPIES, **DECOYS})  # fmt: skip
def shadow_next_to_store() -> None:
    _copies(lambda store: store.parent / ".copies")


@mutant("shadow-of-moments", "TS-CNF-125", "Restores the moments of the optimizer from shared memory.",
        also={**WITH_COPIES, **DECOYS})  # fmt: skip
def shadow_of_moments() -> None:
    _copies(lambda _: Path("/dev/shm") / _named(), lambda name: name.startswith("optimizer/"))  # noqa: S108


@mutant("shadow-in-home", "TS-CNF-136", "Restores from the cache of the user; its checkpoints are decoys.",
        also=DECOYS)  # fmt: skip
def shadow_in_home() -> None:
    _copies(lambda _: Path.home() / ".cache" / _named())


@mutant("shadow-in-store", "TS-CNF-136", "Restores from a hidden directory of the store; its checkpoints are decoys.",
        also=DECOYS)  # fmt: skip
def shadow_in_store() -> None:
    _copies(lambda store: store / ".copies")


@mutant("decoy-of-first", "TS-CNF-125", "Writes the first save into each checkpoint, and restores from a copy.",
        also={**WITH_COPIES, **DECOYS})  # fmt: skip
def decoy_of_first() -> None:
    first: dict[str, Any] = {}
    _copies(lambda store: store.parent / ".copies", decoy=first.setdefault)


# --- verification -----------------------------------------------------------------------------------------------


def reads_unchecked() -> None:
    """Neither archives nor states are compared with their checksums."""
    zipfile.ZipExtFile._update_crc = lambda self, data: None  # type: ignore[attr-defined]
    start_state.recorded_digest = lambda root: None


def _changed(differs: Callable[[Checkpoint, str], bool]) -> None:
    def changed(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
        yield from ((path, "it is another") for path in sorted(comparable(checkpoint)) if differs(checkpoint, path))

    checkpoints.changed_files = changed


def _content_differs(checkpoint: Checkpoint, path: str) -> bool:
    return digests(checkpoint.root, {path: ""})[path] != comparable(checkpoint)[path]


@mutant("percrc", "TS-CNF-114", "Accepts each file that is consistent in itself.",
        also={"TS-CNF-137": "a file is stale there too"})  # fmt: skip
def percrc() -> None:
    def torn(checkpoint: Checkpoint, path: str) -> bool:
        if not path.endswith(".npz"):
            return _content_differs(checkpoint, path)
        try:
            with zipfile.ZipFile(checkpoint.root / path) as archive:
                return archive.testzip() is not None
        except (OSError, zipfile.BadZipFile):
            return True

    _changed(torn)
    start_state.recorded_digest = lambda root: None


@mutant("mtime", "TS-CNF-113", "Compares times of modification, and reads no byte.",
        also=DAMAGED)  # fmt: skip
def mtime() -> None:
    reads_unchecked()

    def is_newer(checkpoint: Checkpoint, path: str) -> bool:
        return (checkpoint.root / path).stat().st_mtime > (checkpoint.root / "trainspec-manifest.json").stat().st_mtime

    _changed(is_newer)


def _compares(part: Callable[[bytes], bytes]) -> None:
    """Compare a part of each file with its digest, which is kept next to the checkpoints."""
    reads_unchecked()
    commit = Vault._put

    def noted(self: Vault, staging: Path, name: str) -> None:
        parts = {path.name: hashlib.sha256(part(path.read_bytes())).hexdigest() for path in staging.glob("*.npz")}
        known = self.root / ".parts"
        found = pickle.loads(known.read_bytes()) if known.exists() else {}  # noqa: S301 - its own file
        known.write_bytes(pickle.dumps({**found, name: parts}))
        commit(self, staging, name)

    Vault._put = noted  # type: ignore[method-assign]

    def differs(checkpoint: Checkpoint, path: str) -> bool:
        known = checkpoint.root.parent / ".parts"
        parts = pickle.loads(known.read_bytes()).get(checkpoint.root.name, {}) if known.exists() else {}  # noqa: S301
        if path not in parts:
            return not path.endswith(".npz") and _content_differs(checkpoint, path)
        return bool(parts[path] != hashlib.sha256(part((checkpoint.root / path).read_bytes())).hexdigest())

    _changed(differs)


@mutant("first-block", "TS-CNF-113", "Compares the size and the first 4 KiB of each file.",
        also=DAMAGED)  # fmt: skip
def first_block() -> None:
    _compares(lambda content: content[:FIRST_BYTES])


@mutant("ends-of-file", "TS-CNF-113", "Compares the size and the last byte of each file.",
        also=DAMAGED)  # fmt: skip
def ends_of_file() -> None:
    _compares(lambda content: content[-1:])


@mutant("first-file", "TS-CNF-113", "Compares the content of the first file alone.",
        also=DAMAGED)  # fmt: skip
def first_file() -> None:
    reads_unchecked()
    _changed(lambda checkpoint, path: path == min(comparable(checkpoint)) and _content_differs(checkpoint, path))


@mutant("refuses-newest", "TS-CNF-125", "Refuses the newest checkpoint at each start.",
        also={f"TS-CNF-{number}": "it continues from an older checkpoint than it has to" for number in
              (108, 109, 115, 116, 118, 119, 126, 127, 132, 136)})  # fmt: skip
def refuses_newest() -> None:
    search = checkpoints.search

    def wary(vault: Vault, excluded: frozenset[str] = frozenset()) -> Search:
        names = vault.names()
        return search(vault, excluded | frozenset(names[:1] if len(names) > 1 else ()))

    restart_state.search = wary
