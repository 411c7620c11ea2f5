"""Expands host list expressions such as `node[001-128,130]`, within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from trainspec_validate.interop.fragment import ForeignFormatError

MAX_NAMES = 200_000
"""Names that one file may expand to; the largest published machines have some ten thousand nodes."""
_MAX_LENGTH = 128
_MAX_BRACKETS = 8
_RANGE = re.compile(r"(?P<low>[0-9]{1,12})(?:-(?P<high>[0-9]{1,12}))?")
_SHOWN = 60


def expand(expression: str, line: int | None = None, limit: int = MAX_NAMES) -> list[str]:
    """Every name of an expression, in its order; digits keep their leading zeros.

    Source of the grammar: https://slurm.schedmd.com/topology.conf.html, its "hostlist expression".

    Raises:
        ForeignFormatError: brackets do not match, a range is no range, or there are more names than `limit`.

    >>> expand("node[08-10,12],login")
    ['node08', 'node09', 'node10', 'node12', 'login']
    """
    names: list[str] = []
    for word in _words(expression, line):
        parts = _parts(word, line, limit)
        total = 1
        for part in parts:
            total *= len(part)
        if len(names) + total > limit:
            raise _too_many(word, limit, line)
        names.extend("".join(chosen) for chosen in product(*parts))
    for name in names:
        if len(name) > _MAX_LENGTH:
            raise ForeignFormatError(f"a name is longer than {_MAX_LENGTH} characters: {name[:_SHOWN]}...", line)
    return names


def _words(expression: str, line: int | None) -> Iterator[str]:
    """The parts between commas that stand outside of brackets."""
    depth, start = 0, 0
    for index, letter in enumerate(expression):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        if depth not in (0, 1):
            raise ForeignFormatError(f"the brackets of {_cut(expression)} do not match", line, "write node[01-08]")
        if letter == "," and depth == 0:
            yield from _word(expression[start:index])
            start = index + 1
    if depth:
        raise ForeignFormatError(f"the brackets of {_cut(expression)} do not match", line, "write node[01-08]")
    yield from _word(expression[start:])


def _word(text: str) -> Iterator[str]:
    if text.strip():
        yield text.strip()


def _parts(word: str, line: int | None, limit: int) -> list[list[str]]:
    """Choices for every stretch of a word: one for plain text, many for a bracket."""
    pieces = re.split(r"[\[\]]", word)
    if len(pieces) > 2 * _MAX_BRACKETS + 1:
        raise ForeignFormatError(f"{_cut(word)} has more than {_MAX_BRACKETS} brackets", line)
    return [_choices(piece, word, line, limit) if i % 2 else [piece] for i, piece in enumerate(pieces)]


def _choices(text: str, word: str, line: int | None, limit: int) -> list[str]:
    found: list[str] = []
    for item in text.split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            raise ForeignFormatError(f"{_cut(item)} in {_cut(word)} is no range", line, "write node[01-08,10]")
        low, high = int(match["low"]), int(match["high"] or match["low"])
        if high < low:
            raise ForeignFormatError(f"the range {low}-{high} in {_cut(word)} runs backwards", line)
        if len(found) + high - low + 1 > limit:
            raise _too_many(word, limit, line)
        width = len(match["low"]) if match["low"].startswith("0") else 0
        found.extend(f"{number:0{width}d}" for number in range(low, high + 1))
    return found


def _too_many(word: str, limit: int, line: int | None) -> ForeignFormatError:
    return ForeignFormatError(
        f"{_cut(word)} represents more than {limit:,} names", line, "look for a slip in the range"
    )


def _cut(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
