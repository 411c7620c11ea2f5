"""Reads what Orbax leaves: metadata of the save, trees of arrays, and its two kinds of storage."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import Any

from trainspec_validate.checkpoints.boundary import judged
from trainspec_validate.checkpoints.formats import _ocdbt
from trainspec_validate.checkpoints.formats._ocdbt_values import damaged_chunks
from trainspec_validate.checkpoints.formats._orbax_parts import (
    SUCCESS as _SUCCESS,
)
from trainspec_validate.checkpoints.formats._orbax_parts import (
    faults_of_tree,
    read_item,
    read_parts,
)
from trainspec_validate.checkpoints.formats._zarr import fault_of_array, shape_and_chunks
from trainspec_validate.checkpoints.formats._zstd import check_frame
from trainspec_validate.checkpoints.limits import STORE_BYTES
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, read_json, read_small
from trainspec_validate.checkpoints.paths import above
from trainspec_validate.checkpoints.statistics import Piece
from trainspec_validate.checkpoints.tiles import volume
from trainspec_validate.checkpoints.view import Checkpoint
from trainspec_validate.system.crc32c import crc32c

MARK = "_CHECKPOINT_METADATA"
_TREE = "_METADATA"
_STORE = "manifest.ocdbt"
_ARRAY = ".zarray"
_ARRAY_3 = "zarr.json"
_VALUES = "checkpoint"
"""Values that Orbax before 0.5.21 kept outside of arrays."""
_BROKEN = "resume from an earlier checkpoint"
_ARRAYS = frozenset({"jax.Array", "np.ndarray", "scalar"})
_OF_TREES = (".StandardCheckpointHandler", ".PyTreeCheckpointHandler", ".PyTreeHandler")
_OF_JSON = (".JsonCheckpointHandler", ".JsonHandler")
_WRITERS = (*_OF_TREES, *_OF_JSON, ".ArrayCheckpointHandler", ".ProtoCheckpointHandler")
"""Handlers that write a file in every save; others, such as that of the descriptor in v1, may leave no directory."""
_OWN = "orbax.checkpoint."
"""Its handlers of trees always write their description: the option `write_tree_metadata` ended with Orbax 0.5.11, and
the mark has named handlers since 0.10.0; https://github.com/google/orbax/blob/main/checkpoint/CHANGELOG.md."""
_LATER = frozenset({"use_ocdbt", "store_array_data_equal_to_fill_value", "custom_metadata", "value_metadata_tree"})
_LATER_FOLDER = "array_metadatas"
"""What no Orbax before 0.9 wrote; the mark has been written since 0.5.11, of 2024-05-10."""
_FLOATS = {"<f8": "F64", "<f4": "F32", "<f2": "F16", "bfloat16": "BF16"}
_WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
# Magic number, then the length of the whole: https://google.github.io/tensorstore/kvstore/ocdbt, "Manifest file"
_MAGIC = bytes.fromhex("0cdb3a2a")
_LENGTH = struct.Struct("<Q")
_SUM = struct.Struct("<L")


def read(checkpoint: Checkpoint) -> None:
    """Add what the files of Orbax say."""
    names = {path.rpartition("/")[2] for path in checkpoint.files}
    if not names & {MARK, _STORE} and ".orbax-checkpoint-tmp" not in checkpoint.root.name:
        return
    checkpoint.formats.append("Orbax")
    checkpoint.examined |= {"mark", "container", "limits", "files"}
    paths = sorted(checkpoint.files)
    trees = {path.rpartition("/")[0] for path in paths if path.rpartition("/")[2] == _TREE}
    is_later = any(folder.rpartition("/")[2] == _LATER_FOLDER for folder in checkpoint.folders)
    filled: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if name in {_ARRAY, _ARRAY_3} and trees.isdisjoint(["", *above(folder)]):
            words = f"is an array without {_TREE}, so missing chunks are not noticed"
            checkpoint.doubts[folder] = (words, "save it again with Orbax 0.5.11 or later")
        with judged(checkpoint, path, remedy=_BROKEN):
            if name == _TREE:
                is_later |= _read_tree(checkpoint, folder, paths, filled)
            elif name == _STORE:  # in order, the tree beside it was read before
                _read_store(checkpoint, path, filled.get(folder, []))
                prefix = f"{folder}/" if folder else ""
                for data in [*_below(paths, f"{prefix}d/"), *_below(paths, f"{prefix}ocdbt.process_")]:
                    checkpoint.unread[data] = "holds values of an OCDBT store, which have no checksum"
        with judged(checkpoint, path, remedy=_BROKEN):
            read_parts(checkpoint, path)
    _read_mark(checkpoint, paths, is_later=is_later)


