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


SUMS = bytes(3)
"""Numbers of keys and bytes, which are not compared."""
END = bytes(8) + b"\x00"
"""The time of a version, and no older versions."""
ZARR = (
    b'{"zarr_format": 2, "shape": [4, 3], "chunks": [2, 3], "dtype": "<i4", "compressor": null, "fill_value": null, '
    b'"order": "C", "filters": null}'
)


def leaf(entries: list[tuple[str, bytes]], values: str = "") -> bytes:
    """A node of values in it, and of one more, `zz`, in the file that is named."""
    names = [name for name, _ in entries] + ["zz"] * bool(values)
    sizes = [len(content) for _, content in entries] + [6] * bool(values)
    keys = number(len(names)) + bytes(len(names) - 1) + b"".join(number(len(name)) for name in names)
    kinds = bytes(len(entries)) + b"\x01" * bool(values)
    body = keys + "".join(names).encode() + b"".join(map(number, sizes)) + kinds + b"\x00\x00" * bool(values)
    files = table([values] if values else [])
    return packed("0cdb20de", b"\x00" + files + body + b"".join(content for _, content in entries))


def store(folder: Path, values: str = "d/0a1b", arrays: dict[str, bytes] | None = None) -> None:
    """A store of the newer kind: a manifest, and the root of its tree, which names a file with values.

    Args:
        folder: directory of the store.
        values: name of the file with values.
        arrays: settings of arrays in the root, by their keys, in order; by default those of `b.c`.
    """
    entries = {"b.c/.zarray": ZARR} if arrays is None else arrays
    root(folder, leaf(list(entries.items()), values))


def root(folder: Path, node: bytes, *, height: int = 0, versions: bytes = b"\x02\x01\x02\x00\x00") -> None:
    """A store of two versions, of which the later one has a node as its root."""
    (folder / "d").mkdir(exist_ok=True)
    (folder / "d" / "9f").write_bytes(b"before" + node)
    versions = versions[:-1] + bytes([height]) + b"\x00\x01" + b"\x00\x06" + b"\x00" + number(len(node))
    body = HEAD + table(["", "d/9f"]) + versions + 2 * SUMS + bytes(8) + END
    (folder / "manifest.ocdbt").write_bytes(packed("0cdb3a2a", body))
