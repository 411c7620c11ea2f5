"""Groups files of one directory into checkpoints, by the common part of their names."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from trainspec_validate.checkpoints.content import is_of_torch
from trainspec_validate.checkpoints.opening import open_file
from trainspec_validate.checkpoints.tables import FOOTER_BYTES, MAGIC

INDEX = ".index"
GRAPH = ".meta"
STAGING = "_temp"
"""Name, after the prefix, of the directory that TensorFlow gathers shards in."""
_DATA = re.compile(r"^(?P<prefix>.+)\.data-(?P<number>[0-9]{5})-of-(?P<total>[0-9]{5})$")
_STEP = re.compile(r"(?:^|[-_.])(?P<step>[0-9]{1,12})(?:\.ckpt)?$")
_METRIC = re.compile(r"(?:^|[^0-9.])[0-9]+\.[0-9]+(?:\.ckpt)?$", re.ASCII)
"""A metric at the end of a name, such as `val_loss=0.32`."""
_LIGHTNING = re.compile(r"(?:^|[-_])step=(?P<step>[0-9]{1,12})(?:-v[0-9]+)?\.ckpt$")
"""Lightning writes one file a save: https://lightning.ai/docs/pytorch/stable/common/checkpointing_basic.html"""
_LIGHTNING_LAST = re.compile(r"^last(?:-v[0-9]+)?\.ckpt$")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_LIGHTNING_SUFFIX = ".ckpt"
_LIGHTNING_KEY = b"pytorch-lightning_version"
"""Third key of a state of Lightning, in the first entry of its container."""
_START_BYTES = 4_096
_KERAS_KEY = b"keras_version"
_SETTINGS_BYTES = 1_048_576
_WORD = r"^(?:.*[-_.])?(?P<word>checkpoint|ckpt|epoch|global_?step|iter|iteration|save|step)[-_=]?(?P<step>[0-9]{1,12})"
_SAVE = re.compile(
    rf"{_WORD}(?:\.pt|\.pth|\.pth\.tar|\.ckpt|\.safetensors|\.keras|(?:\.weights)?\.h5|\.hdf5)$",
    re.IGNORECASE,
)
"""A file that is one save: a word of saves with a number, which parts and ranks of one save do not have."""
_SAVE_OTHERWISE = re.compile(rf"{_WORD}(?:\.(?!bin$)[a-z]\w{{0,9}})?$", re.IGNORECASE)
"""The same under any other end of a name, where the file begins as one of `torch.save`."""
_OF_A_SAVE = re.compile(
    r"(?:^|[-_.])(?:checkpoint|ckpt|epoch|iter(?:ation)?|model|net(?:work)?|snapshot|state|step|weights"
    r"|best|final|last|latest)(?=[-_.=0-9]|$)|^[0-9]{1,12}(?=\.|$)",
    re.IGNORECASE,
)
_KERAS = re.compile(
    r"^(?:(?:model|weights)[-_.]?|.*[-_.])(?P<step>[0-9]{1,12})(?:[-_][0-9]+\.[0-9]+)?"
    r"(?:\.keras|(?:\.weights)?\.h5|\.hdf5)$"
)
"""ModelCheckpoint of Keras: https://keras.io/api/callbacks/model_checkpoint/"""


def shard_name(prefix: str, number: int, total: int) -> str:
    """The name of a file with values."""
    return f"{prefix}.data-{number:05}-of-{total:05}"


def prefix_of(name: str) -> str:
    """Prefix that the file of a bundle shares with the others of it; empty for any other name."""
    match = _DATA.match(name)
    return match["prefix"] if match else name.removesuffix(INDEX) if name.endswith(INDEX) else ""


def is_data(name: str) -> bool:
    """Whether a file holds values of a bundle, by its name."""
    return _DATA.match(name) is not None


def step_of(prefix: str) -> int | None:
    """The number at the end of a prefix, such as 10 of `ckpt-10`, `step_10.pt` and `epoch=1-step=10.ckpt`."""
    match = _LIGHTNING.search(prefix) or _SAVE.match(prefix) or _KERAS.match(prefix) or _SAVE_OTHERWISE.match(prefix)
    if match is None and not _METRIC.search(prefix):
        match = _STEP.search(prefix)
    return int(match["step"]) if match else None


