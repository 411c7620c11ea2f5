"""Opens files of checkpoints: regular ones, never through a link other than of a cache, and no more than a limit."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from trainspec_validate.checkpoints.hub_cache import blob_of
from trainspec_validate.checkpoints.limits import (
    JSON_BYTES,
    JSON_LEVELS,
    JSON_VALUE_BYTES,
    LimitError,
    UnreadableError,
    within,
)
from trainspec_validate.documents.load import why_not_json
from trainspec_validate.system.blanks import is_blank
from trainspec_validate.system.boundary import reason_of, words_of
from trainspec_validate.system.budget import Limit, OverLimitError

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_MARK_BYTES = {b",": 60, b":": 140, b"[": 60, b"{": 80}
"""What Python takes for a value after each of these marks, at most; measured with 3.11, the texts themselves apart."""
_WIDE = 4
"""Bytes of each character of a text in which one character is beyond the basic plane of Unicode."""
_LEADS = tuple(bytes([byte]) for byte in range(0xF0, 0xF5))
"""First bytes of such a character in UTF-8."""
_NO_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[^][{}"]++|"', re.DOTALL)
"""Texts, and what is between the brackets of a JSON text."""
_PAIRS = (b"\\ud", b"\\uD")
"""Starts of one that is written as escapes."""
_HALF = re.compile("[\ud800-\udfff]")
__all__ = [
    "LimitError",
    "UnreadableError",
    "check_cost",
    "check_levels",
    "not_json_words",
    "open_file",
    "open_past_memory",
    "read_json",
    "read_small",
]


def open_file(path: Path) -> BinaryIO:
    """A regular file for reading.

    Raises:
        OSError: it cannot be opened, is a link that is none of a cache, or is no regular file.
    """
    path = _place(path)
    if not stat.S_ISREG(path.lstat().st_mode):  # Opening a pipe or a device already has effects
        raise OSError(f"{path.as_posix()}: not a regular file")
    descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path.as_posix()}: not a regular file")
    return os.fdopen(descriptor, "rb")


def _place(path: Path) -> Path:
    """Where the bytes of a file are: at its path, or at what the link of a cache leads to."""
    return (blob_of(path) or path) if os.path.islink(path) else path  # noqa: PTH114 - raises for a long name


def open_past_memory(path: Path, file: BinaryIO) -> BinaryIO | None:
    """The same file for reads that leave out the memory of the system; None where the system has no such reads.

    Args:
        path: where the file was opened.
        file: the file as it was opened; another one that is there by now is not opened.
    """
    if not hasattr(os, "O_DIRECT") or not hasattr(os, "RWF_NOWAIT"):
        return None
    try:
        descriptor = os.open(_place(path), os.O_RDONLY | os.O_DIRECT | _NO_FOLLOW)
    except OSError:
        return None
    if not os.path.samestat(os.fstat(descriptor), os.fstat(file.fileno())):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def read_small(path: Path, limit: Limit = JSON_BYTES) -> bytes:
    """The whole of a file of metadata.

    Raises:
        LimitError: it is larger than the limit.
        UnreadableError: it cannot be read.
    """
    try:
        with open_file(path) as file, within():
            limit.check(os.fstat(file.fileno()).st_size)
            content = file.read(int(limit.most) + 1)
            limit.check(len(content))  # It may have grown
    except OSError as error:
        raise UnreadableError(f"cannot be read: {reason_of(error)}") from error
    return content


def read_json(content: bytes, *, is_strict: bool = False, parse_int: Callable[[str], float] = int) -> Any:
    """The value of a JSON text; keys are unique and values are within the limits.

    A byte order mark at the start is ignored, as RFC 8259 section 8.1 allows. Unless `is_strict`, NaN and Infinity are
    numbers, which Python writes and JSON has not, and a text may hold one half of a surrogate pair.

    Raises:
        LimitError: it holds more values or nests deeper than the limits.
        UnreadableError: it is no such text; the words say where and what would be right.
    """
    with within():
        check_cost(content)
        check_levels(content)
    try:
        numbers: dict[str, Any] = {"parse_constant": _finite, "parse_float": _finite} if is_strict else {}
        numbers["parse_int"] = None if parse_int is int else parse_int
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_unique, **numbers)
    except RecursionError as error:
        with within():
            raise OverLimitError(JSON_LEVELS) from error
    except ValueError as error:
        raise UnreadableError(not_json_words(content, error)) from error
    if _is_deeper(value, int(JSON_LEVELS.most)):
        with within():
            raise OverLimitError(JSON_LEVELS)
    if is_strict and any(mark in content for mark in _PAIRS) and _has_half_a_pair(value):
        raise UnreadableError("has half a character in a text (one half of a surrogate pair; escape both)")
    return value


def _has_half_a_pair(value: Any) -> bool:
    """Whether a text anywhere in a value, which is within the limits, holds one half; none of it is copied."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending += [*one, *one.values()]
        elif isinstance(one, list):
            pending += one
        elif isinstance(one, str) and _HALF.search(one):
            return True
    return False


def not_json_words(content: bytes, error: ValueError) -> str:
    """Why `json` refused a text, in words that continue a sentence about the file.

    >>> not_json_words(b"", ValueError()), not_json_words(b"[1", ValueError())
    ('is empty', "is no JSON: line 1, column 1: this bracket is never closed (close it with ']')")
    """
    if is_blank(content):
        return "is empty"
    found = why_not_json(content)
    if found is not None and found.code == "non-finite-number" and isinstance(error, json.JSONDecodeError):
        found = None  # a number that Python takes, before the place that it refuses
    return f"is no JSON: {found or words_of(error)}"


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError(f"{literal[:40]} is not a finite number")
    return number


def check_levels(content: bytes) -> None:
    """Count the levels of a JSON text before it is parsed: each round takes away the innermost ones.

    Raises:
        OverLimitError: it nests deeper than the limit.
    """
    if content.count(b"[") + content.count(b"{") <= JSON_LEVELS.most:
        return
    left = _NO_BRACKETS.sub(b"", content)
    for _ in range(int(JSON_LEVELS.most)):
        left = left.replace(b"[]", b"").replace(b"{}", b"")
        if not left:
            return
    JSON_LEVELS.check(left.count(b"[") + left.count(b"{") + JSON_LEVELS.most)


def check_cost(content: bytes) -> None:
    """Count the memory that the values of a JSON text take at most, by the marks in it, before it is parsed.

    Raises:
        OverLimitError: it has more bytes or more values than the limits.
    """
    JSON_BYTES.check(len(content))
    width = 1 if content.isascii() else _WIDE if any(lead in content for lead in _LEADS) else 2
    escaped = _WIDE if any(escape in content for escape in _PAIRS) else 2 if b"\\u" in content else 1
    texts = len(content) * (width + max(width, escaped))
    JSON_VALUE_BYTES.check(texts + sum(cost * content.count(mark) for mark, cost in _MARK_BYTES.items()))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} appears twice")
    return found


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value
