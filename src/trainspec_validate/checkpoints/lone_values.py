"""Distinguishes files of one tensor, number or text, such as the data of a test, from files of state."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, BinaryIO, Final

from trainspec_validate.checkpoints.opening import UnreadableError, open_file
from trainspec_validate.checkpoints.pickle_content import Content
from trainspec_validate.checkpoints.pickle_values import Inert, Name, Pairs
from trainspec_validate.checkpoints.pickles import follow
from trainspec_validate.checkpoints.save_names import is_counted
from trainspec_validate.checkpoints.view import Archive
from trainspec_validate.checkpoints.zips import opened

_ZIP_START: Final = b"PK"
_STATE: Final = re.compile(
    r"(?:^|[-_])(?:args|best|checkpoint|ckpt|ema|final|last|latest|model|net(?:work)?|optim(?:izer)?|params|scheduler|states?|weights)"
    r"(?:[-_]?[0-9]{1,12})?(?:[-_]of[-_][0-9]{1,12})?$",
    re.IGNORECASE,
)
_LEGACY_MAGIC: Final = 0x1950A86A20F9469CFC6C
NOTHING: Final = "no tensor and no mapping"
_OTHERS: Final = 2
"""Pickles between the magic number of an old file and its state."""
_OF_NUMPY: Final = {"scalar": "a number alone", "_reconstruct": "an array alone"}
_PLAIN: Final = (int, float, complex, str, bytes)
_TENSORS: Final = ("_rebuild_tensor", "_rebuild_parameter", "_rebuild_sparse_tensor", "_rebuild_qtensor")


def is_lone(path: Path) -> bool:
    """Whether a file holds one value, and its name neither counts steps nor ends with the word of a state."""
    is_named = _STATE.search(path.name.partition(".")[0]) is not None or is_counted(path.name)
    return not is_named and lone_value(path) != ""


def lone_value(path: Path) -> str:
    """The one value of a file of `torch.save` or a pickle, in words; empty for a state, for code and for damage."""
    try:
        with open_file(path) as file:
            start = file.read(len(_ZIP_START))
            file.seek(0)
            content = _of_archive(path) if start == _ZIP_START else _of_pickles(file)
    except (OSError, UnreadableError):
        return ""
    return words_of(content) if content is not None else ""


def words_of(content: Content) -> str:
    """The one value of a pickle, in words; empty for a state, for code and for damage."""
    is_sound = not (content.denied or content.functions or content.misfits.number)
    return _words(content.value) if is_sound else ""


def _of_archive(path: Path) -> Content | None:
    with opened(path, Archive(path.name)) as container:
        for name in container.pickles()[:1]:
            with container.stream(name) as file:
                return follow(file)
    return None


def _of_pickles(file: BinaryIO) -> Content:
    content = follow(file)
    if content.value == _LEGACY_MAGIC:
        for _ in range(_OTHERS):
            follow(file)
        return follow(file)
    return content


def _words(value: Any) -> str:
    if isinstance(value, Inert):
        name = value.function.name if isinstance(value.function, Name) else ""
        return "a tensor alone" if name.startswith(_TENSORS) else _OF_NUMPY.get(name, "")
    is_empty = isinstance(value, Pairs) and not value.pairs
    return NOTHING if is_empty or _is_plain(value) else ""


def _is_plain(value: Any) -> bool:
    """Whether a value is nothing, a number or a text, or lists of such alone, one in the other.

    Lists that are shared are looked at once: nested a hundred times, one list can stand for more values than there is
    time for.
    """
    pending, seen = [value], set[int]()
    while pending:
        one = pending.pop()
        if isinstance(one, list | tuple):
            if id(one) not in seen:
                seen.add(id(one))
                pending += one
        elif one is not None and not isinstance(one, _PLAIN):
            return False
    return True
