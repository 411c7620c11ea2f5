"""Builds elements of a page: what it is given is text and can never become markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote
from xml.etree import ElementTree as ET

from trainspec_validate.system.neutral import printable

Content = str | ET.Element


def element(tag: str, *contents: Content, **attributes: str) -> ET.Element:
    """An element with text and elements in their order; an underscore at the end of an attribute is dropped."""
    found = ET.Element(tag, {name.rstrip("_"): printable(value) for name, value in attributes.items()})
    for content in contents:
        if isinstance(content, ET.Element):
            found.append(content)
        elif len(found):
            found[-1].tail = (found[-1].tail or "") + printable(content)
        else:
            found.text = (found.text or "") + printable(content)
    return found


def link_to(path: str, text: str) -> ET.Element:
    """A link to a file next to the page: `./` before it keeps a path from being taken as an address."""
    return element("a", text, href="./" + quote(path, safe="/", errors="surrogatepass"))


def table(heads: Sequence[str], rows: Iterable[Sequence[ET.Element]]) -> ET.Element:
    """A table with a row of heads; rows hold their cells."""
    head = element("thead", element("tr", *(element("th", name, scope="col") for name in heads)))
    return element("table", head, element("tbody", *(element("tr", *row) for row in rows)))


def items(texts: Iterable[Content]) -> ET.Element:
    """A list."""
    return element("ul", *(element("li", text) for text in texts))
