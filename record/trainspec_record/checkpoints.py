"""Seals checkpoints with the digests of their files while training continues, and finds the newest that is whole.

    from trainspec_record.checkpoints import commit, newest_good, seal_in_background

    seal_in_background("run/step-100")
    commit("run/.step-200", "run/step-200")
    resume_from = newest_good("run")

The manifest is that of `trainspec checkpoint seal`: `trainspec-manifest.json` in a directory, and next to a file under
its name with `.trainspec-manifest.json` at the end. Only `commit` raises into training, and no link is followed.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from queue import Full, Queue
from typing import Any

from trainspec_record._version import __version__
from trainspec_record.digests import BLOCK_BYTES, NOT_FOLLOWED, Hash, Hasher, digest
from trainspec_record.guard import LOGGER, never_raises, tell_once

MANIFEST = "trainspec-manifest.json"
MAX_WAITING = 64
"""Checkpoints in the queue; one more is left unsealed, which is logged."""
EXIT_SECONDS = 60
"""How long the end of a program waits for checkpoints that are being sealed."""
_SMALL_BYTES = 16_000_000
"""Of files that are hashed by the thread, in about 15 ms: a process would take longer to start."""
MAX_FILES = 250_000
MAX_MANIFEST_BYTES = 100_000_000
_IGNORED = frozenset({MANIFEST, "model.sig"})
_LEFT = re.compile(r"\.trainspec-[0-9a-f]{16}")
_START = b'{\n "apiVersion": "trainspec/v1",\n "kind": "CheckpointManifest"'
_UNFINISHED = re.compile(
    r"[._]?(?:tmp|temp|part|partial|incomplete)[-_.].+|.+?[-_.](?:tmp|temp|part|partial|incomplete)[0-9]*",
    re.IGNORECASE,
)
"""Names of saves in progress."""
_SIGNS = "._=+,@%:-"
"""Signs besides letters and digits in the names of checkpoints that are returned."""
_PICKLED = (".pt", ".pth", ".tar", ".ckpt", ".bin", ".pkl", ".pickle", ".joblib", ".dill", ".distcp", ".metadata")
_START_BYTES = 256
_PROTOCOL = 0x80
"""First byte of a pickle, before the number of its protocol."""
_ENTRIES = (b"/data.pkl", b"/.format_version", b"/byteorder", b"/version")
"""First entries of what `torch.save` writes."""
_STEP = re.compile(r"(?:(?:checkpoint|step|global_step|iter)[-_]?)?([0-9]{1,12})")


@dataclass(slots=True)
class Seal:
    """A checkpoint that is being sealed."""

    path: Path
    """Directory or file."""
    digests: Mapping[str, str]
    """SHA-256 of files that the writer knows already, by their path relative to the directory; they are not read."""
    step: int | None = None
    manifest: Path | None = None
    """The manifest, once it is written."""
    problem: str = ""
    """Why there is none."""
    num_bytes_read: int = 0
    seconds: float = 0.0
    """Time from the begin of the hashing to the end."""
    processor_seconds: float = 0.0
    """Time that a processor worked for it, without that of a process that was ended early."""
    _done: threading.Event = field(default_factory=threading.Event)
    _claim: threading.Lock = field(default_factory=threading.Lock)
    """Taken by the thread that is done first, and never waited for."""
    _is_awaited: bool = False

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for its end, with hashing at the priority of the program; whether the manifest was written."""
        if timeout_seconds != 0 and not self._done.is_set():
            self._is_awaited = True
            _SEALER.stop_if_urgent()
        self._done.wait(timeout_seconds)
        return self.manifest is not None


