"""Computes CRC-32C: the standard library has another polynomial only."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's, reflected; RFC 3720, appendix B.4, has test vectors."""
_ONES = 0xFFFFFFFF
_SMALL_BYTES = 4096
_LANE_BYTES = 64
_MAX_LANES = 16_384
# https://github.com/google/leveldb/blob/main/util/crc32c.h: checksums of contents that hold checksums are masked
_MASK_DELTA = 0xA282EAD8


@cache
def _table() -> tuple[int, ...]:
    found = []
    for number in range(256):
        value = number
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        found.append(value)
    return tuple(found)


def crc32c(content: bytes | memoryview) -> int:
    """The checksum of a content.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    running = Running()
    running.update(content)
    return running.value


def masked(value: int) -> int:
    """A checksum as it is written next to a content."""
    return ((value >> 15 | value << 17) + _MASK_DELTA) & _ONES


def unmasked(value: int) -> int:
    """The checksum out of its written form."""
    turned = (value - _MASK_DELTA) & _ONES
    return (turned >> 17 | turned << 15) & _ONES


class Running:
    """The checksum of a content that comes in parts; long parts are taken many bytes at once."""

    def __init__(self) -> None:
        self._state = _ONES

    @property
    def value(self) -> int:
        """The checksum of what came so far."""
        return self._state ^ _ONES

    def update(self, content: bytes | memoryview) -> None:
        """Add what comes next."""
        rest = memoryview(content).cast("B")
        while len(rest) >= _SMALL_BYTES:
            lanes = min(_MAX_LANES, 1 << (len(rest) // _LANE_BYTES).bit_length() - 1)
            part, rest = rest[: lanes * _LANE_BYTES], rest[lanes * _LANE_BYTES :]
            self._state = _shifted(self._state, len(part)) ^ _of_lanes(part, lanes)
        table, state = _table(), self._state
        for byte in rest:
            state = (state >> 8) ^ table[(state ^ byte) & 0xFF]
        self._state = state


@cache
def _zeros(num_bytes: int) -> tuple[tuple[int, ...], ...]:
    """What so many bytes of zero, a power of two, make of each byte of a state: one table for each of its four."""
    if num_bytes == 1:
        table = _table()
        return tuple(
            tuple((value << 8 * place >> 8) ^ table[value << 8 * place & 0xFF] for value in range(256))
            for place in range(4)
        )
    half = _zeros(num_bytes // 2)
    return tuple(tuple(_through(half, value) for value in row) for row in half)


def _through(tables: tuple[tuple[int, ...], ...], state: int) -> int:
    return (
        tables[0][state & 0xFF]
        ^ tables[1][state >> 8 & 0xFF]
        ^ tables[2][state >> 16 & 0xFF]
        ^ tables[3][state >> 24 & 0xFF]
    )


def _shifted(state: int, num_bytes: int) -> int:
    """A state after so many bytes of zero."""
    place = 1
    while num_bytes:
        if num_bytes & 1:
            state = _through(_zeros(place), state)
        num_bytes, place = num_bytes >> 1, place << 1
    return state


@cache
def _wide(num_bytes: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The same tables for two bytes at once: for the lower and the upper half of a state."""
    import numpy as np  # noqa: PLC0415 - only checkpoints with such checksums need it

    tables = [np.array(row, np.uint32) for row in _zeros(num_bytes)]
    low, high = np.meshgrid(np.arange(256), np.arange(256))
    return (
        (tables[0][low] ^ tables[1][high]).ravel(),
        (tables[2][low] ^ tables[3][high]).ravel(),
    )


def _of_lanes(content: memoryview, lanes: int) -> int:
    """The state, from zero, after a content that is cut into lanes, a power of two, which go forward side by side."""
    import numpy as np  # noqa: PLC0415

    words = np.ascontiguousarray(np.frombuffer(content, "<u4").reshape(lanes, _LANE_BYTES // 4).T)
    states = np.zeros(lanes, np.uint32)
    for column in words:
        states = _moved(states ^ column, 4)
    width = _LANE_BYTES
    while len(states) > 1:  # neighbours become one lane of twice the width
        states = _moved(states[::2], width) ^ states[1::2]
        width *= 2
    return int(states[0])


def _moved(states: NDArray[np.uint32], num_bytes: int) -> NDArray[np.uint32]:
    low, high = _wide(num_bytes)
    moved: NDArray[np.uint32] = low[states & 0xFFFF] ^ high[states >> 16]
    return moved
