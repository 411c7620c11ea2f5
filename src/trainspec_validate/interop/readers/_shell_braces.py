"""Expands braces in words of a shell script, as bash does before it replaces variables."""

from __future__ import annotations

import itertools
import re

from trainspec_validate.interop.readers._shell_words import Piece, Token

_MAX_WORDS = 64
_MAX_DEPTH = 8
_REFERENCE = re.compile(r"\$\{(?:[^{}]|\{[^{}]*\})*\}|\$\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|`[^`]*`")
_BEGUN = re.compile(r"\$[({]|`")
_RANGE = re.compile(r"(0|-?[1-9][0-9]{0,5})\.\.(0|-?[1-9][0-9]{0,5})")

_Sign = tuple[str, int, bool]
"""A character, the number of its piece, and whether it may be a sign of braces."""
_Signs = list[_Sign]


class _NotFollowedError(Exception):
    """Braces that bash expands in a way that is not followed here."""


def has_braces(token: Token) -> bool:
    """Whether the shell may make several words of one because of its braces."""
    bare = "".join(piece.text for piece in token.pieces if not piece.quoted and not piece.plain)
    outside = _REFERENCE.sub("", bare)
    return "{" in outside and "}" in outside and ("," in outside or ".." in outside)


def expanded(token: Token) -> list[Token] | None:
    """The words that braces make of one; None where that is not followed.

    >>> word = Token("word", 1, (Piece("--{lr,tp}={1,2}", plain=False, quoted=False),))
    >>> [each.text for each in expanded(word) or ()]
    ['--lr=1', '--lr=2', '--tp=1', '--tp=2']
    """
    try:
        found = _expand(_signs(token), 0)
    except _NotFollowedError:
        return None
    return [Token("word", token.line, _pieces(token, each)) for each in found if each]


def _signs(token: Token) -> _Signs:
    found: _Signs = []
    for number, piece in enumerate(token.pieces):
        if piece.quoted or piece.plain:
            # An empty pair of quotes keeps its word.
            found.extend((character, number, False) for character in piece.text or [""])
            continue
        place = 0
        for reference in [*_REFERENCE.finditer(piece.text), None]:
            end = reference.start() if reference else len(piece.text)
            if _BEGUN.search(piece.text, place, end):
                raise _NotFollowedError
            found.extend((character, number, True) for character in piece.text[place:end])
            if reference:
                found.append((reference[0], number, False))
                place = reference.end()
    return found


def _pieces(token: Token, signs: _Signs) -> tuple[Piece, ...]:
    """Signs as pieces again; a further one begins where the piece of a sign is another."""
    return tuple(
        Piece("".join(text for text, _, _ in group), token.pieces[number].plain, token.pieces[number].quoted)
        for number, group in itertools.groupby(signs, key=lambda sign: sign[1])
    )


def _expand(signs: _Signs, depth: int) -> list[_Signs]:
    """Every text that braces make of one, in the order of the shell."""
    if depth > _MAX_DEPTH:
        raise _NotFollowedError
    for start, (text, _, active) in enumerate(signs):
        closed = _parts(signs, start) if active and text == "{" else None
        if closed is None:
            continue
        end, parts = closed
        choices = _range(parts[0]) if len(parts) == 1 else [e for part in parts for e in _expand(part, depth + 1)]
        if choices is None:
            continue
        tails = _expand(signs[end + 1 :], depth + 1)
        if len(choices) * len(tails) > _MAX_WORDS:
            raise _NotFollowedError
        return [[*signs[:start], *choice, *tail] for choice in choices for tail in tails]
    return [signs]


def _parts(signs: _Signs, start: int) -> tuple[int, list[_Signs]] | None:
    """Where the brace that opens at a place closes, and what is between its commas; None where it does not close."""
    depth, parts = 0, list[_Signs]([[]])
    for place in range(start, len(signs)):
        text, _, active = signs[place]
        depth += (active and text == "{") - (active and text == "}")
        if depth == 0:
            return place, parts
        if active and text == "," and depth == 1:
            parts.append([])
        elif place > start:
            parts[-1].append(signs[place])
    return None


def _range(part: _Signs) -> list[_Signs] | None:
    """The numbers of `{1..4}`; None for braces that stay as they are."""
    text = "".join(each for each, _, _ in part)
    if ".." not in text:
        return None
    found = _RANGE.fullmatch(text)
    if found is None or not all(active for _, _, active in part):
        raise _NotFollowedError
    first, last = int(found[1]), int(found[2])
    if abs(last - first) >= _MAX_WORDS:
        raise _NotFollowedError
    step = 1 if last >= first else -1
    return [[(str(k), part[0][1], False)] for k in range(first, last + step, step)]