class _Sealer:
    """One thread that seals one checkpoint after the other; a process of low priority hashes the files."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin without a thread, as a process does that was forked."""
        self._lock = threading.Lock()
        self._queue: Queue[Seal] = Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._open: list[Seal] = []
        self._hasher = Hasher()

    def add(self, one: Seal) -> None:
        """Queue a checkpoint."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="trainspec-seal", daemon=True)
                self._thread.start()
                atexit.register(self._finish)
            self._open = [*(other for other in self._open if not other._done.is_set()), one]
            self.stop_if_urgent()
        try:
            self._queue.put_nowait(one)
        except Full:
            _end(one, f"{MAX_WAITING} checkpoints are waiting already")

    def _work(self) -> None:
        while True:
            self._complete(self._queue.get(), self._hashed)

    def stop_if_urgent(self) -> None:
        """Let the thread hash what is left where training waits for it, or the next save has come before its end."""
        if self._is_urgent():
            self._hasher.stop()

    def _is_urgent(self) -> bool:
        left = [one for one in self._open if not one._done.is_set()]
        return len(left) > 1 or any(one._is_awaited for one in left)

    def _hashed(self, paths: Sequence[Path]) -> tuple[list[str], float]:
        """Digests by the process, and in this thread those of a small checkpoint, and those that it did not give."""
        if self._is_urgent() or sum(path.lstat().st_size for path in paths) <= _SMALL_BYTES:
            return _hashed_here(paths)
        found, seconds = self._hasher.digests(paths, is_urgent=self._is_urgent)
        buffer = memoryview(bytearray(BLOCK_BYTES if len(found) < len(paths) else 0))
        return [*found, *(digest(path, buffer) for path in paths[len(found) :])], seconds

    def _complete(self, one: Seal, hashed: Hash) -> None:
        """Seal a checkpoint, unless another thread is faster."""
        begin, worked, manifest, problem = time.perf_counter(), time.thread_time(), None, ""
        try:
            manifest, seconds = _seal(one, hashed)
            worked -= seconds
        except Exception as error:  # noqa: BLE001, RUF100 - training continues, whatever it is
            problem = f"{type(error).__name__}: {error}"
        if one._claim.acquire(blocking=False):
            one.seconds, one.processor_seconds = time.perf_counter() - begin, time.thread_time() - worked
            one.manifest = manifest
            _end(one, problem)

    def _finish(self) -> None:
        """Give the last checkpoints of a program some time, at its own priority: no step waits any more."""
        end = time.monotonic() + EXIT_SECONDS

        def in_time() -> None:
            if time.monotonic() > end:
                raise TimeoutError(f"it was not hashed {EXIT_SECONDS} s after the end of the program")

        for one in self._open:
            if not one._done.is_set():
                self._complete(one, partial(_hashed_here, between=in_time))
        self._hasher.stop()


def _hashed_here(paths: Sequence[Path], between: Callable[[], object] | None = None) -> tuple[list[str], float]:
    """Digests of files by this thread."""
    buffer = memoryview(bytearray(BLOCK_BYTES))
    return [digest(path, buffer, between) for path in paths], 0.0


_SEALER = _Sealer()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SEALER.reset)


def _end(one: Seal, problem: str) -> None:
    one.problem = problem
    if problem:
        tell_once(f"{one.path} was not sealed: {problem}")
    else:
        words = "%s: sealed, %s bytes read in %.3f s, %.3f s of a processor"
        LOGGER.info(words, one.path, f"{one.num_bytes_read:,}", one.seconds, one.processor_seconds)
    one._done.set()


def seal_in_background(
    path: str | os.PathLike[str], *, step: int | None = None, digests: Mapping[str, str] | None = None
) -> Seal:
    """Write the manifest of a checkpoint that is complete, in a thread; call it on one rank, after the save.

    Args:
        path: directory of the checkpoint, or its only file.
        step: the optimizer step of the state; None takes the one in the name of a directory, such as `step-100`.
        digests: SHA-256 in hexadecimal digits of files that the writer hashed, by their path relative to the directory.
    """
    one = Seal(Path(path), dict(digests or {}), step)
    _queue(one)
    return one


@never_raises(None)
def _queue(one: Seal) -> None:
    _SEALER.add(one)


def _seal(one: Seal, hashed: Hash) -> tuple[Path, float]:
    """Hash the files and rename the manifest into place; the manifest, and seconds of a processor in another process.

    Raises:
        OSError: a file cannot be read, or the manifest cannot be written.
        ValueError: something cannot be sealed, or changed meanwhile.
    """
    is_file = stat.S_ISREG(one.path.lstat().st_mode)
    root = one.path.parent if is_file else one.path
    listed = {one.path.name: one.path.lstat()} if is_file else _listed(root)
    if not listed:
        raise ValueError("there is no file to seal")
    given = {name: one.digests[name] for name in listed if name in one.digests}
    for name, text in given.items():
        if not re.fullmatch("[0-9a-f]{64}", text):
            raise ValueError(f"{name}: the given digest is no SHA-256 in hexadecimal digits")
    read = [name for name in listed if name not in given]
    found, seconds = hashed([root / name for name in read]) if read else ([], 0.0)
    given |= dict(zip(read, found, strict=True))
    files = [{"path": name, "size_bytes": status.st_size, "sha256": given[name]} for name, status in listed.items()]
    now = {one.path.name: one.path.lstat()} if is_file else _listed(root)
    changed = [name for name in listed.keys() | now.keys() if _identity(listed.get(name)) != _identity(now.get(name))]
    if changed:
        raise ValueError(f"{min(changed)}: the file changed while it was hashed")
    one.num_bytes_read = sum(listed[name].st_size for name in read)
    text = json.dumps(_manifest(one, files), indent=1, ensure_ascii=False) + "\n"
    return _written(root, _manifest_path(one.path, is_file=is_file), text), seconds


def _identity(status: os.stat_result | None) -> tuple[int, ...]:
    return () if status is None else (status.st_size, status.st_mtime_ns, status.st_ino)


def _manifest_path(path: Path, *, is_file: bool) -> Path:
    return path.with_name(f"{path.name}.{MANIFEST}") if is_file else path / MANIFEST


def _listed(root: Path, *, is_sealed: bool = False) -> dict[str, os.stat_result]:
    """Every file below a directory; of one that is sealed, what an interrupted seal left counts by its content.

    Raises:
        ValueError: there is something that no manifest can cover.
    """
    found: dict[str, os.stat_result] = {}
    is_own: Callable[[str], bool] = partial(_is_left, root) if is_sealed else _is_temporary
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(name)
                elif not entry.is_file(follow_symlinks=False) or "\\" in name or not _is_text(name):
                    raise ValueError(f"{name!r}: only regular files with plain names can be sealed")
                elif name not in _IGNORED and not is_own(name):
                    found[name] = entry.stat(follow_symlinks=False)
        if len(found) > MAX_FILES:
            raise ValueError(f"there are more than {MAX_FILES:,} files")
    return dict(sorted(found.items()))


def _is_temporary(name: str) -> bool:
    return name.startswith(".trainspec-")


def _is_left(root: Path, name: str) -> bool:
    """Whether a file is the first part of a manifest, under the name that one is written under."""
    if not _LEFT.fullmatch(name):
        return False
    with os.fdopen(os.open(root / name, NOT_FOLLOWED), "rb") as file:
        start = file.read(len(_START))
    return _START.startswith(start)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _manifest(one: Seal, files: list[dict[str, Any]]) -> dict[str, Any]:
    match = _STEP.fullmatch(one.path.name)
    step = one.step if one.step is not None else int(match[1]) if match else None
    head = {
        "apiVersion": "trainspec/v1",
        "kind": "CheckpointManifest",
        "save_id": uuid.uuid4().hex,
        "step": step,
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "tool": {"name": "trainspec-record", "version": __version__},
        "files": files,
    }
    return {key: value for key, value in head.items() if value is not None}


def _written(root: Path, path: Path, text: str) -> Path:
    temporary = root / f".trainspec-{uuid.uuid4().hex[:16]}"
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def commit(part: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Seal a directory that is complete, make it durable, and rename it: after a crash `path` holds all or nothing.

    Call it on one rank, in the thread that wrote the checkpoint, after all ranks have written. `path` is in the same
    file system, such as `run/step-200` for `run/.step-200`; what a crashed save left there is removed.

    Raises:
        OSError: a file cannot be read, sealed or renamed; what `path` holds is then not a new checkpoint.
    """
    source, target = Path(part), Path(path)
    match = _STEP.fullmatch(target.name)
    try:
        names = _listed(source)
        folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
        for part_of in (*names, *folders):
            _synchronise(source / part_of)
        _seal(Seal(source, {}, int(match[1]) if match else None), _hashed_here)
    except ValueError as error:
        raise OSError(f"{source} was not sealed: {error}") from error
    _synchronise(source)
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    source.rename(target)
    _synchronise(target.parent)


