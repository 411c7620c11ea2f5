"""Checks chunks of arrays in a store of OCDBT as far as the way in which they are packed shows damage.

Arrays are those of Zarr, and the store holds their settings next to their chunks. A chunk of Zstandard is one frame,
and one of shards has an index with a checksum at its end. Values are not unpacked.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trainspec_validate.checkpoints.formats import _ocdbt
from trainspec_validate.checkpoints.formats._zarr import fault_of_array
from trainspec_validate.checkpoints.formats._zstd import check_frame
from trainspec_validate.checkpoints.limits import JSON_BYTES
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, open_file, read_json
from trainspec_validate.system.boundary import reason_of
from trainspec_validate.system.crc32c import crc32c

STORE = "manifest.ocdbt"
_PLACE = struct.Struct("<QQ")
_SUM = struct.Struct("<L")
_ABSENT = (1 << 64) - 1
_MOST_INDEX_BYTES = 64 << 20


class _Packing(NamedTuple):
    """How the chunks of an array are packed."""

    num_inner: int
    """Chunks in each; 0 where it holds no others."""
    is_zstd: bool
    """Whether each, or each of those in it, is a frame of Zstandard."""


def damaged_chunks(root: Path, folder: str, tree: _ocdbt.Tree) -> Iterator[tuple[str, str]]:
    """The files with chunks that are damaged, relative to the checkpoint, and how, in words.

    Args:
        root: directory of the checkpoint.
        folder: directory of the store, relative to the checkpoint.
        tree: its tree, whose nodes and files are there.

    Raises:
        LimitError: settings of an array are larger than the limits.
        UnreadableError: the store changed meanwhile.
    """
    packings, faults = _judged_settings(root, folder, tree)
    yield from faults.items()
    told = set(faults)
    for key, value in _ocdbt.values_of(root, folder, tree.top, _ocdbt.Budget()) if packings else ():
        if isinstance(value, bytes) or key.endswith(_ocdbt.SETTINGS):
            continue
        name = key.rpartition(b"/")[0] + b"/"
        found = packings.get(name) or packings.get(key.partition(b"/c/")[0] + b"/")
        place = _ocdbt.inside(folder, value.file.name)
        if found is None or place is None or place in told:
            continue
        try:
            _check(root / place, value, found)
        except UnreadableError as error:
            told.add(place)
            yield place, str(error)
        except OSError as error:
            told.add(place)
            yield place, f"cannot be read: {reason_of(error)}"


def _content(root: Path, folder: str, value: _ocdbt.Stretch | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    place = _ocdbt.inside(folder, value.file.name)
    if place is None or value.num_bytes > JSON_BYTES.most:
        return b""
    try:
        with open_file(root / place) as file:
            file.seek(value.offset_bytes)
            return file.read(value.num_bytes)
    except OSError:
        return b""


def _judged_settings(root: Path, folder: str, tree: _ocdbt.Tree) -> tuple[dict[bytes, _Packing], dict[str, str]]:
    """How chunks are packed, by what their keys begin with, and why files with settings of arrays are damaged."""
    packings: dict[bytes, _Packing] = {}
    faults: dict[str, str] = {}
    for key, value in tree.settings.items():
        place = _ocdbt.inside(folder, value.file.name if isinstance(value, _ocdbt.Stretch) else STORE)
        data, words = _settings(key, _content(root, folder, value))
        packing = _packing(data) if not words else None
        if words and place is not None:
            shown = key.decode(errors="backslashreplace")[:200]
            faults.setdefault(place, f"has settings of an array in {shown!r}, whose text {words}")
        elif packing is not None:
            packings[key.rpartition(b"/")[0] + b"/"] = packing
    return packings, faults


def _settings(key: bytes, content: bytes) -> tuple[dict[str, Any], str]:
    """The settings of an array, and why TensorStore refuses them, in words that continue a sentence."""
    try:
        data = read_json(content, is_strict=True)
    except LimitError:
        raise
    except UnreadableError as error:
        return {}, str(error)
    return (data if isinstance(data, dict) else {}), fault_of_array(data, is_v2=key.endswith(b"/.zarray"))


def _packing(data: dict[str, Any]) -> _Packing | None:
    """The packing that settings of Zarr state; None where it is not one that is checked."""
    if data.get("zarr_format") == 2:
        return _Packing(0, is_zstd=True) if _is_zstd(data.get("compressor")) and not data.get("filters") else None
    codecs = data.get("codecs")
    if not isinstance(codecs, list) or not codecs or not isinstance(codecs[-1], dict):
        return None
    if _is_zstd(codecs[-1]):
        return _Packing(0, is_zstd=True)
    return _of_shards(data, codecs[0]) if len(codecs) == 1 else None


def _of_shards(data: dict[str, Any], codec: dict[str, Any]) -> _Packing | None:
    """Shards whose index is at their end and has a checksum."""
    settings, grid = codec.get("configuration"), data.get("chunk_grid")
    outer = grid.get("configuration") if isinstance(grid, dict) else None
    if codec.get("name") != "sharding_indexed" or not isinstance(settings, dict) or not isinstance(outer, dict):
        return None
    index = [one.get("name") if isinstance(one, dict) else None for one in settings.get("index_codecs") or ()]
    sizes, inner = outer.get("chunk_shape"), settings.get("chunk_shape")
    if index != ["bytes", "crc32c"] or settings.get("index_location", "end") != "end":
        return None
    if not isinstance(sizes, list) or not isinstance(inner, list) or len(sizes) != len(inner):
        return None
    if not all(type(one) is int and one > 0 for one in (*sizes, *inner)):
        return None
    codecs = settings.get("codecs")
    num_inner = math.prod(-(-size // part) for size, part in zip(sizes, inner, strict=True))
    return _Packing(num_inner, is_zstd=isinstance(codecs, list) and bool(codecs) and _is_zstd(codecs[-1]))


def _is_zstd(codec: Any) -> bool:
    return isinstance(codec, dict) and "zstd" in {codec.get("id"), codec.get("name")}


def _check(path: Path, value: _ocdbt.Stretch, packing: _Packing) -> None:
    if not packing.num_inner:
        check_frame(path, value.offset_bytes, value.num_bytes)
        return
    num_bytes = packing.num_inner * _PLACE.size + _SUM.size
    if num_bytes > _MOST_INDEX_BYTES:
        return
    what = f"has a chunk of {value.num_bytes:,} bytes at byte {value.offset_bytes:,}"
    if num_bytes > value.num_bytes:
        raise UnreadableError(f"{what}, which is shorter than the index of its {packing.num_inner:,} parts")
    with open_file(path) as file:
        file.seek(value.offset_bytes + value.num_bytes - num_bytes)
        content = file.read(num_bytes)
    if len(content) < num_bytes or crc32c(content[: -_SUM.size]) != _SUM.unpack(content[-_SUM.size :])[0]:
        raise UnreadableError(f"{what}, whose index contradicts its checksum")
    for offset, length in _PLACE.iter_unpack(content[: -_SUM.size]):
        if offset == length == _ABSENT:
            continue
        if offset + length > value.num_bytes:
            raise UnreadableError(f"{what}, and its index asks for {offset + length:,}")
        if packing.is_zstd:
            check_frame(path, value.offset_bytes + offset, length)
