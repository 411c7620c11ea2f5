"""Reads numbers as C, NumPy, PyTorch and JAX print them, and those that are not finite in every spelling."""

from __future__ import annotations

import math
import re
from typing import Final

_NOT_FINITE: Final = (
    r"[-+]?(?:nan[qs]?|inf|infinity)(?![A-Za-z0-9_])(?:\([\w ]{0,40}\))?"
    r"|[-+]?[0-9]{1,40}\.[0-9]{0,20}#(?:[QS]NAN|IND|INF)0{0,20}"
)
"""Spellings of C (with the payload of a NaN), of AIX and of Microsoft's C before 2015, in either case."""
NUMBER: Final = rf"(?:[-+0-9.eE]{{1,40}}|(?i:{_NOT_FINITE}))"
"""A printed number."""
VALUE: Final = rf"(?:{NUMBER}(?![\w#])|[-+]?[A-Za-z_][\w.]{{0,40}}\([^()\n]{{0,200}}\)|[^\s|,;(){{}}\[\]'\"%]{{1,60}})"
"""A text in the place of a printed number; `parse` says whether it is one."""
NO_VALUE: Final = frozenset({"", "-", "--", "none", "null", "n/a", "na"})
"""Texts, in lower case, that programs write where there is no value."""
_WRAPPED: Final = re.compile(
    r"(?:(?:torch\.)?(?:tensor|Tensor)|(?:np|numpy|jnp|jax\.numpy)\.\w{1,40}|(?:Device)?Array|array|Parameter|b?float[0-9]{0,3})"
    r"\( {0,4}(?P<value>[^\s,()\[\]]{1,60}|nan\([\w ]{0,40}\)) {0,4}(?:,[^\n]{0,300})?\)"
)
"""How libraries print a number with its type or its device."""
_SPELLED: Final = re.compile(_NOT_FINITE, re.IGNORECASE)
_MOST_CHARACTERS: Final = 400


def parse(text: str) -> float | None:
    """The number that a text prints, which may not be finite; None for another text.

    >>> parse("2.5e1"), parse("-nan(ind)"), parse("-1.#INF"), parse("tensor(2.5, device='cuda:0')"), parse("N/A")
    (25.0, nan, -inf, 2.5, None)
    """
    if len(text) > _MOST_CHARACTERS or not text.isascii():  # `float` takes the digits of all scripts
        return None
    try:
        found = float(text)
    except ValueError:
        return _spelled(text.strip())
    if math.isfinite(found):
        return None if "_" in text else found
    return _spelled(text.strip())


def _spelled(text: str) -> float | None:
    """A number that is not finite, or that is printed with its type; a number beyond a double is none."""
    if _SPELLED.fullmatch(text):
        size = math.inf if "INF" in text.upper() else math.nan
        return -size if text.startswith("-") else size
    wrapped = _WRAPPED.fullmatch(text)
    return parse(wrapped["value"]) if wrapped else None
