"""Follows commands that start another one with words that they read: `xargs`, `parallel` and `find -exec`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainspec_validate.interop.readers._shell_variables import Word, unknown_words

_RUNNERS = frozenset({"xargs", "parallel", "find"})
_EXECUTES = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_OF_PARALLEL = re.compile(r"\{[^{}\s]{0,12}\}")
_LISTS = re.compile(r":{3,4}\+?")
"""After which `parallel` has its own words."""


def with_read_words(command: Sequence[Word]) -> list[Word]:
    """The words of a command with open ones where a command that starts another one puts in what it reads.

    >>> words = [Word(text, 1) for text in ("xargs", "-I{}", "train", "--lr={}")]
    >>> [word.text for word in with_read_words(words)]
    ['xargs', '-I{}', 'train', '--lr=$(arguments-of-xargs)']
    >>> [word.text for word in with_read_words(words[:1] + words[2:3])]
    ['xargs', 'train', '$(arguments-of-xargs)']
    """
    words = list(command)
    place = next((k for k, word in enumerate(words) if _base(word) in _RUNNERS or word.text.endswith(".py")), None)
    if place is None or words[place].text.endswith(".py"):
        return words
    name, line = _base(words[place]), words[place].line
    head, rest = words[: place + 1], words[place + 1 :]
    texts = [word.text for word in rest]
    if name == "find":
        start = next((k for k, text in enumerate(texts) if text in _EXECUTES), None)
        return words if start is None else [*head, *rest[:start], *_filled(rest[start:], re.compile(r"\{\}"), name)]
    if name == "parallel":
        rest = rest[: next((k for k, text in enumerate(texts) if _LISTS.fullmatch(text)), len(rest))]
        filled = _filled(rest, _OF_PARALLEL, name)
        return [*head, *filled, *([Word(unknown_words(name), line)] if filled == rest else [])]
    skipped, sign = _replaced(texts)
    if not sign:
        return [*head, *rest, Word(unknown_words(name), line)]
    return [*head, *rest[:skipped], *_filled(rest[skipped:], re.compile(re.escape(sign)), name)]


def _base(word: Word) -> str:
    return word.text.rpartition("/")[2]


def _filled(words: Sequence[Word], sign: re.Pattern[str], name: str) -> list[Word]:
    return [Word(sign.sub(unknown_words(name), word.text), word.line) for word in words]


def _replaced(texts: Sequence[str]) -> tuple[int, str]:
    """How many words the options of `xargs -I` take up, and the mark that each word read replaces; empty for none."""
    for place, text in enumerate(texts):
        if text.endswith(".py"):
            break
        if text[:2] == "-I":
            return (place + 1, text[2:]) if text[2:] else (place + 2, "".join(texts[place + 1 : place + 2]))
        if text[:2] == "-i" or text.partition("=")[0] == "--replace":
            return place + 1, text.removeprefix("-i").removeprefix("--replace").lstrip("=") or "{}"
    return 0, ""
