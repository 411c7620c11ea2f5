"""Says for readers whether a text is a whole number in the digits 0 to 9; Python alone takes those of all scripts."""

from __future__ import annotations


def is_digits(text: str) -> bool:
    """Whether a text is digits from 0 to 9 and nothing else.

    `str.isdigit` and `str.isdecimal` take full-width and Arabic-Indic digits too, as `int` and `float` do, which no
    program prints for a number and other programs refuse.

    >>> is_digits("12"), is_digits("\uff11\uff12"), is_digits("\u00b2"), is_digits("-1"), is_digits("")
    (True, False, False, False, False)
    """
    return text.isascii() and text.isdigit()
