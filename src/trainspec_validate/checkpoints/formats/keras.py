"""Reads files of Keras: archives of a model, and containers of HDF5, without its library."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from trainspec_validate.checkpoints.boundary import judged
from trainspec_validate.checkpoints.formats._hdf5 import Walk
from trainspec_validate.checkpoints.functions import runs_by_name, runs_when_called
from trainspec_validate.checkpoints.limits import JSON_BYTES
from trainspec_validate.checkpoints.opening import open_file, read_json, read_small
from trainspec_validate.checkpoints.view import Archive, Aspect, Checkpoint
from trainspec_validate.checkpoints.zips import Zip, opened
from trainspec_validate.system.boundary import reason_of

_ARCHIVE = ".keras"
_WEIGHTS = (".h5", ".hdf5")
_BROKEN = "restore the file from another copy"
_SETTINGS = ("config.json", "metadata.json")
_VALUES = re.compile(r"^model\.weights(?:\.h5|\.json|_[0-9]+\.h5)$")
# https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html, "Disk Format: Level 0A - Format Signature"
SIGNATURE = b"\x89HDF\r\n\x1a\n"
_SUPERBLOCK_BYTES = 128
_OLD, _NEW = (0, 1), (2, 3)
_LAMBDA = "__lambda__"
_SIGNS = (re.compile(rb"model_config"), re.compile(rb"\"class_name\":\s{0,9}\"Lambda\"|\\u00[2-7]"))
"""The name of the settings of a whole model, and a Lambda layer; its letters may be written as numbers."""
_SIGN_BYTES = 64
_BLOCK_BYTES = 1_048_576
_OWN = frozenset({"keras", "keras_core", "keras_cv", "keras_hub", "keras_nlp", "keras_tuner", "tensorflow", "tf_keras"})
_LOADING = frozenset({"TorchModuleWrapper", "TFSMLayer"})
"""Layers that unpickle a module of PyTorch from their settings (CVE-2025-1550), or load a graph of TensorFlow."""
_OF_NUMBERS = frozenset(
    {"activations", "constraints", "initializers", "losses", "math", "metrics", "nn", "ops", "random", "regularizers"}
    | {"nn_ops", "gen_nn_ops", "math_ops", "numpy"}
)
"""Modules of Keras and TensorFlow whose functions take and make numbers; others download, load and write files."""
_HELP_LAMBDA = "write the layer as a class of its own, which is registered where it is loaded"


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
        elif path.rpartition("/")[2] == _SETTINGS[0] and _is_unpacked(checkpoint, path):
            with judged(checkpoint, path):
                _note(checkpoint, path, runs(read_json(read_small(checkpoint.root / path))))


def _is_unpacked(checkpoint: Checkpoint, path: str) -> bool:
    """Whether settings are those of an archive that was not packed, which `load_model` takes as well."""
    folder = path.removesuffix(_SETTINGS[0])
    return f"{folder}{_SETTINGS[1]}" in checkpoint.files


def _note(checkpoint: Checkpoint, path: str, found: Iterable[str]) -> None:
    for words in found:
        checkpoint.note_functions(path, [words])
        checkpoint.report("code", path, f"loading it would run {words}", _HELP_LAMBDA)


def programs_in(archive: Zip) -> Iterator[str]:
    """Code that the settings of a model have a loader run, in a container under any name."""
    if set(_SETTINGS) <= set(archive.names()):
        yield from runs(read_json(archive.read(_SETTINGS[0], int(JSON_BYTES.most))))


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
        _note(checkpoint, path, runs(read_json(archive.read(name, int(JSON_BYTES.most)))))
    for name in sorted(name for name in names if _VALUES.match(name) and name.endswith(_WEIGHTS)):
        with archive.entry(name) as values:
            words = _fault(values, archive.size(name))
        if words:
            checkpoint.report("container", path, f"{name} in the archive {words}", _BROKEN)


def runs(settings: Any) -> Iterator[str]:
    """Code that settings of a model have a loader run: that of Lambda layers, and functions of other programs by name.

    An object has its module and class, and a function the class `function` and its name in place of settings:
    https://github.com/keras-team/keras/blob/v3.8.0/keras/src/saving/serialization_lib.py.
    """
    found: dict[str, None] = {}
    level = [settings]
    while level:
        held = level.pop()
        if isinstance(held, dict):
            level += held.values()
            name, module = held.get("class_name"), held.get("module")
            if name == "function" and isinstance(held.get("config"), str):
                name = held["config"]
            if isinstance(name, str) and _LAMBDA in name:
                found["the code of a Lambda layer"] = None
            elif isinstance(name, str) and isinstance(module, str) and _is_of_others(module, name):
                found[f"{module}.{name}"] = None
        elif isinstance(held, list):
            level += held
    yield from found


def _is_of_others(module: str, name: str) -> bool:
    if module == "builtins":  # also of functions that a program registers, under any name
        return hasattr(builtins, name) and runs_by_name(module, name)
    if module.partition(".")[0] not in _OWN:
        return runs_by_name(module, name) or runs_when_called(module, name)
    return name in _LOADING or (name[:1].islower() and _OF_NUMBERS.isdisjoint(module.split(".")))


def _read_weights(checkpoint: Checkpoint, path: str) -> None:
    try:
        with open_file(checkpoint.root / path) as file:
            size = checkpoint.files[path].size_bytes
            words = _fault(file, size)
            if not words:
                _follow(file, size)
    except OSError as error:
        words = f"cannot be read: {reason_of(error)}"
    if words:
        aspect: Aspect = "files" if words.startswith("has") else "container"
        checkpoint.report(aspect, path, f"the file {words}", _BROKEN)
    else:
        note_lambda(checkpoint, path)


def note_lambda(checkpoint: Checkpoint, path: str) -> None:
    """Note the code of a model in a container of HDF5, which Keras 2 loads under any name."""
    if _has_lambda(checkpoint, path):
        _note(checkpoint, path, ["the code of a Lambda layer"])


def _has_lambda(checkpoint: Checkpoint, path: str) -> bool:
    """Whether a container of HDF5 holds a model with a Lambda layer, as its settings are stored in one text."""
    signs = dict.fromkeys(_SIGNS, False)
    held = b""
    with open_file(checkpoint.root / path) as file:
        while block := file.read(_BLOCK_BYTES):
            held = held[-_SIGN_BYTES:] + block
            for sign, is_seen in signs.items():
                signs[sign] = is_seen or sign.search(held) is not None
    return all(signs.values())


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
    if size < end:
        return f"has {size:,} bytes, and its first block asks for {end:,}"
    return ""


def _follow(file: BinaryIO, size: int) -> None:
    """Follow what a first block that is whole leads to.

    Raises:
        LimitError: it leads to more than the limits.
        OSError: it cannot be read.
        UnreadableError: something that it leads to is not there.
    """
    file.seek(0)
    start = file.read(_SUPERBLOCK_BYTES)
    place = 24 + 4 * start[8] if start[8] in _OLD else 12
    is_old = start[8] in _OLD
    widths = (start[13], start[14]) if is_old else (start[9], start[10])
    width = widths[0]
    base = int.from_bytes(start[place : place + width], "little")
    place += (5 if is_old else 3) * width  # an entry of a group has a name before its address
    Walk(file, size, widths, base).follow(int.from_bytes(start[place : place + width], "little"))
