"""Reads the shell files of `trainspec export`, without running them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from trainspec_record.claim import open_regular

MAX_BYTES = 1_000_000
NEEDED = re.compile(r"\$\{(?P<name>\w+):\?(?P<what>[^}]*)\}")
"""A variable that the script wants to be set."""
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_EXPORT = re.compile(r"export\s+[A-Za-z_]\w*")


class Assignment(NamedTuple):
    """One variable of an environment."""

    name: str
    value: str
    is_appended: bool
    """Whether the value goes behind the one that is set."""


def read_small(path: Path) -> str:
    """The text of a small file.

    Raises:
        ValueError: it is no text, or too long.
        OSError: it cannot be read.
    """
    with os.fdopen(open_regular(path, follow=True), "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path}: more than {MAX_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: no text in UTF-8") from error


def assignments(path: Path) -> list[Assignment]:
    """The variables that a file of `export NAME=value` lines sets.

    Raises:
        ValueError: a line does something else.
        OSError: the file cannot be read.
    """
    found = []
    for number, line in enumerate(read_small(path).splitlines(), 1):
        text = line.strip()
        if text and not text.startswith("#") and not _EXPORT.fullmatch(text):
            found.append(_assignment(text, f"{path}:{number}"))
    return found


def _assignment(text: str, place: str) -> Assignment:
    refused = f"{place}: only lines as `export NAME=value` are read, found {text[:80]!r}"
    try:
        words = shlex.split(text.removeprefix("export "))
    except ValueError as error:
        raise ValueError(refused) from error
    match = _ASSIGNMENT.fullmatch(words[0]) if len(words) == 1 else None
    if match is None:
        raise ValueError(refused)
    name, value = match["name"], match["value"]
    before = f"${{{name}:-}}"
    is_appended = value.startswith(before)
    value = value.removeprefix(before).lstrip() if is_appended else value
    if set("$`") & set(value):
        raise ValueError(refused)
    return Assignment(name, value, is_appended)


def torchrun_words(path: Path) -> list[str]:
    """The options that a script of `trainspec export --to torchrun` gives to torchrun.

    Raises:
        ValueError: the script has no such command.
        OSError: it cannot be read.
    """
    _, found, command = read_small(path).partition("\nexec torchrun ")
    if not found:
        raise ValueError(f"{path}: no line starts with `exec torchrun`")
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    return words[: words.index("$@")] if "$@" in words else words


def filled(words: list[str], environment: Mapping[str, str]) -> Iterator[str]:
    """Words with the variables that they need put in.

    Raises:
        ValueError: one of them is not set.
    """
    for word in words:
        for match in NEEDED.finditer(word):
            if not environment.get(match["name"]):
                raise ValueError(f"set {match['name']}: {match['what']}; the plan wants {word.partition('=')[0]}")
        yield NEEDED.sub(lambda match: environment[match["name"]], word)
