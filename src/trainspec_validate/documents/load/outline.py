"""The outline of a text in YAML or JSON: its keys at the top, without building anything from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

from trainspec_validate.documents.load._base import MAX_ANCHORS
from trainspec_validate.documents.load._yaml_walk import open_parser

ALIAS: Final = "*"
"""How the value of an alias begins that names no anchor above it."""
MAX_VALUES: Final = 100_000
"""Keys and values that an outline has at most; those of a longer text are its first ones."""


@dataclass(slots=True)
class Outline:
    """The keys at the top of all documents of a text with those values that are scalars, and what is inside."""

    top: list[tuple[str, str]] = field(default_factory=list)
    """Keys with their values; a mapping or list as a value is an empty text."""
    inside: list[tuple[str, str]] = field(default_factory=list)
    """Keys below the top whose value is a scalar."""
    num_mappings: int = 0
    """Documents that are a mapping."""
    is_cut: bool = False
    """Whether the text has more keys and values."""


def outline_of(content: bytes, is_last: Callable[[str, str], bool] | None = None) -> Outline | None:
    r"""The outline of a text in UTF-8; None where it cannot be read.

    Nothing is read after the first key at the top for which, with its value, `is_last` is true.

    An alias has the value of its scalar, an alias of a mapping or list is empty, and one of no anchor is as written.

    >>> outline_of(b"image: trainspec/v1").top, outline_of(b"a: [")
    ([('image', 'trainspec/v1')], None)
    >>> outline_of(b"x: &v trainspec/v1\napiVersion: *v").top
    [('x', 'trainspec/v1'), ('apiVersion', 'trainspec/v1')]
    >>> outline_of(b"kind: x\nsteps: [", lambda key, value: key == "kind").top
    [('kind', 'x')]
    """
    found = Outline()
    try:
        for number, (depth, key, value) in enumerate(_scalars(content.decode("utf-8-sig"), found)):
            if number == MAX_VALUES:
                found.is_cut = True
                break
            (found.top if depth == 1 else found.inside).append((key, value))
            if is_last and depth == 1 and is_last(key, value):
                break
    except (yaml.YAMLError, UnicodeDecodeError):
        return None
    return found if found.num_mappings else None


def _scalars(text: str, found: Outline) -> Iterator[tuple[int, str, str]]:
    """Every key with its value, empty for a mapping or list, and how many collections they are in."""
    parser = open_parser(text)
    stack: list[str | None] = []
    """For every open collection the key whose value comes next; None for a list, and empty where a key comes."""
    anchors: dict[str | None, str] = {}
    while parser.check_event():
        event = parser.get_event()
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
            continue
        if isinstance(event, yaml.DocumentStartEvent):
            anchors.clear()
        is_start = isinstance(event, yaml.CollectionStartEvent)
        if not is_start and not isinstance(event, yaml.NodeEvent):
            continue
        value = _value(event, anchors)
        if stack and stack[-1] == "" and not is_start:
            stack[-1] = value or "?"
        else:
            yield len(stack), (stack[-1] or "") if stack else "", value
            if stack and stack[-1] is not None:
                stack[-1] = ""
        if is_start:
            found.num_mappings += not stack and isinstance(event, yaml.MappingStartEvent)
            stack.append("" if isinstance(event, yaml.MappingStartEvent) else None)


def _value(event: yaml.NodeEvent, anchors: dict[str | None, str]) -> str:
    """The value of a scalar or of its alias, empty for a mapping or list; anchors are added to those known."""
    if isinstance(event, yaml.AliasEvent):
        return anchors.get(event.anchor, f"{ALIAS}{event.anchor}")
    value: str = event.value if isinstance(event, yaml.ScalarEvent) else ""
    if event.anchor is not None and (event.anchor in anchors or len(anchors) < MAX_ANCHORS):
        anchors[event.anchor] = value
    return value
