"""Follows what commands of the shell itself do to variables.

A command that is not followed exactly leaves every variable open that it names, or all of them where it may name any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from trainspec_validate.interop.readers import _shell_tree as tree
from trainspec_validate.interop.readers._shell_arguments import set_arguments, shift
from trainspec_validate.interop.readers._shell_choices import Value
from trainspec_validate.interop.readers._shell_variables import NAME, Script, Word, is_settled

DECLARES = frozenset({"export", "local", "readonly", "declare", "typeset"})
_LOCAL = frozenset({"local", "declare", "typeset"})
"""Inside of a function what they declare ends with it."""
_PASSES_ON = frozenset({"command", "builtin"})
"""Commands that run the built-in command that they name."""
_TAKES = frozenset({"read", "mapfile", "readarray", "getopts", "printf", "wait", "let"})
_OTHERS = frozenset(
    {"unset", "shift", "set", "eval", "source", ".", "alias", "trap", "command", "builtin", "coproc", "shopt"}
)
_KEYWORDS = frozenset({"if", "for", "while", "until", "case", "select", "function", "time", "!", "{", "[["})
_ENTRY = re.compile(rf"({NAME})\[.*")
_ASSIGNED = re.compile(rf"({NAME})(\[[^\]]*\])?(\+?)=(.*)", re.DOTALL)
_PLAIN = re.compile(r"[\w./:@+-]+(?:[ \t]+-?[\w./:@+][\w./:@+-]*)*[ \t]*")
"""Words of a command without options of a program, such as `python3 -u`."""
_SHAPING = frozenset("iulc")
_FLAGS = {
    "read": ("a", "dinNptu"),
    "mapfile": ("", "dnOsuCc"),
    "readarray": ("", "dnOsuCc"),
    "printf": ("v", ""),
    "wait": ("p", ""),
}
"""Letters of options that name a variable, and of those that take another word."""


def name_at(command: Sequence[Word]) -> int:
    """The place of the name of a command, behind `command` or `builtin`."""
    place = 0
    while place < len(command) - 1 and command[place].text in _PASSES_ON:
        place += 1
        while place < len(command) - 1 and command[place].text in {"-p", "--"}:
            place += 1
    return place


def flags_of(command: Sequence[Word]) -> str:
    """The letters of the options of a command."""
    words = [word.text for word in command[name_at(command) + 1 :]]
    return "".join(word[1:] for word in words if word[:1] in {"-", "+"} and word[1:2] != "-")


def declare(script: Script, command: Sequence[Word], name: str, value: Value | None, first: str | None = None) -> None:
    """`declare NAME=value` and its like; without a value, `declare NAME`."""
    kind, flags = command[name_at(command)].text, flags_of(command)
    if {"p", "f", "F"} & {*flags} and kind != "export":
        return
    is_local = kind in _LOCAL and "g" not in flags and bool(script.outer)
    if is_local:
        script.keep(name)
    elif any(name in hidden for hidden in script.outer) and "g" in flags:
        script.opaque.add(name)
    if kind in _LOCAL and _SHAPING & {*flags}:
        script.shaped.add(name)
    if kind in _LOCAL and "A" in flags:
        script.opaque.add(name)
    if kind in _LOCAL and "n" in flags:
        _refer(script, name, value)
        return
    if value is None and is_local:
        script.unset(name, command[0].line)
    elif value is not None and first is not None:
        script.assign_list(name, value, first)
    elif value is not None:
        script.assign(name, value)
    if kind == "readonly" or (kind in _LOCAL and "r" in flags):
        script.fixed.add(name)


def _refer(script: Script, name: str, value: Value | None) -> None:
    """A reference: neither it nor the variable that it names has a value that is followed."""
    script.opaque.add(name)
    if value is not None and re.fullmatch(NAME, value.text):
        script.opaque.add(value.text)
    else:
        script.references.add(name)


def built_in(script: Script, command: list[Word]) -> None:
    """Effect of a command on variables, if it is one of the shell; nothing for any other."""
    command = command[name_at(command) :]
    kind, words = command[0].text, command[1:]
    known: dict[str, Callable[[], None]] = {
        "unset": lambda: _unset(script, words),
        "shift": lambda: shift(script, words, command[0].line),
        "alias": lambda: _alias(script, words),
    }
    if kind in DECLARES:
        _declare_words(script, command)
    elif kind in known:
        known[kind]()
    elif kind in _TAKES:
        _take(script, kind, words)
    elif kind == "set":
        _set(script, words)
    elif kind == "shopt":
        script.options.update(word.text for word in words)
    elif not is_settled(kind):
        _unknown(script, words)
    for word in words:
        if found := re.fullmatch(rf"\{{({NAME})\}}", word.text):
            script.open(found[1], word.line)  # `{NAME}>file` sets it to a number


def sets_variables(script: Script, name: str) -> bool:
    """Whether a command may set variables: a function, a keyword, or one of the shell itself."""
    return name in script.functions or name in DECLARES | _TAKES | _OTHERS | _KEYWORDS or name[:1] == "("


def _unknown(script: Script, words: Sequence[Word]) -> None:
    """A command whose name is open: it may be any of those that declare what their words name, or a function."""
    bodies = [node for ways in script.functions.values() for body in ways if body for node in body]
    for name in sorted(tree.assigned(bodies)):
        if script.get(name) is not None:
            _maybe(script, name)
    for word in words:
        found = _ASSIGNED.match(word.text)
        if found and script.get(found[1]) is not None:
            _maybe(script, found[1])
        elif re.fullmatch(NAME, word.text) and script.get(word.text) is not None:
            _maybe(script, word.text)


def _maybe(script: Script, name: str) -> None:
    """A variable may get a value that is not known."""

    def way() -> bool:
        script.open(name)
        return False

    script.branch([way, lambda: False])


def _declare_words(script: Script, command: Sequence[Word]) -> None:
    """Words that declare something and are no assignments as they are written: `NAME`, `"NAME=value"`, `$ANY=value`."""
    for word in command[1:]:
        text = word.text
        if text[:1] in {"-", "+"} and len(text) > 1:
            continue
        found = _ASSIGNED.fullmatch(text)
        if re.fullmatch(NAME, text):
            declare(script, command, text, None)
        elif found and not found[2] and not found[3]:
            declare(script, command, found[1], Value(found[4], word.line))
        elif found:
            declare(script, command, found[1], Value(f"${found[1]}", word.line))
        elif not is_settled(text):
            script.unsettle()


def _unset(script: Script, words: Sequence[Word]) -> None:
    if any(word.text == "-f" for word in words):
        for word in words:
            if word.text in script.functions:
                script.functions[word.text] = (*script.functions[word.text], None)
        return
    for word in words:
        if entry := _ENTRY.fullmatch(word.text):
            open_entry(script, entry[1], word.line)
        elif re.fullmatch(NAME, word.text):
            script.unset(word.text, word.line)
        elif not is_settled(word.text):
            script.unsettle()


def open_entry(script: Script, name: str, line: int) -> None:
    """An assignment to an entry of an array: which one is not followed."""
    if name in script.references:
        script.unsettle()
    script.scopes[-1][name] = Value(f"${{{name}[@]}}", line)
    script.scopes[-1][f"{name}[0]"] = Value(f"${name}", line)
    script.spaced.add(name)


def _alias(script: Script, words: Sequence[Word]) -> None:
    """`alias NAME=text`: noted but where the text is a plain name of a program, or several words without options."""
    for word in words:
        name, _, text = word.text.partition("=")
        first = text.split(maxsplit=1)[0] if text.split() else ""
        if not is_settled(word.text):
            script.options.update({"any-alias", f"alias {name}"})
        elif not _PLAIN.fullmatch(text) or sets_variables(script, first):
            script.options.add(f"alias {name}")


def is_alias(script: Script, name: str) -> bool:
    """Whether the name of a command may be an alias of other commands or options."""
    noted = f"alias {name}" in script.options or "any-alias" in script.options
    return noted and "expand_aliases" in script.options


def _take(script: Script, kind: str, words: Sequence[Word]) -> None:
    """Every name among the words is open afterwards: of `read NAME`, `printf -v NAME`, `let "NAME = 3"`."""
    if kind == "let":
        for word in words:
            if not script.open_in_sum(word.text) and not is_settled(word.text):
                script.unsettle()
        return
    for word in _taking(kind, words):
        name = re.fullmatch(rf"({NAME})(\[.*)?", word.text)
        if name and name[2]:
            open_entry(script, name[1], word.line)
        elif name:
            script.open(name[1], word.line)
        elif not is_settled(word.text):
            script.unsettle()


def _taking(kind: str, words: Sequence[Word]) -> list[Word]:
    """The words of a command that may be names of variables which it sets."""
    if kind == "getopts":
        return list(words[1:2])
    found, place = list[Word](), 0
    setting, following = _FLAGS[kind]
    while place < len(words):
        text, line = words[place].text, words[place].line
        place += 1
        if text[:1] != "-" or len(text) == 1:
            found.extend([Word(text, line)] if kind in {"read", "mapfile", "readarray"} else [])
            continue
        letter = next((k for k, each in enumerate(text) if each in setting + following and k), 0)
        if letter and text[letter] in setting:
            found.extend([Word(text[letter + 1 :], line)] if text[letter + 1 :] else words[place : place + 1])
        if letter and not text[letter + 1 :]:
            place += 1
    return found


def _set(script: Script, words: Sequence[Word]) -> None:
    place = 0
    while place < len(words) and words[place].text[:1] in {"-", "+"} and words[place].text not in {"-", "--"}:
        place += 2 if words[place].text[-1] == "o" else 1
    script.options.update(word.text for word in words[:place])
    if place < len(words):
        set_arguments(script, words[place:], words[0].line)
