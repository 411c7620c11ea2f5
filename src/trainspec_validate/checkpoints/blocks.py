"""Reads whole files of checkpoints, block by block and ahead of the consumer of the blocks."""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Semaphore
from types import TracebackType
from typing import BinaryIO

from trainspec_validate.checkpoints.opening import open_file, open_past_memory
from trainspec_validate.system import threads

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

BLOCK_BYTES = 2 << 20
_NUM_AHEAD = 16
_NUM_BUFFERS_PER_FILE = 4
_PAGE_BYTES = 4096
FILE_BYTES = threads.THREAD_BYTES + _NUM_BUFFERS_PER_FILE * (threads.THREAD_BYTES + BLOCK_BYTES)
"""Address space for a file that is read: the thread that takes its blocks, and those that fill them."""


class StoppedError(Exception):
    """Reading of the files was interrupted."""


class _File:
    """One open file, and the way to it that leaves out the memory of the system, where there is one."""

    def __init__(self, file: BinaryIO, storage: BinaryIO | None) -> None:
        self._number = file.fileno()
        self._storage = storage.fileno() if storage is not None else None

    def fill(self, buffer: memoryview, offset: int) -> int:
        """Bytes from the offset on that are put into the buffer: fewer than it takes at the end of the file only.

        Raises:
            OSError: the file cannot be read there.
        """
        done, storage = 0, self._storage
        if storage is not None and not self._is_in_memory(offset):
            done = self._from_storage(storage, buffer, offset)
        while done < len(buffer) and (number := os.preadv(self._number, [buffer[done:]], offset + done)):
            done += number
        return done

    def _is_in_memory(self, offset: int) -> bool:
        """Whether the system holds the page there, so that asking the storage would only take longer.

        A page that is not in memory is read by being asked for, and often arrives before the system has answered: so
        an answer counts only where this thread read nothing for it.
        """
        before = _num_reads()
        try:
            is_there = os.preadv(self._number, [bytearray(_PAGE_BYTES)], offset, os.RWF_NOWAIT) > 0
            return is_there and _num_reads() == before
        except BlockingIOError:
            return False
        except OSError:  # The file system does not tell: network ones have caches of their own
            self._storage = None
            return True

    def _from_storage(self, storage: int, buffer: memoryview, offset: int) -> int:
        try:
            return os.preadv(storage, [buffer], offset)
        except OSError:  # Blocks of another size, or damage: the ordinary way reads it or says what is wrong
            self._storage = None
            return 0


class Reader:
    """Threads that read ahead and their buffers, shared by all files that are read at once.

    Reading a file once through the memory of the system costs more processor time there than hashing it does where
    memory is new to the machine, and pushes out what is used again. So blocks that are not in memory already come
    from the storage straight into the buffers (``O_DIRECT``,
    https://man7.org/linux/man-pages/man2/open.2.html), where the system can do that.

    A storage gives its full rate only when many reads wait for it, and a file has none waiting while its end is hashed:
    so a file gets up to 16 blocks of 2 MiB as long as no other file needs them, and waits only for its first.

    Args:
        num_files: how many files are read at once; four blocks of 2 MiB for each are in memory at most.
    """

    def __init__(self, num_files: int) -> None:
        num_buffers = _NUM_BUFFERS_PER_FILE * num_files
        self._pool = threads.pool(num_buffers)
        self._left = Semaphore(num_buffers)
        self._buffers: list[memoryview] = []  # The last one used is the first again: the caches still hold it
        self._stopped = Event()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def stop(self) -> None:
        """Have every file end with an error at its next block."""
        self._stopped.set()

    def blocks(self, path: Path) -> Iterator[memoryview]:
        """The content of a regular file in order; a block holds until the next is asked for.

        Raises:
            OSError: it cannot be read, or is a link.
            StoppedError: no one waits for the files any more.
        """
        with ExitStack() as opened:
            file = opened.enter_context(open_file(path))
            num_bytes = os.fstat(file.fileno()).st_size
            if num_bytes <= BLOCK_BYTES or not hasattr(os, "preadv"):
                yield from self._in_turn(file)
                return
            storage = open_past_memory(path, file)
            if storage is not None:
                opened.enter_context(storage)
            yield from self._ahead(_File(file, storage), num_bytes)

    def _in_turn(self, file: BinaryIO) -> Iterator[memoryview]:
        self._left.acquire()
        buffer = self._take()
        try:
            while number := file.readinto(buffer):  # type: ignore[attr-defined]
                self._check()
                yield buffer[:number]
        finally:
            self._give_back(buffer)

    def _ahead(self, file: _File, num_bytes: int) -> Iterator[memoryview]:
        offset = 0
        pending: deque[tuple[memoryview, Future[int]]] = deque()
        try:
            while offset < num_bytes or pending:
                while offset < num_bytes and len(pending) < _NUM_AHEAD and self._left.acquire(blocking=not pending):
                    buffer = self._take()
                    pending.append((buffer, self._submit(file, buffer, offset)))
                    offset += BLOCK_BYTES
                buffer, filled = pending[0]
                number = filled.result()
                self._check()
                yield buffer[:number]
                pending.popleft()
                self._give_back(buffer)
        finally:
            wait([filled for _, filled in pending])  # A buffer that is still being filled belongs to no other file
            for buffer, _ in pending:
                self._give_back(buffer)

    def _submit(self, file: _File, buffer: memoryview, offset: int) -> Future[int]:
        """Have a buffer filled.

        Raises:
            RuntimeError: no thread can be started; the buffer belongs to nobody any more.
        """
        try:
            return self._pool.submit(file.fill, buffer, offset)
        except BaseException:
            self._left.release()
            raise

    def _check(self) -> None:
        if self._stopped.is_set():
            raise StoppedError

    def _take(self) -> memoryview:
        """A buffer for a place that was acquired, which is free again where there is no memory for one."""
        with suppress(IndexError):
            return self._buffers.pop()
        try:
            return memoryview(_pages(BLOCK_BYTES))
        except BaseException:
            self._left.release()
            raise

    def _give_back(self, buffer: memoryview) -> None:
        self._buffers.append(buffer)
        self._left.release()


def _num_reads() -> int:
    """Reads from storages that this thread has asked for; 0 where the system does not count them."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


def _pages(num_bytes: int) -> mmap.mmap:
    """New memory that begins at a page, as storages ask for, and lies in large pages where the system has them.

    A request to a storage names a limited number of stretches of memory, 254 on common virtual disks: out of small
    pages a block takes several requests, and large files arrive at half of the speed (``max_segments`` of
    Documentation/ABI/stable/sysfs-block in Linux).
    """
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return mmap.mmap(-1, num_bytes)
    pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # The system was built without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages
