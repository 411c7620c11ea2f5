"""Plain values from YAML text, built strictly, event by event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import yaml
from yaml import events

from trainspec_validate.documents.load._base import (
    MAX_ANCHORS,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_KEY_LENGTH,
    MAX_VALUES,
    Ambiguous,
    LoadError,
    duplicate_key,
    key_too_long,
    quoted,
    span_of,
    too_deep,
    too_many_values,
)
from trainspec_validate.documents.load._yaml_scalars import (
    CORE,
    read_by_older,
    resolve,
    resolve_as_older,
    resolve_tagged,
    unsupported_tag,
)
from trainspec_validate.documents.load._yaml_syntax import check_characters, translate
from trainspec_validate.documents.load._yaml_walk import locate, open_parser
from trainspec_validate.model.finding import Pointer

_MAX_CACHED_SCALARS: Final = 50_000
_MAX_AMBIGUOUS: Final = 100
_MERGE: Final = "<<"
_ABSENT: Final[Any] = object()
_Anchored = tuple[Any, int, int, int]
"""An anchored value, its number of values, its number of characters, and how deep it nests."""


def load(text: str, *, older: bool = False) -> tuple[Any, tuple[Ambiguous, ...]]:
    """The value of the only document in the text, and what YAML 1.1 reads otherwise in it. Raises LoadError.

    With `older` whole numbers and merge keys are those of YAML 1.1.
    """
    check_characters(text)
    builder = _Builder(text, resolve_as_older if older else resolve, merges=older)
    return builder.build(), tuple(builder.ambiguous)


class _Builder:
    """Builds the value of one document; a refusal without a span gets that of the current event."""

    def __init__(self, text: str, resolve_plain: Callable[[str], Any], *, merges: bool) -> None:
        self.text = text
        self.merges = merges
        self.resolve_plain = resolve_plain
        self.root: Any = _ABSENT
        self.container: Any = None
        self.key: Any = _ABSENT
        self.stack: list[tuple[Any, Any, str | None, int, int, int]] = []
        self.count = 0
        self.characters = 0
        self.height = 0
        self.anchors: dict[str, _Anchored] = {}
        self.cache: dict[str, Any] = {}
        self.ambiguous: list[Ambiguous] = []

    def build(self) -> Any:
        handlers: dict[type, Any] = {
            events.ScalarEvent: self.scalar,
            events.MappingStartEvent: self.start,
            events.SequenceStartEvent: self.start,
            events.MappingEndEvent: self.end,
            events.SequenceEndEvent: self.end,
            events.AliasEvent: self.alias,
            events.DocumentStartEvent: self.document,
            events.DocumentEndEvent: lambda _: None,
            events.StreamStartEvent: lambda _: None,
        }
        event: Any = None
        try:
            next_event = open_parser(self.text).get_event
            while type(event := next_event()) is not events.StreamEndEvent:
                handlers[type(event)](event)
        except LoadError as error:
            if error.span is None:
                error.span = span_of(self.text, event.start_mark.index, event.end_mark.index)
            raise
        except yaml.YAMLError as error:
            raise translate(self.text, error, event) from None
        if self.root is _ABSENT:
            raise _empty()
        return self.root

    def document(self, _: Any) -> None:
        if self.root is not _ABSENT:
            raise LoadError(
                "multiple-documents",
                "a second YAML document starts here",
                "keep one document per file; remove the '---' or split the file",
            )

    def scalar(self, event: Any) -> None:
        value = event.value
        self.count += 1
        self.characters += len(value)
        if event.tag is not None:
            value = resolve_tagged(value, event.tag)
        elif event.implicit[0]:
            known = self.cache.get(value, _ABSENT)
            value = self.plain(value, event) if known is _ABSENT else known
        if event.anchor is not None:
            self.anchor(event.anchor, (value, 1, len(event.value), 0))
        container = self.container
        if type(container) is dict:
            if self.key is _ABSENT:
                self.open_key(value, event)
                return
            container[self.key] = value
            self.key = _ABSENT
        elif type(container) is list:
            container.append(value)
        else:
            if event.start_mark.index == event.end_mark.index:
                raise _empty()
            self.root = value
        if self.count > MAX_VALUES:
            raise too_many_values()

    def plain(self, text: str, event: Any) -> Any:
        value = self.resolve_plain(text)
        older = read_by_older(text)
        if older is not None and len(self.ambiguous) < _MAX_AMBIGUOUS:
            span = span_of(self.text, event.start_mark.index, event.end_mark.index)
            self.ambiguous.append(Ambiguous(span, text, value, older))
        if len(self.cache) < _MAX_CACHED_SCALARS:
            self.cache[text] = value
        return value

    def open_key(self, key: Any, event: Any) -> None:
        if type(key) is not str:
            written = f"key {quoted(event.value)} is not text" if event.value else "a key is missing here"
            raise LoadError("non-string-key", written, f'quote it: "{event.value[:60]}"')
        if len(key) > MAX_KEY_LENGTH:
            raise key_too_long(len(key))
        if key in self.container:
            raise self.duplicate(key, event)
        if key == _MERGE and event.implicit[0] and not self.merges:
            raise LoadError(
                "unsupported-tag",
                "the merge key '<<' is not part of YAML 1.2",
                "write the merged keys out, or quote the key if it is meant as text",
            )
        self.key = key

    def duplicate(self, key: str, event: Any) -> LoadError:
        request = ((*self.pointer(), key), True)
        first = locate(self.text, [request])[request]
        return duplicate_key(key, first, span_of(self.text, event.start_mark.index, event.end_mark.index))

    def pointer(self) -> Pointer:
        """The place of the open container."""
        outer = [(frame[0], frame[1]) for frame in self.stack[1:]]
        return tuple(len(container) if type(container) is list else key for container, key in outer)

    def start(self, event: Any) -> None:
        is_mapping = type(event) is events.MappingStartEvent
        self.check_collection(event, is_mapping)
        self.count += 1
        self.stack.append((self.container, self.key, event.anchor, self.count, self.characters, self.height))
        if len(self.stack) > MAX_DEPTH:
            raise too_deep()
        if event.anchor is not None:
            self.anchors.pop(event.anchor, None)
        self.container = {} if is_mapping else []
        self.key = _ABSENT
        self.height = 0

    def check_collection(self, event: Any, is_mapping: bool) -> None:
        if event.tag not in (None, "!", CORE + ("map" if is_mapping else "seq")):
            raise unsupported_tag(event.tag)
        if is_mapping and self.text.startswith("{{", event.start_mark.index - 1):
            raise LoadError(
                "non-string-key",
                "'{{' opens a placeholder of a template",
                "render the template first, and validate the result",
            )
        self.check_not_key("a mapping" if is_mapping else "a list")

    def check_not_key(self, what: str) -> None:
        if type(self.container) is dict and self.key is _ABSENT:
            raise LoadError("non-string-key", f"{what} appears where a key is expected", "write the key as text")

    def end(self, _: Any) -> None:
        if self.merges and type(self.container) is dict and _MERGE in self.container:
            self.merge(self.container)
        value, height = self.container, self.height + 1
        self.container, self.key, anchor, count, characters, outer_height = self.stack.pop()
        self.height = max(height, outer_height)
        if anchor is not None:
            size = self.count - count + 1
            self.anchor(anchor, (value, size, self.characters - characters, height))
        self.attach(value)

    def merge(self, mapping: dict[str, Any]) -> None:
        """Add the keys of the mappings behind `<<`; an earlier one goes before a later, and a key of its own before."""
        given = mapping.pop(_MERGE)
        parts = given if type(given) is list else [given]
        if not all(type(part) is dict for part in parts):
            raise LoadError("unsupported-tag", "'<<' merges no mapping", "name a mapping, or a list of mappings")
        for part in parts:
            self.count += len(part)
            if self.count > MAX_VALUES:
                raise too_many_values()
            for key, value in part.items():
                mapping.setdefault(key, value)

    def attach(self, value: Any) -> None:
        if type(self.container) is dict:
            self.container[self.key] = value
            self.key = _ABSENT
        elif type(self.container) is list:
            self.container.append(value)
        else:
            self.root = value
        if self.count > MAX_VALUES:
            raise too_many_values()

    def anchor(self, name: str, anchored: _Anchored) -> None:
        self.anchors[name] = anchored
        if len(self.anchors) > MAX_ANCHORS:
            raise LoadError(
                "alias-budget",
                f"the file defines more than {MAX_ANCHORS:,} anchors",
                "remove the anchors ('&name') that no alias uses",
            )

    def alias(self, event: Any) -> None:
        self.check_not_key("an alias")
        if event.anchor not in self.anchors:
            raise self.unknown_alias(event.anchor)
        value, size, characters, height = self.anchors[event.anchor]
        self.count += size
        self.characters += characters
        if self.count > MAX_VALUES or self.characters > MAX_BYTES:
            raise LoadError(
                "alias-budget",
                f"with alias {quoted('*' + event.anchor)} expanded the file holds more than "
                f"{MAX_VALUES:,} keys and values or {MAX_BYTES:,} characters",
                "use fewer aliases; describe equal parts once, as a group with a count",
            )
        if len(self.stack) + height > MAX_DEPTH:
            raise too_deep()
        self.height = max(self.height, height)
        self.attach(value)

    def unknown_alias(self, name: str) -> LoadError:
        if any(frame[2] == name for frame in self.stack):
            return LoadError(
                "alias-unknown",
                f"alias {quoted('*' + name)} appears inside the value that it names",
                "a value cannot contain itself; write the inner value out",
            )
        return LoadError(
            "alias-unknown",
            f"alias {quoted('*' + name)} names no anchor above it",
            f"define {quoted('&' + name)} earlier in the file, or quote the value if it is text",
        )


def _empty() -> LoadError:
    return LoadError("empty", "the file holds no document", "a document starts with 'apiVersion:' and 'kind:'")
