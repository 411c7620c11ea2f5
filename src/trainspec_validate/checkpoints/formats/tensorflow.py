"""Judges checkpoints of TensorFlow: an index with the place and the checksum of each tensor."""

from __future__ import annotations

import re

from trainspec_validate.checkpoints.boundary import judged
from trainspec_validate.checkpoints.bundles import GRAPH, INDEX, STAGING, is_data, is_table, prefix_of, shard_name
from trainspec_validate.checkpoints.formats._bundle import TEXT, Index, Tensor, read_index
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, open_file
from trainspec_validate.checkpoints.statistics import Piece
from trainspec_validate.checkpoints.tables import ChecksumError
from trainspec_validate.checkpoints.tiles import fault, volume
from trainspec_validate.checkpoints.view import Checkpoint

NAME = "TensorFlow"
_BROKEN = "resume from an earlier checkpoint"
# `optimizer.iterations` of Keras and `global_step` of TensorFlow 1 count optimizer steps; the number in the name of a
# checkpoint counts saves unless the program says otherwise: tensorflow/python/checkpoint/checkpoint_management.py
_UPDATES = ("_iterations", "iterations", "iter", "global_step")
_STEP = "step"
"""Variable that programs count steps in: https://www.tensorflow.org/guide/checkpoint."""
_SAVES = "save_counter"
"""Variable that `tf.train.Checkpoint.save` counts its calls in, and names files by."""
_STAGED = re.compile(rf"(^|/)[^/]+{STAGING}/part-[0-9]+-of-[0-9]+\.")


def read(checkpoint: Checkpoint) -> None:
    """Add what the indexes of TensorFlow say, and name older files that are not read."""
    files = [path for path, fact in checkpoint.files.items() if fact.kind == "file" and not _STAGED.search(path)]
    found: dict[str, list[str]] = {}
    for path in files:
        folder, _, name = path.rpartition("/")
        if is_data(name) or (name.endswith(INDEX) and is_table(checkpoint.root / path)):
            prefix = f"{folder}/{prefix_of(name)}" if folder else prefix_of(name)
            found.setdefault(prefix, []).append(path)
    if found:
        checkpoint.formats.append(NAME)
    for prefix, parts in found.items():
        with judged(checkpoint, f"{prefix}{INDEX}", "the index", _BROKEN):
            _read_bundle(checkpoint, prefix, parts)
    _tell_staging(checkpoint)
    _name_old(checkpoint, files, found)


def _read_bundle(checkpoint: Checkpoint, prefix: str, parts: list[str]) -> None:
    index = f"{prefix}{INDEX}"
    checkpoint.examined.add("mark")
    if index not in checkpoint.files:
        words = f"{index.rpartition('/')[2]}, which is written after the values, is missing"
        checkpoint.report("mark", "", words, f"the save was interrupted: {_BROKEN}")
        return
    checkpoint.marks.append(index)
    checkpoint.examined |= {"container", "limits", "files", "tiling", "shards"}
    try:
        content = read_index(checkpoint.root / index)
    except LimitError as error:
        checkpoint.report("limits", index, f"the index {error}")
    except ChecksumError as error:
        checkpoint.report("container", index, f"the index {error}", "restore the file from another copy")
    except UnreadableError as error:
        checkpoint.report("container", index, f"the index {error}", _BROKEN)
    else:
        checkpoint.know(tensor.name for tensor in content.tensors)
        _check_shards(checkpoint, prefix, parts, content)
        _check_tensors(checkpoint, index, content)
        _claim(checkpoint, prefix, content)


def _check_shards(checkpoint: Checkpoint, prefix: str, parts: list[str], index: Index) -> None:
    wanted = [shard_name(prefix, number, index.num_shards) for number in range(index.num_shards)]
    held = set(parts)
    absent = [path for path in wanted if path not in held]
    if absent:
        words = f"{len(absent):,} of {index.num_shards:,} files with values are missing, first {absent[0]}"
        checkpoint.report("shards", f"{prefix}{INDEX}", words, _BROKEN)
    for path in sorted(held.difference(wanted, {f"{prefix}{INDEX}"})):
        words = "the index names nothing in this file: it is left from another save"
        checkpoint.report("residue", path, words, "remove it once the checkpoint is known to be whole")
    by_shard: dict[int, list[Tensor]] = {}
    for tensor in index.tensors:
        if not tensor.slices:
            by_shard.setdefault(tensor.shard, []).append(tensor)
    for shard, tensors in by_shard.items():
        if wanted[shard] in held:
            _check_shard(checkpoint, wanted[shard], tensors, is_little=index.is_little)


