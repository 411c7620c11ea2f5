"""Reads which files a store of OCDBT needs, and how long they are at least: its manifest, and every node of its tree.

The layout is that of https://google.github.io/tensorstore/kvstore/ocdbt, "Storage format". Values are not read: they
have no checksum.
"""

from __future__ import annotations

import itertools
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
_LONG_KEY_BYTES = 1_024
"""Longer keys are counted with what is unpacked: a node may repeat one of them in few bytes."""
_MOST_ARITY = 16
_NUM_SUMS = 3
"""Numbers of keys, bytes of the tree and bytes of values below a node."""
_TIME_BYTES = 8
_GENERATION_BITS = 63
SETTINGS = (b"/.zarray", b"/zarr.json")
"""Ends of the keys with settings of arrays."""
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


class Branch(NamedTuple):
    """A node as the one above it states it."""

    stretch: Stretch
    height: int
    """0 for a node with values."""
    least_key: bytes = b""
    """Its keys begin there, without what comes before all of them."""
    prefix: bytes = b""
    """Comes before all keys in it."""


class Tree(NamedTuple):
    """A tree of a store without its values."""

    top: Branch
    needed: dict[str, int]
    """Every file that it needs, relative to the store, and the bytes that it has at least."""
    settings: dict[bytes, Stretch | bytes]
    """The settings of arrays of Zarr, or where they are, by their keys."""


class _Node(NamedTuple):
    files: list[File]
    keys: list[bytes]
    """Without what comes before all of them."""
    children: list[Branch]
    values: list[Stretch | bytes]
    """Of a node of height 0, in the order of its keys."""


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

    def end(self) -> None:
        """Refuse more bytes."""
        if self._place < len(self._content):
            raise UnreadableError(f"has {len(self._content) - self._place:,} bytes after its last field")

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


def manifest_files(content: bytes, budget: Budget | None = None) -> tuple[list[File], Branch | None]:
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
    (arity,) = fields.take(1)
    if not 1 <= arity <= _MOST_ARITY:
        raise UnreadableError(f"has the arity 2^{arity} of its versions, where 2^1 to 2^{_MOST_ARITY} are possible")
    if fields.number() == _ZSTD:
        fields.take(4)
    files = fields.files()
    num_versions = fields.number()
    if not 1 <= num_versions <= 1 << arity:  # a store has a version from its begin on
        raise UnreadableError(f"names {num_versions:,} versions, where 1 to {1 << arity:,} are possible")
    generations = fields.numbers(num_versions)
    heights = fields.take(num_versions)
    ids, offsets, lengths = (fields.numbers(num_versions) for _ in range(3))
    fields.numbers(_NUM_SUMS * num_versions)
    fields.take(_TIME_BYTES * num_versions)
    _check_versions(generations, arity)
    _older_versions(fields, generations[-1], arity)
    fields.end()
    if offsets[-1] == lengths[-1] == _NOWHERE:
        return files, None
    return files, Branch(_stretches(files, ids[-1:], offsets[-1:], lengths[-1:])[0], heights[-1])


def _check_versions(generations: list[int], arity: int) -> None:
    """Numbers of versions increase from 1 on, and those in the manifest are of one node of the tree of versions."""
    if not generations[0] or any(two <= one for one, two in itertools.pairwise(generations)):
        raise UnreadableError("has numbers of versions that do not increase from 1 on")
    if (generations[0] - 1) >> arity != (generations[-1] - 1) >> arity:
        raise UnreadableError(f"has the versions {generations[0]:,} and {generations[-1]:,}, which are too far apart")


