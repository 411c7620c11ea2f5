"""Says whether a path that a command is to write is a file of its input, by whatever name it is given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from trainspec_validate.pipeline.detect import detect, search
from trainspec_validate.pipeline.files import File
from trainspec_validate.system.atomic import is_any_of, is_standard_input
from trainspec_validate.system.boundary import InputError


def is_input(output: str | Path, named: Iterable[str | Path]) -> bool:
    """Whether an output is one of the files that a command line names, or is read as standard input."""
    return is_any_of(output, named) or is_standard_input(output)


def is_found(output: str | Path, searched: Sequence[str | Path]) -> bool:
    """Whether an output is a file that is found and judged in the paths, or a place in a checkpoint among them.

    An earlier report in a directory is no input; a new file in the directory of a checkpoint would change it.
    """
    if not (os.path.lexists(output) or is_inside(output, searched)):
        return False
    found = search(tuple(map(str, searched)))
    if any(file.found and is_any_of(output, [file.path]) and _is_judged(file) for file in found.files):
        return True
    places = {os.path.realpath(member) for group in found.checkpoints for member in group.members}
    real = Path(os.path.realpath(output))
    return any(str(place) in places for place in (real, *real.parents))


def is_inside(output: str | Path, directories: Iterable[str | Path]) -> bool:
    """Whether an output is in one of some directories."""
    above = set(Path(os.path.realpath(output)).parents)
    return any(Path(os.path.realpath(directory)) in above for directory in directories)


def _is_judged(file: File) -> bool:
    """Whether a file that was found is input, or cannot be looked at."""
    try:
        return detect(file).kind != "other"
    except InputError:
        return True