def counts_saves(prefix: str) -> bool:
    """Whether the number in a name counts epochs or saves, and not optimizer steps."""
    match = None if _LIGHTNING.search(prefix) else _SAVE.match(prefix) or _SAVE_OTHERWISE.match(prefix)
    return _KERAS.match(prefix) is not None or (match is not None and match["word"].lower() in {"epoch", "save"})


def form_of(prefix: str) -> str:
    """A name without its numbers: saves of one series have the same.

    >>> form_of("epoch=1-step=10.ckpt") == form_of("epoch=2-step=20.ckpt") != form_of("last.ckpt")
    True
    """
    return _NUMBER.sub("#", prefix)


def prefixes(files: Iterable[os.DirEntry[str]]) -> list[str]:
    """The bundles among files: with values, with an index alone, of one file with its graph, or of one file."""
    paths = {entry.name: Path(entry.path) for entry in files}
    found = {prefix_of(name) for name in paths if is_data(name)}
    found |= {prefix_of(name) for name, path in paths.items() if name.endswith(INDEX) and is_table(path)}
    graphs = {name.removesuffix(GRAPH) for name in paths if name.endswith(GRAPH)}
    found |= {name for name in graphs.intersection(paths) - found if is_table(paths[name])}
    found |= {name for name in paths if _SAVE.match(name) or (_KERAS.match(name) and _is_of_keras(paths[name]))}
    found |= _saves_otherwise(paths)
    if any(_LIGHTNING.search(name) for name in paths):
        found |= {name for name in paths if _LIGHTNING.search(name) or _LIGHTNING_LAST.match(name)}
    states = states_of_lightning(paths)
    return sorted(found | states if len(states) > 1 else found)


def _saves_otherwise(paths: Mapping[str, Path]) -> set[str]:
    """Saves under further ends of names; one of a series need not show what it is, as it may be damaged."""
    named = {name for name in paths if _SAVE_OTHERWISE.match(name) and not _SAVE.match(name)}
    forms = {form_of(name) for name in named if is_of_torch(paths[name])}
    return {name for name in named if form_of(name) in forms}


def is_of_a_save(path: Path) -> bool:
    """Whether a file begins as one of `torch.save`, and its name is that of a save: others save data sets so."""
    return _OF_A_SAVE.search(path.name) is not None and is_of_torch(path)


def states_of_lightning(paths: Mapping[str, Path]) -> set[str]:
    """The files that Lightning wrote, by their content: each of them is a whole state, whatever its name is."""
    return {name for name, path in paths.items() if name.endswith(_LIGHTNING_SUFFIX) and _is_of_lightning(path)}


def _is_of_lightning(path: Path) -> bool:
    try:
        with open_file(path) as file:
            return _LIGHTNING_KEY in file.read(_START_BYTES)
    except OSError:
        return False


def _is_of_keras(path: Path) -> bool:
    """Whether a file has a name that only Keras gives, or an attribute of its models: others save data in HDF5 too."""
    if path.name.endswith((".keras", ".weights.h5")) or path.name.startswith(("model", "weights")):
        return True
    try:
        with open_file(path) as file:
            start = file.read(_SETTINGS_BYTES)
            file.seek(max(len(start), path.stat().st_size - _SETTINGS_BYTES))
            return _KERAS_KEY in start or _KERAS_KEY in file.read(_SETTINGS_BYTES)
    except OSError:
        return False


def is_table(path: Path) -> bool:
    """Whether a file ends as an index of TensorFlow does."""
    try:
        with open_file(path) as file:
            file.seek(-FOOTER_BYTES, os.SEEK_END)
            return file.read(FOOTER_BYTES).endswith(MAGIC)
    except OSError:
        return False


def part_of(name: str, known: Container[str]) -> str:
    """The bundle, of those that are known, that a file is a part of; empty where it is a part of none."""
    found = (prefix_of(name), name, name.removesuffix(GRAPH))
    return next((prefix for prefix in found if prefix and prefix in known), "")
