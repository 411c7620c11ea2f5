"""Guesses which word was meant by one that is not known, for messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice

_MAX_WORD_LENGTH = 100
_MAX_LISTED = 12
_MAX_CANDIDATES = 2_000
"""Beyond this, guessing would cost more than it tells: a file can hold thousands of wrong names."""
_MAX_LETTERS = 2_000_000
"""Letters that all guesses of a run compare, a second or two of work; a thousand wrong words need no guess each."""
_CLOSE = 0.7
"""The smallest similarity, 2 x common letters / letters of both words, of words that may be meant."""


@dataclass(slots=True)
class _Allowance:
    """How many letters may still be compared."""

    num_letters: int


_RUN: ContextVar[_Allowance | None] = ContextVar("run", default=None)


@contextmanager
def one_run() -> Iterator[None]:
    """Have all guesses inside share one allowance, after which none is made; without it each has one of its own."""
    token = _RUN.set(_Allowance(_MAX_LETTERS))
    try:
        yield
    finally:
        _RUN.reset(token)


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate nearest to the word, or None when none is near; case, '-' and '_' do not count.

    Also None for a word that is spelt otherwise where the guesses of the run have used their allowance (`one_run`).
    """
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
    near = _closest(folded, by_folded)
    return by_folded[near] if near else None


def _closest(word: str, candidates: Iterable[str]) -> str:
    """The candidate most similar to a word, the last in the alphabet of several; empty where none is close."""
    from difflib import SequenceMatcher  # noqa: PLC0415

    allowance = _RUN.get() or _Allowance(_MAX_LETTERS)
    matcher = SequenceMatcher()
    matcher.set_seq2(word)
    best = (_CLOSE, "")
    for candidate in candidates:
        if allowance.num_letters <= 0:
            return ""
        matcher.set_seq1(candidate)
        allowance.num_letters -= 1
        if matcher.real_quick_ratio() < best[0]:
            continue
        allowance.num_letters -= len(candidate)
        if matcher.quick_ratio() < best[0]:
            continue
        allowance.num_letters -= len(candidate) * len(word)
        best = max(best, (matcher.ratio(), candidate))
    return best[1]


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
