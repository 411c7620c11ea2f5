"""Finds commands that a YAML file of a scheduler quotes, such as the `arguments` of a Beaker task or a Kubernetes pod.

To a shell such a quoted command is one word. Readers of launch scripts get it as a script of its own, on its own line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from trainspec_validate.documents.load import LoadError, load_text
from trainspec_validate.model.finding import Pointer

MAX_COMMANDS = 256
MAX_DOCUMENTS = 64
_OPTIONS = re.compile(r"(?s)\S\s+--[A-Za-z]")
_OPTION = re.compile(r"(?<![\w-])--[A-Za-z]")
_KEY = re.compile(r"(?m)^[A-Za-z][\w.-]{0,100}:(?:[ \t]|$)")
"""The first thing of a line in a mapping."""
_PROGRAM, _ARGUMENTS = "command", ("args", "arguments")
_NEXT = re.compile(r"(?m)^---[ \t]*(?:#[^\n]*)?$")
_SHELL = re.compile(r"(?:\S*/)?(?:ba|da|z)?sh")
_EVALUATED = re.compile(r"-[a-z]*c")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}")
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]{0,100})\)")


def commands_in(text: str) -> str | None:
    """A script of the quoted commands of YAML mappings, each on its line; None where there are none."""
    if not _KEY.search(text) or not _OPTION.search(text):
        return None
    documents = _NEXT.split(text, MAX_DOCUMENTS)
    if len(documents) > MAX_DOCUMENTS:
        return None
    lines: list[str] = []
    begin = 0
    for document in documents:
        for line, command in _placed(document):
            lines += [""] * (begin + line - 1 - len(lines))
            lines += command.splitlines()
        begin += document.count("\n")
    return "\n".join(lines) + "\n" if lines else None


def _placed(text: str) -> list[tuple[int, str]]:
    """The commands of one document, with their lines."""
    try:
        source = load_text(text, "commands.yaml", "yaml")
    except LoadError:
        return []
    if not isinstance(source.data, dict):
        return []
    found = dict(_commands(source.data, (), {}))
    if not found or len(found) > MAX_COMMANDS:
        return []
    spans = source.locate([(pointer, False) for pointer in found])
    return sorted((spans[pointer, False].line, command) for pointer, command in found.items())


def _commands(value: Any, pointer: Pointer, variables: dict[str, str]) -> Iterator[tuple[Pointer, str]]:
    """Each text that is a command with options, and each list of its words; `variables` are those of its container."""
    if isinstance(value, str):
        if _OPTIONS.search(value):
            yield pointer, _with(variables, value)
    elif isinstance(value, dict):
        yield from _of_mapping(value, pointer, variables | _variables(value.get("env")))
    elif isinstance(value, list):
        if words := _words(value):
            yield pointer, _with(variables, shlex.join(words))
        else:
            for position, item in enumerate(value):
                yield from _commands(item, (*pointer, position), variables)


def _of_mapping(value: dict[Any, Any], pointer: Pointer, variables: dict[str, str]) -> Iterator[tuple[Pointer, str]]:
    """The commands of a mapping, of which `command` and its arguments are one."""
    program = _words(value.get(_PROGRAM), whole=True) or []
    arguments = next((key for key in _ARGUMENTS if program and _words(value.get(key), whole=True)), None)
    for key, item in value.items():
        if key == arguments or (key == _PROGRAM and program):
            words = [*program, *(_words(item, whole=True) or [])] if key == arguments else program
            # A program without its arguments would have the defaults.
            if (key == arguments or arguments is None) and (command := _command(words)):
                yield (*pointer, key), _with(variables, command)
        else:
            yield from _commands(item, (*pointer, key), variables)


def _command(words: list[str]) -> str:
    """The text of a command; a shell runs the word after `-c`. Empty where it has no options."""
    evaluated = next((k for k, word in enumerate(words[:-1]) if _EVALUATED.fullmatch(word)), None)
    if evaluated and _SHELL.fullmatch(words[0]):
        return words[evaluated + 1] if _OPTIONS.search(words[evaluated + 1]) else ""
    text = shlex.join(words)
    return text if _OPTIONS.search(text) else ""


def _with(variables: dict[str, str], command: str) -> str:
    """A command after assignments of its variables, on its first line; `$(NAME)` is replaced before a shell sees it."""
    command = _REFERENCE.sub(lambda found: variables.get(found[1], found[0]), command)
    return "".join(f"{name}={shlex.quote(value)}; " for name, value in variables.items()) + command


def _variables(entries: Any) -> dict[str, str]:
    """The variables of a container that are given as they are; others come from elsewhere."""
    pairs = [(entry.get("name"), entry.get("value")) for entry in entries or () if isinstance(entry, dict)]
    plain = [(name, str(value)) for name, value in pairs if isinstance(name, str) and isinstance(value, str | int)]
    return {name: value for name, value in plain if _NAME.fullmatch(name) and "\n" not in value and "$(" not in value}


def _words(value: Any, *, whole: bool = False) -> list[str] | None:
    """The words of a command that is written as a list; None where an item is a command by itself.

    `whole` takes any list of words, as `command` and `args` of a container are.
    """
    if not isinstance(value, list) or not value or not all(isinstance(item, (str, int, float)) for item in value):
        return None
    words = [str(item) for item in value]
    if whole:
        return words
    single = not any(_OPTIONS.search(word) for word in words)
    return words if single and (_OPTIONS.search(" ".join(words)) or len(words) == 1) else None
