"""Reads the values of tensors: block by block, and as numbers of no tensor at once."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from trainspec_validate.checkpoints.boundary import failure
from trainspec_validate.checkpoints.opening import UnreadableError, open_file
from trainspec_validate.checkpoints.pieces import stretch
from trainspec_validate.checkpoints.statistics import FORMATS, Piece, Statistics
from trainspec_validate.checkpoints.storages import storages
from trainspec_validate.checkpoints.view import Checkpoint
from trainspec_validate.system import threads
from trainspec_validate.system.process import memory_of_the_machine

_NUM_WAITING = 4_096
"""Pieces in the queue at once."""


def statistics(checkpoint: Checkpoint) -> list[Statistics]:
    """Statistics of the values of every tensor that can be read without its framework; each is read once."""
    if checkpoint.statistics is None:
        pieces = [piece for piece in chain(checkpoint.pieces, storages(checkpoint)) if piece.dtype in FORMATS]
        found: list[Statistics] = []
        with threads.pool(threads.num_threads()) as pool:
            for start in range(0, len(pieces), _NUM_WAITING):
                part = pieces[start : start + _NUM_WAITING]
                found += pool.map(lambda piece: _read(checkpoint.root, piece), part)
        checkpoint.statistics = found
    return checkpoint.statistics


def _read(root: Path, piece: Piece) -> Statistics:
    found = Statistics(piece)
    try:
        with memory_of_the_machine(), open_file(root / piece.path) as file:
            for block in stretch(file, piece.offset, piece.num_bytes):
                found.add(block)
    except UnreadableError as error:
        found.error = str(error)
    except Exception as error:
        found.error = failure(error)[1]
    return found


def share_read(checkpoint: Checkpoint) -> str:
    """How much of a checkpoint was read as values, in words."""
    read = [one for one in statistics(checkpoint) if not one.error]
    num_bytes = sum(one.piece.num_bytes for one in read)
    whole = sum(fact.size_bytes for fact in checkpoint.files.values())
    return f"values of {len(read):,} tensor{'' if len(read) == 1 else 's'} read, {num_bytes:,} of {whole:,} bytes"