def _synchronise(path: Path) -> None:
    """Wait until the content of a file, or the entries of a directory, are durable."""
    descriptor = os.open(path, NOT_FOLLOWED)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@never_raises(None)
def newest_good(
    directory: str | os.PathLike[str], *, refused: Callable[[Path, str], object] | None = None
) -> Path | None:
    """The newest checkpoint of a directory whose files agree with its manifest; None where there is none.

    Why newer ones do not is logged as a warning, and given to `refused` with the path; so is one whose manifest cannot
    be read, and a directory with a higher step in its name and no manifest. The step that the manifest states decides
    which is newer. `trainspec checkpoint newest-good` also judges checkpoints without a manifest, the
    formats of files, pointers next to checkpoints and what pickles would run; use it where others can write there. A
    pickle with code is not refused here where its digest agrees: a warning says that pickles were not followed.
    """
    buffer = memoryview(bytearray(BLOCK_BYTES))
    manifests, others = _manifests(Path(directory))
    chosen, least = None, -1
    for step, _, manifest in sorted(manifests, reverse=True, key=lambda one: one[:2]):
        path, problem = _verified(manifest, buffer)
        if not problem:
            _note_unread(path, manifest)
            chosen, least = path, step
            break
        LOGGER.warning("%s is not whole: %s", path, problem)
        if refused is not None:
            refused(path, problem)
    for path, problem in others:
        match = _STEP.fullmatch(path.name)
        if match is None or int(match[1]) > least:
            LOGGER.warning("%s is not whole: %s", path, problem)
            if refused is not None:
                refused(path, problem)
    return chosen


