"""Reads the index of a checkpoint of TensorFlow: its tensors, and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainspec_validate.checkpoints.limits import TABLE_NUMBERS, TABLE_SHARDS, within
from trainspec_validate.checkpoints.opening import UnreadableError, open_file
from trainspec_validate.checkpoints.protobuf import fields, signed
from trainspec_validate.checkpoints.tables import entries
from trainspec_validate.checkpoints.tiles import Box, volume
from trainspec_validate.checkpoints.view import is_count
from trainspec_validate.system.boundary import reason_of
from trainspec_validate.system.budget import Count
from trainspec_validate.system.crc32c import unmasked

_MAX_DIMENSIONS = 254  # tensorflow/core/framework/tensor_shape.h, MaxDimensions
_VERSION = 1
TEXT = 7
# Bytes of one element, and the name of the type where values can be judged: tensorflow/core/framework/types.proto
_WIDTHS = {
    **dict.fromkeys((4, 6, 10, 11, 12, 24, 25, 26, 27, 28), 1),
    **dict.fromkeys((5, 14, 15, 16, 17, 19), 2),
    **dict.fromkeys((1, 3, 13, 22), 4),
    **dict.fromkeys((2, 8, 9, 23), 8),
    18: 16,
}
_FLOATS = {1: "F32", 2: "F64", 14: "BF16", 19: "F16"}
INTEGER_64 = 9
_INTEGER_32 = 3


@dataclass(frozen=True, slots=True)
class Tensor:
    """Entry of the index on one tensor."""

    key: bytes
    kind: int
    """Number of its type."""
    shape: tuple[int, ...]
    shard: int
    offset: int
    num_bytes: int
    crc32c: int
    slices: tuple[Box, ...]
    """Its pieces, where they are stored as tensors of their own and this one holds none."""

    @property
    def name(self) -> str:
        """Its key as a text."""
        return self.key.removesuffix(b"/.ATTRIBUTES/VARIABLE_VALUE").decode("utf-8", "backslashreplace")

    @property
    def dtype(self) -> str:
        """The name of its type where its values are floats; empty where they are not."""
        return _FLOATS.get(self.kind, "")

    @property
    def wanted_bytes(self) -> int | None:
        """Bytes that its type and shape make; None where the type has no width of its own."""
        width = _WIDTHS.get(self.kind)
        return None if width is None else volume(self.shape) * width


@dataclass(frozen=True, slots=True)
class Index:
    """Content of an index."""

    num_shards: int
    is_little: bool
    """Whether numbers begin with their lowest byte."""
    tensors: tuple[Tensor, ...]

    def counter(self, name: str) -> Tensor | None:
        """The whole number with just this name; None where there is none."""
        kinds = (INTEGER_64, _INTEGER_32)
        return next((one for one in self.tensors if one.name == name and one.kind in kinds and not one.shape), None)

    def scalar(self, ends: Iterable[str]) -> Tensor | None:
        """The one whole number whose key ends in one of these words; None where there is none, or several."""
        found = [one for one in self.tensors if one.kind == INTEGER_64 and not one.shape and _ends(one.name, ends)]
        return found[0] if len(found) == 1 and found[0].num_bytes == 8 else None


def _ends(name: str, ends: Iterable[str]) -> bool:
    return any(name.rpartition("/")[2] == end for end in ends)


def read_index(path: Path) -> Index:
    """The index in a file.

    Raises:
        LimitError: it asks for more than a reader gives.
        UnreadableError: it breaks the format; a `ChecksumError` where a block contradicts its checksum.
    """
    try:
        with within(), open_file(path) as file:
            pairs = entries(file)
            budget = Count(TABLE_NUMBERS)
            first = next(pairs, None)
            if first is None or first[0]:
                raise UnreadableError("has no header")
            num_shards, is_little = _header(first[1])
            return Index(num_shards, is_little, tuple(_tensor(key, value, num_shards, budget) for key, value in pairs))
    except OSError as error:
        raise UnreadableError(f"cannot be read: {reason_of(error)}") from error


def _header(message: memoryview) -> tuple[int, bool]:
    """Number of shards, and whether numbers begin with their lowest byte: message BundleHeaderProto."""
    found = dict(fields(message))
    num_shards = found.get(1, 0)
    TABLE_SHARDS.check(num_shards if isinstance(num_shards, int) else 0)
    if type(num_shards) is not int or num_shards < 1:
        raise UnreadableError(f"claims {num_shards if type(num_shards) is int else 'no number of'} shards")
    version = found.get(3, b"")
    least = dict(fields(version)).get(2, 0) if isinstance(version, memoryview) else 0
    if type(least) is not int or least > _VERSION:
        raise UnreadableError("is of a version that is newer than this reader")
    return num_shards, found.get(2, 0) == 0


def _tensor(key: bytes, message: memoryview, num_shards: int, budget: Count) -> Tensor:
    """Message BundleEntryProto."""
    numbers = dict.fromkeys((1, 3, 4, 5, 6), 0)
    shape: tuple[int, ...] = ()
    slices: list[memoryview] = []
    for number, value in fields(message):
        if isinstance(value, int):
            numbers[number] = signed(value)
        elif number == 2:
            shape = tuple(islice(_sizes(value), _MAX_DIMENSIONS + 1))
        elif number == 7:
            budget.add()
            slices.append(value)
    kind, shard, offset, num_bytes, recorded = (numbers[number] for number in (1, 3, 4, 5, 6))
    shown = key.decode("utf-8", "backslashreplace")
    if len(shape) > _MAX_DIMENSIONS or not all(map(is_count, (kind, shard, offset, num_bytes, *shape))):
        raise UnreadableError(f"has an entry {shown!r} with a type, shape or place that is no whole number from 0")
    if shard >= num_shards:
        raise UnreadableError(f"has an entry {shown!r} in shard {shard:,} of {num_shards:,}")
    budget.add(len(shape) * (1 + 2 * len(slices)))
    boxes = tuple(_box(one, shape) for one in slices)
    return Tensor(key, kind, shape, shard, offset, num_bytes, unmasked(recorded & 0xFFFFFFFF), boxes)


def _sizes(message: memoryview) -> Iterator[int]:
    """Message TensorShapeProto."""
    for number, value in fields(message):
        if number == 2 and isinstance(value, memoryview):
            size = dict(fields(value)).get(1, 0)
            yield signed(size) if isinstance(size, int) else -1


def _box(message: memoryview, shape: tuple[int, ...]) -> Box:
    """Message TensorSliceProto; an extent without a length is the whole of its dimension."""
    begins, sizes = [], []
    extents = [value for number, value in fields(message) if number == 1 and isinstance(value, memoryview)]
    if len(extents) != len(shape):
        raise UnreadableError(f"has a slice of {len(extents):,} dimensions for a tensor of {len(shape):,}")
    for extent, whole in zip(extents, shape, strict=True):
        found = {number: signed(value) for number, value in fields(extent) if isinstance(value, int)}
        begins.append(found.get(1, 0))
        sizes.append(found.get(2, whole))
    if not all(map(is_count, (*begins, *sizes))):
        raise UnreadableError("has a slice that is no range of whole numbers from 0")
    return Box(tuple(begins), tuple(sizes))
