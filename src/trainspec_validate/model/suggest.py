"""Guesses which word was meant by one that is not known, for messages."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

_MAX_WORD_LENGTH = 100
_MAX_LISTED = 12
_MAX_CANDIDATES = 2_000
"""Beyond this, guessing would cost more than it tells: a file can hold thousands of wrong names."""


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate nearest to the word, or None when none is near; case, '-' and '_' do not count."""
    known = list(islice(candidates, _MAX_CANDIDATES + 1))
    if len(known) > _MAX_CANDIDATES:
        return None
    by_folded: dict[str, str] = {}
    for candidate in known:
        by_folded.setdefault(_fold(candidate), candidate)
    folded = _fold(word)
    if folded in by_folded:
        return by_folded[folded]
    if not folded or len(folded) > _MAX_WORD_LENGTH:
        return None
    from difflib import get_close_matches  # noqa: PLC0415

    near = get_close_matches(folded, by_folded, n=1, cutoff=0.7)
    return by_folded[near[0]] if near else None


def hint(word: str, candidates: Iterable[str]) -> str:
    """Suggestion of a word to write instead, in words; empty when nothing is near and the candidates are too many."""
    known = list(islice(candidates, _MAX_CANDIDATES + 1))
    nearest = did_you_mean(word, known)
    if nearest is not None:
        return meant(word, nearest)
    return f"one of: {', '.join(known)}" if 0 < len(known) <= _MAX_LISTED else ""


def meant(word: str, nearest: str) -> str:
    """The question whether a word was meant; names a character that the eye takes for another one, or does not see.

    >>> meant("num_nodez", "num_nodes")
    "did you mean 'num_nodes'?"
    >>> meant("num_n\N{CYRILLIC SMALL LETTER O}des", "num_nodes")
    "did you mean 'num_nodes'? character 6 is U+043E, CYRILLIC SMALL LETTER O"
    """
    strange = look_alike(word) if nearest.isascii() else ""
    return f"did you mean '{nearest}'?{f' {strange}' if strange else ''}"


def look_alike(word: str) -> str:
    """Remark on the first character of a word outside ASCII; empty where there is none."""
    from unicodedata import name  # noqa: PLC0415

    place = next((place for place, character in enumerate(word, start=1) if not character.isascii()), None)
    if place is None:
        return ""
    point = ord(word[place - 1])
    return f"character {place} is U+{point:04X}, {name(word[place - 1], 'a character without a name')}"


def _fold(word: str) -> str:
    return word.casefold().replace("-", "").replace("_", "")
