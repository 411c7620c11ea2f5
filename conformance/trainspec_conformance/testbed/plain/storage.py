"""Writes and reads the files of a plain checkpoint: arrays by name, divided over ranks."""

from __future__ import annotations

import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from trainspec_reference.common.backend import CheckpointUnreadableError

Array = npt.NDArray[Any]
_FILE = re.compile(r"state-(\d+)-of-(\d+)\.npz")


@dataclass(frozen=True, slots=True)
class PlainSnapshot:
    """The arrays that one rank writes."""

    rank: int
    num_ranks: int
    arrays: dict[str, Any]

    def write(self, directory: Path) -> None:
        """Write the file of this rank; it is durable when the call returns."""
        path = directory / f"state-{self.rank}-of-{self.num_ranks}.npz"
        with path.open("wb") as file:
            np.savez(file, **self.arrays)
            file.flush()
            os.fsync(file.fileno())


def read(directory: Path) -> dict[str, Array]:
    """Arrays of all ranks that wrote the checkpoint.

    Raises:
        CheckpointUnreadableError: a file is missing or damaged.
    """
    names = {path.name: path for path in sorted(directory.glob("state-*-of-*.npz"))}
    matches = [match for name in names if (match := _FILE.fullmatch(name))]
    if not matches:
        raise CheckpointUnreadableError(f"{directory} holds no state-*-of-*.npz")
    num_ranks = int(matches[0][2])
    found: dict[str, Array] = {}
    for rank in range(num_ranks):
        path = directory / f"state-{rank}-of-{num_ranks}.npz"
        try:
            with np.load(path, allow_pickle=False) as arrays:
                found.update({name: arrays[name] for name in arrays.files})
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise CheckpointUnreadableError(f"{path} cannot be read: {error}") from error
    return found
