"""Times plain reads of files of checkpoints."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from trainspec_validate.checkpoints.hashing import each, sizes_of
from trainspec_validate.checkpoints.opening import open_file
from trainspec_validate.system import threads

_PIECE_BYTES = 1 << 20


def forget(root: Path, paths: Iterable[str]) -> None:
    """Ask the system to drop what it keeps of the files in memory, so that the storage is what is measured."""
    if hasattr(os, "posix_fadvise"):
        for path in paths:
            with suppress(OSError), open_file(root / path) as file:
                os.fsync(file.fileno())  # What still waits to be written is not dropped
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(root: Path, paths: Iterable[str]) -> float:
    """Seconds in which the files are read from the storage as any program reads, several at once, where they can be."""

    def read(path: str) -> None:
        buffer = bytearray(_PIECE_BYTES)
        with suppress(OSError), open_file(root / path) as file:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while file.readinto(buffer):  # type: ignore[attr-defined]
                pass

    sizes = sizes_of(root, paths)
    ordered = sorted(sizes, key=lambda path: -sizes[path])
    forget(root, ordered)
    start = time.monotonic()
    with threads.pool(threads.num_threads()) as pool:
        list(pool.map(read, ordered))
    return time.monotonic() - start


def quickest_read(root: Path, paths: Iterable[str]) -> float:
    """Seconds in which the files are read from the storage in the way in which they are hashed, where they can be."""
    sizes = sizes_of(root, paths)
    forget(root, sizes)
    start = time.monotonic()
    each(root, sizes, lambda blocks: sum(map(len, blocks)))
    return time.monotonic() - start


class Reads:
    """The reads that a verification is compared with, before and after it, since what one leaves helps the next."""

    def __init__(self, root: Path, paths: Iterable[str]) -> None:
        self._root, self._paths = root, list(paths)
        self._before = self._take()

    def again(self) -> dict[str, float]:
        """Mean seconds of each way of reading, by its name."""
        after = self._take()
        return {name: (seconds + after[name]) / 2 for name, seconds in self._before.items()}

    def _take(self) -> dict[str, float]:
        found = {
            "a plain read": plain_read(self._root, self._paths),
            "the quickest one": quickest_read(self._root, self._paths),
        }
        forget(self._root, self._paths)
        return found
