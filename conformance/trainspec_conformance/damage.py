"""Damages a store of checkpoints while nothing runs."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import random
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainspec_conformance.records import SOUND_KINDS, Damaged
from trainspec_conformance.resealing import change
from trainspec_conformance.store import CheckpointStore, Stored
from trainspec_conformance.stored_values import values_of

ZERO_BYTES = 4096
HUGE_HEADER_BYTES = 200_000_000


class NothingToDamageError(Exception):
    """The store does not hold what the scenario wants to damage."""


def damage(kind: str, which: str, store: CheckpointStore, chance: random.Random, interval_steps: int) -> list[Damaged]:
    """Do damage of a kind to a store that gets a checkpoint at each interval; says what was done, and where.

    Files that were there keep their times of modification, so that only their content shows the damage.

    Raises:
        NothingToDamageError: there is no checkpoint, file or pointer of that sort.
    """
    if kind == "partial-directory":
        return [_leave_partial(store, interval_steps)]
    times = _times(store)
    if kind.startswith("pointer-"):
        done = _arrives(kind, store.pointer or store.directory, partial(_damage_pointer, kind, store))
    else:
        done = _damage_checkpoints(kind, which, store, chance)
    _restore_times(times)
    return done


def _arrives(kind: str, path: Path, deed: Callable[[], list[Damaged]]) -> list[Damaged]:
    """Do something to a file or a directory, and see that it is another one afterwards.

    Raises:
        RuntimeError: it is not, which is a mistake of the suite.
    """
    before = _content(path)
    done = deed()
    if _content(path) == before:
        raise RuntimeError(f"{path.name}: {kind} has not arrived")
    return done


def _content(path: Path) -> dict[Path, str]:
    """Digests of a file, or of the files of a directory."""
    found = {}
    for one in (path, *path.rglob("*")):
        if one.is_file() and not one.is_symlink():
            with one.open("rb") as file:
                found[one] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _times(store: CheckpointStore) -> dict[Path, tuple[int, int]]:
    """Times of access and modification of each file and directory of the store."""
    found = {}
    for path in (store.directory, *store.directory.rglob("*")):
        status = path.lstat()
        found[path] = (status.st_atime_ns, status.st_mtime_ns)
    return found


def _restore_times(times: dict[Path, tuple[int, int]]) -> None:
    for path, both in times.items():
        if path.exists() and not path.is_symlink():
            os.utime(path, ns=both)


def _damage_checkpoints(kind: str, which: str, store: CheckpointStore, chance: random.Random) -> list[Damaged]:
    done = []
    for checkpoint in _chosen(which, store):
        if kind in SOUND_KINDS:
            done.append(_changed(kind, checkpoint, chance))
        else:
            done += _arrives(kind, checkpoint.path, partial(_damage_checkpoint, kind, checkpoint, store, chance))
    return done


def _damage_checkpoint(kind: str, checkpoint: Stored, store: CheckpointStore, chance: random.Random) -> list[Damaged]:
    if kind == "stale-file":
        return [_stale(checkpoint, store, chance)]
    if kind == "all-checkpoints-cut":
        return [_cut_half(path, checkpoint, chance) for path in store.payload(checkpoint)]
    path = _one_file(checkpoint, store, chance)
    return [_hostile(path, checkpoint, store) if kind == "hostile-pickle" else _BY_KIND[kind](path, checkpoint, chance)]


def _changed(kind: str, checkpoint: Stored, chance: random.Random) -> Damaged:
    """Another sound checkpoint in the place of one."""
    before = values_of(checkpoint.path)
    factor = change(kind, checkpoint.path, chance)
    if (values_of(checkpoint.path) == before) != (factor == 1.0):
        raise RuntimeError(f"{checkpoint.name}: {kind} has not arrived in its values")
    return Damaged(kind=kind, checkpoint=checkpoint.name, factor=factor)


def _chosen(which: str, store: CheckpointStore) -> list[Stored]:
    found = store.checkpoints()
    if not found:
        raise NothingToDamageError("the storage target holds no checkpoint")
    if which in {"all", "oldest"}:
        return found if which == "all" else found[:1]
    return found[-2:] if which == "newest-two" and len(found) > 2 else found[-1:]


def _one_file(checkpoint: Stored, store: CheckpointStore, chance: random.Random) -> Path:
    files = store.payload(checkpoint)
    if not files:
        raise NothingToDamageError(f"{checkpoint.name} holds no file of state")
    return chance.choices(files, weights=[path.stat().st_size for path in files])[0]


def _told(kind: str, path: Path, checkpoint: Stored, place: int = 0) -> Damaged:
    file = path.relative_to(checkpoint.path).as_posix() if path != checkpoint.path else ""
    return Damaged(kind=kind, checkpoint=checkpoint.name, file=file, place=place)


def _cut_byte(path: Path, checkpoint: Stored, chance: random.Random) -> Damaged:
    size = path.stat().st_size - 1
    with path.open("r+b") as file:
        file.truncate(size)
    return _told("cut-byte", path, checkpoint, size)


def _cut_half(path: Path, checkpoint: Stored, chance: random.Random) -> Damaged:
    size = path.stat().st_size // 2
    with path.open("r+b") as file:
        file.truncate(size)
    return _told("cut-half", path, checkpoint, size)


def _flip(path: Path, checkpoint: Stored, chance: random.Random) -> Damaged:
    place, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
    with path.open("r+b") as file:
        file.seek(place)
        old = file.read(1)[0]
        file.seek(place)
        file.write(bytes([old ^ 1 << bit]))
    return _told("flip-bit", path, checkpoint, place)


def _zero(path: Path, checkpoint: Stored, chance: random.Random) -> Damaged:
    data = path.read_bytes()
    places = [place for place in range(0, len(data), ZERO_BYTES) if any(data[place : place + ZERO_BYTES])]
    if not places:
        raise NothingToDamageError(f"{path.name} holds zeros only")
    place = chance.choice(places)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(bytes(min(ZERO_BYTES, len(data) - place)))
    return _told("zero-block", path, checkpoint, place)


def _delete(path: Path, checkpoint: Stored, chance: random.Random) -> Damaged:
    path.unlink()
    return _told("delete-file", path, checkpoint)


def _stale(checkpoint: Stored, store: CheckpointStore, chance: random.Random) -> Damaged:
    older = [one for one in store.checkpoints() if one.step < checkpoint.step]
    for source in reversed(older):
        pairs = [(source.path / path.relative_to(checkpoint.path), path) for path in store.payload(checkpoint)]
        usable = [(old, new) for old, new in pairs if old.is_file() and old.read_bytes() != new.read_bytes()]
        if usable:
            old, new = chance.choice(usable)
            shutil.copyfile(old, new)
            return _told("stale-file", new, checkpoint)
    raise NothingToDamageError(f"no older checkpoint has a file that {checkpoint.name} has too, with other content")


def _damage_pointer(kind: str, store: CheckpointStore) -> list[Damaged]:
    pointer, found = store.pointer, store.checkpoints()
    if pointer is None or not pointer.is_file():
        raise NothingToDamageError("the storage target has no pointer")
    if not found:
        raise NothingToDamageError("the storage target holds no checkpoint")
    ahead = store.name_of(found[-1].step * 2 + 1)
    if kind == "pointer-incomplete":
        if found[-1].path.is_file():
            (store.directory / ahead).touch()
        else:
            (store.directory / ahead).mkdir()
    text = {
        "pointer-empty": b"",
        "pointer-garbage": b"\x00\xff\x7f garbage \xfe\n",
        "pointer-dangling": store.pointing(store.name_of(max(found[0].step - 1, 0))),
        "pointer-ahead": store.pointing(ahead),
        "pointer-incomplete": store.pointing(ahead),
    }[kind]
    pointer.write_bytes(text)
    return [Damaged(kind=kind, checkpoint=pointer.name)]


def _leave_partial(store: CheckpointStore, interval_steps: int) -> Damaged:
    """A checkpoint of the step that will be saved next, as a crashed save leaves it: one file that is cut."""
    found = store.checkpoints()
    if not found:
        raise NothingToDamageError("the storage target holds no checkpoint to copy partially")
    newest = found[-1]
    name = store.name_of((newest.step // interval_steps + 1) * interval_steps)
    partial = store.directory / name
    source = store.payload(newest)[0]
    file = partial / source.relative_to(newest.path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    return Damaged(kind="partial-directory", checkpoint=name)


class _Canary:
    """Makes a directory when it is unpickled: the mark that something executed what it should have read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        import os  # noqa: PLC0415

        return (os.mkdir, (str(self.path),))


def _hostile(path: Path, checkpoint: Stored, store: CheckpointStore) -> Damaged:
    body = pickle.dumps(_Canary(store.canary))
    if zipfile.is_zipfile(path):
        text = io.BytesIO()
        with zipfile.ZipFile(text, "w") as archive:
            archive.writestr("archive/data.pkl", body)
            archive.writestr("archive/version", "3\n")
        body = text.getvalue()
    path.write_bytes(body)
    return _told("hostile-pickle", path, checkpoint)


def _huge_header(path: Path, checkpoint: Stored, chance: random.Random) -> Damaged:
    with path.open("r+b") as file:  # the length that a safetensors file begins with
        file.write(HUGE_HEADER_BYTES.to_bytes(8, "little"))
    return _told("huge-header", path, checkpoint)


_BY_KIND: dict[str, Callable[[Path, Stored, random.Random], Damaged]] = {
    "cut-byte": _cut_byte,
    "cut-half": _cut_half,
    "flip-bit": _flip,
    "zero-block": _zero,
    "delete-file": _delete,
    "huge-header": _huge_header,
}
