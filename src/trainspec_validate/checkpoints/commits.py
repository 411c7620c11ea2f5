"""The save that a pointer of a program names as complete, and its effect on the checkpoints next to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from trainspec_validate.checkpoints.candidates import Candidate
from trainspec_validate.checkpoints.inventory import Group
from trainspec_validate.checkpoints.limits import POINTER_BYTES, UnreadableError
from trainspec_validate.checkpoints.opening import read_small
from trainspec_validate.checkpoints.pointers import TRACKER, pointers, unreached
from trainspec_validate.checkpoints.view import Checkpoint, Pointer

_COMMITTED_BY = frozenset({"latest", TRACKER, "dlrover_latest.txt"})  # written once a save is complete
_TRACKERS = ("latest.txt", "last_checkpoint")


def committed(group: Group, candidates: Sequence[Candidate]) -> tuple[Pointer, int] | None:
    """The pointer that is moved when a save is complete, and the step that it names."""
    if group.members == [group.root]:
        return None
    bare = [Checkpoint(one.root, one.root.as_posix(), one.step, {}) for one in candidates]
    for pointer in pointers(group.root, bare):
        step = pointer.target.step if pointer.target and not pointer.problem else None
        if step is not None and Path(pointer.name).name in _COMMITTED_BY:
            return pointer, step
    return None


def tracked(group: Group, one: Candidate, candidates: Sequence[Candidate]) -> Iterator[str]:
    """Files by which nanotron, MMEngine and Detectron2 find the newest checkpoint, that name another one."""
    for name in _TRACKERS:
        path = group.root / name
        try:
            text = read_small(path, POINTER_BYTES).decode("utf-8").strip() if path.is_file() else ""
        except (UnreadableError, UnicodeDecodeError):
            continue
        named = text.rpartition("/")[2]
        if named and named != one.root.name and any(named == other.root.name for other in candidates):
            yield f"{path.as_posix()}: names {named}, from which its program resumes until it is changed"


def dangling(group: Group, candidates: Sequence[Candidate]) -> Iterator[str]:
    """Pointers that name no checkpoint or cannot be read, on which their programs fail."""
    if group.members != [group.root]:
        bare = [Checkpoint(one.root, one.root.as_posix(), one.step, {}) for one in candidates]
        for pointer in pointers(group.root, bare):
            if Path(pointer.name).name not in _COMMITTED_BY:
                continue
            if pointer.problem:
                yield f"{pointer.name}: {pointer.problem}, so it names no checkpoint"
            elif pointer.target is None:
                yield f"{pointer.name}: names {pointer.content!r}, and there is no such checkpoint"


def uncommitted(checkpoint: Checkpoint, one: Candidate, committed: tuple[Pointer, int] | None) -> Iterator[str]:
    """A checkpoint without a mark of its own is committed when the pointer of its program reaches it.

    Megatron-LM reads its pointer in any case, so a newer checkpoint is none that it resumes from.
    """
    if committed is None or one.step is None:
        return
    pointer, step = committed
    if one.step > step and Path(pointer.name).name == TRACKER:
        yield f"{checkpoint.name}: {unreached(pointer, step)}"
    elif one.step > step and not checkpoint.marks and not checkpoint.manifest:
        yield f"{checkpoint.name}: {pointer.name} names step {step:,}, so this save was not completed"


def passed(one: Candidate, committed: tuple[Pointer, int] | None) -> Iterator[str]:
    """The pointer of a program that names a newer checkpoint, from which the program resumes by itself."""
    if committed is not None and one.step is not None and one.step < committed[1]:
        yield f"{committed[0].name}: names step {committed[1]:,}, from which its program resumes until it is changed"
