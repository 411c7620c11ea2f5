"""Errors and limits of loading, and the line of an offset."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from trainspec_validate.model.finding import Pointer, Span
from trainspec_validate.system.budget import Limit

LoadErrorCode = Literal[
    "unreadable",
    "not-utf8",
    "too-large",
    "too-slow",
    "too-deep",
    "too-many-values",
    "syntax",
    "duplicate-key",
    "alias-unknown",
    "alias-budget",
    "multiple-documents",
    "empty",
    "unsupported-tag",
    "non-finite-number",
    "non-string-key",
    "number-too-large",
]

MAX_BYTES = int(Limit("a document", 32 * 1024 * 1024, "bytes").most)
MAX_DEPTH = int(Limit("a document", 64, "levels of nesting").most)
MAX_VALUES = int(Limit("a document", 2_500_000, "keys and values, aliases expanded").most)
MAX_ITEMS = int(Limit("a cluster profile, training plan or checkpoint policy", 10_000, "items of one list").most)
MAX_LAYOUT_ITEMS = int(Limit("the layout of a cluster profile", 100_000, "items of one list").most)
MAX_ANCHORS = int(Limit("a document", 100_000, "anchors").most)
MAX_SECONDS = Limit("a document", 600, "seconds of processor time")
"""The slowest document within the other limits takes 16."""
MAX_KEY_LENGTH = int(Limit("a document", 1_024, "characters of one key").most)
MAX_TEXT_BYTES = int(Limit("a document", 65 * 1024 * 1024, "bytes of memory for its text").most)
MAX_NUMBER_LENGTH = int(Limit("a document", 400, "characters of one number").most)
"""Characters of one number; Python itself refuses integers beyond 4,300 digits."""

Offsets = tuple[int, int]
"""A stretch of text as code-point offsets; the end is exclusive."""


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """A plain scalar that YAML 1.1 reads as another value, where it first appears."""

    span: Span
    text: str
    value: Any
    """Value that YAML 1.2 reads."""
    older: str
    """Value that YAML 1.1 reads, in words."""


class LoadError(Exception):
    """A text cannot be loaded: `message` states the fact, `help` what would be right, `span` the place."""

    def __init__(self, code: LoadErrorCode, message: str, help_text: str = "", span: Span | None = None) -> None:
        super().__init__(code, message, help_text, span)
        self.code: LoadErrorCode = code
        self.message = message
        self.help = help_text
        self.span = span

    def __str__(self) -> str:
        place = f"line {self.span.line}, column {self.span.column}: " if self.span else ""
        return f"{place}{self.message}" + (f" ({self.help})" if self.help else "")


def spans_of(text: str, stretches: Iterable[Offsets]) -> dict[Offsets, Span]:
    """The span of every stretch, in one pass over the text."""
    wanted = set(stretches)
    places: dict[int, tuple[int, int]] = {}
    line, line_start, seen = 1, 0, 0
    for offset in sorted({offset for stretch in wanted for offset in stretch}):
        breaks = text.count("\n", seen, offset)
        if breaks:
            line += breaks
            line_start = text.rfind("\n", seen, offset) + 1
        seen = offset
        places[offset] = (line, offset - line_start + 1)
    return {(start, end): Span(*places[start], *places[end]) for start, end in wanted}


def span_of(text: str, start: int, end: int | None = None) -> Span:
    """The span of one stretch; without an end, of one character."""
    start = max(0, min(start, len(text)))
    if end is None:
        end = start + 1 if start < len(text) and text[start] != "\n" else start
    stretch = (start, max(start, min(end, len(text))))
    return spans_of(text, [stretch])[stretch]


def too_many_values() -> LoadError:
    """The refusal of a text with more keys and values than the limit."""
    return LoadError(
        "too-many-values",
        f"the file holds more than {MAX_VALUES:,} keys and values",
        "describe equal nodes, links and devices once, as a group with a count",
    )


def too_many_items(data: object) -> tuple[Pointer, LoadError] | None:
    """Where a document has a list with more items than the limit, and the refusal; None where it has none."""
    pending: list[tuple[Pointer, object]] = [((), data)]
    while pending:
        place, value = pending.pop()
        if isinstance(value, dict):
            pending += (((*place, key), item) for key, item in value.items() if isinstance(item, dict | list))
        elif isinstance(value, list):
            most = MAX_LAYOUT_ITEMS if place[0] == "layout" else MAX_ITEMS
            if len(value) > most:
                return place, LoadError(
                    "too-many-values",
                    f"{place[-1]} has {len(value):,} items; a list may have at most {most:,} here",
                    "describe equal nodes, links and devices once, as a group with a count",
                )
            pending += (((*place, index), item) for index, item in enumerate(value) if isinstance(item, dict | list))
    return None


def too_deep() -> LoadError:
    """The refusal of a text that nests deeper than the limit."""
    return LoadError(
        "too-deep",
        f"values nest deeper than {MAX_DEPTH} levels",
        "no document of the specification needs more than a dozen levels",
    )


def number_too_long(length: int) -> LoadError:
    """The refusal of an absurdly long number."""
    return LoadError(
        "number-too-large",
        f"a number is {length:,} characters long; the limit is {MAX_NUMBER_LENGTH}",
        "write it in scientific notation, or quote it if it is text",
    )


def key_too_long(length: int) -> LoadError:
    """The refusal of an absurdly long key."""
    return LoadError(
        "too-large",
        f"a key is {length:,} characters long; the limit is {MAX_KEY_LENGTH:,}",
        "write the text as a value",
    )


def not_finite(literal: str) -> LoadError:
    """The refusal of infinity, not-a-number, and numbers beyond the range of a double."""
    shown = literal if len(literal) <= 40 else literal[:37] + "..."
    return LoadError(
        "non-finite-number",
        f"{shown} is not a finite number",
        "write a number below 1.8e308, leave the key out, or quote the value if it is text",
    )


def quoted(text: str) -> str:
    """The text in single quotes on one printable line, shortened, for a message."""
    printable = re.sub(r"\s", " ", text)
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in printable[:61])
    return f"'{printable[:57] + '...' if len(printable) > 60 else printable}'"


def plain_place(span: Span) -> str:
    """A place in words."""
    return f"line {span.line}, column {span.column}"


def duplicate_key(key: str, first: Span, second: Span) -> LoadError:
    """The refusal of a key that appears twice in one mapping."""
    return LoadError(
        "duplicate-key",
        f"key {quoted(key)} appears twice; the first is at {plain_place(first)}",
        "keep one of the two; readers disagree on which one wins",
        second,
    )
