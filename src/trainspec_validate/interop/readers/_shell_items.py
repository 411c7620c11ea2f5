"""Cuts words of a shell script into the items that the shell makes of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainspec_validate.interop.readers._shell_braces import expanded, has_braces
from trainspec_validate.interop.readers._shell_choices import has_marks
from trainspec_validate.interop.readers._shell_variables import ALL_WORDS, NAME, Script, is_settled, unknown_words
from trainspec_validate.interop.readers._shell_words import Token, cut_words

_LIST = re.compile(rf"\$\{{({NAME})\[@\]\}}")
_SEVERAL = re.compile(r"\$@|\$\{[^{}]*(?:@\]|[@*])[^{}]*\}")
"""Expansions that are several items even between quotes."""
_EVERY_WORD = frozenset({"$@", "${@}"})
_GLOB = re.compile(r"[*?\[~]")


@dataclass(frozen=True, slots=True)
class Items:
    """Items that one word becomes."""

    texts: list[str]
    sure: bool
    """Whether these are the items, with their texts."""
    whole: bool
    """Whether it is as many items as these, with no other text than these may have."""
    splits_openly: bool = False
    """Whether the shell may cut it elsewhere than at blanks."""
    listed: bool = False
    """Whether each text is one item, or an expansion that may be several."""
    braces: bool = False
    """Whether the shell makes several words of it because of braces."""


def items_of(script: Script, token: Token) -> Items:
    """The items that a word becomes."""
    return _of_braces(script, token) if has_braces(token) else _without_braces(script, token)


def _without_braces(script: Script, token: Token) -> Items:
    if is_quoted(token):
        return _quoted(script, token)
    value = script.value(token.pieces, token.line)
    bare = "".join(piece.text for piece in token.pieces if not piece.quoted and not piece.plain)
    without = re.sub(r"\$\{[^{}]*\}|\$\([^()]*\)", "", bare)
    if _GLOB.search(without):
        return Items([f"$(echo {value})"], sure=False, whole=False)
    if "$" not in bare and "`" not in bare:
        return Items([value], sure=True, whole=True)
    splits = script.splits(value)
    mixed = len(token.pieces) > 1
    if has_marks(value) and "$" not in value and "`" not in value:
        texts, more = script.choices.flat(value)
        single = splits and not more and all(is_settled(one.text) and one.text.split() == [one.text] for one in texts)
        return Items([value], sure=False, whole=single, splits_openly=not splits)
    sure = splits and is_settled(value) and not (mixed and value.split() != [value]) and not _GLOB.search(value)
    return Items(cut_words(value), sure=sure, whole=sure, splits_openly=not splits)


def _quoted(script: Script, token: Token) -> Items:
    value = script.value(token.pieces, token.line, keep_items=True)
    settled = is_settled(value)
    expanding = "".join(piece.text for piece in token.pieces if not piece.plain)
    found = _LIST.fullmatch(token.text)
    if found or token.text in _EVERY_WORD:
        sure = settled and (found[1] if found else ALL_WORDS) not in script.spaced
        return Items(cut_words(value), sure=sure, whole=sure, listed=True)
    value = script.value(token.pieces, token.line)
    if _SEVERAL.search(expanding):
        return Items([value], sure=False, whole=False)
    return Items([value], sure=settled, whole=True)


def _of_braces(script: Script, token: Token) -> Items:
    """The items of every word that braces make of one."""
    made = expanded(token)
    if made is None:
        value = script.value(token.pieces, token.line)
        text = unknown_words("braces") if value.startswith("-") else f"$(echo {value})"
        return Items([text], sure=False, whole=False, braces=True)
    found = [_without_braces(script, each) for each in made]
    return Items(
        [text for items in found for text in items.texts],
        sure=all(items.sure for items in found),
        whole=all(items.whole for items in found),
        splits_openly=any(items.splits_openly for items in found),
        braces=len(made) != 1 or made[0].pieces != token.pieces,
    )


def is_quoted(token: Token) -> bool:
    """Whether every part of a word is quoted."""
    return all(piece.quoted or piece.plain for piece in token.pieces)


def quoted_glob(token: Token) -> bool:
    """Whether a sign of a pattern is quoted in a word, which makes it plain."""
    return any(_GLOB.search(piece.text) for piece in token.pieces if piece.quoted or piece.plain)


def test_words(script: Script, tokens: tuple[Token, ...]) -> list[str] | None:
    """The words of a condition; None where the shell may cut them otherwise."""
    first = tokens[0].text
    words: list[str] = []
    for token in tokens:
        if token.kind != "word":
            return None
        value = script.value(token.pieces, token.line)
        if first == "[[":
            if quoted_glob(token):
                return None
            words.append(value)
            continue
        texts, more = script.choices.flat(value)
        if (
            not is_quoted(token)
            and "$" in token.text
            and (more or any(one.text.split() != [one.text] for one in texts))
        ):
            if value or has_marks(value):
                return None
            continue  # nothing is left of it
        words.append(value)
    return words
