"""The pages of the specification: links lead somewhere, terms are linked, and the text keeps its form."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from trainspec_site import stage

from tests.every import every

SPEC = Path(__file__).resolve().parent.parent / "spec"
CHAPTERS = sorted((SPEC / "v1").glob("[0-9][0-9]-*.md"))
TERMS = SPEC / "v1" / "00-terms.md"
INDEX = SPEC / "index.md"
DECISIONS = "90-declined.md"
MAX_PAGE_LINES = 530
MAX_TERMS_LINES = 800
MAX_LINE = 140
MAX_INTRODUCTION_LINES = 6
LOWER_CASE_LEVEL = re.compile(r"\b(must|shall|should|may|required|recommended|optional)\b")
AMERICAN = re.compile(r"\b\w*(?:ization|izing|yzing|ized|behavior|favorite|data center)\b", re.IGNORECASE)
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")
# Words that are also plain English: their page links them where the defined meaning is used, which no program can tell.
PLAIN_WORDS = {
    *("account", "agree", "biased", "boundary", "budget", "controller", "document", "exposed", "interval", "layout"),
    *("placement", "plausible", "profile", "reserve", "residual", "set", "share", "state", "store", "hang"),
    *("record", "head", "sample", "event", "run", "subject", "scope", "gap", "job", "step", "batch", "host", "device"),
    *("axis", "degree", "metric", "checkpoint", "commit", "digest", "pointer", "finding", "requirement"),
    *("counter", "snapshot", "spare", "trace", "trial"),
}

Lines = list[tuple[int, str]]


@cache
def built() -> dict[Path, str]:
    """The pages that only the site has."""
    return {SPEC / path: text for path, text in stage.built_pages(SPEC.parent).items()}


def pages() -> list[Path]:
    return [*sorted(SPEC.rglob("*.md")), *built()]


def chapter_id(path: Path) -> str:
    return str(path.relative_to(SPEC))


@cache
def outside_code(path: Path) -> Lines:
    """Numbered lines that do not stand in a fence."""
    found, fenced = [], False
    text = built().get(path) or path.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            found.append((number, line))
    return found


def prose(path: Path) -> Lines:
    """Lines outside of fences, without `code`, quotations and the facts of headings."""
    plain = []
    for number, line in outside_code(path):
        text = re.sub(r"`[^`]*`|\"[^\"]*\"|\{#TS-[^}]*\}", " ", line)
        plain.append((number, text))
    return plain


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@cache
def anchors(path: Path) -> frozenset[str]:
    found = set()
    for _, line in outside_code(path):
        match = re.match(r"#{1,6} (?P<text>.+?)(?: \{#(?P<id>[\w-]+)[^}]*\})?$", line)
        if match:
            found.add(match["id"] or slug(match["text"]))
    return frozenset(found)


def links(path: Path) -> list[tuple[int, str]]:
    text = [(number, re.sub(r"`[^`]*`", " ", line)) for number, line in outside_code(path)]
    return [(number, match["target"]) for number, line in text for match in LINK.finditer(line)]


def terms() -> list[str]:
    return [line.removeprefix("### ") for _, line in outside_code(TERMS) if line.startswith("### ")]


@every("path", pages, ids=chapter_id)
def test_links_between_pages_resolve(path: Path) -> None:
    broken = []
    for number, target in links(path):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        page = (path.parent / file).resolve() if file else path
        if not (page in built() or page.exists()) or (anchor and page.suffix == ".md" and anchor not in anchors(page)):
            broken.append((number, target))
    assert broken == []


def test_every_page_is_reachable_from_the_index() -> None:
    seen, waiting = set(), [INDEX]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not (page in built() or page.exists()):
            continue
        seen.add(page)
        targets = [target.partition("#")[0] for _, target in links(page) if not re.match(r"[a-z]+:", target)]
        waiting += [(page.parent / target).resolve() for target in targets if target]
    assert [chapter_id(page) for page in CHAPTERS if page not in seen] == []


@every("path", CHAPTERS, ids=chapter_id)
def test_words_of_rfc_2119_stand_in_capitals(path: Path) -> None:
    assert [(n, found) for n, line in prose(path) if (found := LOWER_CASE_LEVEL.findall(line))] == []


@every("path", CHAPTERS, ids=chapter_id)
def test_spelling_is_british(path: Path) -> None:
    assert [(n, found) for n, line in prose(path) if (found := AMERICAN.findall(line))] == []


@every("path", CHAPTERS, ids=chapter_id)
def test_lines_are_short_and_clean(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [n for n, line in enumerate(text.splitlines(), start=1) if line != line.rstrip()] == []
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    long = [n for n, line in outside_code(path) if len(line) > MAX_LINE and not line.startswith(("|", "### "))]
    assert long == []
    assert len(text.splitlines()) <= (MAX_TERMS_LINES if path == TERMS else MAX_PAGE_LINES)


@every("path", CHAPTERS, ids=chapter_id)
def test_a_page_begins_with_what_it_covers(path: Path) -> None:
    (_, title), *rest = outside_code(path)
    assert re.fullmatch(r"# [A-Z].+", title)
    paragraph = [line for _, line in rest[1:]]
    length = paragraph.index("")
    assert 1 <= length <= MAX_INTRODUCTION_LINES


@every("path", CHAPTERS, ids=chapter_id)
def test_headings_are_in_sentence_case_and_unique(path: Path) -> None:
    headings = [line.lstrip("#").split(" {#")[0].strip() for _, line in outside_code(path) if line.startswith("#")]
    if path != TERMS:
        assert [heading for heading in headings if not heading[0].isupper()] == []
    assert [heading for heading in headings if heading.endswith((".", ":", "?"))] == []
    assert len(headings) == len(set(headings))


def test_every_term_is_defined_once_and_linked() -> None:
    assert len(terms()) == len(set(map(slug, terms())))
    linked = {target for page in CHAPTERS for _, target in links(page)}
    assert [term for term in terms() if f"00-terms.md#{slug(term)}" not in linked] == []


@every("term", terms)
def test_a_definition_is_one_to_three_sentences(term: str) -> None:
    lines = [line for _, line in outside_code(TERMS)]
    start = lines.index(f"### {term}") + 2
    body = " ".join(lines[start : start + lines[start:].index("") if "" in lines[start:] else len(lines)])
    assert body.endswith(".")
    assert 1 <= len(re.findall(r"\.(?:\s|$)", body)) <= 3


@pytest.mark.slow
@every("path", [p for p in CHAPTERS if p not in (TERMS, TERMS.with_name(DECISIONS))], ids=chapter_id)
def test_terms_are_linked_before_they_are_used(path: Path) -> None:
    """Words that only this specification defines so are linked in the introduction of each page that uses them."""
    linked = {target.partition("#")[2]: n for n, target in reversed(links(path)) if target.startswith(TERMS.name)}
    assert linked
    introduction = next(n for n, line in outside_code(path) if line.startswith("##"))
    late = []
    for term in sorted(set(terms()) - PLAIN_WORDS):
        pattern = re.compile(rf"(?<![\w-]){re.escape(term)}(?:s|es)?(?![\w-])", re.IGNORECASE)
        used = [n for n, line in prose(path) if pattern.search(LINK.sub(" ", line)) and not line.startswith("# ")]
        if used and linked.get(slug(term), MAX_PAGE_LINES) > max(introduction, used[0]):
            late.append((used[0], term))
    assert late == []
