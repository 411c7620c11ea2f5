"""Reads the index of PyTorch's distributed checkpoints, without PyTorch and without running it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from trainspec_validate.checkpoints.boundary import judged
from trainspec_validate.checkpoints.counted import Counted
from trainspec_validate.checkpoints.formats.torch_zip import PARTS_OF_STATE, Scalar, read_archive, tell_code
from trainspec_validate.checkpoints.limits import PIECES
from trainspec_validate.checkpoints.opening import UnreadableError, open_file
from trainspec_validate.checkpoints.paths import fault as path_fault
from trainspec_validate.checkpoints.pickle_code import code_after
from trainspec_validate.checkpoints.pickle_values import Inert, Name, Pairs, Record
from trainspec_validate.checkpoints.pickles import follow
from trainspec_validate.checkpoints.stated_steps import is_step_key
from trainspec_validate.checkpoints.tiles import Box, shown
from trainspec_validate.checkpoints.tiles import fault as tile_fault
from trainspec_validate.checkpoints.view import OWN_STEPS, Archive, Checkpoint, StepClaim, is_count
from trainspec_validate.system.budget import Count

_MAX_FIELDS = 100
_MOMENT = re.compile(r"(?:^|[./])exp_avg(?:_sq)?$|optim.*[./]step$")
"""Ends of keys of what Adam keeps of each parameter."""
_RECORDS = ("MetadataIndex", "_StorageInfo", "ChunkStorageMetadata")
"""Classes of which an index has an object for each piece of state."""
_MAX_DIMENSIONS = 254
MARK = ".metadata"
SUFFIX = ".distcp"
_BROKEN = "restore the file from another copy"
_Held = dict[tuple[int, ...] | None, "_StoredTensor | None"]
"""What the files hold of one tensor by the offset of the piece; None where that is not known."""
_DTYPES: Final = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
"""Type of the elements by the class of their storage."""
_PERSISTENT: Final = Name("persistent", "id")
_SIZE_PLACE, _DTYPE_PLACE = 2, 6
"""Of shape and type in the arguments of `_rebuild_tensor_v2` and `_rebuild_tensor_v3`."""
_PLAIN: Final = frozenset({"_rebuild_tensor", "_rebuild_tensor_v2"})
_TYPED: Final = "_rebuild_tensor_v3"
_PARAMETERS: Final = frozenset({"_rebuild_parameter", "_rebuild_parameter_with_state"})
_OF_A_TYPE: Final = frozenset({"_rebuild_from_type", "_rebuild_from_type_v2"})
_MOST_LEVELS: Final = 4
"""Calls around a tensor, such as that of a parameter."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a piece of state is, as the index says."""

    key: str
    offset: tuple[int, ...] | None
    """First element of the piece in its tensor; None where the state is no piece of a tensor."""
    path: str
    begin: int
    num_bytes: int
    is_transformed: bool
    """Whether the bytes were compressed or encrypted by an extension."""


def read(checkpoint: Checkpoint) -> None:
    """Add what the index says, in each directory that holds one or shards of one."""
    folders = {path.rpartition("/")[0] for path in checkpoint.files if path.endswith(SUFFIX)}
    folders |= {path.rpartition("/")[0] for path in checkpoint.files if path.rpartition("/")[2] == MARK}
    if folders:
        checkpoint.formats.append("PyTorch DCP")
    for folder in sorted(folders):
        _read_folder(checkpoint, folder)


def _read_folder(checkpoint: Checkpoint, folder: str) -> None:
    mark = f"{folder}/{MARK}" if folder else MARK
    checkpoint.examined.add("mark")
    if mark not in checkpoint.files:
        words = f"{MARK}, which is written after all shards, is missing"
        checkpoint.report("mark", folder, words, "the save was interrupted: resume from an earlier checkpoint")
        return
    checkpoint.marks.append(mark)
    checkpoint.examined |= {"container", "limits", "code", "files", "paths", "tiling"}
    with judged(checkpoint, mark, "the index"):
        with open_file(checkpoint.root / mark) as file:
            content = follow(file, _RECORDS)
            tell_code(checkpoint, mark, code_after(file))
        tell_code(checkpoint, mark, content)
        index = _state(content.value, "Metadata")
        budget = Count(PIECES)
        entries = list(_entries(index.get("storage_data"), budget))
        tensors = _pairs(index.get("state_dict_metadata"))
        checkpoint.know(key for key, _ in tensors if isinstance(key, str))
        checkpoint.save_ids |= {_save_id(index.get("storage_meta"))} - {""}
        held: dict[str, _Held] = {}
        for entry in entries:
            held.setdefault(entry.key, {})[entry.offset] = None
        _check_files(checkpoint, folder, mark, entries, held)
        _check_tensors(checkpoint, mark, tensors, held, Count(PIECES))


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, Pairs):
        raise UnreadableError("has no mapping where one belongs")
    return value.pairs