def _check_shard(checkpoint: Checkpoint, path: str, tensors: list[Tensor], *, is_little: bool) -> None:
    """Tensors lie one after the other within the file; each is kept for the comparison of its checksum."""
    size = checkpoint.files[path].size_bytes
    wanted = max(tensor.offset + tensor.num_bytes for tensor in tensors)
    if size < wanted:
        words = f"the file has {size:,} bytes, and its index asks for {wanted:,}"
        checkpoint.report("files", path, words, "restore the file from another copy")
        return
    place = 0
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.num_bytes)):
        if tensor.offset < place:
            words = f"tensor {tensor.name!r} begins at byte {tensor.offset:,}, within the one before it"
            checkpoint.report("tiling", path, words, _BROKEN)
            return
        place = tensor.offset + tensor.num_bytes
    for tensor in tensors:
        if tensor.kind == TEXT and is_little:
            num_texts = volume(tensor.shape)
            piece = Piece(path, tensor.name, tensor.offset, tensor.num_bytes, tensor.crc32c, num_texts=num_texts)
        elif tensor.wanted_bytes is not None:
            dtype = tensor.dtype if is_little else ""
            piece = Piece(path, tensor.name, tensor.offset, tensor.num_bytes, tensor.crc32c, dtype)
        else:
            continue  # objects such as tables of words, whose form only their program knows
        checkpoint.hold(piece)


def _check_tensors(checkpoint: Checkpoint, path: str, index: Index) -> None:
    """There are tensors, sizes follow from types and shapes, and slices cover their tensors."""
    if not index.tensors:
        checkpoint.report("container", path, "the index names no tensor", _BROKEN)
    num_stored: dict[bytes, int] = {}
    for tensor in index.tensors:
        if tensor.key.startswith(b"\0"):  # `\0`, the name, `\0\1`, then the range: tsl/lib/strings/ordered_code.h
            name = tensor.key[1:].partition(b"\0\1")[0]
            num_stored[name] = num_stored.get(name, 0) + 1
    for tensor in index.tensors:
        words = "" if tensor.kind else "has no type"
        if tensor.slices:
            words = words or fault(tensor.shape, tensor.slices)
            num_held = num_stored.get(tensor.key, 0)
            if not words and num_held != len(tensor.slices):
                words = f"{num_held:,} of its {len(tensor.slices):,} slices are in the index"
        elif not words and tensor.wanted_bytes not in {None, tensor.num_bytes}:
            words = f"spans {tensor.num_bytes:,} bytes, and its type and shape make {tensor.wanted_bytes:,}"
        if words:
            checkpoint.report("tiling", path, f"tensor {tensor.name!r}: {words}", _BROKEN)


def _claim(checkpoint: Checkpoint, prefix: str, index: Index) -> None:
    """The number of steps in the state is the step; the number in the name may count saves."""
    if not checkpoint.is_bundle or not index.is_little:
        return
    step = _count(checkpoint, prefix, index, index.scalar(_UPDATES) or index.counter(_STEP))
    if step is not None:
        checkpoint.step = step
    saves = _count(checkpoint, prefix, index, index.counter(_SAVES))
    if saves is not None:
        checkpoint.stated[f"{prefix}{INDEX}"] = {_SAVES: saves}


def _count(checkpoint: Checkpoint, prefix: str, index: Index, counter: Tensor | None) -> int | None:
    """The whole number from 0 in a tensor; None where there is none."""
    path = shard_name(prefix, counter.shard, index.num_shards) if counter else ""
    if counter is None or path not in checkpoint.files:
        return None
    try:
        with open_file(checkpoint.root / path) as file:
            file.seek(counter.offset)
            content = file.read(counter.num_bytes)
    except OSError:
        return None
    step = int.from_bytes(content, "little", signed=True)
    return step if len(content) == counter.num_bytes and 0 <= step < 1 << 62 else None


def _tell_staging(checkpoint: Checkpoint) -> None:
    for path in checkpoint.folders:
        if path.endswith(STAGING) and any(_STAGED.match(one) for one in checkpoint.files if one.startswith(path)):
            words = "an unfinished save has left this behind"
            checkpoint.report("residue", path, words, "remove it once the checkpoint is known to be whole")


def _name_old(checkpoint: Checkpoint, files: list[str], found: dict[str, list[str]]) -> None:
    """A graph of TensorFlow 1, and the single file with values of its first format, which is not read."""
    for path in files:
        prefix = path.removesuffix(GRAPH)
        if path.endswith(GRAPH) and (prefix in found or is_table(checkpoint.root / prefix)):
            form = "with a graph" if prefix in found else "of one file, which is not read"
            name = f"{NAME} 1 ({form})"
            if name not in checkpoint.formats:
                checkpoint.formats.append(name)
