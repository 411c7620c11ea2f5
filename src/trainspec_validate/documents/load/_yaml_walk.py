"""Finds the places of values in YAML text: spans of pointers, and comments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import yaml
from yaml import events

from trainspec_validate.documents.load._base import Offsets
from trainspec_validate.documents.load._lookup import Lookup, Request, Wanted
from trainspec_validate.model.finding import Span
from trainspec_validate.system.budget import check_time

_STARTS = (events.MappingStartEvent, events.SequenceStartEvent)
_MAX_LINE_WITH_COMMENT = 1000
_ENDS = (events.MappingEndEvent, events.SequenceEndEvent)


class _Chunks:
    """Hands the text out piece by piece: given a whole string, PyYAML would encode and keep a second copy."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def read(self, size: int = -1, /) -> str:
        check_time()
        start, self.position = self.position, self.position + size if size >= 0 else len(self.text)
        return self.text[start : self.position]


def open_parser(text: str) -> Any:
    """A parser of events over libyaml, or over Python where PyYAML was built without it."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)(_Chunks(text))


def locate(text: str, requests: Iterable[Request]) -> dict[Request, Span]:
    """The span of every request, in one pass over a text that loads (or loads up to the places asked for)."""
    walker = _Walker(text, Lookup(requests))
    walker.walk()
    return walker.lookup.spans(text)


class _Walker:
    def __init__(self, text: str, lookup: Lookup) -> None:
        self.text = text
        self.lookup = lookup
        self.next: Callable[[], Any] = open_parser(text).get_event

    def walk(self) -> None:
        self.next()
        self.next()
        if self.lookup.remaining:
            self.node(self.lookup.root, self.next(), None)

    def node(self, wanted: Wanted, event: Any, key: Offsets | None) -> None:
        """Settle what is wanted at and below the node that starts with this event."""
        if type(event) is events.MappingStartEvent:
            self.mapping(wanted, event, key)
        elif type(event) is events.SequenceStartEvent:
            self.sequence(wanted, event, key)
        else:
            stretch = self.scalar_stretch(event, key)
            self.lookup.settle(wanted, key, stretch)
            self.lookup.settle_missing(wanted, key or stretch)

    def mapping(self, wanted: Wanted, event: Any, key: Offsets | None) -> None:
        nearest, at_root = key, wanted is self.lookup.root
        if nearest:
            self.lookup.settle(wanted, nearest, nearest)
        inner = self.next()
        while type(inner) is not events.MappingEndEvent:
            key_stretch = self.scalar_stretch(inner, None)
            if at_root and not nearest:
                nearest = key_stretch
                self.lookup.settle(wanted, nearest, nearest)
            child = wanted.children.pop(inner.value, None)
            if child:
                self.node(child, self.next(), key_stretch)
            else:
                self.skip(self.next())
            if not self.lookup.remaining:
                return
            if not wanted.children:
                inner = self.skip_rest()
                break
            inner = self.next()
        self.close(wanted, nearest or self.first_line(event, inner))

    def sequence(self, wanted: Wanted, event: Any, key: Offsets | None) -> None:
        if key:
            self.lookup.settle(wanted, key, key)
        index, inner = 0, self.next()
        while type(inner) is not events.SequenceEndEvent:
            child = wanted.children.pop(index, None)
            if child:
                self.node(child, inner, None)
            else:
                self.skip(inner)
            if not self.lookup.remaining:
                return
            if not wanted.children:
                inner = self.skip_rest()
                break
            index, inner = index + 1, self.next()
        self.close(wanted, key or self.first_line(event, inner))

    def close(self, wanted: Wanted, nearest: Offsets) -> None:
        self.lookup.settle(wanted, nearest, nearest)
        self.lookup.settle_missing(wanted, nearest)

    def skip(self, event: Any) -> None:
        if type(event) in _STARTS:
            self.skip_rest()

    def skip_rest(self) -> Any:
        """Read to the end of the open collection; returns its end event."""
        depth, read = 1, self.next
        while depth:
            event = read()
            if type(event) in _STARTS:
                depth += 1
            elif type(event) in _ENDS:
                depth -= 1
        return event

    def scalar_stretch(self, event: Any, key: Offsets | None) -> Offsets:
        start, end = event.start_mark.index, event.end_mark.index
        if start == end:
            return key or (max(0, start - 1), end)
        if getattr(event, "style", None) in ("|", ">"):
            return (start, self.line_end(start))
        return (start, end)

    def first_line(self, start_event: Any, end_event: Any) -> Offsets:
        start, end = start_event.start_mark.index, end_event.end_mark.index
        if start_event.flow_style:
            line_end = self.text.find("\n", start, end)
            return (start, end if line_end < 0 else line_end)
        return (start, self.line_end(start))

    def line_end(self, start: int) -> int:
        """Where the line of this offset ends, without blanks and without a comment outside of quotes."""
        end = self.text.find("\n", start)
        line = self.text[start : end if end >= 0 else None]
        mark = line.find(" #", 0, _MAX_LINE_WITH_COMMENT)
        while mark >= 0:
            before = line[:mark]
            if before.count("'") % 2 == 0 and before.count('"') % 2 == 0:
                line = before
                break
            mark = line.find(" #", mark + 1, _MAX_LINE_WITH_COMMENT)
        return start + max(1, len(line.rstrip()))


def comments(text: str, containing: str) -> Iterator[tuple[int, int, str]]:
    """Every comment that holds the words: offset of its '#', offset of its end, and its text."""
    last = text.rfind(containing)
    if last < 0 or text.rfind("#", 0, last + len(containing)) < 0:
        return
    read = open_parser(text).get_event
    position = 0
    while position <= last and (event := read()) is not None:
        if type(event) in (events.ScalarEvent, events.AliasEvent, events.StreamEndEvent):
            start, end = event.start_mark.index, event.end_mark.index
            if text.find("#", position, start) >= 0:
                yield from _comments_between(text, position, start, containing)
            position = end
            if getattr(event, "style", None) in ("|", ">"):
                header_end = text.find("\n", start, end)
                yield from _comments_between(text, start, end if header_end < 0 else header_end, containing)


def _comments_between(text: str, start: int, end: int, containing: str) -> Iterator[tuple[int, int, str]]:
    while (mark := text.find("#", start, end)) >= 0:
        line_end = text.find("\n", mark)
        start = line_end if line_end >= 0 else len(text)
        comment = text[mark:start].rstrip()
        if containing in comment:
            yield mark, mark + len(comment), comment
