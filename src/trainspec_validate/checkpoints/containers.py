"""Names the containers of state that no reader opens, by the ends of names of their files."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from trainspec_validate.checkpoints.content import JUDGED, STATE_SUFFIXES, kind_of, may_hold_state
from trainspec_validate.checkpoints.format_table import is_bare
from trainspec_validate.checkpoints.limits import ENTRIES
from trainspec_validate.system.boundary import open_regular
from trainspec_validate.system.budget import Count, OverLimitError

_DIRECTORY_BYTES: Final = 65_536
_ENTRY: Final = re.compile(rb"PK\x01\x02.{42}([\w./-]{1,100}\.(?:pth|pt|ckpt|pkl|safetensors))", re.DOTALL)
"""An entry of state in the directory at the end of a zip container, as Stable-Baselines3 writes it.

Those before the last may be of a container in the container.
"""
_STABLE_BASELINES: Final = b"_stable_baselines3_version"
"""Entry next to `data`, in which `load` unpickles rates and classes whatever it is asked for:
https://github.com/DLR-RM/stable-baselines3/blob/v2.3.2/stable_baselines3/common/save_util.py, json_to_data"""
_MESSAGE: Final = re.compile(rb"[\x81-\x8f][\xa1-\xbf\xd9]|[\xde\xdf]\x00")
"""A mapping with a text as its first key, as Flax saves state under a name without an end."""
_CONTAINERS: Final = {
    ".pt2": "torch.export",
    ".onnx": "ONNX",
    ".gguf": "GGUF",
    ".ggml": "GGML",
    ".tflite": "TensorFlow Lite",
    ".engine": "TensorRT",
    ".mar": "TorchServe",
    ".nemo": "NeMo",
    ".msgpack": "MessagePack",
    "saved_model.pb": "TensorFlow SavedModel",
}


def unread_container(name: str) -> str:
    """Why a file with the name of such a container is not judged; empty for any other name.

    >>> unread_container("model.Q4.GGUF"), unread_container("model.pt")
    ('is a GGUF container, which is not read', '')
    """
    kind = next((kind for end, kind in _CONTAINERS.items() if name.lower().endswith(end)), "")
    return f"is {'an' if kind[:1] == 'O' else 'a'} {kind} container, which is not read" if kind else ""


def is_of_arrays(name: str) -> bool:
    """Whether a file has the name of arrays of NumPy, one or several.

    >>> is_of_arrays("step_3.npz"), is_of_arrays("step_3.pt")
    (True, False)
    """
    return name.lower().endswith((".npy", ".npz"))


def unnamed_state(path: Path) -> str:
    """Why a file of state under a name that others use too is not judged: archives of state, and MessagePack."""
    is_archive = path.name.lower().endswith(".zip")
    if not is_archive and not is_bare(path.name):
        return ""
    try:
        with open_regular(path) as file:
            start = file.read(2)
            if is_archive:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _DIRECTORY_BYTES))
                directory = file.read(_DIRECTORY_BYTES) if start == b"PK" else b""
                if _STABLE_BASELINES in directory:
                    return "is of Stable-Baselines3, whose loader runs the functions that its settings hold as pickles"
                found = _ENTRY.findall(directory)
                return f"is an archive with {found[-1].decode()}, and its files are not looked at" if found else ""
    except OSError:
        return ""
    return "is a MessagePack container, which is not read" if _MESSAGE.match(start) else ""


def unread_state(directory: Path, members: Collection[Path]) -> Iterator[tuple[Path, str]]:
    """Files of state in no checkpoint that was found, by their name or start, and why nothing judges them."""
    held = {os.path.realpath(member) for member in members}
    entries = Count(ENTRIES)
    try:
        for folder, folders, names in os.walk(directory):
            entries.add(len(folders) + len(names))
            folders[:] = sorted(name for name in folders if os.path.realpath(Path(folder, name)) not in held)
            for name in sorted(names):
                if (words := unnamed_state(Path(folder, name))) and os.path.realpath(folder) not in held:
                    yield Path(folder, name), words
                elif name.lower().endswith(STATE_SUFFIXES) and os.path.realpath(folder) not in held:
                    words = (
                        unread_container(name) or "has the name of a file of state, and is of no format that is read"
                    )
                    yield Path(folder, name), words
                elif os.path.realpath(folder) not in held and (words := _unnamed(Path(folder, name))):
                    yield Path(folder, name), words
    except OverLimitError:
        return  # the search for checkpoints says so


def _unnamed(path: Path) -> str:
    kind = kind_of(path) if may_hold_state(path.name) else ""
    words = f"is {kind} under a name that is not one of a checkpoint, so it is not compared"
    return f"{words}; rename it, such as to step_10.pt" if kind in JUDGED else ""
