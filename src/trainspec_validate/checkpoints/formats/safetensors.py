"""Reads headers of safetensors files, and the indexes that join files of any format to one model."""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainspec_validate.checkpoints.boundary import CUT, judged
from trainspec_validate.checkpoints.formats._double import tell_double, whole_of
from trainspec_validate.checkpoints.limits import JSON_BYTES, within
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, open_file, read_json, read_small
from trainspec_validate.checkpoints.paths import fault
from trainspec_validate.checkpoints.statistics import Piece
from trainspec_validate.checkpoints.tiles import shown, volume
from trainspec_validate.checkpoints.trainer_files import sharded_state, weights
from trainspec_validate.checkpoints.view import OWN_STEPS, Checkpoint, StepClaim, is_count
from trainspec_validate.system.boundary import reason_of

SUFFIX = ".safetensors"
_NUMBERED = re.compile(
    r"^(?P<stem>.*)-(?P<number>[0-9]{5})-of-(?P<total>[0-9]{5})(?P<end>\.(?:safetensors|bin|pt|h5|msgpack))$"
)
_INDEXED = (".safetensors", ".bin")
# https://github.com/huggingface/huggingface_hub/blob/main/src/huggingface_hub/serialization/_torch.py,
# save_torch_state_dict; https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/modeling_utils.py,
# save_pretrained
_LENGTH = struct.Struct("<Q")
_SHOWN = 3
_COUNT = re.compile(r"[0-9]{1,12}")
_OTHER_STATE = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".distcp", ".npz", ".keras", ".gguf")
# https://github.com/huggingface/safetensors/blob/24b0b28/safetensors/src/tensor.rs
_BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}


