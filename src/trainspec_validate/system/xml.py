"""Reads XML: a small tree with line numbers, within bounds, and nothing from outside the text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from trainspec_validate.system.foreign import ForeignFormatError

MAX_CHARACTERS = 32 * 2**20
MAX_DEPTH = 128
MAX_ELEMENTS = 200_000
MAX_ATTRIBUTES = 64
MAX_VALUE_CHARACTERS = 65_536
MAX_TEXT_CHARACTERS = 4 * 2**20

_PROLOGUE = re.compile(r"\s+|<\?.*?\?>|<!--.*?-->|<![A-Za-z][^<>]*>", re.DOTALL)
_START = re.compile(r"<([A-Za-z_][\w.-]*)[\s/>]")
_LOOK_CHARACTERS = 65_536


@dataclass(frozen=True, slots=True)
class Element:
    """One element; attribute values and text are as written, never trimmed."""

    tag: str
    attributes: Mapping[str, str]
    children: tuple[Element, ...]
    text: str
    """Characters directly inside, those around children included."""
    line: int

    def get(self, name: str) -> str | None:
        """The value of an attribute without spaces around it; None where it is absent or empty."""
        return self.attributes.get(name, "").strip() or None

    def walk(self) -> Iterator[Element]:
        """This element and all below it, in the order of the text."""
        stack = [self]
        while stack:
            item = stack.pop()
            yield item
            stack.extend(reversed(item.children))

    def all(self, tag: str) -> tuple[Element, ...]:
        """Elements of a tag at any depth, in the order of the text."""
        return tuple(item for item in self.walk() if item.tag == tag)


def root_tag(text: str) -> str | None:
    """The tag of the first element, found without parsing; None where the start is not XML.

    >>> root_tag('<?xml version="1.0"?><!-- note --><system version="1">')
    'system'
    """
    position, end = 0, min(len(text), _LOOK_CHARACTERS)
    if text.startswith("\ufeff"):
        position = 1
    while match := _PROLOGUE.match(text, position, end):
        position = match.end()
    found = _START.match(text, position, end)
    return found[1] if found else None


@dataclass(slots=True)
class _Open:
    tag: str
    attributes: Mapping[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def close(self) -> Element:
        return Element(self.tag, self.attributes, tuple(self.children), "".join(self.text), self.line)


class _Builder:
    """Turns parser events into elements and refuses what passes a bound."""

    def __init__(self, parser: expat.XMLParserType) -> None:
        self._parser = parser
        self._open: list[_Open] = []
        self._num_elements = 0
        self._num_characters = 0
        self.root: Element | None = None
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EntityDeclHandler = self._entity
        parser.SkippedEntityHandler = self._skipped

    def _refuse(self, message: str, help_text: str = "") -> ForeignFormatError:
        return ForeignFormatError(message, self._parser.CurrentLineNumber, help_text)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._num_elements += 1
        if self._num_elements > MAX_ELEMENTS:
            raise self._refuse(f"more than {MAX_ELEMENTS:,} elements")
        if len(self._open) >= MAX_DEPTH:
            raise self._refuse(f"elements nest deeper than {MAX_DEPTH}")
        if len(attributes) > MAX_ATTRIBUTES:
            raise self._refuse(f"<{tag[:64]}> has {len(attributes):,} attributes, at most {MAX_ATTRIBUTES} are read")
        if any(len(value) > MAX_VALUE_CHARACTERS for value in attributes.values()):
            raise self._refuse(f"an attribute of <{tag[:64]}> is longer than {MAX_VALUE_CHARACTERS:,} characters")
        self._open.append(_Open(tag, attributes, self._parser.CurrentLineNumber))

    def _end(self, _tag: str) -> None:
        done = self._open.pop().close()
        if self._open:
            self._open[-1].children.append(done)
        else:
            self.root = done

    def _text(self, data: str) -> None:
        self._num_characters += len(data)
        if self._num_characters > MAX_TEXT_CHARACTERS:
            raise self._refuse(f"more than {MAX_TEXT_CHARACTERS:,} characters of text")
        self._open[-1].text.append(data)

    def _doctype(self, _name: str, _system: str | None, _public: str | None, internal: bool) -> None:
        if internal:
            raise self._refuse("declares a document type of its own", "remove the part in square brackets")

    def _entity(self, *_declaration: object) -> None:
        raise self._refuse("declares an entity", "write the text itself")

    def _skipped(self, name: str, _is_parameter: bool) -> None:
        raise self._refuse(f"refers to the entity {name[:64]!r}, which is not declared", "write the text itself")


def parse(text: str) -> Element:
    """The tree of a text. A document type with only a system identifier is tolerated and never loaded.

    >>> parse('<a><b c="1"/></a>').children[0].get("c")
    '1'

    Raises:
        ForeignFormatError: the text is not XML, declares entities, or passes a bound; with the line.
    """
    if len(text) > MAX_CHARACTERS:
        raise ForeignFormatError(f"longer than {MAX_CHARACTERS:,} characters")
    parser = expat.ParserCreate()
    parser.buffer_text = True
    builder = _Builder(parser)
    try:
        parser.Parse(text.removeprefix("\ufeff"), True)
    except expat.ExpatError as error:
        raise ForeignFormatError(f"is not XML: {expat.ErrorString(error.code)}", error.lineno) from None
    except UnicodeEncodeError:
        raise ForeignFormatError("holds characters that no encoding has") from None
    if builder.root is None:
        raise ForeignFormatError("holds no element")
    return builder.root