def _note_unread(path: Path, manifest: Path) -> None:
    """Say that pickles were not followed, of which a digest only says that they are as they were sealed."""
    held = sorted(str(one["path"]) for one in _read(manifest)["files"])
    pickled = [name for name in held if name.lower().endswith(_PICKLED) or _begins_as_pickle(manifest.parent / name)]
    if pickled:
        more = f" and {len(pickled) - 1:,} more" if len(pickled) > 1 else ""
        words = "agree with the manifest, and what their pickles would run was not looked at"
        LOGGER.warning("%s: %s%s %s; trainspec checkpoint newest-good does", path, pickled[0], more, words)


def _begins_as_pickle(path: Path) -> bool:
    """Whether a file begins as a pickle, or as a container of `torch.save`, whatever its name is."""
    with os.fdopen(os.open(path, NOT_FOLLOWED), "rb") as file:
        start = file.read(_START_BYTES)
    is_container = start.startswith(b"PK\x03\x04") and any(name in start for name in _ENTRIES)
    return is_container or (len(start) > 1 and start[0] == _PROTOCOL and 2 <= start[1] <= 5)


def _manifests(directory: Path) -> tuple[list[tuple[int, int, Path]], list[tuple[Path, str]]]:
    """Step, time of the last change and place of each manifest; and the checkpoints without one that can be read."""
    found = []
    others = []
    for entry in sorted(directory.iterdir()):
        place = entry / MANIFEST if entry.is_dir() and not entry.is_symlink() else entry
        if not place.name.endswith(MANIFEST) or place.is_symlink() or not place.is_file():
            if entry.is_dir() and _STEP.fullmatch(entry.name):
                others.append((entry, "it has no manifest"))
            elif entry.is_dir() and not entry.name.startswith("."):
                LOGGER.info("%s has no manifest", entry)
            continue
        try:
            step = _read(place).get("step")
            if step is not None and not (type(step) is int and 0 <= step < 1 << 63):
                raise ValueError("its step is no whole number from 0 that fits into 63 bits")
        except (OSError, ValueError, RecursionError) as error:
            others.append((_checkpoint_of(place), f"its manifest cannot be read: {error}"))
            continue
        found.append((step if type(step) is int else -1, place.stat().st_mtime_ns, place))
    return found, others