def _below(paths: list[str], prefix: str) -> Iterator[str]:
    """Those of the paths, which are in order, that begin in a way."""
    for place in range(bisect_left(paths, prefix), len(paths)):
        if not paths[place].startswith(prefix):
            return
        yield paths[place]


def _read_mark(checkpoint: Checkpoint, paths: list[str], *, is_later: bool) -> None:
    """Every tree stands in a save that was committed; ranks that save alone leave several of them side by side."""
    marked = {path.rpartition("/")[0] for path in checkpoint.files if path.rpartition("/")[2] == MARK}
    trees = {path.rpartition("/")[0] for path in checkpoint.files if path.rpartition("/")[2] == _TREE}
    bare = {folder for folder in trees if not marked & {"", folder, folder.rpartition("/")[0]}} if marked else {""}
    for folder in sorted(bare):
        if marked or is_later:
            words = f"{MARK}, which Orbax writes since 0.5.11 and completes when a save is committed, is missing"
            remedy = "the save was interrupted or its copy is incomplete: resume from an earlier checkpoint"
            checkpoint.report("mark", folder, words, remedy)
        else:
            words = f"has no {MARK}, which Orbax writes since 0.5.11, so whether the save was committed is not known"
            checkpoint.doubts[folder] = (words, "save it again with Orbax 0.5.11 or later")
    for folder in sorted(marked):
        prefix = f"{folder}/" if folder else ""
        with judged(checkpoint, f"{prefix}{MARK}", remedy=_BROKEN):
            _read_save(checkpoint, prefix, paths)


def _read_save(checkpoint: Checkpoint, prefix: str, paths: list[str]) -> None:
    checkpoint.marks += [f"{prefix}{name}" for name in (MARK, _SUCCESS) if f"{prefix}{name}" in checkpoint.files]
    data = _json(checkpoint, f"{prefix}{MARK}")
    if not isinstance(data, dict):
        if data is not None:
            checkpoint.report("mark", f"{prefix}{MARK}", "the file is no mapping of metadata", _BROKEN)
        return
    begun, ended = data.get("init_timestamp_nsecs"), data.get("commit_timestamp_nsecs")
    if type(ended) is not int or ended < 1 or (type(begun) is int and ended < begun):
        shown = "no time of the commit" if type(ended) is not int or ended < 1 else "a commit before its begin"
        checkpoint.report("mark", f"{prefix}{MARK}", f"the metadata say {shown}", "resume from an earlier checkpoint")
    items = data.get("item_handlers")
    for folder, handler in (items if isinstance(items, dict) else {"": items}).items():
        path = f"{prefix}{folder}/{_TREE}" if folder else f"{prefix}{_TREE}"
        if not str(handler).endswith(_OF_TREES) or path in checkpoint.files:
            continue
        if not str(handler).startswith(_OWN):
            checkpoint.unread[path] = (
                "is missing, so the arrays are not known; a handler outside Orbax may not write it"
            )
        else:
            words = f"the names and types of the arrays, which the handler that {MARK} names writes, are missing"
            checkpoint.report("files", path, words, _BROKEN)
    for item, handler in items.items() if isinstance(items, dict) else ():
        held = [path for path in _below(paths, f"{prefix}{item}/") if path.rpartition("/")[2] != _SUCCESS]
        if held and str(handler).startswith(_OWN) and str(handler).endswith(_OF_JSON):
            read_item(checkpoint, held)
        if held:
            continue
        if str(handler).startswith(_OWN) and str(handler).endswith(_WRITERS):
            words = f"the directory of the item {item!r}, which {MARK} names, is missing or empty"
            checkpoint.report("files", prefix.rstrip("/"), words, _BROKEN)
        else:
            words = f"is named by {MARK}, and is missing or empty; its handler may write no file"
            checkpoint.unread.setdefault(f"{prefix}{item}", words)


def _json(checkpoint: Checkpoint, path: str) -> Any:
    try:
        data = read_json(read_small(checkpoint.root / path))
        if data is None:
            raise UnreadableError("holds nothing but null")
        return data
    except LimitError as error:
        checkpoint.report("limits", path, f"the file {error}")
    except UnreadableError as error:
        checkpoint.report("container", path, f"the file {error}", _BROKEN)
    return None