def _state(value: Any, kind: str) -> dict[str, Any]:
    """Fields of what would be an object of this class."""
    if isinstance(value, Record) and value.function.name == kind:
        return dict(zip(value.keys, value.values, strict=True))
    if not isinstance(value, Inert) or not isinstance(value.function, Name) or value.function.name != kind:
        raise UnreadableError(f"has no {kind} where one belongs")
    state = value.state[1] if isinstance(value.state, tuple) and len(value.state) == 2 else value.state
    if not isinstance(state, Pairs) or len(state.pairs) > _MAX_FIELDS:
        raise UnreadableError(f"has a {kind} without fields, or with more than any")
    return state.texts()


def _save_id(value: Any) -> str:
    """What PyTorch drew for this save; empty where it recorded nothing."""
    try:
        found = _state(value, "StorageMeta").get("save_id")
    except UnreadableError:
        return ""
    return found if isinstance(found, str) else ""


def _sizes(value: Any) -> tuple[int, ...]:
    """The numbers of a `torch.Size`."""
    taken = value.arguments[0] if isinstance(value, Inert) and isinstance(value.arguments, tuple) else value
    if not isinstance(taken, (tuple, list)) or len(taken) > _MAX_DIMENSIONS or not all(map(is_count, taken)):
        raise UnreadableError("has a shape that is no list of whole numbers")
    return tuple(taken)


def _entries(value: Any, budget: Count) -> Iterator[Entry]:
    """What the index says of each piece; the pairs are taken out, as both together would take too much memory."""
    pairs = _pairs(value)
    pairs.reverse()
    while pairs:
        key, info = pairs.pop()
        budget.add()
        index, stored = _state(key, "MetadataIndex"), _state(info, "_StorageInfo")
        name, path = index.get("fqn"), stored.get("relative_path")
        begin, length = stored.get("offset"), stored.get("length")
        if not isinstance(name, str) or not isinstance(path, str) or not is_count(begin) or not is_count(length):
            raise UnreadableError("has an entry without name, path, offset or length")
        offset = None if index.get("offset") is None else _sizes(index["offset"])
        yield Entry(name, offset, path, begin, length, bool(stored.get("transform_descriptors")))


def _check_files(
    checkpoint: Checkpoint, folder: str, mark: str, entries: list[Entry], held: Mapping[str, _Held]
) -> None:
    by_path: dict[str, list[Entry]] = {}
    for entry in entries:
        by_path.setdefault(entry.path, []).append(entry)
    for path, those in sorted(by_path.items()):
        why = path_fault(path)
        target = f"{folder}/{path}" if folder else path
        if any(_MOMENT.search(entry.key) for entry in those):
            checkpoint.moments.add(target)
        if why:
            checkpoint.report("paths", mark, f"the path {path!r} {why}", "name files next to the index only")
        elif target not in checkpoint.files or checkpoint.files[target].kind != "file":
            words = f"the file, which {MARK} names for {len(those):,} pieces of state, is missing"
            checkpoint.report("files", target, words, _BROKEN)
        else:
            _check_file(checkpoint, target, those, held)
    known = {f"{folder}/{path}" if folder else path for path in by_path}
    for path, fact in checkpoint.files.items():
        if path.endswith(SUFFIX) and path.rpartition("/")[0] == folder and path not in known and fact.size_bytes:
            words = f"{MARK} names nothing in this file: it is left from another save"
            checkpoint.report("residue", path, words, "remove it once the checkpoint is known to be whole")


def _check_file(checkpoint: Checkpoint, path: str, entries: list[Entry], held: Mapping[str, _Held]) -> None:
    size = checkpoint.files[path].size_bytes
    wanted = max(entry.begin + entry.num_bytes for entry in entries)
    if size < wanted:
        checkpoint.report("files", path, f"the file has {size:,} bytes, and {MARK} asks for {wanted:,}", _BROKEN)
        return
    place = 0
    for entry in sorted(entries, key=lambda entry: entry.begin):
        if entry.begin < place:
            words = f"{entry.key!r} begins at byte {entry.begin:,} of {path}, within the piece before it"
            checkpoint.report("tiling", path, words, _BROKEN)
            return
        place = entry.begin + entry.num_bytes
    for entry in entries:
        if not entry.is_transformed:
            archive = Archive(path, entry.begin, entry.num_bytes, entry.key)
            take = partial(_take, checkpoint, entry.key, path)
            held[entry.key][entry.offset] = read_archive(checkpoint, archive, take)


def _take(checkpoint: Checkpoint, key: str, path: str, value: Any, scalar: Scalar) -> _StoredTensor | None:
    """The tensor of an entry; a step of the run or of an optimizer, a number or a tensor of one element, is noted."""
    above, _, name = key.rpartition(".")
    if not is_step_key(name):
        return stored_tensor(value)
    step = value if is_count(value) else scalar(value)
    if step is not None and (not above or PARTS_OF_STATE.fullmatch(above)):
        checkpoint.stated.setdefault(path, {})[key] = step
    if name not in OWN_STEPS:
        return stored_tensor(value)
    if step is not None and _MOMENT.search(key):
        before = checkpoint.said.get(path, Counted()).optimizer_step
        checkpoint.said[path] = Counted(optimizer_step=max(step, before or 0))
    elif step is not None and (not above or PARTS_OF_STATE.fullmatch(above)):
        claims = checkpoint.hinted_steps if above else checkpoint.own_steps
        claims.append(StepClaim(path, step, f"{path} ({key})"))
    return stored_tensor(value)


