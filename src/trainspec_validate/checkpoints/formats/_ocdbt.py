"""Reads which files a store of OCDBT needs: those that its manifest names, and those that the root of its tree names.

The layout is that of https://google.github.io/tensorstore/kvstore/ocdbt, "Storage format". Nodes below the root are not
read.
"""

from __future__ import annotations

import posixpath
import struct
from pathlib import Path
from typing import NamedTuple

from trainspec_validate.checkpoints.opening import UnreadableError

_MANIFEST = bytes.fromhex("0cdb3a2a")
_NODE = bytes.fromhex("0cdb20de")
_LENGTH = struct.Struct("<Q")
_SUM_BYTES = 4
_UUID_BYTES = 16
_ZSTD = 1
_MOST_BYTES = 64 << 20
"""What a manifest or a node holds when it is decoded."""
_VARINT_BITS = 63


class Root(NamedTuple):
    """Where the root of the newest version is."""

    file: str
    offset_bytes: int
    num_bytes: int


class UnknownLayoutError(Exception):
    """The store is of a kind that is not read here; the text says which."""


class _Fields:
    """What has been decoded, read from its begin to its end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def take(self, num_bytes: int) -> bytes:
        """The next bytes."""
        end = self._place + num_bytes
        if end > len(self._content):
            raise UnreadableError("ends in the middle of a field")
        taken, self._place = self._content[self._place : end], end
        return taken

    def rest(self) -> bytes:
        """Whatever is left."""
        return self.take(len(self._content) - self._place)

    def number(self) -> int:
        """The next number of variable length."""
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > _VARINT_BITS:
                raise UnreadableError("has a number of more than 63 bits")

    def numbers(self, count: int) -> list[int]:
        """So many numbers."""
        if count > len(self._content) - self._place:  # a number has at least one byte
            raise UnreadableError("names more numbers than it has bytes")
        return [self.number() for _ in range(count)]

    def files(self) -> list[str]:
        """A table of files: each shares a begin with the one before it."""
        count = self.number()
        shared = [0, *self.numbers(max(count - 1, 0))]
        lengths = self.numbers(count)
        self.numbers(count)  # how much of a name is the directory that it is relative to
        names: list[str] = []
        before = b""
        num_bytes = 0
        for prefix, length in zip(shared, lengths, strict=False):
            if prefix > len(before):
                raise UnreadableError("shares more of a name than that has")
            before = before[:prefix] + self.take(length)
            num_bytes += len(before)
            if num_bytes > _MOST_BYTES:
                raise UnreadableError(f"has names of more than {_MOST_BYTES:,} bytes")
            names.append(before.decode("utf-8", "backslashreplace"))
        return names


def manifest_files(content: bytes) -> tuple[list[str], Root | None]:
    """The files that a manifest names, and the root of its newest version; None for an empty store.

    An empty version has a file without a name.

    Raises:
        UnknownLayoutError: the manifest is of a kind that is not read here.
        UnreadableError: it contradicts its layout.
    """
    fields = _body(content, _MANIFEST)
    fields.take(_UUID_BYTES)
    if fields.number():
        raise UnknownLayoutError("its manifest is written in numbered files")
    fields.numbers(2)
    fields.take(1)
    if fields.number() == _ZSTD:
        fields.take(4)
    files = fields.files()
    num_versions = fields.number()
    fields.numbers(num_versions)
    fields.take(num_versions)
    ids, offsets, lengths = (fields.numbers(num_versions) for _ in range(3))
    if not ids or not lengths[-1] or not files:
        return files, None
    if ids[-1] >= len(files):
        raise UnreadableError("names a file that is not in its table")
    return files, Root(files[ids[-1]], offsets[-1], lengths[-1])


def node_files(path: Path, root: Root) -> list[str]:
    """The files that the root of the tree names: values and nodes below it, relative to the store.

    Raises:
        OSError: the file cannot be read.
        UnknownLayoutError: the node is packed in a way that is not read here.
        UnreadableError: what is at that place is no node.
    """
    if root.num_bytes > _MOST_BYTES:
        raise UnreadableError(f"has a node of more than {_MOST_BYTES:,} bytes")
    with path.open("rb") as file:
        if root.offset_bytes + root.num_bytes > path.stat().st_size:
            raise UnreadableError("is shorter than its manifest says")
        file.seek(root.offset_bytes)
        fields = _body(file.read(root.num_bytes), _NODE)
    fields.take(1)
    return fields.files()


def inside(folder: str, name: str) -> str | None:
    """The path of a file of a store below a checkpoint; None where it leads out of it."""
    path = posixpath.normpath(posixpath.join(folder, name))
    return None if name.startswith("/") or path.startswith("..") else path


def _body(content: bytes, magic: bytes) -> _Fields:
    """What is between the head and the checksum, unpacked."""
    if not content.startswith(magic) or len(content) < len(magic) + _LENGTH.size + _SUM_BYTES:
        raise UnreadableError("is no part of a store of OCDBT")
    (length,) = _LENGTH.unpack_from(content, len(magic))
    if length != len(content):
        raise UnreadableError(f"has {len(content):,} bytes, and its head says {length:,}")
    head = _Fields(content[len(magic) + _LENGTH.size : -_SUM_BYTES])
    if head.number():
        raise UnknownLayoutError("it is of a newer version of the layout")
    packed = head.number()
    rest = head.rest()
    if packed > _ZSTD:
        raise UnknownLayoutError("it is packed by a method that is not known")
    return _Fields(_unpacked(rest) if packed else rest)


def _unpacked(packed: bytes) -> bytes:
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnknownLayoutError("zstandard, which unpacks it, is not installed") from error
    try:
        with zstandard.ZstdDecompressor(max_window_size=_MOST_BYTES).stream_reader(packed) as stream:
            content = stream.read(_MOST_BYTES + 1)
    except zstandard.ZstdError as error:
        raise UnreadableError(f"cannot be unpacked: {error}") from error
    if len(content) > _MOST_BYTES:
        raise UnreadableError(f"has more than {_MOST_BYTES:,} bytes when it is unpacked")
    return bytes(content)