def _read_tree(checkpoint: Checkpoint, folder: str, paths: list[str], filled: dict[str, list[tuple[str, ...]]]) -> bool:
    """Every array of a tree has its place in a kind of storage; returns whether Orbax 0.9 or later wrote the tree.

    The keys that the store of a folder has to hold, of which one of each group is enough, are added to `filled`.
    """
    prefix = f"{folder}/" if folder else ""
    data = _json(checkpoint, f"{prefix}{_TREE}")
    tree = data.get("tree_metadata") if isinstance(data, dict) else None
    if not isinstance(tree, dict):
        if data is not None:
            checkpoint.report("container", f"{prefix}{_TREE}", "the file has no tree_metadata", _BROKEN)
        return False
    checkpoint.know(filter(None, (_name(entry) for entry in tree.values())))
    for words in islice(faults_of_tree(checkpoint, folder, tree), 1):
        checkpoint.report("container", f"{prefix}{_TREE}", words, _BROKEN)
    has_values = any(next(_below(paths, f"{prefix}{name}"), None) for name in ("d/", "ocdbt.process_"))
    if _is_store(data.get("use_ocdbt"), prefix, paths, has_values=has_values):
        names = list(filter(None, map(_array_name, tree.values())))
        if names and f"{prefix}{_VALUES}" not in checkpoint.files:
            filled[folder] = [_settings_of(name, data.get("use_zarr3")) for name in names]
        if f"{prefix}{_STORE}" not in checkpoint.files:
            if names or has_values:
                checkpoint.report("files", f"{prefix}{_STORE}", "the directory of the arrays is missing", _BROKEN)
        elif not has_values:
            checkpoint.report("files", folder, "no file with values of the arrays is there", _BROKEN)
    else:
        checkpoint.examined.add("tiling")
        may_lack = not data.get("store_array_data_equal_to_fill_value", True)
        named = {_array_name(entry): str(key) for key, entry in reversed(tree.items())}
        is_aggregated = f"{prefix}{_VALUES}" in checkpoint.files
        for name, key in reversed(named.items()):
            held = list(_below(paths, f"{prefix}{name}/")) if name else []
            if held or (name and not is_aggregated):
                array = _ARRAY_3 if data.get("use_zarr3") else _ARRAY
                _check_array(checkpoint, f"{prefix}{name}/{array}", key, held, may_lack=may_lack)
    return not _LATER.isdisjoint(data)


def _settings_of(name: str, is_3: Any) -> tuple[str, ...]:
    """The keys in a store under which an array may have its settings; a tree says since Orbax 0.6 in which version."""
    kinds = (_ARRAY, _ARRAY_3) if is_3 is None else (_ARRAY_3,) if is_3 else (_ARRAY,)
    return tuple(f"{name}/{kind}" for kind in kinds)


def _is_store(said: Any, prefix: str, paths: list[str], *, has_values: bool) -> bool:
    """Whether the arrays of a tree are in an OCDBT store; its description says so since Orbax 0.11.31."""
    if said is not None:
        return bool(said)
    if has_values or f"{prefix}{_STORE}" in paths:
        return True
    ends = (f"/{_ARRAY}", f"/{_ARRAY_3}")
    return f"{prefix}{_VALUES}" not in paths and not any(path.endswith(ends) for path in _below(paths, prefix))


def _array_name(entry: Any) -> str:
    """Directory of an array; empty for values that are stored elsewhere."""
    if not isinstance(entry, dict) or not isinstance(entry.get("value_metadata"), dict):
        return ""
    return _name(entry) if entry["value_metadata"].get("value_type") in _ARRAYS else ""


def _name(entry: Any) -> str:
    """The keys that lead to a value of the tree, with points; empty where there are none."""
    keys = entry.get("key_metadata") if isinstance(entry, dict) else None
    return ".".join(str(key.get("key")) for key in keys if isinstance(key, dict)) if isinstance(keys, list) else ""


def _check_array(checkpoint: Checkpoint, path: str, key: str, below: list[str], *, may_lack: bool) -> None:
    """An array of the older storage has a file for each of its chunks."""
    folder, _, name = path.rpartition("/")
    if path not in checkpoint.files:
        words = f"the file that describes the array {key}, which {_TREE} names, is missing"
        checkpoint.report("files", path, words, _BROKEN)
        return
    data = _json(checkpoint, path)
    words = fault_of_array(data, is_v2=name == _ARRAY) if data is not None else ""
    if words:
        checkpoint.report("container", path, f"the file {words}", _BROKEN)
    shape, chunks = shape_and_chunks(data, is_v2=name == _ARRAY)
    if shape is None or chunks is None or len(shape) != len(chunks):
        return
    wanted = volume(-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True))
    chunk_files = [one for one in below if one != path]
    held = len(chunk_files)
    is_packed = name != _ARRAY or data.get("compressor") or data.get("filters")
    dtype = "" if is_packed else _FLOATS.get(str(data.get("dtype")), "")
    width = volume(chunks) * _WIDTHS.get(dtype, 0)
    compressor = data.get("compressor")
    for one in chunk_files:
        if isinstance(compressor, dict) and compressor.get("id") == "zstd" and not data.get("filters"):
            with judged(checkpoint, one, remedy=_BROKEN):
                check_frame(checkpoint.root / one)
        if dtype and checkpoint.files[one].size_bytes == width:
            checkpoint.hold(Piece(one, key, 0, width, dtype=dtype))
    if held != wanted and not (may_lack and held < wanted):
        words = f"{held:,} of {wanted:,} chunks of the array {key} are there"
        checkpoint.report("tiling", folder, words, _BROKEN)


