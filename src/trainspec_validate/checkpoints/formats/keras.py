"""Reads files of Keras: archives of a model, and containers of HDF5, without its library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from trainspec_validate.checkpoints.boundary import judged
from trainspec_validate.checkpoints.limits import JSON_BYTES
from trainspec_validate.checkpoints.opening import open_file, read_json
from trainspec_validate.checkpoints.view import Archive, Aspect, Checkpoint
from trainspec_validate.checkpoints.zips import Zip, opened
from trainspec_validate.system.boundary import reason_of

_ARCHIVE = ".keras"
_WEIGHTS = (".h5", ".hdf5")
_BROKEN = "restore the file from another copy"
_SETTINGS = ("config.json", "metadata.json")
_VALUES = re.compile(r"^model\.weights(?:\.h5|\.json|_\d+\.h5)$")
# https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html, "Disk Format: Level 0A - Format Signature"
SIGNATURE = b"\x89HDF\r\n\x1a\n"
_SUPERBLOCK_BYTES = 128
_OLD, _NEW = (0, 1), (2, 3)
_LAMBDA = "__lambda__"


def read(checkpoint: Checkpoint) -> None:
    """Add what archives of models and containers of weights say."""
    for path, fact in checkpoint.files.items():
        if fact.kind != "file":
            continue
        if path.endswith(_ARCHIVE):
            _name(checkpoint, "Keras archive")
            with judged(checkpoint, path, "the archive"):
                _read_archive(checkpoint, path)
        elif path.endswith(_WEIGHTS):
            _name(checkpoint, "Keras weights in HDF5" if path.endswith(".weights.h5") else "HDF5")
            with judged(checkpoint, path):
                _read_weights(checkpoint, path)


def _name(checkpoint: Checkpoint, name: str) -> None:
    checkpoint.examined |= {"container", "limits", "files"}
    if name not in checkpoint.formats:
        checkpoint.formats.append(name)


def _read_archive(checkpoint: Checkpoint, path: str) -> None:
    """An archive holds settings, and weights in a container of HDF5."""
    checkpoint.examined |= {"code", "paths"}
    with opened(checkpoint.root / path, Archive(path)) as archive:
        for entry, why in archive.unsafe_names():
            checkpoint.report("paths", path, f"the entry {entry!r} {why}", "do not unpack this archive")
        _read_entries(checkpoint, path, archive)
    checkpoint.keep(Archive(path))


def _read_entries(checkpoint: Checkpoint, path: str, archive: Zip) -> None:
    names = set(archive.names())
    for absent in [name for name in _SETTINGS if name not in names]:
        checkpoint.report("container", path, f"the archive has no {absent}", _BROKEN)
    if not any(_VALUES.match(name) for name in names):
        checkpoint.report("container", path, "the archive has no weights", _BROKEN)
    for name in names.intersection(_SETTINGS):
        settings = read_json(archive.read(name, int(JSON_BYTES.most)))
        if any(_LAMBDA in held for held in _class_names(settings)):
            words = "loading it would run the code of a Lambda layer"
            help_text = "write the layer as a class of its own, which is registered where it is loaded"
            checkpoint.report("code", path, words, help_text)
    for name in sorted(name for name in names if _VALUES.match(name) and name.endswith(_WEIGHTS)):
        with archive.entry(name) as values:
            words = _fault(values, archive.size(name))
        if words:
            checkpoint.report("container", path, f"{name} in the archive {words}", _BROKEN)


def _class_names(value: Any) -> Iterator[str]:
    """What settings call the classes of layers, functions and objects."""
    level = [value]
    while level:
        held = level.pop()
        if isinstance(held, dict):
            if isinstance(held.get("class_name"), str):
                yield held["class_name"]
            level += held.values()
        elif isinstance(held, list):
            level += held


def _read_weights(checkpoint: Checkpoint, path: str) -> None:
    try:
        with open_file(checkpoint.root / path) as file:
            words = _fault(file, checkpoint.files[path].size_bytes)
    except OSError as error:
        words = f"cannot be read: {reason_of(error)}"
    if words:
        aspect: Aspect = "files" if words.startswith("has") else "container"
        checkpoint.report(aspect, path, f"the file {words}", _BROKEN)


def _fault(file: BinaryIO, size: int) -> str:
    """What keeps a container from being whole, as far as its first bytes say; empty where nothing does."""
    start = file.read(_SUPERBLOCK_BYTES)
    if not start.startswith(SIGNATURE):
        return "is no container of HDF5: it does not begin as one"
    version = start[8] if len(start) > 8 else None
    if version in _OLD:
        width, place = start[13] if len(start) > 13 else 0, 24 + 4 * version
    elif version in _NEW:
        width, place = start[9] if len(start) > 9 else 0, 12
    else:
        return f"is a container of HDF5 of the unknown version {version}"
    # Addresses of the base, of free space or of the extension, and of the end of the file.
    if width not in {2, 4, 8} or len(start) < place + 3 * width:
        return "is a container of HDF5 whose first block is cut or damaged"
    end = int.from_bytes(start[place + 2 * width : place + 3 * width], "little")
    return f"has {size:,} bytes, and its first block asks for {end:,}" if size < end else ""
