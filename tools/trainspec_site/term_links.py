"""Turns the list of terms at the head of a page into links with tooltips, each where the page first uses the term."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainspec_site.source_links import KEPT

LIST = re.compile(r"^Terms: (?P<terms>.*?)\n\n", re.DOTALL | re.MULTILINE)
TERM = re.compile(r"\[(?P<term>[^\]]+)\]\((?P<target>[^)\s]*00-terms\.md#(?P<slug>[\w-]+))\)")
DEFINITION = re.compile(r"^### (?P<term>[^\n]+)\n\n(?P<body>.*?)(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
MARKUP = re.compile(r"\[([^\]]*)\]\([^)]*\)|`|\s*\([^)]*\)")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
SIBILANT = re.compile(r"(?:s|x|z|ch|sh)$")
"""Ends of words whose plural has `es`: *planes* is no plural of *plan*."""
HEADING = re.compile(r"^#.*$", re.MULTILINE)


def definitions(page: str) -> dict[str, str]:
    """The first sentence of each definition of a page of terms, without markup, by its anchor."""
    return {
        re.sub(r"\W+", "-", found["term"].lower()).strip("-"): _sentence(found["body"])
        for found in DEFINITION.finditer(page)
    }


def _sentence(body: str) -> str:
    words = " ".join(MARKUP.sub(lambda found: found[1] or "", body).split())
    return re.split(r"(?<=\.)\s", words)[0].replace('"', "'")


def with_tooltips(text: str, meanings: Mapping[str, str]) -> str:
    """A page without its list of terms, and with a link to each term at its first use outside of code and links."""
    listed = LIST.search(text)
    if listed is None:
        return text
    text = text[: listed.start()] + text[listed.end() :]
    terms = sorted(TERM.finditer(listed["terms"]), key=lambda found: len(found["term"]), reverse=True)
    for found in terms:
        text = _linked(text, found, meanings.get(found["slug"], ""))
    return text


def _linked(text: str, found: re.Match[str], meaning: str) -> str:
    """The text with a link at the first use of one term."""
    words = r"\s+".join(map(re.escape, found["term"].split()))
    plural = "es" if SIBILANT.search(found["term"]) else "s"
    use = re.compile(rf"(?<![\w-]){words}(?:{plural})?(?![\w-])", re.IGNORECASE)
    kept = sorted(part.span() for pattern in (KEPT, HEADING, FENCE) for part in pattern.finditer(text))
    for match in use.finditer(text):
        if not any(start < match.end() and match.start() < end for start, end in kept):
            title = f' "{meaning}"' if meaning else ""
            return f"{text[: match.start()]}[{match[0]}]({found['target']}{title}){text[match.end() :]}"
    return text
