"""Reads the words of a command of a shell script: its assignments, and what it is given."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers._shell_braces import has_braces
from trainspec_validate.interop.readers._shell_builtins import DECLARES, declare, name_at, open_entry
from trainspec_validate.interop.readers._shell_choices import Value, has_marks, only_marks
from trainspec_validate.interop.readers._shell_items import Items, is_quoted, items_of
from trainspec_validate.interop.readers._shell_variables import MAX_VALUE, NAME, Script, Word, unknown_words
from trainspec_validate.interop.readers._shell_words import Piece, Token, as_item, cut_words, without_joints

ASSIGNS = re.compile(rf"({NAME})(\+?)=")
_ENTRY = re.compile(rf"({NAME})\[[^\]]*\]\+?=")
_ENTRY_OF = re.compile(rf"\$\{{({NAME})\[[^\]@*]*\]\}}")
_EVERY = re.compile(rf"\$[@*]|\$\{{{NAME}\[[@*]\]\}}")
"""Every word of the caller, or every item of an array, that is not known."""
_JOIN = frozenset({"eval", "ssh", "pdsh", "clush", "parallel"})
"""Commands that make one text of their words, which a shell cuts again."""
_ECHOED = re.compile(r"\$\([ \t]*echo[ \t]+\"?(\$\{?[A-Za-z_]\w{0,99}\}?)\"?[ \t]*\)")
"""A word that is the value of a variable, which `echo` prints."""


def assignment(token: Token) -> re.Match[str] | None:
    """The name of the variable that a word assigns, where it does."""
    first = token.pieces[0]
    return None if first.quoted or first.plain else ASSIGNS.match(first.text)


def take(script: Script, command: list[Word], tokens: tuple[Token, ...], position: int) -> int:
    """One word: an assignment where a command may begin, otherwise a part of the command; the next position."""
    token = tokens[position]
    if token.kind != "word":
        script.value(token.pieces, token.line)  # what a redirection assigns
        return position + 1
    first, assigns = token.pieces[0], assignment(token)
    starts = not command or command[name_at(command)].text in DECLARES
    if starts and not first.quoted and not first.plain and (entry := _ENTRY.match(token.text)):
        script.value(token.pieces, token.line)
        open_entry(script, entry[1], token.line)
        return position + 1
    if not starts or not assigns:
        is_argument = bool(command) and command[0].text in script.functions
        takes_words = _takes_words(command)
        command.extend(_words(script, token, keep_quoted=is_argument, after_program=takes_words))
        return position + 1
    rest = (Piece(first.text[assigns.end() :], plain=False, quoted=False), *token.pieces[1:])
    text, after = script.value(rest, token.line), position + 1
    start = None
    if not text and len(token.pieces) == 1 and after < len(tokens) and tokens[after].kind == "open":
        text, start, after = _array(script, assigns[1], tokens, after)
    if command and has_braces(token):
        text = f"${assigns[1]}"  # `export A={1,2}` assigns several times
    if assigns[2]:
        text, start = _appended(script, assigns[1], text, start)
    if len(text) > MAX_VALUE:
        raise ForeignFormatError("a variable grows beyond bounds", token.line, "write the values out")
    value = Value(text, token.line)
    if command:
        script.declared.append(lambda: declare(script, command, assigns[1], value, start))
    elif start is not None:
        script.assign_list(assigns[1], value, start)
    else:
        script.assign(assigns[1], value)
    return after


def _appended(script: Script, name: str, text: str, start: str | None) -> tuple[str, str | None]:
    """The value after `NAME+=`, and its first entry where entries were added."""
    before = script.get(name)
    if name in script.shaped:
        return f"${name}", None if start is None else f"${name}"
    if start is not None:
        kept = before.text if before else ""  # no caller hands over an array
        first = script.scalar(name)
        is_list = script.get(f"{name}[0]") is not None
        if first and has_marks(first.text) and any(not one.text for one in script.choices.flat(first.text)[0]):
            start = f"${name}"  # what is added is the first entry where there was none
        else:
            start = first.text if first and first.text else start if not is_list and not kept else f"${name}"
        return f"{kept} {text}" if kept else text, start
    first = script.scalar(name)
    return f"{first.text if first else f'${name}'}{text}", None


def _takes_words(command: list[Word]) -> bool:
    """Whether the next words are those of a program, each as the shell makes it."""
    starts = bool(command) and (command[0].text == "set" or any(word.text.endswith(".py") for word in command))
    return starts and not any(word.text in _JOIN for word in command)


def _is_one_word(items: Items | None, value: str) -> bool:
    """Whether a program gets it as one word that has blanks inside, or is empty."""
    if len(cut_words(value)) == 1 or (items and not (items.whole and len(items.texts) == 1)):
        return False
    return not _is_pair(value)


def _each_one_word(script: Script, value: str) -> str:
    """A choice between quotes, of which a program gets every text as one word."""
    texts, more = script.choices.flat(value) if only_marks(value) else ((), False)
    kept = [text.text if _is_pair(text.text) else as_item(text.text) for text in texts]
    if all(text.text == one for text, one in zip(texts, kept, strict=True)):
        return value
    values = [Value(text, one.line) for text, one in zip(kept, texts, strict=True)]
    rest = [Value(unknown_words("quotes"), 0)] if more else []
    return script.choices.mark([*values, *rest], unknown_words("quotes"))


def _is_entry_of_options(script: Script, value: str) -> bool:
    """Whether a word is an entry, not known which, of an array that has options."""
    found = _ENTRY_OF.fullmatch(value)
    array = script.get(found[1]) if found else None
    return array is not None and any(word.startswith("--") for word in cut_words(array.text))


def _is_pair(text: str) -> bool:
    """Whether a word is an option with its value, which a program takes only when a shell cuts it again."""
    return text.startswith("--") and "=" not in text.split(maxsplit=1)[0]


def _words(script: Script, token: Token, keep_quoted: bool, after_program: bool) -> Iterator[Word]:
    """The words that one becomes.

    Substituted values are cut. So are quoted ones, but for those that a function or a program gets as one word.
    """
    echoed = _ECHOED.fullmatch(token.text)
    pieces = (Piece(echoed[1], plain=False, quoted=False),) if echoed else token.pieces
    value = script.value(pieces, token.line, keep_items=is_quoted(token))
    items = items_of(script, token) if "$" in token.text or "{" in token.text else None
    if items and items.braces and not keep_quoted:
        after = "${IFS}" if items.splits_openly else ""
        yield from (Word(f"{text}{after}", token.line) for text in items.texts)
        return
    if items and items.splits_openly and not keep_quoted:
        value = f"{value}${{IFS}}"
    if keep_quoted and all(piece.quoted for piece in token.pieces):
        yield Word(value, token.line)
        return
    if after_program and _is_one_word(items, value):
        yield Word(without_joints(value), token.line)
        return
    if after_program and _is_entry_of_options(script, value):
        yield Word(unknown_words("quotes"), token.line)
        return
    if after_program and is_quoted(token) and items and items.whole and not items.listed:
        value = _each_one_word(script, value)
    if after_program and _EVERY.fullmatch(value):
        value = value.replace("@", "*") if is_quoted(token) and "*" in token.text else value.replace("*", "@")
    cut = "$" in token.text or value.lstrip().startswith("--") or ".py " in value
    for text in cut_words(value) if cut else [value]:
        whole = cut and len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
        yield Word(text[1:-1] if whole else text, token.line)


def _array(script: Script, name: str, tokens: tuple[Token, ...], position: int) -> tuple[str, str, int]:
    """The items of `NAME=( ... )`, in one text, the first of them, and the position after."""
    items, size = list[str](), 0
    first: str | None = None
    is_open = False
    position += 1
    while position < len(tokens) and tokens[position].kind != "close":
        token = tokens[position]
        if token.kind == "word":
            found = items_of(script, token)
            value = script.value(token.pieces, token.line, keep_items=is_quoted(token))
            is_single = found.whole and len(found.texts) == 1
            texts = found.texts if found.braces or found.sure else [value]
            is_item = (found.sure or is_single) and not _is_pair(value)
            items.extend(as_item(text) if is_item else text for text in texts)
            if found.splits_openly:
                items.append("${IFS}")
            if not found.sure or any(text.split() != [text] for text in found.texts):
                script.spaced.add(name)
            if first is None and (found.texts or not found.sure):
                first = found.texts[0] if found.sure else f"${name}"
            is_open = is_open or bool(re.match(r"\[[^\]]*\]\+?=", token.text))
            size += len(value) + 1
            if size > MAX_VALUE:
                raise ForeignFormatError("an array grows beyond bounds", token.line, "write the values out")
        position += 1
    if is_open:
        return f"${{{name}[@]}}", f"${name}", position + 1
    return " ".join(items), first or "", position + 1
