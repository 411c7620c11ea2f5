"""Judges the small files in JSON that Orbax restores with: of shardings, of arrays by process, and of items of JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainspec_validate.checkpoints.limits import JSON_BYTES
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, read_json, read_small
from trainspec_validate.checkpoints.stated_steps import stated_steps
from trainspec_validate.checkpoints.view import Checkpoint, is_count

SUCCESS = "commit_success.txt"
_SHARDING = "_sharding"
_BY_PROCESS = re.compile(r"(?:^|/)array_metadatas/process_[0-9]+$")
_BROKEN = "resume from an earlier checkpoint"
_SHARDINGS = frozenset({"NamedSharding", "SingleDeviceSharding", "PositionalSharding", "GSPMDSharding"})
"""https://orbax.readthedocs.io/en/latest/api_reference/checkpoint.metadata.html, "Sharding Metadata"."""


def read_parts(checkpoint: Checkpoint, path: str) -> None:
    """Judge a file of shardings, or of the arrays of a process; any other file is left alone."""
    if path.rpartition("/")[2] == _SHARDING:
        data = _read(checkpoint, path)
        if data is not None and (words := _fault_of_shardings(data)):
            checkpoint.report("container", path, f"the file {words}", _BROKEN)
        for kind in sorted(_unknown_shardings(data)):
            checkpoint.doubts[path] = (f"names the sharding {kind!r}, which is not known", "restore it on trial")
    elif _BY_PROCESS.search(path):
        data = _read(checkpoint, path)
        if data is not None and arrays_in(data) is None:
            checkpoint.report("container", path, "the file has no list of arrays with names and shapes", _BROKEN)


def read_item(checkpoint: Checkpoint, paths: list[str]) -> None:
    """Judge the files of an item of JSON, and note the steps that they say."""
    for path in paths:
        data = _read(checkpoint, path)
        if data is not None:
            checkpoint.stated[path] = stated_steps(data, lambda _: None)


def arrays_in(data: Any) -> list[str] | None:
    """The names of arrays that a process saved; None where the file has another form."""
    held = data.get("array_metadatas") if isinstance(data, dict) else None
    listed = held if isinstance(held, list) else []
    inner = [one.get("array_metadata") if isinstance(one, dict) else None for one in listed]
    if not isinstance(held, list) or not all(map(_is_of_an_array, inner)):
        return None
    return [str(one["param_name"]) for one in inner if isinstance(one, dict)]


def _is_of_an_array(value: Any) -> bool:
    """Whether a mapping has the keys without which Orbax restores nothing.

    https://github.com/google/orbax/blob/main/checkpoint/orbax/checkpoint/_src/metadata/array_metadata_store.py,
    _from_dict
    """
    sizes = [value.get(key) for key in ("write_shape", "chunk_shape")] if isinstance(value, dict) else [None]
    are_sizes = all(isinstance(one, list) and all(map(is_count, one)) for one in sizes)
    return are_sizes and isinstance(value.get("param_name"), str)


def faults_of_tree(checkpoint: Checkpoint, folder: str, tree: dict[str, Any]) -> Iterator[str]:
    """Entries of a tree that contradict themselves, or the arrays that processes say they saved."""
    types = {}
    for key, entry in tree.items():
        keys = entry.get("key_metadata") if isinstance(entry, dict) else None
        value = entry.get("value_metadata") if isinstance(entry, dict) else None
        if not isinstance(keys, list) or not isinstance(value, dict):
            yield f"the entry {key!r} has no key_metadata and value_metadata"
            continue
        names = [str(one.get("key")) for one in keys if isinstance(one, dict)]
        if key != str(tuple(names)):
            yield f"the entry {key!r} is of the keys {tuple(names)!r}"
        sizes = value.get("write_shape")
        if sizes is not None and not (isinstance(sizes, list) and all(map(is_count, sizes))):
            yield f"the entry {key!r} has a write_shape that is no list of sizes"
        types[".".join(names)] = value.get("value_type")
    prefix = f"{folder}/" if folder else ""
    for path in checkpoint.files:
        if path.startswith(f"{prefix}array_metadatas/") and _BY_PROCESS.search(path):
            for name in arrays_in(_small(checkpoint, path)) or ():
                if types.get(name, "jax.Array") != "jax.Array":
                    yield f"{name} is of the type {types[name]!r}, and {path} says that it is an array"


def _fault_of_shardings(data: Any) -> str:
    if not isinstance(data, dict):
        return "is no mapping of shardings"
    for value in data.values():
        if value is not None and _kind(value) is None:
            return f"has a sharding without a type: {str(value)[:60]!r}"
    return ""


def _unknown_shardings(data: Any) -> set[str]:
    kinds = (_kind(value) for value in (data.values() if isinstance(data, dict) else ()))
    return {kind for kind in kinds if kind is not None} - _SHARDINGS


def _kind(value: Any) -> str | None:
    """The type of a sharding, which is a mapping in JSON, as a text in JSON."""
    try:
        inner = read_json(value.encode()) if isinstance(value, str) else value
    except (UnreadableError, UnicodeEncodeError):
        return None
    kind = inner.get("sharding_type") if isinstance(inner, dict) else None
    return kind if isinstance(kind, str) else None


def _small(checkpoint: Checkpoint, path: str) -> Any:
    try:
        return read_json(read_small(checkpoint.root / path, JSON_BYTES))
    except UnreadableError:
        return None


def _read(checkpoint: Checkpoint, path: str) -> Any:
    try:
        return read_json(read_small(checkpoint.root / path, JSON_BYTES))
    except LimitError as error:
        checkpoint.report("limits", path, f"the file {error}")
    except UnreadableError as error:
        checkpoint.report("container", path, f"the file {error}", _BROKEN)
    return None
