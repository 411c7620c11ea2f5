"""Publishes each page as Markdown next to its HTML, and `llms.txt`, the list of pages for programs that read text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainspec_site.print_page import address_of
from trainspec_site.stage import LINK, outside_fences

FILE = "llms.txt"
"""Its form is that of https://llmstxt.org: a title, a summary, and lists of links under headings."""
SUMMARY = (
    "> A framework-neutral specification for large-scale AI training, with a validator."
    " Each page is linked as Markdown; without `index.md` the address is that of the page for people."
)
_SETTINGS = re.compile(r"\A---\n(?P<settings>.*?)\n---\n+", re.DOTALL)
_TITLE = re.compile(r"^# +(?P<title>.+?)(?: *\{[^}]*\})?$", re.MULTILINE)
_ATTRIBUTES = re.compile(r"(?<=\))\{ [^}\n]*\}")
"""Classes of a link, which only MkDocs understands."""
_FACTS = re.compile(r'^<p class="ts-facts"[^>]*>(?P<facts>.*)</p>$', re.MULTILINE)
_FACT = re.compile(r'<span class="ts-fact[^>]*>(?P<words>.*?)</span>')
_MARKS = re.compile(r"[`*\[\]]|\]\([^)]*\)")
_SENTENCE = re.compile(r"\A(?![#|<>`!\-\[{])(?P<text>[^\n]+(?:\n(?!\n)[^\n]+)*)")
_MAX_WORDS = 30


def write(pages: Path, site: Path, navigation: list[Any]) -> None:
    """Write the Markdown of every page of the folder `pages` into the built site, and the list of those in the menu."""
    texts = {path.relative_to(pages).as_posix(): path.read_text(encoding="utf-8") for path in pages.rglob("*.md")}
    for page, text in sorted(texts.items()):
        target = site / markdown_of(page)
        if target.parent.is_dir():  # what MkDocs was told to leave out has no place
            target.write_text(plain(text, page, texts), encoding="utf-8")
    (site / FILE).write_text(listing(navigation, texts), encoding="utf-8")


def markdown_of(page: str) -> str:
    """Path of the Markdown of a page, next to its HTML.

    >>> markdown_of("guide/plan.md"), markdown_of("rules/index.md")
    ('guide/plan/index.md', 'rules/index.md')
    """
    return f"{address_of(page)}index.md"


def plain(text: str, page: str, pages: Mapping[str, str]) -> str:
    """The text of a page without settings, whose links to pages lead to their Markdown."""
    text = _SETTINGS.sub("", text)
    folder = [part for part in page.split("/")[:-1] if part]
    depth = markdown_of(page).count("/")

    def follow(link: re.Match[str]) -> str:
        parts = list(folder)
        for part in link["target"].split("/"):
            if part == "..":
                parts[-1:] = []
            elif part != ".":
                parts.append(part)
        target = "/".join(parts)
        found = markdown_of(target) if target in pages else target
        return f"]({'../' * depth}{found}{link['rest'] or ''})"

    return outside_fences(text, lambda part: _plain_facts(_ATTRIBUTES.sub("", LINK.sub(follow, part))))


def _plain_facts(text: str) -> str:
    return _FACTS.sub(lambda line: ", ".join(_FACT.findall(line["facts"])), text)


def title_of(text: str) -> str:
    """The title of a page, from its settings or its first heading."""
    settings = _SETTINGS.match(text)
    stated = re.search(r"^title: *[\"']?(.+?)[\"']?$", settings["settings"], re.MULTILINE) if settings else None
    heading = _TITLE.search(_SETTINGS.sub("", text))
    found = heading["title"] if heading else stated[1] if stated else "Untitled"
    return _MARKS.sub("", found).strip()


def summary_of(text: str) -> str:
    """The first sentence below the title; empty where a table or a figure comes first."""
    body = _TITLE.sub("", _SETTINGS.sub("", text), count=1).lstrip()
    found = _SENTENCE.match(body)
    if not found:
        return ""
    line = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(found["text"].split())).replace("**", "")
    sentence = re.split(r"(?<=[.:?!]) (?=[A-Z`\[])", line, maxsplit=1)[0].rstrip(":")
    words = sentence.split()
    return sentence if len(words) <= _MAX_WORDS else f"{' '.join(words[:_MAX_WORDS])} …"


def with_base(text: str, base: str) -> str:
    """The list of pages for a folder above them: `base` leads to them."""
    return re.sub(r"^(- \[.*?\]\()", rf"\g<1>{base}", text, flags=re.MULTILINE)


def listing(navigation: list[Any], texts: Mapping[str, str]) -> str:
    """The text of `llms.txt`: pages in the order of the menu, each with its title and first sentence."""
    lines = ["# TrainSpec", "", SUMMARY]
    for entry in navigation:
        ((heading, below),) = entry.items()
        lines += ["", f"## {heading}", ""]
        for page in _pages(below):
            summary = summary_of(texts[page])
            lines.append(f"- [{title_of(texts[page])}]({markdown_of(page)}){f': {summary}' if summary else ''}")
    return "".join(f"{line}\n" for line in lines)


def _pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for below in entry.values() if isinstance(entry, dict) else entry:
            yield from _pages(below)