def _checkpoint_of(manifest: Path) -> Path:
    is_file = manifest.name != MANIFEST
    return manifest.with_name(manifest.name.removesuffix(f".{MANIFEST}")) if is_file else manifest.parent


def _read(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise ValueError(f"it has more than {MAX_MANIFEST_BYTES:,} bytes")
    data = json.loads(path.read_bytes(), object_pairs_hook=_of_unique_keys)
    if not isinstance(data, dict) or not isinstance(data.get("files"), list):
        raise ValueError("it is no manifest")
    return data


def _of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of JSON; of a key that is there twice, readers take one value or the other."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it has a key twice")
    return found


def _verified(manifest: Path, buffer: memoryview) -> tuple[Path, str]:
    """The checkpoint of a manifest, and what of its files does not agree."""
    is_file = manifest.name != MANIFEST
    path = _checkpoint_of(manifest)
    try:
        data = _read(manifest)
        if problem := _of_another(path.name, data) or _misread(path.name):
            return path, problem
        wanted = {str(one["path"]): (int(one["size_bytes"]), str(one["sha256"])) for one in data["files"]}
        if len(wanted) < len(data["files"]):
            return path, "its manifest lists a path twice"
        held = {path.name: path.lstat()} if is_file else _listed(path, is_sealed=True)
        sealed = {*wanted, *map(str, data.get("unsealed", ()))}
        for name in sorted(wanted.keys() | held.keys()):
            problem = _problem(name, wanted, held) if name in wanted or name not in sealed else ""
            if problem:
                return path, problem
        for name in wanted:
            if digest(manifest.parent / name, buffer) != wanted[name][1]:
                return path, f"{name}: the content is not what was sealed"
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return path, f"{type(error).__name__}: {error}"
    return path, ""


def _of_another(name: str, manifest: Mapping[str, Any]) -> str:
    """Why the name of a checkpoint is not that of the save that its manifest describes, in words."""
    match, step = _STEP.fullmatch(name), manifest.get("step")
    if match and type(step) is int and step != int(match[1]):
        return f"its manifest states step {step:,}, and its name {int(match[1]):,}"
    return "its name is one of a save in progress" if _UNFINISHED.fullmatch(name) else ""


def _misread(name: str) -> str:
    """Why a name is not returned, in words: a launcher may give it to a shell or write it to a log."""
    is_plain = name[:1] not in {"-", "~"} and all(sign.isalnum() or sign in _SIGNS for sign in name)
    return "" if is_plain else "a shell could misread its name: rename it with letters, digits and ._=+,@%:-"


def _problem(name: str, wanted: Mapping[str, tuple[int, str]], held: Mapping[str, os.stat_result]) -> str:
    if name not in held:
        return f"{name}: the file is missing"
    if name not in wanted:
        return f"{name}: the manifest does not list this file"
    size = held[name].st_size
    return "" if size == wanted[name][0] else f"{name}: has {size:,} bytes, and the manifest states {wanted[name][0]:,}"
