"""Recognizes files that hold the state of training by their first bytes, whatever their names are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from trainspec_validate.system.boundary import open_regular

_START_BYTES: Final = 512
_TEXTS: Final = frozenset(
    {
        *(
            ".c",
            ".cc",
            ".cfg",
            ".conf",
            ".cpp",
            ".css",
            ".csv",
            ".cu",
            ".cuh",
            ".go",
            ".h",
            ".hpp",
            ".html",
            ".ini",
            ".ipynb",
        ),
        *(
            ".java",
            ".jpeg",
            ".jpg",
            ".js",
            ".json",
            ".jsonl",
            ".lock",
            ".log",
            ".md",
            ".mdx",
            ".pdf",
            ".png",
            ".proto",
            ".py",
        ),
        *(
            ".pyc",
            ".pyi",
            ".rs",
            ".rst",
            ".sh",
            ".so",
            ".svg",
            ".tex",
            ".toml",
            ".ts",
            ".tsv",
            ".txt",
            ".xml",
            ".yaml",
            ".yml",
        ),
    }
)
"""Ends of names of texts and of what is shown, which no loader of state opens."""
_ZIP: Final = b"PK\x03\x04"
_ZIP_NAME: Final = 30
"""Bytes of a local header before the name of its entry."""
_IN_ZIP: Final = re.compile(
    rb"(?:[^/\x00]+/)?(?:data\.pkl|\.format_version|byteorder|version|constants\.pkl|[^/\x00]+\.npy)$"
)
_PICKLE: Final = re.compile(
    rb"\x80(?:[\x02\x03][\x8a}\](cKGUX)NMJ.q\x88\x89\x8b\x8f\x86-]|[\x04\x05]\x95.{6}\x00\x00)", re.DOTALL
)
_OLD_PICKLE: Final = re.compile(
    rb"(?:c[A-Za-z_][\w.]{0,99}\n[A-Za-z_][\w.]{0,99}\n[(p]|\((?:[dl]p?\d+\n|[dl]p\d*\n|c[A-Za-z_][\w.]{0,99}\n[A-Za-z_]\w*\n))"
)
"""Protocol 0: the name of a class, a dictionary or a list."""
_ARCHIVE, _PICKLED = "a zip container of state", "a pickle"
JUDGED: Final = frozenset({_ARCHIVE, _PICKLED})
"""What is judged under any name."""
_STARTS: Final = (
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"\x93NUMPY", "an array of NumPy"),
    (b"GGUF", "GGUF"),
    ((0x112).to_bytes(8, "little"), "a file of parameters of MXNet"),
)
_SAFETENSORS = "safetensors"
UNJUDGED: Final = (_SAFETENSORS, *(words for _, words in _STARTS))
"""What is judged under the names of its format only, or by no reader."""


def may_hold_state(name: str) -> bool:
    """Whether the start of a file of this name is worth a look.

    >>> [may_hold_state(name) for name in ("epoch.th", "model", "train.py")]
    [True, True, False]
    """
    return Path(name.lower()).suffix not in _TEXTS


def kind_of(path: Path) -> str:
    """What a file of state is, in words; empty for anything else and for what cannot be read."""
    try:
        with open_regular(path) as file:
            return kind_of_start(file.read(_START_BYTES), path.stat().st_size)
    except OSError:
        return ""


def kind_of_start(start: bytes, size_bytes: int) -> str:
    """What a file of state is that has so many bytes and begins so, in words; empty for anything else."""
    if start.startswith(_ZIP):
        length = int.from_bytes(start[26:28], "little")
        return _ARCHIVE if _IN_ZIP.match(start[_ZIP_NAME : _ZIP_NAME + length]) else ""
    if _PICKLE.match(start) or _OLD_PICKLE.match(start):
        return _PICKLED
    length = int.from_bytes(start[:8], "little")
    if start[8:10] == b'{"' and length + 8 <= size_bytes:
        return _SAFETENSORS
    return next((words for begin, words in _STARTS if start.startswith(begin)), "")
