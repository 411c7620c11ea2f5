"""Containers of HDF5 with one array, made by hand; its library is not needed."""

from __future__ import annotations

import struct

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NOWHERE = (1 << 64) - 1


def container(size: int, *, new: bool = False, fill: bytes = b"\1") -> bytes:
    """One of so many bytes, 330 at least, old or new; the values of its array are all after its structure."""
    return (_new(size) if new else _old(size)).ljust(size, fill)


def _old(size: int) -> bytes:
    """Of version 0: a group has a tree, a heap with names and a node of symbols."""
    start = SIGNATURE + bytes([0, 0, 0, 0, 0, 8, 8, 0]) + struct.pack("<HHL", 4, 16, 0)
    start += struct.pack("<4Q", 0, _NOWHERE, size, _NOWHERE) + struct.pack("<QQLL16x", 0, 96, 0, 0)
    group = struct.pack("<BxHLL4x", 1, 1, 1, 24) + struct.pack("<HHB3x", 0x11, 16, 0) + struct.pack("<QQ", 136, 184)
    tree = b"TREE" + struct.pack("<BBHQQ", 0, 0, 1, _NOWHERE, _NOWHERE) + struct.pack("<QQQ", 0, 232, 8)
    heap = b"HEAP" + bytes(4) + struct.pack("<QQQ", 16, _NOWHERE, 216) + bytes(8) + b"w".ljust(8, b"\0")
    symbols = b"SNOD" + struct.pack("<BxH", 1, 1) + struct.pack("<QQLL16x", 8, 280, 0, 0)
    array = struct.pack("<BxHLL4x", 1, 1, 1, 32) + struct.pack("<HHB3x", 8, 24, 0) + _layout(328, size).ljust(24, b"\0")
    return start + group + tree + heap + symbols + array


def _new(size: int) -> bytes:
    """Of version 2: a group has links."""
    start = SIGNATURE + bytes([2, 8, 8, 0]) + struct.pack("<4Q", 0, _NOWHERE, size, 48) + bytes(4)
    link = struct.pack("<BBB", 1, 0, 1) + b"w" + struct.pack("<Q", 80)
    group = b"OHDR" + bytes([2, 0, 4 + len(link)]) + struct.pack("<BHB", 6, len(link), 0) + link + bytes(4)
    array = b"OHDR" + bytes([2, 0, 22]) + struct.pack("<BHB", 8, 18, 0) + _layout(120, size) + bytes(4)
    return (start + group).ljust(80, b"\0") + array.ljust(40, b"\0")


def _layout(place: int, size: int) -> bytes:
    return struct.pack("<BBQQ", 3, 1, place, size - place)
