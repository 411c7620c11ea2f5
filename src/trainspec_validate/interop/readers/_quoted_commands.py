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
_OPTIONS = re.compile(r"(?s)\S\s+--[A-Za-z]")
_PROGRAM, _ARGUMENTS = "command", ("args", "arguments")


def commands_in(text: str) -> str | None:
    """A script of the quoted commands of a YAML mapping, each on its line; None where there are none."""
    if not _OPTIONS.search(text):
        return None
    try:
        source = load_text(text, "commands.yaml", "yaml")
    except LoadError:
        return None
    if not isinstance(source.data, dict):
        return None
    found = dict(_commands(source.data, ()))
    if not found or len(found) > MAX_COMMANDS:
        return None
    spans = source.locate([(pointer, False) for pointer in found])
    lines: list[str] = []
    for pointer, command in sorted(found.items(), key=lambda item: spans[item[0], False].line):
        lines += [""] * (spans[pointer, False].line - 1 - len(lines))
        lines += command.splitlines()
    return "\n".join(lines) + "\n"


def _commands(value: Any, pointer: Pointer) -> Iterator[tuple[Pointer, str]]:
    """Each text that is a command with options, and each list of its words."""
    if isinstance(value, str):
        if _OPTIONS.search(value):
            yield pointer, value
    elif isinstance(value, dict):
        program = _words(value.get(_PROGRAM))
        arguments = [key for key in _ARGUMENTS if program and _words(value.get(key))]
        for key, item in value.items():
            if key in arguments:
                yield (*pointer, key), shlex.join([*(program or ()), *(_words(item) or ())])
            elif not (arguments and key == _PROGRAM):  # without its arguments it would have the defaults
                yield from _commands(item, (*pointer, key))
    elif isinstance(value, list):
        if words := _words(value):
            yield pointer, shlex.join(words)
        else:
            for position, item in enumerate(value):
                yield from _commands(item, (*pointer, position))


def _words(value: Any) -> list[str] | None:
    """The words of a command that is written as a list; None where an item is a command by itself."""
    if not isinstance(value, list) or not all(isinstance(item, (str, int, float)) for item in value):
        return None
    words = [str(item) for item in value]
    single = not any(_OPTIONS.search(word) for word in words)
    return words if (single and _OPTIONS.search(" ".join(words))) or (single and len(words) == 1) else None
