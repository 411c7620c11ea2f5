"""Compares eight bytes of a text at once, and reads their digits.

The first byte of a text is the lowest of its word.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BYTES = 8
_LOW = np.array([(1 << 8 * num) - 1 for num in range(BYTES)], np.uint64)
_ZEROS = np.uint64(0x3030303030303030)
_OVER = np.uint64(0x7676767676767676)
_TOPS = np.uint64(0x8080808080808080)
_ONES = np.uint64(0x0101010101010101)
_ONE, _TWO, _SIXTEEN, _LAST, _HALF = np.uint64(1), np.uint64(8), np.uint64(16), np.uint64(56), np.uint64(32)
_TEN, _PAIRS = np.uint64(10), np.uint64(0x000000FF000000FF)
_UPPER, _LOWER = np.uint64(100 + (1_000_000 << 32)), np.uint64(1 + (10_000 << 32))


def view(text: Any) -> Any:
    """The eight bytes from each place on as a number; a text of n bytes has n - 7 of them, which overlap."""
    return np.ndarray((len(text) - BYTES + 1,), np.uint64, buffer=text, strides=(1,))


view.only_python = True  # type: ignore[attr-defined]


def is_same(words: Any, begin: int, others: Any, start: int, length: int) -> bool:
    """Whether two texts have the same bytes; both must have eight more behind them."""
    while length >= BYTES:
        if words[begin] != others[start]:
            return False
        begin += BYTES
        start += BYTES
        length -= BYTES
    return bool((words[begin] ^ others[start]) & _LOW[length] == 0)


def digits_of(word: Any) -> Any:
    """How many of eight bytes are digits before the first that is none, and the number that these are.

    Source: D. Lemire, Number parsing at a gigabyte per second, Software: Practice and Experience 51 (2021), section 4.
    """
    word ^= _ZEROS
    others = ((word + _OVER) | word) & _TOPS
    if others == 0:
        num: Any = np.int64(BYTES)
    else:
        below = ((others & (~others + _ONE)) - _ONE) & _ONES
        num = np.int64((below * _ONES) >> _LAST) - 1
        if num == 0:
            return num, np.int64(0)
        word <<= np.uint64(8 * (BYTES - num))
    word = word * _TEN + (word >> _TWO)
    value = ((word & _PAIRS) * _UPPER + ((word >> _SIXTEEN) & _PAIRS) * _LOWER) >> _HALF
    return num, np.int64(value)
