"""Joins all pages of a version on one page, for printing."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ARTICLE = re.compile(r'<article class="md-content__inner md-typeset">(?P<body>.*?)</article>', re.DOTALL)
NOT_PRINTED = re.compile(
    r'<a [^>]*class="(?:md-content__button|headerlink)[^>]*>.*?</a>|<script\b.*?</script>|<aside\b.*?</aside>',
    re.DOTALL,
)
CODE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
TOKEN = re.compile(r'<span class="[a-z][a-z0-9]{0,2}(?: [^"]*)?">(?P<text>[^<]*)</span>|<span></span>')
"""Colours of code, which paper does not need."""
IDENTIFIER = re.compile(r'(?P<before><[^<>]*?\s(?:id|name))="(?P<id>[^"]+)"')
PLACE = re.compile(r'(?P<before><[a-z][^<>]*?) id="(?P<id>[^"]+)"')
LED_TO = re.compile(r"""(?:href="#|url\(#|\baria-[a-z]+="|\bfor=")([^")]+)""")
REFERENCE = re.compile(r'\b(?P<key>href|src)="(?P<target>[^"]*)"')
TITLE = re.compile(r"<h1[^>]*>(?P<title>.*?)</h1>", re.DOTALL)
STYLE = re.compile(r'href="(?:[^"]*/)?(?P<file>assets/stylesheets/(?:main|palette)\.[0-9a-f]+\.min\.css)"')
PERMANENT = "TS-"
ELSEWHERE = re.compile(r"[a-z]+:|//")
SHELL = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<link rel="icon" href="data:,">
<title>{title}</title>
{styles}
</head>
<body class="ts-print" data-md-color-scheme="default">
<script src="../assets/javascripts/from-files.js"></script>
<main class="md-typeset">
<header><h1>{title}</h1><p>Status: {status}. <a href="../">To the site</a></p></header>
<nav aria-label="Contents"><ol>
{contents}
</ol></nav>
{body}
</main>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """One page as a part of the whole: its address below the site, and what it holds."""

    address: str
    title: str
    body: str

    @property
    def anchor(self) -> str:
        """Id of the whole piece."""
        return f"page-{self.address.strip('/').replace('/', '-') or 'home'}"


def whole_page(site: Path, addresses: Sequence[str], title: str, status: str) -> str:
    """The text of the page, from the built pages with these addresses, in this order; its path is one folder deep."""
    pieces = [_piece(site, address) for address in addresses]
    anchors = {piece.address: piece.anchor for piece in pieces}
    styles = sorted(set(STYLE.findall((site / "index.html").read_text(encoding="utf-8"))))
    links = [f'<link rel="stylesheet" href="../{file}">' for file in [*styles, "assets/stylesheets/trainspec.css"]]
    text = SHELL.format(
        title=escape(title),
        status=escape(status),
        styles="\n".join(links),
        contents="\n".join(f'<li><a href="#{piece.anchor}">{piece.title}</a></li>' for piece in pieces),
        body="\n".join(_printed(piece, anchors) for piece in pieces),
    )
    return without_idle_places(text)


def without_idle_places(text: str) -> str:
    """The same page without the ids that nothing on it leads to; those of requirements stay.

    >>> without_idle_places('<a href="#b">c</a><h2 id="a">A</h2><h2 id="b">B</h2><h3 id="TS-PAR-001">')
    '<a href="#b">c</a><h2>A</h2><h2 id="b">B</h2><h3 id="TS-PAR-001">'
    """
    led_to = set(LED_TO.findall(text))

    def kept(place: re.Match[str]) -> str:
        return place[0] if place["id"] in led_to or place["id"].startswith(PERMANENT) else place["before"]

    return PLACE.sub(kept, text)


def _piece(site: Path, address: str) -> Piece:
    text = (site / address / "index.html").read_text(encoding="utf-8")
    article = ARTICLE.search(text)
    if article is None:
        raise ValueError(f"{address}: the built page has no article")
    body = NOT_PRINTED.sub("", article["body"])
    body = CODE.sub(lambda code: TOKEN.sub(lambda token: token["text"] or "", code[0]), body)
    heading = TITLE.search(body)
    return Piece(address, heading["title"].strip() if heading else address, body)


def _printed(piece: Piece, anchors: dict[str, str]) -> str:
    def identifier(found: re.Match[str]) -> str:
        return f'{found["before"]}="{_anchor(piece.anchor, found["id"])}"'

    def reference(found: re.Match[str]) -> str:
        return f'{found["key"]}="{_followed(found["target"], piece, anchors)}"'

    body = REFERENCE.sub(reference, IDENTIFIER.sub(identifier, piece.body))
    return f'<section id="{piece.anchor}">{body}</section>'


def _anchor(page: str, identifier: str) -> str:
    """Ids of requirements are unique in all pages; every other id is that of its page."""
    return identifier if identifier.startswith(PERMANENT) else f"{page}--{identifier}"


def _followed(target: str, piece: Piece, anchors: dict[str, str]) -> str:
    if ELSEWHERE.match(target):
        return target
    path, mark, fragment = target.partition("#")
    address = posixpath.normpath(posixpath.join(piece.address or ".", path)) + "/"
    address = "" if address == "./" else address
    if address in anchors:
        return f"#{_anchor(anchors[address], fragment)}" if fragment else f"#{anchors[address]}"
    return f"../{address.rstrip('/')}{'/' if path.endswith('/') else ''}{mark}{fragment}"


def pages_in_order(nav: object) -> Iterator[str]:
    """Every page that the navigation names, in its order."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for value in nav.values():
            yield from pages_in_order(value)
    elif isinstance(nav, list):
        for value in nav:
            yield from pages_in_order(value)


def address_of(page: str) -> str:
    """Address of a page below the site: `v1/00-terms.md` is at `v1/00-terms/`, an index at its folder."""
    without = page.removesuffix(".md")
    return without.removesuffix("index") if posixpath.basename(without) == "index" else f"{without}/"
