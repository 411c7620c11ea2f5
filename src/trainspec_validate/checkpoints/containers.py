"""Names the containers of state that no reader opens, by the ends of names of their files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from trainspec_validate.checkpoints.content import STATE_SUFFIXES
from trainspec_validate.checkpoints.limits import ENTRIES
from trainspec_validate.system.budget import Count, OverLimitError

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


def unread_state(directory: Path, members: Collection[Path]) -> Iterator[tuple[Path, str]]:
    """Files with the name of a file of state in no checkpoint that was found, and why nothing judges them."""
    held = {os.path.realpath(member) for member in members}
    entries = Count(ENTRIES)
    try:
        for folder, folders, names in os.walk(directory):
            entries.add(len(folders) + len(names))
            folders[:] = sorted(name for name in folders if os.path.realpath(Path(folder, name)) not in held)
            for name in sorted(names):
                if name.lower().endswith(STATE_SUFFIXES) and os.path.realpath(folder) not in held:
                    words = (
                        unread_container(name) or "has the name of a file of state, and is of no format that is read"
                    )
                    yield Path(folder, name), words
    except OverLimitError:
        return  # the search for checkpoints says so
