"""The only place that computes CRC-32C, for small files: the standard library has another polynomial only."""

from __future__ import annotations

from functools import cache

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's, reflected; RFC 3720, appendix B.4, has test vectors."""


@cache
def _table() -> tuple[int, ...]:
    found = []
    for number in range(256):
        value = number
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        found.append(value)
    return tuple(found)


def crc32c(content: bytes) -> int:
    """The checksum of a content.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    table = _table()
    value = 0xFFFFFFFF
    for byte in content:
        value = (value >> 8) ^ table[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF
