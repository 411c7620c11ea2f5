"""Follows the words that a script or one of its functions is called with: `$@`, `$*`, `shift` and `set --`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainspec_validate.interop.readers._shell_choices import Unset, Value
from trainspec_validate.interop.readers._shell_items import items_of
from trainspec_validate.interop.readers._shell_variables import ALL_WORDS, Script, Word, is_settled, unknown_words
from trainspec_validate.interop.readers._shell_words import Token, as_item, has_joints
from trainspec_validate.system.digits import is_digits

_OF_THE_CALLER = re.compile(r"\$[@*]|\$\{[@*]\}")
"""The words of the script itself, which are none unless its caller gives some."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The words that a function is called with."""

    numbered: list[Word]
    """Those of `$1` and so on; open ones behind a word that may be several."""
    every: list[Word]
    """Those of `$@`."""
    certain: bool
    """Whether each of them is one argument."""


def arguments_of(script: Script, tokens: tuple[Token, ...]) -> Arguments:
    """The arguments of a function; the first word is its name, with arguments where it comes from a variable."""
    numbered, every = list[Word](), list[Word]()
    whole = certain = True
    for place, token in enumerate([token for token in tokens if token.kind == "word"]):
        items = items_of(script, token)
        words = [Word(text, token.line) for text in items.texts[place == 0 :]]
        after = "${IFS}" if items.splits_openly else ""
        is_each = items.sure or items.listed or (items.whole and len(words) == 1)
        joined = [as_item(word.text) if is_each else word.text for word in words]
        every.extend(Word(f"{text}{after}", token.line) for text in joined)
        certain = certain and (items.sure or not place)
        if not whole:
            continue
        start = len(numbered)
        numbered.extend(words)
        if not items.whole and place:
            whole = False
            if not items.sure and (len(words) > 1 or (words and is_settled(words[0].text))):
                del numbered[start:]
            numbered.extend(Word(f"${k}", token.line) for k in range(len(numbered) + 1, 10))
    return Arguments(numbered, every, certain)


def hand_over(script: Script, given: Arguments | None, name: str, line: int) -> None:
    """`$1` and so on, and `$@`, of a function that is called; None where nothing is known of its arguments."""
    script.renumbered = script.renumbered or given is None or len(given.numbered) >= 9
    for k in range(1, 10):
        beyond = f"${k}" if given is None else ""
        text = given.numbered[k - 1].text if given and k <= len(given.numbered) else beyond
        is_given = given is None or k <= len(given.numbered)
        script.scopes[-1][str(k)] = Value(text, line) if is_given else Unset("", line)
    texts = [unknown_words(name)] if given is None else [word.text for word in given.every]
    if given and (not given.certain or any(has_joints(text) or text.split() != [text] for text in texts)):
        script.spaced.add(ALL_WORDS)
    script.scopes[-1][ALL_WORDS] = Value(" ".join(texts), line)


def shift(script: Script, words: Sequence[Word], line: int) -> None:
    """`shift`: the arguments are others, and `$@` loses its first words."""
    before = script.get(ALL_WORDS)
    open_positional(script, line)
    if before is None or _OF_THE_CALLER.fullmatch(before.text):
        return
    texts = before.text.split()
    count = words[0].text if words else "1"
    known = is_settled(before.text) and ALL_WORDS not in script.spaced and is_digits(count)
    kept = texts[int(count) :] if known and int(count) <= len(texts) else texts if known else [unknown_words()]
    script.scopes[-1][ALL_WORDS] = Value(" ".join(kept), line)


def set_arguments(script: Script, words: Sequence[Word], line: int) -> None:
    """`set -- words`."""
    open_positional(script, line)
    kept = words[1:] if words[0].text in {"-", "--"} else words
    if any(not is_settled(word.text) or word.text.split() != [word.text] for word in kept):
        script.spaced.add(ALL_WORDS)
    script.scopes[-1][ALL_WORDS] = Value(" ".join(as_item(word.text) for word in kept), line)


def open_positional(script: Script, line: int) -> None:
    """`$1` and so on become others."""
    script.renumbered = True
    for k in range(1, 10):
        script.scopes[-1][str(k)] = Value(f"${k}", line)
