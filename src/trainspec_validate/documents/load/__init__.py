"""Files as plain values, and where each value appears in the text."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainspec_validate.documents.load._base import (
    MAX_BYTES,
    MAX_SECONDS,
    MAX_TEXT_BYTES,
    Ambiguous,
    LoadError,
    LoadErrorCode,
    span_of,
    too_many_items,
)
from trainspec_validate.model.finding import Pointer, Span
from trainspec_validate.system.boundary import open_regular, untrusted
from trainspec_validate.system.budget import OverLimitError, timed

__all__ = [
    "MAX_BYTES",
    "Ambiguous",
    "LoadError",
    "LoadErrorCode",
    "Source",
    "comments",
    "load_file",
    "load_text",
    "read_file",
    "too_many_items",
    "why_not_json",
]

Format = Literal["yaml", "json"]
_HEAD = 4096
_NOT_JSON = frozenset({"syntax", "duplicate-key", "not-utf8", "non-finite-number", "number-too-large"})
_SHORT = 64
_WIDE = re.compile("[\U00010000-\U0010ffff]")
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_STARTS_LIKE_JSON = re.compile(r"\s*+[\[{]").match


@dataclass(frozen=True, slots=True)
class Source:
    """One loaded file."""

    path: str
    text: str = field(repr=False)
    """Without byte order mark; every line ends with a line feed alone."""
    data: Any = field(repr=False)
    """Plain dictionaries, lists, strings, numbers, booleans and None; aliases share one object."""
    format: Format
    ambiguous: tuple[Ambiguous, ...] = ()
    """Plain scalars that YAML 1.1 reads as another value, each text once."""

    def locate(self, pointers: Iterable[tuple[Pointer, bool]]) -> dict[tuple[Pointer, bool], Span]:
        """The span of the key (True) or the value (False) at every pointer, in one pass over the text.

        A mapping or a list is shown by its key, as an item of a list by its first line. A place that does not exist is
        shown by the key of its nearest ancestor that does, the document by its first key.
        """
        if self.format == "json":
            from trainspec_validate.documents.load._json_walk import locate  # noqa: PLC0415
        else:
            from trainspec_validate.documents.load._yaml_walk import locate  # noqa: PLC0415
        return locate(self.text, pointers)


def comments(source: Source, containing: str = "#") -> Iterator[tuple[int, int, str]]:
    """Line, column and text of every comment that holds the given words; the text starts with its '#'."""
    if source.format == "json" or containing not in source.text:
        return
    from trainspec_validate.documents.load._yaml_walk import comments as walk  # noqa: PLC0415

    line, line_start, seen = 1, 0, 0
    for start, _, text in walk(source.text, containing):
        breaks = source.text.count("\n", seen, start)
        if breaks:
            line += breaks
            line_start = source.text.rfind("\n", seen, start) + 1
        seen = start
        yield line, start - line_start + 1, text


def load_file(path: Path, name: str | None = None) -> Source:
    """Load a regular file; `name` is what findings call it.

    Raises LoadError: 'unreadable' and 'too-large' before anything is parsed, otherwise as `load_text`.
    """
    return load_text(read_file(path), path.as_posix() if name is None else name)


def load_text(
    text: str | bytes,
    path: str,
    format: Format | None = None,  # noqa: A002
    *,
    older: bool = False,
) -> Source:
    """Load a text that was read from `path`, as JSON where the name or the text says so, otherwise as YAML.

    With `older` the whole numbers and merge keys of YAML are those of version 1.1, for files of programs that read it.

    Raises LoadError with the code of what is wrong and, wherever there is one, the place.
    """
    try:
        with timed(MAX_SECONDS):
            return _load(_decode(text), path, format, older=older)
    except OverLimitError as error:
        raise LoadError("too-slow", str(error), "make it smaller, or split it") from error


def why_not_json(content: bytes) -> LoadError | None:
    r"""The first mistake of a text that is not JSON; None where a limit of documents ends the search.

    >>> str(why_not_json(b'{"a": 1,\n}'))
    'line 1, column 8: a comma follows the last entry (remove the comma)'
    """
    from trainspec_validate.documents.load._json import load  # noqa: PLC0415

    try:
        load(_decode(content))
    except LoadError as error:
        return error if error.code in _NOT_JSON else None
    return None


def _load(text: str, path: str, format: Format | None, *, older: bool) -> Source:  # noqa: A002
    if not text.strip():
        text = ""  # a tab or a no-break space is no error of its own where there is nothing else
    if format == "yaml":
        return _load_yaml(path, text, older=older)
    if format == "json" or path.lower().endswith(".json"):
        return _load_json(path, text)
    if _STARTS_LIKE_JSON(text):
        return _load_either(path, text, older=older)
    return _load_yaml(path, text, older=older)


def _load_json(path: str, text: str) -> Source:
    from trainspec_validate.documents.load import _json  # noqa: PLC0415

    return Source(path, text, _json.load(text), "json")


def _load_either(path: str, text: str, *, older: bool) -> Source:
    from trainspec_validate.documents.load._json import NotJsonError  # noqa: PLC0415

    try:
        return _load_json(path, text)
    except NotJsonError:
        return _load_yaml(path, text, older=older)


def _load_yaml(path: str, text: str, *, older: bool) -> Source:
    from trainspec_validate.documents.load import _yaml  # noqa: PLC0415

    data, ambiguous = _yaml.load(text, older=older)
    return Source(path, text, data, "yaml", ambiguous)


def read_file(path: Path) -> bytes:
    """The bytes of a regular file.

    Raises LoadError: 'unreadable' and 'too-large'.
    """
    with untrusted(_unreadable), open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_BYTES:
            raise _too_large()
        return file.read(MAX_BYTES + 1)


def _decode(text: str | bytes) -> str:
    """The text without byte order mark, its lines ending with a line feed, which changes no value."""
    try:
        content = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise _not_utf8("the text holds half of a surrogate pair", str(text), error.start) from None
    if len(content) > MAX_BYTES:
        raise _too_large()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise LoadError("not-utf8", "the file is encoded in UTF-16 or UTF-32", "save it as UTF-8")
    content = content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\0" in content[:_HEAD] and (refusal := _foreign_bytes(content[:_HEAD])):
        raise refusal
    try:
        decoded = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode()
        shown = f"byte 0x{content[error.start]:02x} is not UTF-8"
        raise _not_utf8(shown, before, len(before)) from None
    if sys.getsizeof(decoded) > MAX_TEXT_BYTES:
        raise _wide(decoded)
    if decoded.startswith("\ufeff"):
        raise LoadError("syntax", "the file starts with two byte order marks", "remove them", span_of(decoded, 0))
    return decoded


def _not_utf8(message: str, text: str, index: int) -> LoadError:
    return LoadError("not-utf8", message, "save the file as UTF-8", span_of(text, index))


def _foreign_bytes(head: bytes) -> LoadError | None:
    """The refusal of a text in two bytes per character, or of no text at all."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) * 3 > len(head) and min(even, odd) * 10 < max(even, odd):
        return LoadError("not-utf8", "the file is encoded in UTF-16 or UTF-32", "save it as UTF-8")
    if len(_CONTROLS.findall(head)) * 20 > len(head) > _SHORT:
        return LoadError("not-utf8", "this is a binary file, not text", "name a YAML or JSON file")
    return None


def _too_large() -> LoadError:
    return LoadError(
        "too-large",
        f"the file is larger than {MAX_BYTES // 1024**2} MiB",
        "describe equal nodes, links and devices once, as a group with a count",
    )


def _wide(text: str) -> LoadError:
    """The refusal of a long text with a character for which each of its characters takes four bytes of memory."""
    found = _WIDE.search(text)
    place = found.start() if found else 0
    return LoadError(
        "too-large",
        f"the text has {len(text):,} characters; with one such as U+{ord(text[place]):04X} it may have "
        f"{MAX_TEXT_BYTES // 4:,}",
        "write the character as an escape, or describe equal things once, as a group with a count",
        span_of(text, place),
    )


def _unreadable(message: str, remedy: str) -> LoadError:
    return LoadError("unreadable", message, remedy)
