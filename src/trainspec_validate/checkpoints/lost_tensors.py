"""Compares the tensors of a checkpoint with those of the checkpoints before it, where the files are all there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from trainspec_validate.checkpoints.lacking import NUM_COMPARED, Saved, is_of_a_series
from trainspec_validate.checkpoints.progress import progress_of
from trainspec_validate.checkpoints.view import Checkpoint

_OF_TORCH = (".pt", ".pth", ".pth.tar", ".ckpt", ".bin")
_NUM_FILES = 64
"""Files of `torch.save` in one checkpoint whose tensors are listed."""
_DIGITS = re.compile(r"[0-9]+")
_SHOWN = 3
Tensors = Mapping[str, str]
"""Size and type of each tensor by its name, as far as the format says them."""


def lost_tensors(checkpoint: Checkpoint, older: Sequence[Checkpoint]) -> Iterator[str]:
    """That tensors of both checkpoints before are gone, and none came for them; in words.

    A run that adds, renames or replaces tensors has others in their place. Where it drops a part for good, such as
    adapters that are merged or an average of the weights, the lost names have a word in common that no other has.
    """
    own, before = _compared(checkpoint, older)
    if not before:
        return
    lost = [name for name in before[0] if name not in own and all(name in other for other in before)]
    if lost and own and own.keys() <= before[0].keys() and not _is_a_part(lost, own):
        shown = ", ".join(repr(name) for name in sorted(lost)[:_SHOWN]) + (", …" if len(lost) > _SHOWN else "")
        words = f"it has {len(own):,} of the {len(before[0]):,} tensors of {older[0].label}"
        yield f"{words}, and no others: {shown} {'are' if len(lost) > 1 else 'is'} missing"


def changed_tensors(checkpoint: Checkpoint, older: Sequence[Checkpoint]) -> Iterator[tuple[str, str]]:
    """That tensors are gone or have another size or type than in both checkpoints before; the place, and words."""
    own, before = _compared(checkpoint, older)
    if not before:
        return
    same = {name: form for name, form in before[0].items() if all(other.get(name) == form for other in before)}
    lost = [name for name in same if name not in own]
    if lost and own:
        yield "", f"{len(lost):,} tensors of {older[0].label} are not in it, such as {lost[0]!r}"
    changed = [name for name, form in same.items() if name in own and own[name] != form]
    if changed:
        name = changed[0]
        more = f", and {len(changed) - 1:,} more differ" if len(changed) > 1 else ""
        yield "", f"tensor {name!r} has {own[name]}, and in {older[0].label} {same[name]}{more}"


def _compared(checkpoint: Checkpoint, older: Sequence[Checkpoint]) -> tuple[Tensors, list[Tensors]]:
    """The tensors of a checkpoint, and of those before it; none where these are too few or of another run."""
    alike = [one for one in older if is_of_a_series(checkpoint, _place(one))]
    if checkpoint.manifest is not None or len(alike) < NUM_COMPARED:
        return {}, []
    return _tensors(checkpoint), [_tensors(one) for one in alike[:NUM_COMPARED]]


def _place(one: Checkpoint) -> Saved:
    return (one.root / one.bundle, list(one.files)) if one.is_bundle else (one.root, None)


def _tensors(checkpoint: Checkpoint) -> Tensors:
    found = dict.fromkeys(checkpoint.keys, "")
    for piece in checkpoint.pieces:
        if piece.dtype and piece.path.endswith(".safetensors"):
            folder = piece.path.rpartition("/")[0]
            found[f"{folder}/{piece.name}" if folder else piece.name] = f"{piece.num_bytes:,} bytes of {piece.dtype}"
            if folder:
                found.pop(piece.name, None)
    paths = [path for path in checkpoint.files if path.lower().endswith(_OF_TORCH)]
    for path in paths if len(paths) <= _NUM_FILES else ():
        progress = progress_of(checkpoint.root / path)
        folder = path.rpartition("/")[0]
        shapes = progress.shapes if progress is not None else ()
        found |= {f"{folder}/{name}" if folder else name: f"the shape {shape}" for name, shape in shapes}
    return found


def _is_a_part(lost: Sequence[str], own: Tensors) -> bool:
    """Whether the lost names share a word that none of the others has."""
    held = {word for name in own for word in _words(name)}
    return not set.intersection(*map(_words, lost)) <= held


def _words(name: str) -> set[str]:
    """The parts of a name, without its numbers."""
    return {_DIGITS.sub("#", word) for word in re.split(r"[./]", name)}
