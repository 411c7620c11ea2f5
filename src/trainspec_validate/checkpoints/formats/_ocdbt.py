"""Reads which files a store of OCDBT needs, and how long they are at least: its manifest, and every node of its tree.

The layout is that of https://google.github.io/tensorstore/kvstore/ocdbt, "Storage format". Values are not read: they
have no checksum.
"""

from __future__ import annotations

import os
import posixpath
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trainspec_validate.checkpoints.limits import (
    STORE_FILES,
    STORE_NODES,
    STORE_NUMBERS,
    STORE_PART_NUMBERS,
    STORE_UNPACKED_BYTES,
    within,
)
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, open_file
from trainspec_validate.system.boundary import reason_of
from trainspec_validate.system.budget import Count
from trainspec_validate.system.crc32c import crc32c

_MANIFEST = bytes.fromhex("0cdb3a2a")
_NODE = bytes.fromhex("0cdb20de")
_LENGTH = struct.Struct("<Q")
_SUM_BYTES = 4
_UUID_BYTES = 16
_ZSTD = 1
_MOST_BYTES = 64 << 20
"""What a manifest or a node holds when it is decoded."""
_VARINT_BITS = 63
_NOWHERE = (1 << 64) - 1
"""Place and length of the root of an empty tree."""
_SUM = struct.Struct("<L")
_MOST_KEY_BYTES = 65_536
_INDIRECT = 1
"""Kind of a value that is in a file of its own."""


class File(NamedTuple):
    """A file with values or nodes, relative to the store."""

    name: str
    base: str = ""
    """The directory that the names in its nodes are relative to."""


class Stretch(NamedTuple):
    """Where a node or a value is."""

    file: File
    offset_bytes: int
    num_bytes: int


class DamagedNodeError(UnreadableError):
    """A node of the tree is damaged; the text says how."""

    def __init__(self, path: str, words: str) -> None:
        super().__init__(words)
        self.path = path
        """The file that holds the node, relative to the checkpoint."""


class UnknownLayoutError(Exception):
    """The store is of a kind that is not read here; the text says which."""


class Budget:
    """State that the manifest and the nodes of one store share."""

    def __init__(self) -> None:
        self.num_bytes, self.numbers = Count(STORE_UNPACKED_BYTES), Count(STORE_NUMBERS)
        self.num_files, self.num_nodes = Count(STORE_FILES), Count(STORE_NODES)


class _Fields:
    """What has been decoded, read from its begin to its end."""

    def __init__(self, content: bytes, budget: Budget) -> None:
        self._content = content
        self._place = 0
        self._budget = budget
        self._numbers = Count(STORE_PART_NUMBERS)

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
        with within():
            self._numbers.add(count)
            self._budget.numbers.add(count)
        return [self.number() for _ in range(count)]

    def files(self, base: str = "") -> list[File]:
        """A table of files: each shares a begin with the one before it, and all are relative to a directory."""
        count = self.number()
        with within():
            self._budget.num_files.add(count)
        shared = [0, *self.numbers(max(count - 1, 0))]
        lengths = self.numbers(count)
        bases = self.numbers(count)
        files: list[File] = []
        before = b""
        num_bytes = 0
        for prefix, length, base_length in zip(shared, lengths, bases, strict=False):
            if prefix > len(before):
                raise UnreadableError("shares more of a name than that has")
            before = before[:prefix] + self.take(length)
            num_bytes += len(base) + len(before)
            if num_bytes > _MOST_BYTES:
                raise UnreadableError(f"has names of more than {_MOST_BYTES:,} bytes")
            own, inner = (part.decode("utf-8", "backslashreplace") for part in (before, before[:base_length]))
            files.append(File(base + own, base + inner))
        return files


