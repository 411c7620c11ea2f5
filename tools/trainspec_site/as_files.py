"""Writes the index of the search: concepts first, and readable without a server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from trainspec_site.npm import IFRAME_WORKER
from trainspec_site.search_words import PLACES

WORKER = "iframe-worker.js"
SEARCH = Path("search", "search_index.json")
REPEATED = re.compile(r"rules/[A-Z]+/[^#]+(?P<part>#.*)?")
"""Pages of single requirements, whose texts the chapters hold too: they are found by their titles."""
REQUIREMENT = re.compile(r"v1/[^#]*#TS-")
EXAMPLES = re.compile(r"<p>(?:Bad|Good):</p>.*", re.DOTALL)
"""Examples of a requirement: their keys are those of the data model, whose pages explain them."""
BOOSTS = (
    (REPEATED, 0.05),
    (re.compile(r"v1/11-recovery/#how-90-s-are-measured$"), 20),  # one letter, as in "90 s", begins many words
    (re.compile(r"v1/00-[^#]*(?:#.*)?$"), 4),
    (re.compile(r"(?:v1|guide|documents|reference)/[^#]*$"), 2),
)
"""How much more than any other place those count that say what something is: terms and model, heads of pages."""
ONLY_FROM_FILES = re.compile(r'location\.protocol==="file:"(?P<load>\?\w+\(`\$\{new URL\("search/search_index\.js")')
TOLD_APART_BY = re.compile(r"(TokenSet\.prototype\.toString=.{0,160}?=\w+\+\w+\+\w+\.id)(?=\}return)")
"""Where lunr 2.3.9 names a node of its tree of words: letters and numbers of nodes without a mark between them."""


def write_worker(scripts: Path, cache: Path) -> None:
    """Write a substitute for the worker, which browsers do not start from a file, next to the scripts of the pages.

    Raises:
        AssetError: npm cannot fetch it, or its digest differs.
    """
    files = IFRAME_WORKER.files(cache, "shim/index.js", "LICENSE")
    notice = files["LICENSE"].decode("utf-8").strip()
    (scripts / WORKER).write_bytes(f"/*!\n{notice}\n*/\n".encode() + files["shim/index.js"])


def write_index(site: Path) -> None:
    """Write the index of the search as a script, and make the theme load it everywhere as it does from files.

    A page that is a file cannot fetch JSON, and one copy of the index serves both kinds of readers. A requirement is
    found by the title of its page and by the words of its chapter, a concept before the requirements that use it.

    Raises:
        ValueError: the theme does not load or search the index as it did, or the site lacks a place that words lead to.
    """
    index = site / SEARCH
    found = json.loads(index.read_text(encoding="utf-8"))
    repeated = {entry["location"]: REPEATED.match(entry["location"]) for entry in found["docs"]}
    found["docs"] = [
        entry for entry in found["docs"] if not (match := repeated[entry["location"]]) or not match["part"]
    ]
    for entry in found["docs"]:
        if repeated[entry["location"]]:
            entry["text"] = ""
        if REQUIREMENT.match(entry["location"]):
            entry["text"] = EXAMPLES.sub("", entry["text"])
        entry["boost"] = next((boost for pattern, boost in BOOSTS if pattern.match(entry["location"])), 1)
    _lead(found["docs"])
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    index.with_suffix(".js").write_text(f"var __index = {text}", encoding="utf-8")
    index.unlink()
    (script,) = (site / "assets" / "javascripts").glob("bundle.*.js")
    bundle, num_places = ONLY_FROM_FILES.subn(r"!0\g<load>", script.read_text(encoding="utf-8"))
    if num_places != 1:
        raise ValueError(f"{script.name} loads the index of the search in {num_places} places, not in 1")
    script.write_text(bundle, encoding="utf-8")
    _tell_words_apart(site)


def _tell_words_apart(site: Path) -> None:
    """Make the search tell nodes of its tree of words apart where words hold digits.

    An edge "1" to node 23 followed by one "4" to node 5 reads like an edge "1" to node 2 and one "3" to node 45, and
    lunr takes two such nodes for one. What begins like their words then leads to a word that no page holds, at which
    the search fails, and the page finds nothing.
    """
    (script,) = (site / "assets" / "javascripts" / "workers").glob("search.*.js")
    worker, num_places = TOLD_APART_BY.subn(r'\1+","', script.read_text(encoding="utf-8"))
    if num_places != 1:
        raise ValueError(f"{script.name} names the nodes of its words in {num_places} places, not in 1")
    script.write_text(worker, encoding="utf-8")


def _lead(entries: list[dict[str, Any]]) -> None:
    """Give places the words that lead to them."""
    known = {entry["location"]: entry for entry in entries}
    if lost := PLACES.keys() - known.keys():
        raise ValueError(f"search words lead to places that the site lacks: {', '.join(sorted(lost))}")
    for place, words in PLACES.items():
        known[place]["tags"] = list(words)