def _read_store(checkpoint: Checkpoint, path: str, wanted: list[tuple[str, ...]]) -> None:
    """The manifest of the newer storage has its length and its checksum; what it points at has none."""
    try:
        content = read_small(checkpoint.root / path, STORE_BYTES)
    except LimitError as error:
        checkpoint.report("limits", path, f"the file {error}")
        return
    except UnreadableError as error:
        checkpoint.report("container", path, f"the file {error}", _BROKEN)
        return
    least = len(_MAGIC) + _LENGTH.size + _SUM.size
    if not content.startswith(_MAGIC) or len(content) < least:
        checkpoint.report("container", path, "the file is no manifest of OCDBT", _BROKEN)
        return
    (length,) = _LENGTH.unpack_from(content, len(_MAGIC))
    (checksum,) = _SUM.unpack_from(content, len(content) - _SUM.size)
    if length != len(content):
        words = f"the file has {len(content):,} bytes, and its header says {length:,}"
        checkpoint.report("container", path, words, _BROKEN)
    elif crc32c(content[: -_SUM.size]) != checksum:
        checkpoint.report("container", path, "the content contradicts its checksum", _BROKEN)
    else:
        _look_for_files(checkpoint, path, content, wanted)


def _look_for_files(checkpoint: Checkpoint, path: str, content: bytes, wanted: list[tuple[str, ...]]) -> None:
    """What the manifest of a store and its tree name is there, and as long as they say."""
    folder = path.rpartition("/")[0]
    try:
        budget = _ocdbt.Budget()
        files, top = _ocdbt.manifest_files(content, budget)
        needed = dict.fromkeys((file.name for file in files if file.name), 0)
        tree = _ocdbt.read_tree(checkpoint.root, folder, top, budget) if top is not None else None
        if tree is not None:
            needed |= tree.needed
        elif wanted:
            checkpoint.report("files", path, f"the store is empty, and {_TREE} names arrays in it", _BROKEN)
    except _ocdbt.UnknownLayoutError as error:
        checkpoint.unread[path] = f"is a store whose files are not looked for: {error}"
        return
    except _ocdbt.DamagedNodeError as error:
        checkpoint.report("container", error.path, f"the file {error}", _BROKEN)
        return
    except LimitError as error:
        checkpoint.report("limits", path, f"the store {error}")
        return
    except UnreadableError as error:
        checkpoint.report("container", path, f"the file {error}", _BROKEN)
        return
    places = {name: _ocdbt.inside(folder, name) for name in needed}
    absent = [name for name, place in places.items() if place not in checkpoint.files]
    if absent:
        shown = ", ".join(absent[:3]) + (f" and {len(absent) - 3:,} more" if len(absent) > 3 else "")
        words = f"files with values of the arrays, which the store names, are missing: {shown}"
        checkpoint.report("files", path, words, _BROKEN)
    is_short = False
    for name, place in places.items():
        if place in checkpoint.files and checkpoint.files[place].size_bytes < needed[name]:
            size = checkpoint.files[place].size_bytes
            words = f"the file has {size:,} bytes, and the store asks for {needed[name]:,}"
            checkpoint.report("files", place, words, _BROKEN)
            is_short = True
    if tree is not None and not absent and not is_short:
        _look_for_arrays(checkpoint, path, tree, wanted)
        _check_chunks(checkpoint, path, tree)


def _look_for_arrays(checkpoint: Checkpoint, path: str, tree: _ocdbt.Tree, wanted: list[tuple[str, ...]]) -> None:
    """A store holds the settings of every array that the tree of the save names; Orbax restores none without."""
    absent = [
        keys[0] for keys in wanted if not any(key.encode("utf-8", "surrogatepass") in tree.settings for key in keys)
    ]
    if absent:
        shown = ", ".join(absent[:3]) + (f" and {len(absent) - 3:,} more" if len(absent) > 3 else "")
        words = f"the store lacks the settings of arrays that {_TREE} names: {shown}"
        checkpoint.report("files", path, words, _BROKEN)


def _check_chunks(checkpoint: Checkpoint, path: str, tree: _ocdbt.Tree) -> None:
    try:
        for place, words in damaged_chunks(checkpoint.root, path.rpartition("/")[0], tree):
            checkpoint.report("container", place, f"the file {words}", _BROKEN)
    except LimitError as error:
        checkpoint.report("limits", path, f"the store {error}")