def manifest_files(content: bytes, budget: Budget | None = None) -> tuple[list[File], Stretch | None]:
    """The files that a manifest names, and the root of its newest version; None for an empty store.

    An empty version has a file without a name.

    Raises:
        LimitError: it has more of something than the limits.
        UnknownLayoutError: the manifest is of a kind that is not read here.
        UnreadableError: it contradicts its layout.
    """
    fields = _body(content, _MANIFEST, budget or Budget())
    fields.take(_UUID_BYTES)
    if fields.number():
        raise UnknownLayoutError("its manifest is written in numbered files")
    fields.numbers(2)
    fields.take(1)
    if fields.number() == _ZSTD:
        fields.take(4)
    files = fields.files()
    num_versions = fields.number()
    if not num_versions:  # a store has a version from its begin on, and TensorStore refuses one without
        raise UnreadableError("names no version of the store")
    fields.numbers(num_versions)
    fields.take(num_versions)
    ids, offsets, lengths = (fields.numbers(num_versions) for _ in range(3))
    if offsets[-1] == lengths[-1] == _NOWHERE:
        return files, None
    return files, _stretches(files, ids[-1:], offsets[-1:], lengths[-1:])[0]


def needed_bytes(root: Path, folder: str, top: Stretch, budget: Budget | None = None) -> dict[str, int]:
    """Every file that a tree needs, relative to the store, and the bytes that it has at least.

    Args:
        root: directory of the checkpoint.
        folder: directory of the store, relative to the checkpoint.
        top: root of the tree.
        budget: what its manifest has used.

    Raises:
        DamagedNodeError: a node is not there, or contradicts its checksum or its layout.
        LimitError: the store has more of something than the limits.
        UnknownLayoutError: a node is packed in a way that is not read here.
    """
    needed: dict[str, int] = {}
    budget = budget or Budget()
    pending, seen = [top], {top}
    while pending:
        one = pending.pop()
        _need(needed, one)
        place = inside(folder, one.file.name)
        if place is None or not os.path.lexists(root / place):
            continue  # reported as missing
        try:
            files, children, values = _node(_content(root / place, one), one.file.base, budget)
        except LimitError:
            raise
        except UnreadableError as error:
            raise DamagedNodeError(place, str(error)) from error
        except OSError as error:
            raise DamagedNodeError(place, f"cannot be read: {reason_of(error)}") from error
        needed = dict.fromkeys((file.name for file in files if file.name), 0) | needed
        for value in values:
            _need(needed, value)
        with within():
            budget.num_nodes.add(len(children))
        pending += [child for child in children if child not in seen]
        seen.update(children)
    return needed


def values_of(root: Path, folder: str, top: Stretch, budget: Budget) -> Iterator[tuple[bytes, Stretch | bytes]]:
    """The keys of a store with their values, or with where these are; of a tree that `needed_bytes` has judged.

    Raises:
        UnreadableError: the tree changed meanwhile.
    """
    pending = [(top, b"")]
    while pending:
        one, prefix = pending.pop()
        place = inside(folder, one.file.name)
        if place is None or not os.path.lexists(root / place):
            continue
        fields = _body(_content(root / place, one), _NODE, budget)
        (height,) = fields.take(1)
        files = fields.files(one.file.base)
        keys, shared = _keys(fields, is_inner=height > 0)
        keys = [prefix + key for key in keys]
        if height:
            children = _stretches(files, *(fields.numbers(len(keys)) for _ in range(3)))
            ends = (key[: len(prefix) + length] for key, length in zip(keys, shared, strict=True))
            with within():
                budget.num_nodes.add(len(children))
            pending += zip(children, ends, strict=True)
            continue
        lengths, kinds = fields.numbers(len(keys)), fields.numbers(len(keys))
        far = [length for length, kind in zip(lengths, kinds, strict=True) if kind == _INDIRECT]
        ids, offsets = (fields.numbers(len(far)) for _ in range(2))
        stretches = iter(_stretches(files, ids, offsets, far))
        for key, length, kind in zip(keys, lengths, kinds, strict=True):
            yield key, next(stretches) if kind == _INDIRECT else fields.take(length)


