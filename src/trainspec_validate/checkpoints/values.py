"""Reads the values of tensors: block by block, and as numbers of no tensor at once."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainspec_validate.checkpoints.boundary import failure
from trainspec_validate.checkpoints.hashing import num_threads
from trainspec_validate.checkpoints.opening import UnreadableError, open_file
from trainspec_validate.checkpoints.pieces import stretch
from trainspec_validate.checkpoints.storages import storages
from trainspec_validate.checkpoints.view import Checkpoint, Piece

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PAGE_BYTES = 4096
_NUM_WAITING = 4_096
"""Pieces in the queue at once."""
_SECOND_MOMENT = re.compile(r"(^|[./])(exp_avg_sq|max_exp_avg_sq|exp_avg_sq_(row|col)|nu|second_moment)($|[./])")
# Width in bytes, the bits of the exponent, and those of the fraction: IEEE 754, and the upper half of it for BF16
_FORMATS = {
    "F64": (8, 0x7FF0000000000000, 0x000FFFFFFFFFFFFF),
    "F32": (4, 0x7F800000, 0x007FFFFF),
    "F16": (2, 0x7C00, 0x03FF),
    "BF16": (2, 0x7F80, 0x007F),
}


@dataclass(slots=True)
class Statistics:
    """What was seen of the values of one tensor, or of a piece of it."""

    piece: Piece
    count: int = 0
    num_nan: int = 0
    num_infinite: int = 0
    num_denormal: int = 0
    num_negative: int = 0
    sum_of_squares: float = 0.0
    """Of the finite ones."""
    zero_bytes: int = 0
    """The longest run of pages, of 4 KiB each, that hold zeros only."""
    error: str = ""
    """Why it could not be read to its end."""
    _run_bytes: int = 0

    @property
    def root_mean_square(self) -> float:
        """Of all values, where those that are not finite count as zero."""
        return sqrt(self.sum_of_squares / self.count) if self.count else 0.0

    @property
    def is_second_moment(self) -> bool:
        """Whether its name is that of a mean of squares, which an optimizer keeps."""
        return _SECOND_MOMENT.search(self.piece.name) is not None

    def add(self, content: memoryview) -> None:
        """Take the next block."""
        import numpy as np  # noqa: PLC0415 - only who asks for values needs it

        width, exponent, fraction = _FORMATS[self.piece.dtype]
        whole = content[: len(content) // width * width]
        bits: NDArray[Any] = np.frombuffer(whole, f"<u{width}")
        exponents = bits & bits.dtype.type(exponent)
        fractions = (bits & bits.dtype.type(fraction)) != 0
        special = exponents == exponent
        self.count += len(bits)
        num_special = int(np.count_nonzero(special))
        self.num_nan += int(np.count_nonzero(special & fractions)) if num_special else 0
        self.num_infinite += int(np.count_nonzero(special & ~fractions)) if num_special else 0
        self.num_denormal += int(np.count_nonzero((exponents == 0) & fractions))
        finite = _numbers(bits, self.piece.dtype)
        finite = np.where(special, finite.dtype.type(0), finite) if num_special else finite
        self.num_negative += int(np.count_nonzero(finite < 0))
        with np.errstate(over="ignore"):
            self.sum_of_squares += float(np.square(finite, dtype=np.float64).sum())
        self._add_zeros(content)

    def _add_zeros(self, content: memoryview) -> None:
        import numpy as np  # noqa: PLC0415

        pages = np.frombuffer(content[: len(content) // _PAGE_BYTES * _PAGE_BYTES], np.uint64)
        held: NDArray[Any] = np.asarray(pages.reshape(-1, _PAGE_BYTES // 8).any(axis=1))
        if not held.any():
            self._run_bytes += len(held) * _PAGE_BYTES
            self.zero_bytes = max(self.zero_bytes, self._run_bytes)
            return
        places = np.flatnonzero(held)
        inner = int(np.diff(places).max(initial=1)) - 1
        first, last = int(places[0]), len(held) - 1 - int(places[-1])
        self.zero_bytes = max(self.zero_bytes, self._run_bytes + first * _PAGE_BYTES, inner * _PAGE_BYTES)
        self._run_bytes = last * _PAGE_BYTES
        self.zero_bytes = max(self.zero_bytes, self._run_bytes)


def _numbers(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The values that the bits stand for, in a type that can compute with them."""
    import numpy as np  # noqa: PLC0415

    if dtype == "BF16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.view(f"<f{bits.dtype.itemsize}")


def statistics(checkpoint: Checkpoint) -> list[Statistics]:
    """What the values of every tensor are like that can be read without its framework; each is read once."""
    if checkpoint.statistics is None:
        pieces = [piece for piece in chain(checkpoint.pieces, storages(checkpoint)) if piece.dtype in _FORMATS]
        found: list[Statistics] = []
        with ThreadPoolExecutor(num_threads()) as pool:
            for start in range(0, len(pieces), _NUM_WAITING):
                part = pieces[start : start + _NUM_WAITING]
                found += pool.map(lambda piece: _read(checkpoint.root, piece), part)
        checkpoint.statistics = found
    return checkpoint.statistics


def _read(root: Path, piece: Piece) -> Statistics:
    found = Statistics(piece)
    try:
        with open_file(root / piece.path) as file:
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
