"""Lays out the tables of a run page, and bounds their length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainspec_validate.report.run_page.markup import Html, Node, cut, element
from trainspec_validate.report.run_page.words import count

MAX_ROWS = 50
_MAX_CELL = 300
_MAX_NAME = 100
_LONGEST_WORD = 28
_SHORT = 14
"""Tables of no more rows stay on one page."""
_LOOKS = {"#": "number", "=": "whole"}


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[Node]], most: int = MAX_ROWS) -> Html:
    """A table with a caption; what is left out is counted.

    `#` before the name of a column says that it holds numbers, `=` that its cells stay on one line.
    """
    all_rows = list(rows)
    looks = [_LOOKS.get(name[:1]) for name in header]
    names = [name.lstrip("".join(_LOOKS)) for name in header]
    heads = [element("th", name, scope="col", class_=look) for name, look in zip(names, looks, strict=True)]
    body = [_row(row, looks) for row in all_rows[:most]]
    left = len(all_rows) - most
    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", heads)),
        element("tbody", body),
    )
    more = element("p", f"{count(left, 'more row')} not shown.", class_="note") if left > 0 else None
    return element("div", whole, more, class_="wide short" if len(body) <= _SHORT else "wide")


def _row(cells: Sequence[Node], looks: Sequence[str | None]) -> Html:
    first, *rest = (_short(cell, _MAX_CELL if place else _MAX_NAME) for place, cell in enumerate(cells))
    return element(
        "tr",
        element("th", first, scope="row", class_=looks[0]),
        [element("td", cell, class_=look) for cell, look in zip(rest, looks[1:], strict=True)],
    )


def _short(cell: Node, length: int) -> Node:
    """Text that is cut, and may be broken anywhere where it has a word that no column holds."""
    if not isinstance(cell, str) or isinstance(cell, Html):
        return cell
    text = cut(cell, length)
    is_long = max(map(len, text.split()), default=0) > _LONGEST_WORD
    return element("span", text, class_="long") if is_long else text


def few(shown: Sequence[Node], num: int) -> Node:
    """Some of several things, and how many more there are."""
    more = f" and {num - len(shown):,} more" if num > len(shown) else ""
    return [[[", " if place else "", each] for place, each in enumerate(shown)], more]


def bar(share: float, mark: float | None = None) -> Html:
    """A bar of a share of a cell, with a line to a larger share; the numbers are next to it."""
    width, line = (100 * min(max(each, 0.0), 1.0) for each in (share, share if mark is None else mark))
    drawn = [element("rect", class_="bar", x=0, y=2, width=width, height=8)]
    if line > width:
        drawn.append(element("path", class_="whisker", d=f"M{width:.1f} 6H{line:.1f}M{line:.1f} 3v6"))
    return element("svg", drawn, viewBox="0 0 101 12", class_="cellbar", aria_hidden="true", preserveAspectRatio="none")
