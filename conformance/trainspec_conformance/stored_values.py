"""Finds, digests and scales the floating-point values of a checkpoint, in formats that the suite reads.

These are safetensors, what `torch.save` writes, distributed checkpoints of PyTorch, arrays of NumPy, and JSON where a
checkpoint holds no other values. Nothing is executed or unpickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from trainspec_conformance.archive_sums import write_sums
from trainspec_validate.checkpoints.bundles import prefix_of
from trainspec_validate.checkpoints.opening import UnreadableError, open_file
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.statistics import Piece
from trainspec_validate.checkpoints.storages import storages
from trainspec_validate.checkpoints.view import Archive, Checkpoint
from trainspec_validate.checkpoints.zips import opened
from trainspec_validate.system.atomic import write_atomically

MAX_JSON_BYTES = 16_000_000
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_NUMPY = {np.dtype(kind): name for name, kind in _TYPES.items() if name != "BF16"}
_HEADER_BYTES = 65_536
"""Of an array of NumPy, at most."""
_BLOCK_BYTES = 1 << 24
MAX_TENSOR_BYTES = 1 << 28
"""Of all tensors of a checkpoint of which the suite looks at single values."""


class NoValuesError(Exception):
    """The checkpoint holds no values that the suite can change; the text says what it holds."""


@dataclass(frozen=True)
class Values:
    """Results computed from the bytes of the values of one checkpoint."""

    digest: str
    num_bytes: int


def opened_checkpoint(path: Path) -> Checkpoint:
    """A checkpoint of the store: a directory, or a file next to those of others."""
    return read_checkpoint(path.parent / (prefix_of(path.name) or path.name) if path.is_file() else path)


def values_of(path: Path) -> Values:
    """Digest of all values with their names.

    Raises:
        NoValuesError: there are none that the suite reads.
        UnreadableError: a file cannot be read.
    """
    checkpoint = opened_checkpoint(path)
    pieces, _ = _pieces(checkpoint)
    found, num_bytes = [], 0
    for piece in pieces:
        digest = hashlib.sha256(f"{piece.path}\n{piece.name}\n{piece.dtype}\n".encode())
        with open_file(checkpoint.root / piece.path) as file:
            for block in _blocks(file, piece):
                digest.update(block)
                num_bytes += len(block)
        found.append(digest.hexdigest())
    for name, state in _texts(checkpoint) if not pieces else ():
        floats = json.dumps(list(_floats(state))).encode()
        found.append(hashlib.sha256(name.encode() + b"\n" + floats).hexdigest())
        num_bytes += len(floats)
    _require(found, checkpoint)
    return Values("sha256:" + hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest(), num_bytes)


def tensors_of(path: Path) -> dict[str, npt.NDArray[np.float64]]:
    """Floating-point tensors of a checkpoint by their names; of shards of one name, each has its number behind it.

    Raises:
        NoValuesError: there are none that the suite reads, or more than it takes into memory.
        UnreadableError: a file cannot be read.
    """
    checkpoint = opened_checkpoint(path)
    pieces = sorted(_pieces(checkpoint)[0], key=lambda one: (one.name, one.path, one.offset))
    _require(pieces, checkpoint)
    if sum(piece.num_bytes for piece in pieces) > MAX_TENSOR_BYTES:
        raise NoValuesError(f"the tensors of {checkpoint.label} have more than {MAX_TENSOR_BYTES:,} bytes")
    found: dict[str, npt.NDArray[np.float64]] = {}
    for piece in pieces:
        with open_file(checkpoint.root / piece.path) as file:
            content = b"".join(_blocks(file, piece))
        names = (f"{piece.name}#{number}" if number else piece.name for number in count())
        found[next(name for name in names if name not in found)] = _numbers(content, piece.dtype)
    return found


def _numbers(content: bytes, dtype: str) -> npt.NDArray[np.float64]:
    bits: npt.NDArray[Any] = np.frombuffer(content, _TYPES[dtype])
    if dtype == "BF16":
        bits = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.astype(np.float64)


def tensor_values_of(path: Path) -> Values:
    """Digest of all values of a checkpoint that consists of such tensors for the most part.

    Raises:
        NoValuesError: most of it is something else, and may be state in a format that the suite does not read.
        UnreadableError: a file cannot be read.
    """
    checkpoint = opened_checkpoint(path)
    pieces, _ = _pieces(checkpoint)
    num_bytes = sum(piece.num_bytes for piece in pieces)
    all_bytes = sum(fact.size_bytes for fact in checkpoint.files.values() if fact.kind == "file")
    if 2 * num_bytes < all_bytes:
        raise NoValuesError(
            f"{num_bytes:,} of {all_bytes:,} bytes of {checkpoint.label} are values that the suite reads"
        )
    return values_of(path)


def scale(path: Path, factor: float, chance: random.Random | None = None) -> list[Path]:
    """Multiply every value by a factor, and write the checksums of containers anew; gives the files that changed.

    With a source of choices, one drawn tensor is changed, and all that hold the same bytes: copies of it.

    Raises:
        NoValuesError: there are none that the suite can change.
        UnreadableError: a file cannot be read.
    """
    checkpoint = opened_checkpoint(path)
    pieces, archives = _pieces(checkpoint)
    if chance is not None and pieces:
        pieces = _drawn(checkpoint.root, pieces, chance)
    for piece in pieces:
        with (checkpoint.root / piece.path).open("r+b") as file:
            for block in _blocks(file, piece):
                file.seek(-len(block), io.SEEK_CUR)
                file.write(_scaled(block, piece.dtype, factor))
    for archive in archives:
        write_sums(checkpoint.root / archive.path, archive)
    changed = {piece.path for piece in pieces}
    for name, state in _texts(checkpoint) if not pieces else ():
        write_atomically(checkpoint.root / name, json.dumps(_mapped(state, lambda value: value * factor)))
        changed.add(name)
    _require(changed, checkpoint)
    return [checkpoint.root / name for name in sorted(changed)]


def _drawn(root: Path, pieces: list[Piece], chance: random.Random) -> list[Piece]:
    """A tensor that holds more than zeros, with all copies of it."""
    alike: dict[bytes, list[Piece]] = {}
    for piece in pieces:
        digest, is_zero = hashlib.sha256(piece.dtype.encode()), True
        with open_file(root / piece.path) as file:
            for block in _blocks(file, piece):
                digest.update(block)
                is_zero = is_zero and not any(block)
        if not is_zero:
            alike.setdefault(digest.digest(), []).append(piece)
    return chance.choice(list(alike.values())) if alike else []


def _require(found: object, checkpoint: Checkpoint) -> None:
    if not found:
        formats = ", ".join(checkpoint.formats) or "no format that it knows"
        raise NoValuesError(f"{checkpoint.label} holds no values that the suite can change; it is of {formats}")


def _pieces(checkpoint: Checkpoint) -> tuple[list[Piece], list[Archive]]:
    """Where values are, and the containers that hold them with checksums of their own.

    Values whose checksum is in an index of another file are left out: that index cannot be written anew.
    """
    files = sorted(path for path, fact in checkpoint.files.items() if fact.kind == "file")
    arrays = [Archive(path) for path in files if path.endswith(".npz")]
    found = [
        *(piece for piece in checkpoint.pieces if piece.crc32c is None),
        *storages(checkpoint),
        *chain.from_iterable(_of_npz(checkpoint.root, archive) for archive in arrays),
        *chain.from_iterable(_of_npy(checkpoint.root, path) for path in files if path.endswith(".npy")),
    ]
    pieces = [piece for piece in found if piece.dtype in _TYPES and piece.num_bytes]
    touched = {piece.path for piece in pieces}
    return pieces, [one for one in (*checkpoint.archives, *arrays) if one.path in touched]


def _of_npz(root: Path, archive: Archive) -> Iterator[Piece]:
    with opened(root / archive.path, archive) as container:
        for name in container.names():
            place = container.place(name) if name.endswith(".npy") else None
            if place is not None:
                with container.entry(name) as file:
                    yield from _array(file, archive.path, name, *place)


def _of_npy(root: Path, path: str) -> Iterator[Piece]:
    with open_file(root / path) as file:
        yield from _array(file, path, path, 0, (root / path).stat().st_size)


def _array(file: BinaryIO, path: str, name: str, offset: int, num_bytes: int) -> Iterator[Piece]:
    """Where the values of an array of NumPy are, by its header; nothing where they are no floats."""
    head = io.BytesIO(file.read(_HEADER_BYTES))
    try:
        version = np.lib.format.read_magic(head)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        _, _, dtype = reader(head)
    except ValueError as error:
        raise UnreadableError(f"{path}: {name} is not an array of NumPy: {error}") from error
    if dtype in _NUMPY:
        yield Piece(path, name, offset + head.tell(), num_bytes - head.tell(), dtype=_NUMPY[dtype])


def _blocks(file: BinaryIO, piece: Piece) -> Iterator[bytes]:
    """The bytes of the values, in parts; the file is at the end of each part when it is given.

    Raises:
        UnreadableError: the file ends before them.
    """
    file.seek(piece.offset)
    left = piece.num_bytes
    while left:
        block = file.read(min(left, _BLOCK_BYTES))
        if not block:
            raise UnreadableError(f"{piece.path} ends within the values of {piece.name}")
        left -= len(block)
        yield block


def _scaled(block: bytes, dtype: str, factor: float) -> bytes:
    bits: npt.NDArray[Any] = np.frombuffer(block, _TYPES[dtype])
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "BF16":
            wide = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32) * np.float32(factor)
            product = (wide.view(np.uint32) >> np.uint32(16)).astype("<u2")
        else:
            product = (bits * bits.dtype.type(factor)).astype(bits.dtype)
    return bytes(product.tobytes())


def _texts(checkpoint: Checkpoint) -> Iterator[tuple[str, Any]]:
    """Files of JSON that hold a floating-point number, with their content; the manifest is none of them."""
    for name, fact in sorted(checkpoint.files.items()):
        is_text = name.endswith(".json") and name != checkpoint.manifest_name
        if not is_text or fact.kind != "file" or fact.size_bytes > MAX_JSON_BYTES:
            continue
        try:
            state = json.loads((checkpoint.root / name).read_bytes())
            if any(True for _ in _floats(state)):
                yield name, state
        except (ValueError, RecursionError):
            continue


def _floats(state: Any) -> Iterator[float]:
    if isinstance(state, float):
        yield state
    elif isinstance(state, dict | list):
        for inner in state.values() if isinstance(state, dict) else state:
            yield from _floats(inner)


def _mapped(state: Any, change: Callable[[float], float]) -> Any:
    if isinstance(state, dict):
        return {key: _mapped(inner, change) for key, inner in state.items()}
    if isinstance(state, list):
        return [_mapped(inner, change) for inner in state]
    return change(state) if isinstance(state, float) else state
