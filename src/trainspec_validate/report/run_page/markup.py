"""Turns text into HTML, and escapes whatever is not HTML already."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from trainspec_validate.system.neutral import printable

_VOID = frozenset({"br", "meta"})
_MAX_TEXT = 4_000


class Html(str):
    """Text that is HTML; made by `element` and `join` only."""

    __slots__ = ()


Node = str | int | Iterable["Node"] | None
"""A text, a whole number, or several; a text that is not `Html` is escaped."""


def join(*nodes: Node) -> Html:
    """The nodes one after another."""
    return Html("".join(_written(node) for node in nodes))


def element(name: str, /, *children: Node, **attributes: str | float | None) -> Html:
    """An element; an underscore in the name of an attribute is a hyphen, one at its end is dropped, None leaves it out.

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def verbatim(text: str) -> Html:
    """Text of this package that is HTML or CSS as it is."""
    return Html(text)


def cut(text: str, length: int) -> str:
    """The text, shortened in its middle where it is longer.

    >>> cut("abcdefghij", 7)
    'abc…hij'
    """
    if len(text) <= length:
        return text
    half = (length - 1) // 2
    return f"{text[: length - 1 - half]}…{text[-half:]}"


def _written(node: Node) -> str:
    if node is None:
        return ""
    if isinstance(node, Html):
        return node
    if isinstance(node, int):
        return f"{node:,}"
    if isinstance(node, str):
        return _escaped(cut(node, _MAX_TEXT))
    return "".join(_written(each) for each in node)


def _value(value: str | float) -> str:
    return _escaped(value) if isinstance(value, str) else f"{value:.6g}"


def _escaped(text: str) -> str:
    return escape(printable(text), quote=True)