def _older_versions(fields: _Fields, newest: int, arity: int) -> None:
    """The nodes with older versions, whose heights decrease as their versions increase."""
    count = fields.number()
    generations = fields.numbers(count)
    fields.numbers(4 * count)
    fields.take(_TIME_BYTES * count)
    heights = fields.take(count)
    if any(not 1 <= height <= _GENERATION_BITS // arity for height in heights):
        raise UnreadableError("has a node of older versions at a height that is not possible")
    if any(two >= one for one, two in itertools.pairwise(heights)):
        raise UnreadableError("has nodes of older versions whose heights do not decrease")
    if any(two <= one for one, two in itertools.pairwise([0, *generations, newest])):
        raise UnreadableError("has numbers of older versions that do not increase from 1 on")


def read_tree(root: Path, folder: str, top: Branch, budget: Budget | None = None) -> Tree:
    """The files that a tree needs, and the settings of the arrays in it.

    Args:
        root: directory of the checkpoint.
        folder: directory of the store, relative to the checkpoint.
        top: root of the tree.
        budget: what its manifest has used.

    Raises:
        DamagedNodeError: a node contradicts its checksum, its layout or the node above it.
        LimitError: the store has more of something than the limits.
        UnknownLayoutError: a node is packed in a way that is not read here.
    """
    needed: dict[str, int] = {}
    settings: dict[bytes, Stretch | bytes] = {}
    for branch, node in _nodes(root, folder, top, budget or Budget()):
        _need(needed, branch.stretch)
        if node is None:
            continue
        needed = dict.fromkeys((file.name for file in node.files if file.name), 0) | needed
        for key, value in zip(node.keys, node.values, strict=False):
            if not isinstance(value, bytes):
                _need(needed, value)
            if key.endswith(SETTINGS):
                settings[branch.prefix + key] = value
    return Tree(top, needed, settings)


def values_of(root: Path, folder: str, top: Branch, budget: Budget) -> Iterator[tuple[bytes, Stretch | bytes]]:
    """The keys of a store with their values, or with where these are; of a tree that `read_tree` has judged.

    Raises:
        UnreadableError: the tree changed meanwhile.
    """
    for branch, node in _nodes(root, folder, top, budget):
        for key, value in zip(node.keys, node.values, strict=False) if node is not None else ():
            yield branch.prefix + key, value


def _nodes(root: Path, folder: str, top: Branch, budget: Budget) -> Iterator[tuple[Branch, _Node | None]]:
    """The nodes of a tree; None for one whose file is not there, which is reported as missing."""
    pending = [top]
    seen: set[tuple[str, int]] = set()
    while pending:
        one = pending.pop()
        place = inside(folder, one.stretch.file.name)
        if place is None or not os.path.lexists(root / place):
            yield one, None
            continue
        try:
            if (place, one.stretch.offset_bytes) in seen:
                raise UnreadableError(f"has a node at byte {one.stretch.offset_bytes:,} that the tree names twice")
            seen.add((place, one.stretch.offset_bytes))
            node = _node(_content(root / place, one.stretch), one, budget)
        except LimitError:
            raise
        except UnreadableError as error:
            raise DamagedNodeError(place, str(error)) from error
        except OSError as error:
            raise DamagedNodeError(place, f"cannot be read: {reason_of(error)}") from error
        yield one, node
        with within():
            budget.num_nodes.add(len(node.children))
        pending += node.children


def _node(content: bytes, one: Branch, budget: Budget) -> _Node:
    """What a node holds; it is of the height, and begins with a key, that the node above it states."""
    fields = _body(content, _NODE, budget)
    (height,) = fields.take(1)
    if height != one.height:
        raise UnreadableError(f"has a node of height {height} where the tree has height {one.height}")
    files = fields.files(one.stretch.file.base)
    keys, shared = _keys(fields, budget, is_inner=height > 0)
    if keys[0] < one.least_key:
        raise UnreadableError("has a node with keys before the first one that the node above it states")
    children, values = [], []
    if height:
        places = _stretches(files, *(fields.numbers(len(keys)) for _ in range(3)))
        fields.numbers(_NUM_SUMS * len(keys))
        for place, key, length in zip(places, keys, shared, strict=True):
            children.append(Branch(place, height - 1, key[length:], one.prefix + key[:length]))
    else:
        lengths, kinds = fields.numbers(len(keys)), fields.numbers(len(keys))
        if max(kinds) > _INDIRECT:
            raise UnreadableError(f"has a value of the kind {max(kinds)}, which is not known")
        far = [length for length, kind in zip(lengths, kinds, strict=True) if kind]
        ids, offsets = (fields.numbers(len(far)) for _ in range(2))
        stretches = iter(_stretches(files, ids, offsets, far))
        values = [next(stretches) if kind else fields.take(size) for size, kind in zip(lengths, kinds, strict=True)]
    fields.end()
    return _Node(files, keys, children, values)


def _keys(fields: _Fields, budget: Budget, *, is_inner: bool) -> tuple[list[bytes], list[int]]:
    """The keys of a node, in order, each of which shares a begin with the one before it.

    Those of an inner node have, as second result, how much of each all keys below it share.
    """
    count = fields.number()
    if not count:
        raise UnreadableError("has a node of the tree without keys")
    begins = [0, *fields.numbers(count - 1)]
    lengths = fields.numbers(count)
    shared = fields.numbers(count) if is_inner else []
    keys: list[bytes] = []
    before = b""
    num_bytes = 0
    for begin, length in zip(begins, lengths, strict=True):
        suffix = fields.take(length)
        if begin > len(before):
            raise UnreadableError("shares more of a key than that has")
        if keys and before[begin:] >= suffix:
            raise UnreadableError("has keys that do not increase")
        before = before[:begin] + suffix
        num_bytes += len(before)
        if len(before) > _MOST_KEY_BYTES or num_bytes > _MOST_BYTES:
            raise UnreadableError("has a key that is too long, or too many long ones")
        if len(before) > _LONG_KEY_BYTES:
            with within():
                budget.num_bytes.add(len(before))
        keys.append(before)
    if any(length > len(key) for length, key in zip(shared, keys, strict=False)):
        raise UnreadableError("has keys below a node that share more than its own key has")
    return keys, shared


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
