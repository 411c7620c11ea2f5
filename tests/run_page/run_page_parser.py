"""A strict reader of the pages of runs: every element is closed where it has to be, or the page is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br"}


@dataclass
class Element:
    """An element with its attributes, its text and what lies in it."""

    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def all(self, *names: str) -> Iterator[Element]:
        """This element and those in it that have one of these names; every one without names."""
        if not names or self.name in names:
            yield self
        for child in self.children:
            yield from child.all(*names)

    @property
    def text(self) -> str:
        """All text in order of elements, without the text of elements in between."""
        return "".join(self.texts)

    @property
    def classes(self) -> set[str]:
        """Classes."""
        return set(self.attributes.get("class", "").split())

    def find(self, identifier: str) -> Element:
        """The element with an id."""
        return next(each for each in self.all() if each.attributes.get("id") == identifier)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        made = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(made)
        if tag not in VOID:
            self.open.append(made)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> where {self.open[-1].name} is open"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for each in self.open:
            each.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"a processing instruction: {data}")


def parse(page: str) -> Element:
    """The page as elements.

    Raises:
        AssertionError: it is not well formed.
    """
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.root], f"{reader.open[-1].name} is never closed"
    return reader.root.children[0]
