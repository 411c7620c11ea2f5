"""Reads the small files that name the newest checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainspec_validate.checkpoints.inventory import POINTERS
from trainspec_validate.checkpoints.limits import POINTER_BYTES, STATE_BYTES
from trainspec_validate.checkpoints.opening import UnreadableError, read_small
from trainspec_validate.checkpoints.view import Checkpoint, Pointer
from trainspec_validate.system.digits import is_digits

TENSORFLOW = "checkpoint"
TRACKER = "latest_checkpointed_iteration.txt"
"""Pointer of Megatron-LM, which it opens in any case and no other checkpoint than the one that it names:
https://github.com/NVIDIA/Megatron-LM/blob/d98e8a64dd/megatron/training/checkpointing.py, _load_base_checkpoint."""
# Message CheckpointState as text: tensorflow/python/training/checkpoint_state.proto
_FIELD = re.compile(r"""^\s*(?P<key>\w+)\s*:\s*(?:(?P<quote>["'])(?P<text>(?:[^"'\\]|\\.)*)(?P=quote)|[-+.\w]+)\s*$""")
_NEWEST = "model_checkpoint_path"
_ESCAPED = re.compile(r"\\(.)")


def pointers(root: Path, checkpoints: Sequence[Checkpoint]) -> Iterator[Pointer]:
    """Every pointer in a directory of checkpoints."""
    for name in sorted(POINTERS):
        path = root / name
        if path.is_symlink() or not path.is_file():
            continue
        try:
            text = read_small(path, POINTER_BYTES).decode("ascii").strip()
        except UnreadableError as error:
            yield Pointer(path.as_posix(), "", None, str(error))
            continue
        except UnicodeDecodeError:
            yield Pointer(path.as_posix(), "", None, "holds other characters than ASCII")
            continue
        yield Pointer(path.as_posix(), text, _target(text, checkpoints), _fault(text))
    if any(one.is_bundle for one in checkpoints):
        yield from _of_tensorflow(root / TENSORFLOW, checkpoints)


def _of_tensorflow(path: Path, checkpoints: Sequence[Checkpoint]) -> Iterator[Pointer]:
    """The file of several lines that TensorFlow keeps beside its checkpoints."""
    if path.is_symlink() or not path.is_file():
        return
    try:
        text = newest(read_small(path, STATE_BYTES))
    except UnreadableError as error:
        yield Pointer(path.as_posix(), "", None, str(error))
        return
    own = Path(text)
    is_beside = not own.is_absolute() or _is_one(own.parent, path.parent)
    yield Pointer(path.as_posix(), text, _target(own.name, checkpoints) if is_beside else None)


def _is_one(one: Path, other: Path) -> bool:
    try:
        return one.resolve() == other.resolve()
    except (OSError, RuntimeError, ValueError):  # a circle of links, or a null character
        return False


def newest(content: bytes) -> str:
    """The checkpoint that a file `checkpoint` of TensorFlow names.

    Raises:
        UnreadableError: it names none, or holds a line that is no field.
    """
    named = ""
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
        field = _FIELD.match(line)
        if field is None and line.strip() and not line.lstrip().startswith("#"):
            raise UnreadableError(f"holds a line {number} that is no field with a value")
        if field is not None and field["key"] == _NEWEST:
            named = _ESCAPED.sub(r"\1", field["text"] or "")
    if not named:
        raise UnreadableError(f"has no {_NEWEST}" if content.strip() else "is empty")
    return named


def _fault(text: str) -> str:
    if not text:
        return "is empty"
    return "holds more than one word" if len(text.split()) > 1 else ""


def _target(text: str, checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """By the name of the directory, or by its step where the pointer is a number."""
    named = [one for one in checkpoints if one.label == text]
    stepped = [one for one in checkpoints if is_digits(text) and len(text) < 13 and one.step == int(text)]
    return next(iter(named or stepped), None)


def unreached(pointer: Pointer, step: int) -> str:
    """Why Megatron-LM does not resume from a checkpoint that is newer than the one that its pointer names, in words."""
    return f"{pointer.name} names step {step:,}, from which Megatron-LM resumes, and not from this newer one"


def note_unreached(checkpoints: Sequence[Checkpoint], found: Sequence[Pointer]) -> None:
    """Note at checkpoints that the pointer of Megatron-LM does not reach that it does not."""
    for pointer in found:
        step = pointer.target.step if pointer.target and not pointer.problem else None
        if step is not None and Path(pointer.name).name == TRACKER:
            for one in checkpoints:
                if one.step is not None and one.step > step and one.formats:
                    one.doubts[""] = (
                        f"is not resumed from: {unreached(pointer, step)}",
                        "write its step into the pointer",
                    )
