"""The only place that reads whole files of checkpoints, block by block and ahead of who uses the blocks."""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from types import TracebackType
from typing import BinaryIO

from trainspec_validate.checkpoints.opening import open_file, open_past_memory

BLOCK_BYTES = 4 << 20
_NUM_AHEAD = 4
_NUM_READERS = 4
_PAGE_BYTES = 4096


class StoppedError(Exception):
    """Who asked for the files was interrupted."""


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
        """Whether the system holds the page there, so that asking the storage would only take longer."""
        try:
            return os.preadv(self._number, [bytearray(_PAGE_BYTES)], offset, os.RWF_NOWAIT) > 0
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
    https://www.kernel.org/doc/html/latest/filesystems/iomap/operations.html#direct-i-o), where the system can do that.

    Args:
        num_files: how many files are read at once; each has four blocks of 4 MiB.
    """

    def __init__(self, num_files: int) -> None:
        self._pool = ThreadPoolExecutor(_NUM_READERS * num_files)
        self._buffers: SimpleQueue[memoryview] = SimpleQueue()
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
            StoppedError: nobody waits for the files any more.
        """
        with ExitStack() as opened:
            file = opened.enter_context(open_file(path))
            if os.fstat(file.fileno()).st_size <= BLOCK_BYTES or not hasattr(os, "preadv"):
                yield from self._in_turn(file)
                return
            storage = open_past_memory(path, file)
            if storage is not None:
                opened.enter_context(storage)
            yield from self._ahead(_File(file, storage))

    def _in_turn(self, file: BinaryIO) -> Iterator[memoryview]:
        buffer = self._take()
        while number := file.readinto(buffer):  # type: ignore[attr-defined]
            if self._stopped.is_set():
                raise StoppedError
            yield buffer[:number]
        self._buffers.put(buffer)

    def _ahead(self, file: _File) -> Iterator[memoryview]:
        offsets = count(0, BLOCK_BYTES)
        pending: deque[tuple[memoryview, Future[int]]] = deque()

        def begin(buffer: memoryview) -> None:
            pending.append((buffer, self._pool.submit(file.fill, buffer, next(offsets))))

        try:
            for _ in range(_NUM_AHEAD):
                begin(self._take())
            while number := pending[0][1].result():
                if self._stopped.is_set():
                    raise StoppedError
                yield pending[0][0][:number]
                begin(pending.popleft()[0])
        finally:
            wait([filled for _, filled in pending])  # A buffer that is still being filled belongs to no other file
            for buffer, _ in pending:
                self._buffers.put(buffer)

    def _take(self) -> memoryview:
        try:
            return self._buffers.get_nowait()
        except Empty:
            return memoryview(mmap.mmap(-1, BLOCK_BYTES))  # Begins at a page, as storages ask for
