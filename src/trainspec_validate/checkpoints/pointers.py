"""The only place that reads the small files that name the newest checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from trainspec_validate.checkpoints.inventory import POINTERS
from trainspec_validate.checkpoints.opening import UnreadableError, read_small
from trainspec_validate.checkpoints.view import Checkpoint, Pointer

_MAX_BYTES = 1024


def pointers(root: Path, checkpoints: Sequence[Checkpoint]) -> Iterator[Pointer]:
    """Every pointer in a directory of checkpoints."""
    for name in sorted(POINTERS):
        path = root / name
        if path.is_symlink() or not path.is_file():
            continue
        try:
            text = read_small(path, _MAX_BYTES).decode("ascii").strip()
        except UnreadableError as error:
            yield Pointer(path.as_posix(), "", None, str(error))
            continue
        except UnicodeDecodeError:
            yield Pointer(path.as_posix(), "", None, "holds other characters than ASCII")
            continue
        yield Pointer(path.as_posix(), text, _target(text, checkpoints), _fault(text))


def _fault(text: str) -> str:
    if not text:
        return "is empty"
    return "holds more than one word" if len(text.split()) > 1 else ""


def _target(text: str, checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """By the name of the directory, or by its step where the pointer is a number."""
    named = [one for one in checkpoints if one.root.name == text]
    stepped = [one for one in checkpoints if text.isdigit() and len(text) < 13 and one.step == int(text)]
    return next(iter(named or stepped), None)