def _keys(fields: _Fields, *, is_inner: bool) -> tuple[list[bytes], list[int]]:
    """The keys of a node, each of which shares a begin with the one before it, and what all keys below them share."""
    count = fields.number()
    begins = [0, *fields.numbers(max(count - 1, 0))]
    lengths = fields.numbers(count)
    shared = fields.numbers(count) if is_inner else []
    keys = [b""]
    for begin, length in zip(begins, lengths, strict=False):
        keys.append(keys[-1][:begin] + fields.take(length))
        if len(keys[-1]) > _MOST_KEY_BYTES:
            raise UnreadableError("has a name that is too long")
    return keys[1:], shared


def _need(needed: dict[str, int], one: Stretch) -> None:
    needed[one.file.name] = max(needed.get(one.file.name, 0), one.offset_bytes + one.num_bytes)


def _content(path: Path, one: Stretch) -> bytes:
    """The bytes of a node, which agree with its checksum."""
    if one.num_bytes > _MOST_BYTES:
        raise UnreadableError(f"has a node of more than {_MOST_BYTES:,} bytes")
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if one.offset_bytes + one.num_bytes > size:
            wanted = one.offset_bytes + one.num_bytes
            raise UnreadableError(f"has {size:,} bytes, and the store asks for {wanted:,}")
        file.seek(one.offset_bytes)
        content = file.read(one.num_bytes)
    if len(content) > _SUM.size and crc32c(content[: -_SUM.size]) != _SUM.unpack(content[-_SUM.size :])[0]:
        raise UnreadableError("has a node of the tree that contradicts its checksum")
    return content


def _node(content: bytes, base: str, budget: Budget) -> tuple[list[File], list[Stretch], list[Stretch]]:
    """The files that a node names, the nodes below it, and the values that are in files."""
    fields = _body(content, _NODE, budget)
    (height,) = fields.take(1)
    files = fields.files(base)
    count = fields.number()
    fields.numbers(max(count - 1, 0))
    suffixes = fields.numbers(count)
    if height:
        fields.numbers(count)  # what all keys below share
    fields.take(sum(suffixes))
    if height:
        ids, offsets, lengths = (fields.numbers(count) for _ in range(3))
        return files, _stretches(files, ids, offsets, lengths), []
    lengths, kinds = fields.numbers(count), fields.numbers(count)
    lengths = [length for length, kind in zip(lengths, kinds, strict=True) if kind == _INDIRECT]
    ids, offsets = (fields.numbers(len(lengths)) for _ in range(2))
    return files, [], _stretches(files, ids, offsets, lengths)


def _stretches(files: list[File], ids: list[int], offsets: list[int], lengths: list[int]) -> list[Stretch]:
    if max(ids, default=0) >= max(len(files), 1):
        raise UnreadableError("names a file that is not in its table")
    return [Stretch(files[one], *place) for one, *place in zip(ids, offsets, lengths, strict=True)]


def inside(folder: str, name: str) -> str | None:
    """The path of a file of a store below a checkpoint; None where it leads out of it."""
    path = posixpath.normpath(posixpath.join(folder, name))
    return None if name.startswith("/") or path.startswith("..") else path


def _body(content: bytes, magic: bytes, budget: Budget) -> _Fields:
    """What is between the head and the checksum, unpacked."""
    if not content.startswith(magic) or len(content) < len(magic) + _LENGTH.size + _SUM_BYTES:
        raise UnreadableError("is no part of a store of OCDBT")
    (length,) = _LENGTH.unpack_from(content, len(magic))
    if length != len(content):
        raise UnreadableError(f"has {len(content):,} bytes, and its head says {length:,}")
    head = _Fields(content[len(magic) + _LENGTH.size : -_SUM_BYTES], budget)
    if head.number():
        raise UnknownLayoutError("it is of a newer version of the layout")
    packed = head.number()
    rest = head.rest()
    if packed > _ZSTD:
        raise UnknownLayoutError("it is packed by a method that is not known")
    unpacked = _unpacked(rest) if packed else rest
    with within():
        budget.num_bytes.add(len(unpacked))
    return _Fields(unpacked, budget)


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
