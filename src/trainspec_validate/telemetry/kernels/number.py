"""Reads a JSON number out of bytes, exactly as the float that is nearest to it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trainspec_validate.telemetry.kernels.words import BYTES, digits_of

MOST_DIGITS = 18
"""Digits of a number without its exponent; zeros before the others do not count."""
_WHOLE = np.array([10**power for power in range(BYTES + 1)], np.int64)
_ROOM = np.array([10 ** (MOST_DIGITS - power) for power in range(BYTES + 1)], np.int64)
_LOWEST, _HIGHEST = -65, 65
_TEN = np.array([10.0**power for power in range(23)])
_EXACT = 1 << 53


def _fives() -> tuple[Any, Any]:
    """The 128 leading bits of the powers of five, upper and lower half.

    Source: D. Lemire, Number parsing at a gigabyte per second, Software: Practice and Experience 51 (2021), section 5.
    """
    values = []
    for power in range(_LOWEST, _HIGHEST + 1):
        five = 5 ** abs(power)
        if power < 0:
            length = (five - 1).bit_length()
            value = (1 << (length + 127 if power >= -27 else 2 * length + 128)) // five + 1
            while value >= 1 << 128:
                value //= 2
        else:
            value = five << max(0, 128 - five.bit_length())
            value >>= max(0, value.bit_length() - 128)
        values.append(value)
    upper = np.array([value >> 64 for value in values], np.uint64)
    return upper, np.array([value & (1 << 64) - 1 for value in values], np.uint64)


_UPPER, _LOWER = _fives()


def product(one: Any, other: Any) -> Any:
    """Upper and lower 64 bits of the product of two unsigned numbers."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a, b, c, d = one >> half, one & low, other >> half, other & low
    bottom, left, right = b * d, a * d, b * c
    middle = (bottom >> half) + (left & low) + (right & low)
    upper = a * c + (left >> half) + (right >> half) + (middle >> half)
    return upper, (middle << half) | (bottom & low)


def rounded(digits: int, power: int) -> float:
    """The float nearest to digits times ten to a power, both beyond the exact range; not a number where it is not sure.

    Source: the algorithm of Eisel and Lemire in the paper above.
    """
    one = np.uint64(1)
    word = np.uint64(digits)
    zeros = 0
    while word >> np.uint64(63) == np.uint64(0):
        word <<= one
        zeros += 1
    upper, lower = product(word, _UPPER[power - _LOWEST])
    if upper & np.uint64(0x1FF) == np.uint64(0x1FF):
        more, _ = product(word, _LOWER[power - _LOWEST])
        lower += more
        if lower < more:
            upper += one
    if lower == np.uint64(0xFFFFFFFFFFFFFFFF) and (power < -27 or power > 55):
        return math.nan
    top = upper >> np.uint64(63)
    shift = top + np.uint64(9)
    mantissa = upper >> shift
    if lower <= one and -4 <= power <= 23 and mantissa & np.uint64(3) == one and mantissa << shift == upper:
        mantissa -= one
    mantissa = (mantissa + (mantissa & one)) >> one
    exponent: Any = ((217_706 * power) >> 16) + 63 + np.int64(top) - zeros
    return math.ldexp(float(mantissa), exponent - 52)


def value_of(digits: int, power: int) -> float:
    """The float nearest to digits times ten to a power; not a number where another reader has to say."""
    if digits == 0:
        return 0.0
    if digits < _EXACT and -22 <= power <= 22:
        exact: float = digits * _TEN[power] if power >= 0 else digits / _TEN[-power]
        return exact
    if _LOWEST <= power <= _HIGHEST:
        return rounded(digits, power)
    return math.nan


def read_number(text: Any, words: Any, place: int) -> Any:
    """A number and the place after it; the place is -1 for what is no number or not sure to be one.

    `words` are the words of `text`.
    """
    negative = text[place] == 45
    if negative:
        place += 1
    begin = place
    digits, place = read_digits(words, place, np.int64(0))
    if place < 0 or place == begin or (place > begin + 1 and text[begin] == 48):
        return 0.0, -1
    power = 0
    if text[place] == 46:
        begin = place + 1
        digits, place = read_digits(words, begin, digits)
        if place <= begin:
            return 0.0, -1
        power = begin - place
    if text[place] == 101 or text[place] == 69:
        exponent, place = read_exponent(text, place + 1)
        if place < 0:
            return 0.0, -1
        power += exponent
    value = value_of(digits, power)
    if math.isnan(value) or (negative and value == 0.0):  # -0 is a whole number and -0.0 is none: not told apart here
        return 0.0, -1
    return (-value if negative else value), place


def read_digits(words: Any, place: int, digits: Any) -> Any:
    """Digits with those that follow, and the place after these; the place is -1 where they do not fit."""
    while True:
        num, value = digits_of(words[place])
        if digits >= _ROOM[num]:
            return digits, -1
        digits = digits * _WHOLE[num] + value
        place += num
        if num < BYTES:
            return digits, place


def read_exponent(text: Any, place: int) -> Any:
    """An exponent and the place after it."""
    negative = text[place] == 45
    if negative or text[place] == 43:
        place += 1
    begin = place
    exponent: Any = 0
    while 48 <= text[place] <= 57 and place - begin < 4:
        exponent = exponent * 10 + (np.int64(text[place]) - 48)
        place += 1
    if place == begin or place - begin > 3:
        return 0, -1
    return (-exponent if negative else exponent), place


def read_whole(text: Any, words: Any, place: int, most: int) -> Any:
    """A whole number of at most so many digits, and the place after it; the place is -1 where it is none."""
    begin = place
    value, place = read_digits(words, place, np.int64(0))
    if place <= begin or place - begin > most or (place - begin > 1 and text[begin] == 48):
        return 0, -1
    return value, place