def _check_tensors(
    checkpoint: Checkpoint, mark: str, tensors: list[tuple[Any, Any]], held: Mapping[str, _Held], budget: Count
) -> None:
    for key, value in tensors:
        if not isinstance(key, str):
            raise UnreadableError("has a name of state that is no text")
        budget.add()
        for words in _faults(value, held.get(key, {}), budget):
            checkpoint.report("tiling", mark, f"{key!r}: {words}", "resume from an earlier checkpoint")


def _faults(value: Any, held: _Held, budget: Count) -> Iterator[str]:
    """What is wrong with the pieces of one tensor, with where they are, or with what is there."""
    is_bytes = isinstance(value, Inert) and isinstance(value.function, Name)
    if is_bytes and value.function.name == "BytesStorageMetadata":
        if not held:
            yield "the index does not say where it is"
        return
    fields = _state(value, "TensorStorageMetadata")
    boxes = []
    chunks = fields.get("chunks")
    for chunk in chunks if isinstance(chunks, (list, tuple)) else ():
        budget.add()
        piece = _state(chunk, "ChunkStorageMetadata")
        boxes.append(Box(_sizes(piece.get("offsets")), _sizes(piece.get("sizes"))))
    why = tile_fault(_sizes(fields.get("size")), boxes)
    if why:
        yield why
    absent = [box for box in boxes if box.begin not in held]
    if absent:
        yield f"the index does not say where {len(absent):,} of {len(boxes):,} pieces are"
    others = list(_others(boxes, _dtype(fields.get("properties")), held))
    if others:
        num_more = len(others) - 1
        yield others[0] + (
            f"; {num_more:,} more piece{' differs' if num_more == 1 else 's differ'}" if num_more else ""
        )


def _dtype(properties: Any) -> str:
    """The type that the index says: the first part of the state of `TensorProperties`; empty where it says none."""
    state = properties.state if isinstance(properties, Inert) else None
    if isinstance(state, Pairs):
        return _dtype_name(state.texts().get("dtype"))
    return _dtype_name(state[0]) if isinstance(state, tuple) and state else ""


def _others(boxes: list[Box], dtype: str, held: _Held) -> Iterator[str]:
    """The pieces whose file holds another shape or type than the index says, in words."""
    for box in boxes:
        found = held.get(box.begin)
        if found is None:
            continue
        wanted = _StoredTensor(dtype if found.dtype else "", box.size)
        is_other_type = bool(dtype and found.dtype and dtype != found.dtype)
        if is_other_type or found.shape != box.size:
            yield f"the file holds {found} for the piece {box}, and the index says {wanted}"


@dataclass(frozen=True, slots=True)
class _StoredTensor:
    """Type and shape of a tensor; the type is empty where it is not known."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {shown(self.shape)}".strip()


def stored_tensor(value: Any) -> _StoredTensor | None:
    """The tensor that a pickle holds at its top, alone or as a parameter; None for anything else."""
    for _ in range(_MOST_LEVELS):
        if not isinstance(value, Inert) or not isinstance(value.function, Name):
            return None
        function, arguments = value.function.name, value.arguments
        if not isinstance(arguments, tuple):
            return None
        if function in _PLAIN or function == _TYPED:
            return _of_call(function, arguments)
        if function in _PARAMETERS and arguments:
            value = arguments[0]
        elif function in _OF_A_TYPE and len(arguments) > 2:
            value = Inert(arguments[0], arguments[2])
        else:
            return None
    return None


def _of_call(function: str, arguments: tuple[Any, ...]) -> _StoredTensor | None:
    """Storage, offset, size, stride and, in the third version, type: torch/_utils.py."""
    shape = arguments[_SIZE_PLACE] if len(arguments) > _SIZE_PLACE else None
    if not isinstance(shape, tuple) or not all(map(is_count, shape)):
        return None
    if function == _TYPED:
        dtype = _dtype_name(arguments[_DTYPE_PLACE]) if len(arguments) > _DTYPE_PLACE else ""
    else:
        dtype = _of_storage(arguments[0])
    return _StoredTensor(dtype, shape)


def _dtype_name(value: Any) -> str:
    """Name of a type of PyTorch, such as float32; empty for anything else."""
    return value.name if isinstance(value, Name) and value.module == "torch" else ""


def _of_storage(storage: Any) -> str:
    said = storage.arguments[0] if isinstance(storage, Inert) and storage.function == _PERSISTENT else None
    kind = said[1] if isinstance(said, tuple) and len(said) > 1 and said[0] == "storage" else None
    return _DTYPES.get(kind.name, "") if isinstance(kind, Name) else ""
