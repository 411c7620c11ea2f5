"""Hashes files of a checkpoint, several at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TypeVar

from trainspec_validate.checkpoints.blocks import FILE_BYTES, Reader
from trainspec_validate.checkpoints.hub_cache import blob_of
from trainspec_validate.system import threads
from trainspec_validate.system.process import memory_of_the_machine

_NUM_FILES_PER_PROCESSOR = 8
_NUM_WAITING = 4
"""Files in the queue for each that is read at once, so that a queue of all of them takes no memory."""
_MAX_FILES = 64  # Read at once: half a gigabyte of buffers
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with the bytes hashed so far and all bytes."""


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
    """Digest of every file in hexadecimal digits, or why it cannot be read; links are not."""
    sizes = sizes_of(root, paths)
    counter = _Counter(progress, sum(sizes.values()))

    def digest(blocks: Iterator[memoryview]) -> str:
        found = hashlib.sha256()
        for block in blocks:
            found.update(block)
            counter(len(block))
        return found.hexdigest()

    return each(root, sizes, digest)


def each(
    root: Path, sizes: dict[str, int], work: Callable[[Iterator[memoryview]], Result]
) -> dict[str, Result | OSError]:
    """Result of the work on the blocks of every file; the largest begin first, so that no thread ends late.

    Args:
        root: directory that the paths are relative to.
        sizes: bytes of every file, by its path.
        work: takes the blocks of one file in order, in a thread of its own.

    Raises:
        OutOfMemoryError: the machine gave too little memory.
    """
    found: dict[str, Result | OSError] = {}

    def read(path: Path) -> Result:
        with memory_of_the_machine():
            return work(reader.blocks(path))

    wanted = min(_NUM_FILES_PER_PROCESSOR * threads.num_processors(), _MAX_FILES)
    num_files = max(1, threads.num_affordable(wanted, FILE_BYTES))
    with Reader(num_files) as reader, threads.pool(num_files) as pool:
        try:
            waiting = iter(sorted(sizes, key=lambda path: -sizes[path]))
            futures: dict[Future[Result], str] = {}
            while True:
                for path in islice(waiting, _NUM_WAITING * num_files - len(futures)):
                    futures[pool.submit(read, root / path)] = path
                if not futures:
                    break
                for future in wait(futures, return_when=FIRST_COMPLETED).done:
                    error = future.exception()
                    if error is not None and not isinstance(error, OSError):
                        raise error
                    found[futures.pop(future)] = error if error is not None else future.result()
        except BaseException:  # Who interrupts does not wait until terabytes are read
            reader.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {path: found[path] for path in sizes}


def sizes_of(root: Path, paths: Iterable[str]) -> dict[str, int]:
    """Bytes of every file; 0 where it is not there."""
    return {path: _size(root / path) for path in paths}


def _size(path: Path) -> int:
    try:
        return ((blob_of(path) if path.is_symlink() else None) or path).lstat().st_size
    except OSError:
        return 0
