"""Describes where the values of a tensor are, and gathers what their bits show."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PAGE_BYTES = 4096
_SECOND_MOMENT = re.compile(r"(^|[./])(exp_avg_sq|max_exp_avg_sq|exp_avg_sq_(row|col)|nu|second_moment)($|[./])")
# Width in bytes, the bits of the exponent, and those of the fraction: IEEE 754, and the upper half of it for BF16
FORMATS = {
    "F64": (8, 0x7FF0000000000000, 0x000FFFFFFFFFFFFF),
    "F32": (4, 0x7F800000, 0x007FFFFF),
    "F16": (2, 0x7C00, 0x03FF),
    "BF16": (2, 0x7F80, 0x007F),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One stretch of a file that holds the values of a tensor."""

    path: str
    name: str
    """Of the tensor."""
    offset: int
    num_bytes: int
    crc32c: int | None = None
    """The checksum that the format records, where it records one."""
    dtype: str = ""
    """`F64`, `F32`, `F16` or `BF16`, lowest byte first; empty where the values are no floats, or not known to be."""
    num_texts: int | None = None
    """How many texts the stretch holds, where it holds texts behind their lengths."""


@dataclass(slots=True)
class Statistics:
    """Statistics of the values of one tensor, or of a piece of it."""

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

        width, exponent, fraction = FORMATS[self.piece.dtype]
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
