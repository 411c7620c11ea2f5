"""Computes CRC-32C (Castagnoli), as the records of TensorBoard carry it; long ones in lanes of NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any

_POLYNOMIAL = 0x82F63B78
_LANE_BYTES = 512
_LANES_FROM = 16 * 1024
"""Bytes from which lanes are worth their set-up."""
_MASK_DELTA = 0xA282EAD8


def _entry(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = tuple(_entry(value) for value in range(256))


def crc32c(content: bytes) -> int:
    """The checksum of some bytes.

    >>> hex(crc32c(b"123456789")), crc32c(b"")
    ('0xe3069283', 0)
    """
    if len(content) >= _LANES_FROM:
        return _in_lanes(content)
    found, table = 0xFFFFFFFF, _TABLE
    for byte in content:
        found = table[(found ^ byte) & 0xFF] ^ (found >> 8)
    return found ^ 0xFFFFFFFF


def masked(content: bytes) -> int:
    """The checksum as TFRecord stores it, so that a checksum of checksums stays sound."""
    found = crc32c(content)
    return (((found >> 15) | (found << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _in_lanes(content: bytes) -> int:
    """Equal parts side by side, then joined two by two: zeros in front of a text do not change its raw remainder."""
    import numpy as np  # noqa: PLC0415

    num = 1 << (-(-len(content) // _LANE_BYTES) - 1).bit_length()
    padded = np.zeros(num * _LANE_BYTES, dtype=np.uint8)
    padded[-len(content) :] = np.frombuffer(content, dtype=np.uint8)
    padded[-len(content) : len(padded) - len(content) + 4] ^= 0xFF  # the remainder begins with ones
    table = np.array(_TABLE, dtype=np.uint32)
    found = np.zeros(num, dtype=np.uint32)
    for column in np.ascontiguousarray(padded.reshape(num, _LANE_BYTES).T):
        found = table[(found ^ column) & 0xFF] ^ (found >> np.uint32(8))
    columns = _past_a_lane()
    while len(found) > 1:
        found = _applied(columns, found[0::2]) ^ found[1::2]
        columns = _applied(columns, columns)
    return int(found[0]) ^ 0xFFFFFFFF


def _applied(columns: Any, values: Any) -> Any:
    """Remainders, moved on by a linear map: the image of each of the 32 bits."""
    import numpy as np  # noqa: PLC0415

    moved = np.zeros_like(values)
    for bit in range(32):
        moved ^= columns[bit] * ((values >> np.uint32(bit)) & np.uint32(1))
    return moved


@cache
def _past_a_lane() -> Any:
    """What each bit of a remainder becomes past the zeros of a lane."""
    import numpy as np  # noqa: PLC0415

    table = np.array(_TABLE, dtype=np.uint32)
    found = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(_LANE_BYTES):
        found = table[found & 0xFF] ^ (found >> np.uint32(8))
    return found
