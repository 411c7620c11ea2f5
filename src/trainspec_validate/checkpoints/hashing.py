"""The only place that hashes files of a checkpoint, several at once."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock

from trainspec_validate.checkpoints.opening import open_file

_BLOCK_BYTES = 1 << 20
Progress = Callable[[int, int], None]
"""Called with the bytes hashed so far and all bytes."""


def num_threads() -> int:
    """Twice the processors: half of the threads wait for the storage while the others hash."""
    return 2 * (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def sha256(path: Path, seen: Callable[[int], None] | None = None) -> str:
    """Digest of a regular file in hexadecimal digits.

    Raises:
        OSError: it cannot be read, or is a link.
    """
    digest = hashlib.sha256()
    for block in _blocks(path):
        digest.update(block)
        if seen:
            seen(len(block))
    return digest.hexdigest()


def _blocks(path: Path) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(_BLOCK_BYTES))
    with open_file(path) as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while number := file.readinto(buffer):  # type: ignore[attr-defined]
            yield buffer[:number]


class _Counter:
    """Bytes that all threads have read."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self._lock = Lock()

    def __call__(self, number: int) -> None:
        """Count bytes."""
        if self._progress:
            with self._lock:
                self._done += number
                self._progress(self._done, self._total)


def digests(root: Path, paths: Iterable[str], progress: Progress | None = None) -> dict[str, str | OSError]:
    """Digest of every file, or why it cannot be read; the largest begin first, so that no thread ends late."""
    sizes = {path: _size(root / path) for path in paths}
    counter = _Counter(progress, sum(sizes.values()))
    ordered = sorted(sizes, key=lambda path: -sizes[path])
    found: dict[str, str | OSError] = {}
    with ThreadPoolExecutor(num_threads()) as pool:
        futures = {pool.submit(sha256, root / path, counter): path for path in ordered}
        for future in as_completed(futures):
            error = future.exception()
            if error is not None and not isinstance(error, OSError):
                raise error
            found[futures[future]] = error if error is not None else future.result()
    return {path: found[path] for path in sizes}


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def forget(root: Path, paths: Iterable[str]) -> None:
    """Ask the system to drop what it keeps of the files in memory, so that the storage is what is measured."""
    if hasattr(os, "posix_fadvise"):
        for path in paths:
            with open_file(root / path) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(root: Path, paths: Iterable[str]) -> float:
    """Seconds that as many threads need to read the same files and do nothing else."""
    start = time.monotonic()
    ordered = sorted(paths, key=lambda path: -_size(root / path))
    with ThreadPoolExecutor(num_threads()) as pool:
        list(pool.map(lambda path: sum(map(len, _blocks(root / path))), ordered))
    return time.monotonic() - start
