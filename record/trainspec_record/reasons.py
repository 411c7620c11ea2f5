"""The reasons that the recorder itself writes, which contain no names."""

from __future__ import annotations

import re
from typing import Final

WITHOUT_A_WORD: Final = "the attempt ended without a word"
NOT_COMMITTED: Final = "the attempt ended before the commit"
GIVEN_UP: Final = "the save was given up"
NOT_WRITTEN: Final = "the file could not be written"
COMPILATION: Final = "compilation"
_OWN: Final = frozenset({WITHOUT_A_WORD, NOT_COMMITTED, GIVEN_UP, NOT_WRITTEN, COMPILATION})
_TYPE: Final = re.compile(
    r"[A-Za-z_]\w{0,80}(Error|Exception|Interrupt|Exit)|\w{1,80} ended the program|an error ended the program"
)


def ended_by(error: str | None) -> str:
    """What ended the program, by the name of the type of an error."""
    return f"{error or 'an error'} ended the program"


def is_own(text: str) -> bool:
    """Whether the recorder writes this reason, or it is the name of a type of errors."""
    return text in _OWN or _TYPE.fullmatch(text) is not None
