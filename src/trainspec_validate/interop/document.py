"""Writes imported facts as a document with comments: sources, derivations, and what is unknown."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import isfinite, isnan
from typing import Any

from trainspec_validate._version import __version__
from trainspec_validate.documents.commented import as_text
from trainspec_validate.documents.schema import has_place, schema_file
from trainspec_validate.interop import writers
from trainspec_validate.interop.formats import collected
from trainspec_validate.interop.fragment import Unknown
from trainspec_validate.interop.merge import Merged
from trainspec_validate.interop.shape import missing, ordered
from trainspec_validate.interop.writers._target import Exported, Format, Job, NotExpressible
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.quantities import written

_SITE = "https://trainspec.org/schemas/v1"
_API_VERSION = "trainspec/v1"
_WIDTH = 118
_MAX_COMMENT = 600
_MAX_ALIKE = 8
_NEEDED = "a document needs it, and no file states it"
_NEEDED_NAME = "a document needs a name; --name gives it"
_NAMES = frozenset({("metadata",), ("metadata", "name")})
_SILENCER = re.compile(r"trainspec\s*:", re.IGNORECASE)


def facts_of(merged: Merged) -> dict[str, Any]:
    """Everything that the document says, with the keys that select its schema, in the order of the schema."""
    facts = {"apiVersion": _API_VERSION, "kind": merged.kind, **merged.facts}
    needed = set(missing(merged.kind, facts))
    listed = [e.pointer for e in merged.unknown if e.pointer not in needed and has_place(merged.kind, e.pointer)]
    if listed:
        facts["unknowns"] = sorted({".".join(map(str, pointer)) for pointer in listed})
    return ordered(merged.kind, facts)


def unknowns(merged: Merged) -> list[Unknown]:
    """Keys that no file states: what the readers name, and every key that a document of the kind needs and lacks."""
    told = {entry.pointer for entry in merged.unknown}
    alike: dict[Pointer, list[Pointer]] = defaultdict(list)
    for pointer in missing(merged.kind, facts_of(merged)):
        if pointer not in told:
            alike[tuple("*" if isinstance(key, int) else key for key in pointer)].append(pointer)
    return [*merged.unknown, *(entry for pointers in alike.values() for entry in _lacking(pointers))]


def _lacking(pointers: Sequence[Pointer]) -> Iterator[Unknown]:
    """A key that entries of one list lack: each entry is told, of many only the first."""
    if len(pointers) <= _MAX_ALIKE:
        yield from (Unknown(pointer, _NEEDED_NAME if pointer in _NAMES else _NEEDED) for pointer in pointers)
    else:
        yield Unknown(pointers[0], f"{_NEEDED}; {len(pointers) - 1:,} more entries lack it too")


def document(merged: Merged, command: str = "import") -> str:
    """The document as YAML that the strict loader reads back to the same facts; `command` is the one that made it.

    A comment behind a value says how it was derived, or its file where there are several; a comment in the place of
    a key says why it is unknown.
    """
    writer = _Writer(merged)
    facts = facts_of(merged)
    body = "".join(f"{line}\n" for line in writer.mapping(facts, (), 0))
    rest = "".join(f"{line}\n" for line in writer.rest())
    return _head(merged, command) + body + rest


def plain_text(facts: Mapping[str, Any]) -> str:
    """Plain values as YAML that the strict loader reads back to the same values, without comments."""
    return "".join(f"{line}\n" for line in _Writer().mapping(facts, (), 0))


def _head(merged: Merged, command: str) -> str:
    lines = [
        f"# yaml-language-server: $schema={_SITE}/{schema_file(merged.kind)}",
        f"# Written by trainspec {command} {__version__} from:",
        *(f"#   {_safe(name)} ({form})" for name, form in merged.sources),
        "# Comments: derived says how a value follows from its file; unknown names a key that no file states.",
    ]
    return "".join(f"{line}\n" for line in lines)


class _Writer:
    """Writes values line by line and keeps what is unknown until its place comes."""

    def __init__(self, merged: Merged | None = None) -> None:
        self._derived = merged.derived if merged else {}
        self._origins = merged.origins if merged and len(merged.sources) > 1 else {}
        self._unknown: dict[Pointer, list[Unknown]] = defaultdict(list)
        for entry in unknowns(merged) if merged else ():
            self._unknown[entry.pointer[:-1]].append(entry)

    def mapping(self, value: Mapping[str, Any], place: Pointer, indent: int) -> Iterator[str]:
        """The lines of a mapping, its unknown keys last."""
        for key, item in value.items():
            yield from self._entry(f"{scalar(key)}:", item, (*place, key), indent)
        for entries in _alike(self._unknown.pop(place, ()) if place else ()):
            yield from _unknown_comment([str(entry.pointer[-1]) for entry in entries], entries[0].reason, indent)

    def rest(self) -> Iterator[str]:
        """What is unknown in a place that the document does not have."""
        left = [entry for entries in self._unknown.values() for entry in entries]
        for entries in _alike(left):
            names = [".".join(map(str, entry.pointer)) for entry in entries]
            yield from _unknown_comment(names, entries[0].reason, 0)

    def _entry(self, key: str, value: Any, place: Pointer, indent: int) -> Iterator[str]:
        pad = " " * indent
        if isinstance(value, Mapping) and value:
            yield from self._commented(f"{pad}{key}", place, indent)
            yield from self.mapping(value, place, indent + 2)
        elif isinstance(value, Mapping):
            yield from self._commented(f"{pad}{key} {{}}", place, indent)
        elif isinstance(value, list):
            yield from self._list(key, value, place, indent)
        else:
            yield from self._commented(f"{pad}{key} {scalar(value)}", place, indent)

    def _list(self, key: str, value: Sequence[Any], place: Pointer, indent: int) -> Iterator[str]:
        pad = " " * indent
        if not any(isinstance(item, Mapping | list) for item in value):
            flow = f"{pad}{key} [{', '.join(map(scalar, value))}]"
            if len(flow) <= _WIDTH:
                yield from self._commented(flow, place, indent)
                return
        yield from self._commented(f"{pad}{key}", place, indent)
        if not any(isinstance(item, Mapping | list) or re.search(r"[\s\"]", scalar(item)) for item in value):
            flow = f"[{', '.join(map(scalar, value))}]"
            yield from textwrap.wrap(flow, _WIDTH, initial_indent=pad + "  ", subsequent_indent=pad + "   ")
            return
        for index, item in enumerate(value):
            yield from self._item(item, (*place, index), indent + 2)

    def _item(self, item: Any, place: Pointer, indent: int) -> Iterator[str]:
        pad = " " * indent
        if not isinstance(item, Mapping) or not item:
            yield f"{pad}- {_flow(item)}"
            yield from self.mapping({}, place, indent + 2)
            return
        origin = self._told(place)
        if origin:
            yield from _comment(origin, indent)
        lines = list(self.mapping(item, place, indent + 2))
        # The dash takes the place of the first key's indentation; comments above it stay above.
        first = next(i for i, line in enumerate(lines) if not line.lstrip().startswith("#"))
        lines[first] = f"{pad}- {lines[first].lstrip()}"
        yield from lines

    def _told(self, place: Pointer) -> str:
        """How a value was derived, or its file where that is not the file of what it stands in."""
        if place in self._derived:
            return f"derived: {self._derived[place]}"
        origin = self._origins.get(place)
        return f"from {origin}" if origin and origin != self._origins.get(place[:-1]) else ""

    def _commented(self, line: str, place: Pointer, indent: int) -> Iterator[str]:
        told = _safe(self._told(place)) if place and isinstance(place[-1], str) else ""
        if told and len(line) + len(told) + 4 > _WIDTH:
            yield from _comment(told, indent)
            yield line
        else:
            yield f"{line}  # {told}" if told else line


def _alike(entries: Iterable[Unknown]) -> list[list[Unknown]]:
    """Unknown keys by their reason, in the order in which a reason first appears."""
    groups: dict[str, list[Unknown]] = defaultdict(list)
    for entry in entries:
        groups[entry.reason].append(entry)
    return list(groups.values())


def _unknown_comment(names: Sequence[str], reason: str, indent: int) -> Iterator[str]:
    """One comment for all keys that are unknown for one reason."""
    words = ", ".join(names)
    yield from _comment(f"unknown: {words}: {reason}", indent, _MAX_COMMENT + len(words))


def _comment(text: str, indent: int, longest: int = _MAX_COMMENT) -> Iterator[str]:
    pad = " " * indent + "# "
    yield from textwrap.wrap(
        _safe(text, longest),
        max(40, _WIDTH),
        initial_indent=pad,
        subsequent_indent=f"{pad}  ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def _safe(text: str, longest: int = _MAX_COMMENT) -> str:
    """A text for a comment: one line, printable, bounded, and never one that silences a finding."""
    line = " ".join(text.split())[:longest]
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    return _SILENCER.sub("trainspec -", line)


def _flow(value: Any) -> str:
    """Any plain value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return scalar(value)


def scalar(value: Any) -> str:
    """A plain value as the strict loader reads it back.

    >>> scalar(50e9), scalar(0.014196), scalar(True), scalar("no"), scalar("mlx5_0"), scalar("5")
    ('50e9', '0.014196', 'true', '"no"', 'mlx5_0', '"5"')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and not isfinite(value):
        return ".nan" if isnan(value) else ".inf" if value > 0 else "-.inf"
    if isinstance(value, float):
        short = written(value)
        return short if float(short) == value else repr(value)
    return as_text(str(value))


__all__ = ["Exported", "Format", "Job", "NotExpressible", "export_all", "formats"]


@cache
def formats() -> Mapping[str, Format]:
    """Every format by name, in the order of names."""
    return collected(writers, Format)


def export_all(job: Job) -> tuple[dict[str, Exported], dict[str, NotExpressible]]:
    """The job in every format that can run it, by name; and why the others cannot."""
    written: dict[str, Exported] = {}
    refused: dict[str, NotExpressible] = {}
    for name, entry in formats().items():
        try:
            written[name] = entry.write(job)
        except NotExpressible as error:
            refused[name] = error
    return written, refused
