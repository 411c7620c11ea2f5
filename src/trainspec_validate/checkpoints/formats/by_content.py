"""Recognises formats by content where names show none: loaders unpickle a file under any name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import BinaryIO

from trainspec_validate.checkpoints.boundary import judged
from trainspec_validate.checkpoints.containers import unnamed_state, unread_container
from trainspec_validate.checkpoints.content import (
    JUDGED,
    PICKLED,
    STATE_SUFFIXES,
    TAR,
    is_blank,
    is_of_a_container,
    kind_of_start,
    may_hold_state,
)
from trainspec_validate.checkpoints.format_table import ARCHIVE, FORMATS, left_out
from trainspec_validate.checkpoints.formats import keras, torch_zip
from trainspec_validate.checkpoints.formats.dcp import MARK
from trainspec_validate.checkpoints.opening import UnreadableError, open_file
from trainspec_validate.checkpoints.pickle_code import code_of, lack_of_array
from trainspec_validate.checkpoints.pickle_content import Content
from trainspec_validate.checkpoints.pickles import NUMPY_START
from trainspec_validate.checkpoints.programs import name_programs
from trainspec_validate.checkpoints.unpacked import is_damaged, is_packed, unpacked
from trainspec_validate.checkpoints.view import Archive, Checkpoint
from trainspec_validate.system.boundary import reason_of
from trainspec_validate.system.packings import PACKINGS, is_archive
from trainspec_validate.system.repository import TOOLS

_OF_OTHERS = tuple(suffix for entry in FORMATS for suffix in entry.whole)
"""Ends of names whose reader judges the whole file, and says so when it is none of its own."""
_OF_A_RANK = re.compile(r"[^/]\.metadata$")
"""An index of one rank, which PyTorch DCP unpickles where ranks do not gather theirs."""
_ZIP_START = b"PK\x03\x04"
_NEVER_CHANCE = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")
"""Starts of Zstandard and LZ4."""
_COMPRESSED = (
    *(b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\x00", b"\x5d\x00\x00", b"\x04\x22\x4d\x18"),
    *(b"x\x01", b"x\x9c", b"x\xda"),
)
"""Starts of gzip, Zstandard, bzip2, xz, LZMA, LZ4 and zlib."""
_PACKED = "is compressed, and its content is looked into for code alone"
_DAMAGED = "is compressed, and its data are cut or damaged"
_PACKED_OTHERWISE = "is compressed, and its content is not looked into"
_NOT_UNPACKED = "what is in a file of LZ4, or of Zstandard where zstandard is not installed"
_ARRAY_NAMES = frozenset({".zarray", "zarr.json", "manifest.ocdbt", "attributes.json"})
"""Of files next to or above the compressed chunks of an array, which no loader unpickles."""
_GRAPH = "the graph of a SavedModel of TensorFlow"
_MOST_LAYERS = 4
_OF_NO_FORMAT = "has the name of a file of state, and is of no format that is judged"
_EMPTY = "has the name of a file of state, and is empty"
_TAR_NAME = re.compile(r"(?<!\.pth)\.tar(?:\.\w{1,4})?$|\.t(?:gz|bz2?|xz|zst)$")
"""Of archives that PyTorch is not given; it unpickles what is in any other: torch/serialization.py, legacy_load."""
_BLANK = "holds zero bytes alone, which an interrupted write or a full disk leaves, and no state"
_HDF5_START = b"\x89HDF"
_START_BYTES = 512
_NOT_FOLLOWED = "what follows in its pickle, which is not read"


def read(checkpoint: Checkpoint) -> None:
    """Add what zip containers and pickles hold that no other reader takes; it comes after all of them."""
    taken = {archive.path for archive in checkpoint.archives}
    for path, fact in checkpoint.files.items():
        is_of_others = path.endswith(_OF_OTHERS) and not _OF_A_RANK.search(path)
        if fact.kind == "file" and path not in taken and not is_of_others:
            with judged(checkpoint, path):
                _read_file(checkpoint, path)
        elif fact.kind == "file" and is_of_others and path.rpartition("/")[2] != MARK:
            with judged(checkpoint, path), open_file(checkpoint.root / path) as file:
                code = code_of(file)  # it may be a pickle as well
                if code.denied or code.limit:
                    torch_zip.tell_code(checkpoint, path, code)
    name_programs(checkpoint)


def _read_file(checkpoint: Checkpoint, path: str) -> None:
    is_named = torch_zip.is_known(checkpoint, path)
    try:
        with open_file(checkpoint.root / path) as file:
            start = file.read(_START_BYTES)
            kind = kind_of_start(start, checkpoint.files[path].size_bytes)
            if start.startswith(_ZIP_START) or start[:2] in torch_zip.PICKLE_STARTS:
                code = Content(None, [])
            else:
                code = _code(checkpoint, path, file, start)
            is_zeroed = not start[:1].strip(b"\0") and is_blank(file, path) and not _is_known(checkpoint, path)
    except OSError as error:
        if is_named:
            return  # told by its reader
        raise UnreadableError(f"cannot be read: {reason_of(error)}") from error
    if kind in JUDGED and not is_named:
        checkpoint.formats.append(kind)
    if is_zeroed:
        raise UnreadableError(_BLANK)
    if code.denied or code.limit or code.damage:
        torch_zip.tell_code(checkpoint, path, code)
        checkpoint.note_functions(path, _not_followed(code))
        checkpoint.unread |= {path: _packed(start)} if start.startswith(_COMPRESSED) else {}
    elif not is_named and start.startswith(_ZIP_START):
        checkpoint.examined |= {"container", "limits", "code", "paths"}
        torch_zip.read_archive(checkpoint, Archive(path), lambda _, __: None)
        if words := unnamed_state(checkpoint.root / path):
            checkpoint.unread[path] = words
    elif not is_named and start[:2] in torch_zip.PICKLE_STARTS:
        checkpoint.examined |= {"container", "limits", "code"}
        torch_zip.read_bare(checkpoint, path)
    elif not is_named and kind == PICKLED:
        checkpoint.examined.add("code")  # followed above: it has no protocol that says where it ends
    elif not start.startswith(_ZIP_START) and start[:2] not in torch_zip.PICKLE_STARTS:
        _name(checkpoint, path, start, kind)


def _not_followed(code: Content) -> Sequence[str]:
    """What a loader may read in a pickle behind the place where it is no pickle, such as an array of joblib."""
    is_followed = code.is_whole or code.limit or code.damage or not code.denied
    return () if is_followed else (_NOT_FOLLOWED,)


def _code(checkpoint: Checkpoint, path: str, file: BinaryIO, start: bytes) -> Content:
    """The code of a file, unpacked where it is compressed, once or several times."""
    outer = None
    for _ in range(_MOST_LAYERS):
        inner = unpacked(file, start)
        if inner is None:
            break
        outer = outer or inner
        file, start = inner, inner.read(_START_BYTES)
        if start.startswith(_ZIP_START):
            checkpoint.note_functions(path, ["the pickles of a zip container that is compressed once more"])
    else:
        checkpoint.note_functions(path, [f"what is compressed more than {_MOST_LAYERS - 1} times"])
    file.seek(0)
    code = code_of(file)
    if outer is not None and is_damaged(outer) and not _is_of_data(checkpoint, path):
        checkpoint.report("container", path, _DAMAGED)
    return code


def is_unloadable(path: str, why: str) -> bool:
    """Whether no loader takes a file of a checkpoint that is left out for a reason."""
    return why == _EMPTY or (why == _OF_NO_FORMAT and is_of_a_container(path))


def _is_known(checkpoint: Checkpoint, path: str) -> bool:
    """Whether a reader before this one has said what is in a file, or what is wrong with it."""
    return path in {*(trouble.path for trouble in checkpoint.troubles), *(piece.path for piece in checkpoint.pieces)}


def _name(checkpoint: Checkpoint, path: str, start: bytes, kind: str) -> None:
    """Say of a file that no reader judges that it is left out, where a loader may unpickle it."""
    if _is_of_a_tool(checkpoint, path) or _is_known(checkpoint, path) or path in checkpoint.unread:
        return
    size_bytes = checkpoint.files[path].size_bytes
    if kind == TAR and not _TAR_NAME.search(path.lower()):
        checkpoint.note_functions(path, ["the pickles of a tar archive, which are not read"])
    if start.startswith(NUMPY_START):
        with open_file(checkpoint.root / path) as file:
            if words := lack_of_array(file, size_bytes):
                raise UnreadableError(words)
        return
    if start.startswith(_HDF5_START):
        keras.note_lambda(checkpoint, path)
        return
    if path.endswith("saved_model.pb"):
        checkpoint.note_functions(path, [_GRAPH])
    if start.startswith(_COMPRESSED):
        checkpoint.unread[path] = unread_container(path) or _packed(start)
        if start.startswith(_NEVER_CHANCE) and not is_packed(start) and not _is_of_data(checkpoint, path):
            checkpoint.note_functions(path, [_NOT_UNPACKED])
    elif path.lower().endswith(STATE_SUFFIXES):
        checkpoint.unread[path] = _EMPTY if not size_bytes else unread_container(path) or _OF_NO_FORMAT
    elif left_out(path) == ARCHIVE or kind == TAR:
        checkpoint.unread[path] = ARCHIVE


def _is_of_data(checkpoint: Checkpoint, path: str) -> bool:
    """Whether a compressed file is a text, an archive or a chunk of an array, by its name and place."""
    name = path.lower()
    plain = next((name.removesuffix(end) for end in PACKINGS if name.endswith(end)), name)
    folders = [path.rpartition("/")[0]]
    while folders[-1]:
        folders.append(folders[-1].rpartition("/")[0])
    places = (f"{folder}/{one}" if folder else one for folder in folders for one in _ARRAY_NAMES)
    return not may_hold_state(plain) or is_archive(name) or any(place in checkpoint.tree for place in places)


def _packed(start: bytes) -> str:
    return _PACKED if is_packed(start) else _PACKED_OTHERWISE


def _is_of_a_tool(checkpoint: Checkpoint, path: str) -> bool:
    """Whether a file is in a directory of version control, such as the objects of Git, which are compressed."""
    parts = path.split("/")
    places = ("/".join([*parts[: n + 1], TOOLS[part]]) for n, part in enumerate(parts[:-1]) if part in TOOLS)
    return any(place in checkpoint.tree or place in checkpoint.tree_folders for place in places)
