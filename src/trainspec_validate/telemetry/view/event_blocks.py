"""Keeps many things of one kind in blocks on disk, and iterates over them.

Blocks are compressed. While all of them are small they stay in memory.
"""

from __future__ import annotations

import heapq
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from trainspec_validate.system.structs import described

Thing = TypeVar("Thing")
NUM_IN_BLOCK = 1_000
_HELD_BYTES = 32_000_000
"""Compressed blocks that are held in memory."""


@dataclass(frozen=True, slots=True)
class Block:
    """Where a block is."""

    begin: int
    size: int
    num: int
    first: Any = None
    """Smallest key of its things, where they are in order, as the next."""
    last: Any = None


class Blocks(Generic[Thing]):
    """Things in blocks; `kind` is a type that msgspec can read back."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._file: Any = tempfile.SpooledTemporaryFile(max_size=_HELD_BYTES)  # noqa: SIM115 - closed with the object
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(described(list[kind])).decode
        self._end = 0

    def put(self, things: list[Thing], first: Any = None, last: Any = None) -> Block:
        """Write a block."""
        content = zlib.compress(self._encode(things), 1)
        self._file.seek(self._end)
        self._file.write(content)
        block = Block(self._end, len(content), len(things), first, last)
        self._end += len(content)
        return block

    def get(self, block: Block) -> list[Thing]:
        """Read a block."""
        self._file.seek(block.begin)
        found: list[Thing] = self._decode(zlib.decompress(self._file.read(block.size)))
        return found

    def __getstate__(self) -> tuple[Any, bytes]:
        """What another process needs: the content, which is compressed."""
        self._file.seek(0)
        return self._kind, self._file.read()

    def __setstate__(self, state: tuple[Any, bytes]) -> None:
        kind, content = state
        self.__init__(kind)  # type: ignore[misc]
        self._file.write(content)
        self._end = len(content)


def merged(
    blocks: Iterable[Block], read: Callable[[Block], Iterable[Thing]], key: Callable[[Thing], Any]
) -> Iterator[Thing]:
    """The things of blocks that are each in order, in order; no two have the same key.

    A block is read when its first thing is due, so that few are in memory at a time.
    """
    waiting = sorted(blocks, key=lambda block: block.first, reverse=True)
    heap: list[tuple[Any, Thing, Iterator[Thing]]] = []
    while waiting or heap:
        while waiting and (not heap or waiting[-1].first <= heap[0][0]):
            block = waiting.pop()
            things = iter(read(block))
            if not heap and not (waiting and waiting[-1].first < block.last):
                yield from things
                continue
            thing = next(things)
            heapq.heappush(heap, (key(thing), thing, things))
        if not heap:
            return
        _, thing, things = heap[0]
        yield thing
        following = next(things, None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (key(following), following, things))


def in_blocks(things: Iterable[Thing], num: int) -> Iterator[list[Thing]]:
    """Things in lists of so many."""
    found: list[Thing] = []
    for thing in things:
        found.append(thing)
        if len(found) == num:
            yield found
            found = []
    if found:
        yield found
