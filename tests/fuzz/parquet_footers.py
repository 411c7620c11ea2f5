"""Makes Parquet files whose footers are written by hand: counts, places and schemas that no writer would write."""

from __future__ import annotations

import random
import struct
from typing import Final

MAGIC: Final = b"PAR1"
COUNTS: Final = (0, 1, -1, 2, 7, 127, 10**6, 2**31 - 1, -(2**31), 2**31, 2**62, -(2**63), 2**63 - 1)
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


def varint(number: int) -> bytes:
    """An unsigned LEB128 number. https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md"""
    found = bytearray()
    number %= 2**64
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def zigzag(number: int) -> bytes:
    """A signed number of the compact protocol."""
    return varint((number << 1) ^ (number >> 63))


def fields(*parts: tuple[int, int, bytes]) -> bytes:
    """A struct of the compact protocol: field number, type, content."""
    found, last = b"", 0
    for number, kind, content in parts:
        step = number - last
        found += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + zigzag(number)
        found, last = found + content, number
    return found + b"\0"


def many(kind: int, items: list[bytes], count: int | None = None) -> bytes:
    """A list of the compact protocol; with a count that may be a lie."""
    return bytes([0xF0 | kind]) + varint(len(items) if count is None else count) + b"".join(items)


def text(content: bytes) -> bytes:
    """A string of the compact protocol."""
    return varint(len(content)) + content


def _element(dice: random.Random, *, root: bool) -> bytes:
    name = dice.choice((b"schema", b"k", b"time_us", b"seq", b"", b"\xff", b"a" * 300, b"m"))
    parts = [] if root else [(1, _I32, zigzag(dice.choice((0, 1, 2, 4, 5, 6, 7, 99))))]
    parts += [(3, _I32, zigzag(dice.choice((0, 1, 2, 9)))), (4, _BINARY, text(name))]
    if root or dice.random() < 0.2:
        parts.append((5, _I32, zigzag(dice.choice((1, 2, 0, -1, 2**31 - 1)))))
    return fields(*parts)


def _column(dice: random.Random) -> bytes:
    def number() -> bytes:
        return zigzag(dice.choice((4, 8, 20, *COUNTS)))

    meta = fields(
        *((1, _I32, zigzag(dice.choice((1, 2, 5, 6, 99)))), (2, _LIST, many(_I32, [zigzag(0)]))),
        (3, _LIST, many(_BINARY, [text(b"k")])),
        *((4, _I32, zigzag(dice.choice((0, 1, 2, 6, 7, 99)))), (5, _I64, number()), (6, _I64, number())),
        *((7, _I64, number()), (9, _I64, number())),
    )
    return fields((2, _I64, number()), (3, _STRUCT, meta))


def made(dice: random.Random) -> bytes:
    """A Parquet file of some noise and a footer by hand."""
    schema = [_element(dice, root=True), *(_element(dice, root=False) for _ in range(dice.choice((0, 1, 2, 9))))]
    groups = []
    for _ in range(dice.choice((0, 1, 1, 3, 2000))):
        columns = many(_STRUCT, [_column(dice) for _ in range(dice.choice((0, 1, 2)))])
        size, rows = (zigzag(dice.choice(COUNTS)) for _ in range(2))
        groups.append(fields((1, _LIST, columns), (2, _I64, size), (3, _I64, rows)))
    lie = dice.choice((None, None, None, 0, 2**31 - 1, 2**32))
    footer = fields(
        (1, _I32, zigzag(dice.choice((1, 2, -1)))),
        (2, _LIST, many(_STRUCT, schema, lie if dice.random() < 0.3 else None)),
        (3, _I64, zigzag(dice.choice(COUNTS))),
        (4, _LIST, many(_STRUCT, groups, lie)),
        (5, _LIST, many(_STRUCT, [fields((1, _BINARY, text(b"trainspec")), (2, _BINARY, text(b"\xff{}")))])),
    )
    length = dice.choice((len(footer), len(footer), len(footer), 0, 2**31, len(footer) + 9)) % 2**32
    return MAGIC + dice.randbytes(dice.choice((0, 20, 300))) + footer + struct.pack("<I", length) + MAGIC


def rewritten(content: bytes, dice: random.Random) -> bytes:
    """A Parquet file in whose footer some numbers are others; the length of the footer is right, or seldom a lie."""
    (length,) = struct.unpack("<I", content[-8:-4])
    body, footer = content[: -8 - length], bytearray(content[-8 - length : -8])
    for _ in range(dice.choice((1, 1, 2, 5))):
        start = dice.randrange(len(footer))
        end = start + 1
        while end < len(footer) and footer[end - 1] >= 0x80:
            end += 1
        footer[start:end] = dice.choice((zigzag, varint))(dice.choice(COUNTS))
    told = dice.choice((len(footer),) * 9 + (0, 2**31, len(footer) + 9, len(footer) - 9)) % 2**32
    return body + bytes(footer) + struct.pack("<I", told) + MAGIC