class _CutError(LimitError):
    """A header is larger than the format allows, and than the file."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of a header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    """First byte, counted from the end of the header."""
    end: int


def read(checkpoint: Checkpoint) -> None:
    """Add what the safetensors files and their indexes say."""
    headers: dict[str, frozenset[str]] = {}
    paths = [path for path, fact in checkpoint.files.items() if path.endswith(SUFFIX) and fact.kind == "file"]
    if paths:
        checkpoint.formats.append("safetensors")
        checkpoint.examined |= {"container", "limits", "files", "tiling"}
    for path in paths:
        with judged(checkpoint, path):
            names = _read_file(checkpoint, path)
            if names is not None:
                headers[path] = names
    _check_tensors(checkpoint, paths, headers)
    num_bytes = Counter[str]()
    for piece in checkpoint.pieces:
        num_bytes[piece.path] += piece.num_bytes
    for path in [path for path in checkpoint.files if whole_of(path)]:
        with judged(checkpoint, path, "the index"):
            _read_index(checkpoint, path, headers, num_bytes)
    _check_numbers(checkpoint)


def _check_tensors(checkpoint: Checkpoint, paths: Sequence[str], headers: Mapping[str, frozenset[str]]) -> None:
    """A model has tensors; next to shards of ZeRO-3, transformers writes one without any for a while."""
    is_alone = len(paths) == 1 and not _has_other_state(checkpoint)
    for path in [path for path in paths if headers.get(path) == frozenset()]:
        folder, _, name = path.rpartition("/")
        held = {one.removeprefix(f"{folder}/").split("/")[0] for one in checkpoint.files if one.startswith(folder)}
        others = [one for one in weights(held) if headers.get(f"{folder}/{one}" if folder else one) != frozenset()]
        if is_alone or (weights([name]) and not others and not sharded_state(held)):
            words = "the file has no tensor, and no other file has the model"
            checkpoint.report("resume-state", path, words, "resume from an earlier checkpoint")


def _has_other_state(checkpoint: Checkpoint) -> bool:
    return any(path.lower().endswith(_OTHER_STATE) for path in checkpoint.files)


def _read_file(checkpoint: Checkpoint, path: str) -> frozenset[str] | None:
    """Names of the tensors of a file; None where its header cannot be read."""
    size = checkpoint.files[path].size_bytes
    try:
        length, value = header(checkpoint.root / path)
        tensors = list(tensors_in(value))
    except LimitError as error:
        remedy = CUT if isinstance(error, _CutError) else "split the file"
        checkpoint.report("limits", path, f"the file {error}", remedy)
        return None
    except UnreadableError as error:
        checkpoint.report("container", path, f"the file {error}", "restore the file from another copy")
        return None
    place = 0
    for tensor in sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end)):
        if tensor.begin != place:
            what = "overlaps the tensor before it" if tensor.begin < place else "leaves a hole before it"
            words = f"tensor {tensor.name!r} begins at byte {tensor.begin:,}, which {what}: {place:,} is next"
            checkpoint.report("tiling", path, words)
        place = max(place, tensor.end)
        begin = _LENGTH.size + length + tensor.begin
        checkpoint.hold(Piece(path, tensor.name, begin, tensor.end - tensor.begin, dtype=tensor.dtype))
    wanted = _LENGTH.size + length + place
    if size != wanted:
        words = f"the file has {size:,} bytes, and its header asks for {wanted:,}"
        checkpoint.report("files", path, words, "restore the file from another copy")
    checkpoint.know(tensor.name for tensor in tensors)
    steps = ((key, value.get("__metadata__", {}).get(key, "")) for key in OWN_STEPS)
    checkpoint.own_steps += [
        StepClaim(path, int(text), f"{path} ({key})") for key, text in steps if _COUNT.fullmatch(text) and tensors
    ]
    return frozenset(tensor.name for tensor in tensors)


def header(path: Path) -> tuple[int, Mapping[str, Any]]:
    """Length of the header of a file, and what it says.

    Raises:
        LimitError: the header is larger, or nests deeper, than the format allows.
        UnreadableError: it breaks the format.
    """
    try:
        with open_file(path) as file:
            start = file.read(_LENGTH.size)
            if len(start) < _LENGTH.size:
                raise UnreadableError("ends before the length of its header")
            (length,) = _LENGTH.unpack(start)
            left = os.fstat(file.fileno()).st_size - _LENGTH.size
            with within(_CutError if length > left else LimitError):
                JSON_BYTES.check(length)
            if length > left:
                raise UnreadableError(f"ends within its header: it says {length:,} bytes, and {left:,} follow")
            content = file.read(length)
    except OSError as error:
        raise UnreadableError(f"cannot be read: {reason_of(error)}") from error
    if not content.startswith(b"{"):
        raise UnreadableError("has no header: { is missing")
    try:
        value = read_json(content, is_strict=True, parse_int=_integer if b"-0" in content else int)
    except UnreadableError as error:
        raise type(error)(f"has a header that {error}") from error
    return length, value


def _integer(literal: str) -> float:
    """A number of the header; -0 is a fraction to the library, which refuses it for a size or an offset."""
    return -0.0 if literal == "-0" else int(literal)


def tensors_in(value: Mapping[str, Any]) -> Iterator[Tensor]:
    """The tensors that a header lists.

    Raises:
        UnreadableError: it breaks the format.
    """
    for name, entry in value.items():
        if name == "__metadata__":
            if not isinstance(entry, dict) or not all(isinstance(text, str) for text in entry.values()):
                raise UnreadableError("has a header whose __metadata__ is no mapping of texts to texts")
            continue
        yield _tensor(name, entry)


def _tensor(name: str, entry: Any) -> Tensor:
    if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
        raise UnreadableError(f"has a tensor {name!r} without one of dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    bits = _BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise UnreadableError(f"has a tensor {name!r} of type {dtype!r}, which the format does not have")
    are_sizes = isinstance(shape, list) and all(type(size) is int and 0 <= size < 1 << 64 for size in shape)
    if not are_sizes or not _are_counts(offsets) or len(offsets) != len(("begin", "end")):
        raise UnreadableError(f"has a tensor {name!r} with a shape or offsets that are no whole numbers from 0")
    if _overflows(shape):
        raise UnreadableError(f"has a tensor {name!r} whose shape {shown(shape)} has more elements than can be counted")
    begin, end = offsets
    if volume(shape) * bits != (end - begin) * 8:
        words = f"has a tensor {name!r} of type {dtype} and shape {shown(shape)} that spans {end - begin:,} bytes"
        raise UnreadableError(f"{words}, not {volume(shape) * bits // 8:,}")
    return Tensor(name, dtype, tuple(shape), begin, end)


def _overflows(shape: Iterable[int]) -> bool:
    """Whether the library, which multiplies in 64 bits from the left, refuses a shape."""
    found = 1
    for size in shape:
        found *= size
        if found >= 1 << 64:
            return True
    return False


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_count, value))


def _read_index(
    checkpoint: Checkpoint, path: str, headers: Mapping[str, frozenset[str]], num_bytes: Mapping[str, int]
) -> None:
    checkpoint.examined |= {"container", "limits", "files", "tiling", "paths"}
    try:
        index = read_json(read_small(checkpoint.root / path))
    except LimitError as error:
        checkpoint.report("limits", path, f"the index {error}")
        return
    except UnreadableError as error:
        checkpoint.report("container", path, f"the index {error}", "write it again from the headers of the shards")
        return
    weights = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(file, str) for file in weights.values()):
        checkpoint.report("container", path, "the index has no weight_map of tensors to files")
        return
    folder = path.rpartition("/")[0]
    if not weights and any(name.rpartition("/")[0] == folder for name in headers):
        checkpoint.report("container", path, "the weight_map of the index names none of the tensors next to it")
        return
    by_file: dict[str, set[str]] = {}
    for tensor, file in weights.items():
        by_file.setdefault(file, set()).add(tensor)
    for file, names in sorted(by_file.items()):
        why = fault(file)
        target = f"{folder}/{file}" if folder else file
        if why:
            checkpoint.report("paths", path, f"the file name {file!r} {why}", "name files next to the index only")
        elif target not in checkpoint.files:
            words = f"{file}, which {path} names for {len(names):,} tensor{'s' if len(names) > 1 else ''}, is missing"
            checkpoint.report("files", target, words, "restore the file from another copy")
        elif target in headers:
            _compare(checkpoint, path, file, names, headers[target])
    prefix = f"{folder}/" if folder else ""
    tell_double(checkpoint, path, {f"{prefix}{file}": names for file, names in by_file.items()})
    shards = [f"{prefix}{file}" for file in by_file]
    if headers.keys() >= set(shards):
        _check_total(checkpoint, path, index.get("metadata"), {shard: num_bytes.get(shard, 0) for shard in shards})


def _check_total(checkpoint: Checkpoint, path: str, metadata: Any, shards: Mapping[str, int]) -> None:
    """Say where the total of the index is not what the shards hold.

    It proves no damage: programs write the bytes of tensors, the bytes of files, tied tensors more than once, or the
    total of another precision.
    """
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if type(total) not in {int, float} or not shards:
        return
    held = sum(shards.values())
    if total not in {held, sum(checkpoint.files[shard].size_bytes for shard in shards)}:
        words = f"says total_size {total:,}, and its shards hold {held:,} bytes of tensors"
        checkpoint.doubts[path] = (words, "compare the shards with those of the source, and write the index again")


def _compare(checkpoint: Checkpoint, path: str, file: str, named: set[str], held: frozenset[str]) -> None:
    for words, tensors in ((f"not in {file}", named - held), (f"in {file} only", held - named)):
        if tensors:
            shown = ", ".join(repr(name) for name in sorted(tensors)[:_SHOWN]) + (
                ", …" if len(tensors) > _SHOWN else ""
            )
            what = f"{len(tensors):,} tensor{'s are' if len(tensors) > 1 else ' is'} {words}: {shown}"
            checkpoint.report("tiling", path, what, "the index and the shards are of different saves; restore both")


def _check_numbers(checkpoint: Checkpoint) -> None:
    """Shards that count themselves, such as `model-00001-of-00003.safetensors`, are all there."""
    sets: dict[tuple[str, str, int], set[int]] = {}
    for path in checkpoint.files:
        match = _NUMBERED.match(path)
        if match:
            sets.setdefault((match["stem"], match["end"], int(match["total"])), set()).add(int(match["number"]))
    for (stem, end, total), numbers in sets.items():
        checkpoint.examined.add("shards")
        if total > 1 and end in _INDEXED and checkpoint.manifest is None:
            _check_index(checkpoint, f"{stem}{end}", len(numbers), total)
        absent = total - len({number for number in numbers if 1 <= number <= total})
        if absent > 0:
            words = f"{absent:,} of {total:,} files {stem}-*-of-{total:05}{end} are missing"
            checkpoint.report("shards", stem.rpartition("/")[0], words, "restore the files from another copy")


def _check_index(checkpoint: Checkpoint, whole: str, num_shards: int, total: int) -> None:
    """Transformers and Diffusers find the tensors of several files by the index alone, and write it after them."""
    checkpoint.examined.add("mark")
    if whole not in map(whole_of, checkpoint.files):
        words = f"{num_shards:,} of {total:,} shards are there, and no {whole}.index.json, which is written after them"
        checkpoint.report("mark", "", words, "the save was interrupted, or the copy: restore the index too")
