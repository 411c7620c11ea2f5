"""Finds a model that is there twice, in one file and in the shards of an index, where loaders take one or the other.

Transformers loads `model.safetensors` before it looks for an index, and Diffusers looks for the index first. Source:
https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/modeling_utils.py,
`_get_resolved_checkpoint_files`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from trainspec_validate.checkpoints.opening import UnreadableError, open_file
from trainspec_validate.checkpoints.progress import progress_of
from trainspec_validate.checkpoints.statistics import Piece
from trainspec_validate.checkpoints.view import Archive, Checkpoint
from trainspec_validate.checkpoints.zips import opened

_INDEX = re.compile(
    r"^(?P<stem>.+)\.(?P<end>safetensors|bin|h5|msgpack)\.index(?:\.(?P<variant>[\w-]{1,40}))?\.json$", re.ASCII
)
_VALUES = re.compile(r"(?:^|/)data/[0-9]+$", re.ASCII)
_COMPARED_BYTES = 4_096
"""Of each tensor, at its start and at its end: a step of training changes all of them."""


def whole_of(index: str) -> str:
    """Name of the one file that a model has where it is not in shards; empty for what is no index.

    >>> whole_of("unet/diffusion_pytorch_model.safetensors.index.fp16.json"), whole_of("tokenizer.json")
    ('unet/diffusion_pytorch_model.fp16.safetensors', '')
    """
    match = _INDEX.match(index)
    return (
        ""
        if match is None
        else f"{match['stem']}{'.' if match['variant'] else ''}{match['variant'] or ''}.{match['end']}"
    )


def tell_double(checkpoint: Checkpoint, index: str, shards: Mapping[str, Collection[str]]) -> None:
    """Report one file with tensors that an index names in other files too, unless their values agree.

    Args:
        checkpoint: its safetensors files are read.
        index: the index.
        shards: tensors that it names, by the paths of their files.
    """
    whole = whole_of(index)
    if whole not in checkpoint.files or whole in shards:
        return
    is_other = _of_torch if whole.endswith(".bin") else _of_safetensors
    if num_twice := is_other(checkpoint, whole, shards):
        are = "s are" if num_twice > 1 else " is"
        words = f"{num_twice:,} tensor{are} also in files that {index} names, with other values"
        remedy = "remove the one of both that is left from another save: some loaders take the one, and some the other"
        checkpoint.report("tiling", whole, f"{words}, so what is loaded depends on the loader", remedy)


def _of_safetensors(checkpoint: Checkpoint, whole: str, shards: Mapping[str, Collection[str]]) -> int:
    """How many tensors differ."""
    own = {piece.name: piece for piece in checkpoint.pieces if piece.path == whole}
    pairs = [
        (own[piece.name], piece)
        for piece in checkpoint.pieces
        if piece.name in own and piece.name in shards.get(piece.path, ())
    ]
    return sum(_sample(checkpoint, one) != _sample(checkpoint, other) for one, other in pairs)


def _sample(checkpoint: Checkpoint, piece: Piece) -> tuple[str, int, bytes]:
    with open_file(checkpoint.root / piece.path) as file:
        file.seek(piece.offset)
        start = file.read(min(_COMPARED_BYTES, piece.num_bytes))
        file.seek(piece.offset + max(0, piece.num_bytes - _COMPARED_BYTES))
        return piece.dtype, piece.num_bytes, start + file.read(min(_COMPARED_BYTES, piece.num_bytes))


def _of_torch(checkpoint: Checkpoint, whole: str, shards: Mapping[str, Collection[str]]) -> int:
    """How many tensors have the same names, where the checksums of the values do not all agree."""
    found = progress_of(checkpoint.root / whole)
    named = {name for names in shards.values() for name in names}
    twice = len(named & found.tensors) if found else 0
    values = [_sums(checkpoint, path) for path in (whole, *shards)] if twice else []
    are_known = bool(values) and all(one is not None for one in values)
    return 0 if are_known and set().union(*filter(None, values[1:])) <= (values[0] or set()) else twice


def _sums(checkpoint: Checkpoint, path: str) -> set[tuple[int, int]] | None:
    """Bytes and checksums of the values in a container; None where there are none, or it cannot be read."""
    try:
        with opened(checkpoint.root / path, Archive(path)) as container:
            sums = container.sums()
    except (OSError, UnreadableError):
        return None
    return None if sums is None else {one for name, one in sums.items() if _VALUES.search(name)}
