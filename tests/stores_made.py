"""Makes stores of OCDBT for tests: a manifest, and the root of its tree."""

from __future__ import annotations

import struct
from pathlib import Path

from trainspec_validate.system.crc32c import crc32c


def number(value: int) -> bytes:
    """A number of variable length."""
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + number(value >> 7)


def table(names: list[str]) -> bytes:
    """A table of files that share nothing."""
    lengths = b"".join(number(len(name)) for name in names)
    return number(len(names)) + bytes(max(len(names) - 1, 0)) + lengths + bytes(len(names)) + "".join(names).encode()


def packed(magic: str, body: bytes, method: int = 0) -> bytes:
    """Magic number, length, version, method of compression, body, checksum."""
    start = bytes.fromhex(magic) + struct.pack("<QBB", 14 + len(body) + 4, 0, method) + body
    return start + struct.pack("<L", crc32c(start))


HEAD = bytes(16) + b"\x00" + number(1024) + number(1 << 20) + b"\x04" + b"\x00"
"""What is before the files in a manifest that is written in one piece."""


def store(folder: Path, values: str = "d/0a1b") -> None:
    """A store of the newer kind: a manifest, and the root of its tree, which names a file with values."""
    node = packed("0cdb20de", b"\x00" + table([values]) + b"\x00")
    (folder / "d").mkdir(exist_ok=True)
    (folder / "d" / "9f").write_bytes(b"before" + node)
    versions = b"\x02" + b"\x01\x01" + b"\x00\x00" + b"\x00\x01" + b"\x00\x06" + b"\x00" + number(len(node))
    (folder / "manifest.ocdbt").write_bytes(packed("0cdb3a2a", HEAD + table(["", "d/9f"]) + versions))
