"""Keeps the wanted pointers of one pass over a text, and the places found for each."""

from __future__ import annotations

from collections.abc import Iterable

from trainspec_validate.documents.load._base import Offsets, spans_of
from trainspec_validate.model.finding import Pointer, Span

Request = tuple[Pointer, bool]
"""A pointer, and whether its key is wanted rather than its value."""


class Wanted:
    """A node of the trie of wanted pointers."""

    __slots__ = ("children", "requests")

    def __init__(self) -> None:
        self.children: dict[str | int, Wanted] = {}
        self.requests: list[Request] = []


class Lookup:
    """The trie of one pass; a walker takes children out as it meets them and settles what it can."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self.root = Wanted()
        self._found: dict[Request, Offsets] = {}
        unique = dict.fromkeys(requests)
        self.remaining = len(unique)
        for request in unique:
            node = self.root
            for step in request[0]:
                node = node.children.setdefault(step, Wanted())
            node.requests.append(request)

    def settle(self, node: Wanted, key: Offsets | None, value: Offsets) -> None:
        """The node exists, with this key (None for a list item) and this value."""
        for request in node.requests:
            self._found[request] = key if key and request[1] else value
        self.remaining -= len(node.requests)
        node.requests = []

    def settle_missing(self, node: Wanted, nearest: Offsets) -> None:
        """Places that are still wanted below the node do not exist: point to the nearest place that does."""
        pending = [node]
        while pending:
            lost = pending.pop()
            self.settle(lost, None, nearest)
            pending.extend(lost.children.values())
            lost.children = {}

    def spans(self, text: str) -> dict[Request, Span]:
        """Every request with its span."""
        spans = spans_of(text, self._found.values())
        return {request: spans[stretch] for request, stretch in self._found.items()}
