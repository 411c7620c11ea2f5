"""Makes the folder that the site is built from: the pages, and what they offer for download."""

from __future__ import annotations

import json
import posixpath
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from trainspec_site import alert_page, checked_by, document_pages, downloads, rule_pages, source_links, term_links
from trainspec_site.redirects import redirects, write_script

LINK = re.compile(r"\]\((?P<target>(?![a-z]+:|#|/)[^)\s#]+)(?P<rest>#[^)]*)?\)")
MADE_BY = re.compile(r"\A(?P<settings>---\n.*?\n---\n)?<!--.*?-->\n+", re.DOTALL)
"""The comment on how a page was made. Where it comes first, neither MkDocs nor Zensical takes the title below it."""
WHOLE_LINK = re.compile(r"(?<!!)\[(?P<words>(?:[^\[\]]|\[[^\[\]]*\])*)" + LINK.pattern + r"(?:\{ [^}\n]*\})?")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
EXCERPT = re.compile(r'^(```+\w+ )excerpt="', re.MULTILINE)
"""The file that an excerpt is from. SuperFences takes a block with an option that it does not know for plain text."""
NOT_PAGES = ("overrides",)
TABLES = tuple(downloads.TABLES)
INDEX = "requirements.json"
NEIGHBOURS, NO_CHAPTERS = "assets/javascripts/neighbours.js", "const chapters = {};"
"""The script that lists the requirements of a chapter, and where they go in it."""
VERDICTS = "conformance/results/verdicts.md"
STACKS = "reference/stacks.md"
"""The page with the verdicts on stacks, and its place on the site."""
FAILED = re.compile(r"^\| Failed \| Check \| Message \|\n(?:\|.*\n)+\n?", re.MULTILINE)
"""The messages of each failed check, which the site leaves to the file in the repository."""
POLICIES = {"GOVERNANCE.md": "reference/governance.md", "SECURITY.md": "reference/security.md"}
"""The files that say who decides and what the tools promise of hostile input, and their places on the site."""
PLACES = {VERDICTS: STACKS, alert_page.RULES: alert_page.PAGE, **POLICIES}
"""Pages of the site that are made from files of the repository, by the file."""


class BrokenLinkError(Exception):
    """A page links to a file that does not exist."""


def stage(root: Path, target: Path, repository: str) -> None:
    """Write pages, schemas, tables and short addresses into an empty folder.

    Raises:
        BrokenLinkError: a link leads out of the pages to a file that the repository lacks.
    """
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root / "spec", target, ignore=shutil.ignore_patterns(*NOT_PAGES))
    for path, text in built_pages(root).items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text, encoding="utf-8")
    meanings = term_links.definitions((root / "spec" / "v1" / "00-terms.md").read_text(encoding="utf-8"))
    for page in sorted(target.rglob("*.md")):
        source = root / "spec" / page.relative_to(target)
        text = with_links_to_made_pages(page.read_text(encoding="utf-8"), source, root)
        text = with_repository_links(text, source, root, repository)
        text = outside_fences(text, lambda part: source_links.with_source_links(part, repository))
        text = EXCERPT.sub(r'\1title="', term_links.with_tooltips(text, meanings))
        page.write_text(MADE_BY.sub(lambda found: found["settings"] or "", text), encoding="utf-8")
    for name in alert_page.FILES:
        copy = target / alert_page.FOLDER / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / alert_page.FOLDER / name, copy)
    shutil.copytree(root / "schemas", target / "schemas", ignore=shutil.ignore_patterns("*.md"))
    for name in TABLES:
        table = yaml.safe_load((root / "spec" / "v1" / f"{name}.yaml").read_text(encoding="utf-8"))
        (target / "v1" / f"{name}.json").write_text(_compact_json(table), encoding="utf-8")
    (target / "v1" / INDEX).write_text(_compact_json(_index(root)), encoding="utf-8")
    script = (target / NEIGHBOURS).read_text(encoding="utf-8")
    chapters = NO_CHAPTERS.replace("{}", rule_pages.by_chapter(requirements(root)))
    (target / NEIGHBOURS).write_text(script.replace(NO_CHAPTERS, chapters), encoding="utf-8")
    write_script(target)
    for path, text in redirects(requirements(root)).items():
        (target / path).parent.mkdir(parents=True)
        (target / path).write_text(text, encoding="utf-8")


def built_pages(root: Path) -> dict[str, str]:
    """Text of the pages that only the site has, by their path below the pages."""
    documents = document_pages.pages(root, requirements(root))
    pages = rule_pages_of(root) | {alert_page.PAGE: alert_page.page(root)}
    pages |= {f"documents/{name}": text for name, text in documents.items()}
    for file, place in POLICIES.items():
        text = (root / file).read_text(encoding="utf-8")
        pages[place] = LINK.sub(r"](../../\g<target>\g<rest>)", text).replace("](../../spec/", "](../")
    verdicts = FAILED.sub("", (root / VERDICTS).read_text(encoding="utf-8"))
    return pages | {STACKS: LINK.sub(rf"](../../{posixpath.dirname(VERDICTS)}/\g<target>\g<rest>)", verdicts)}


def rule_pages_of(root: Path) -> dict[str, str]:
    """Text of the pages of the requirements, by their path below the pages."""
    pages = rule_pages.pages(requirements(root), root / "schemas" / "v1", checked_by.files(root))
    return {f"rules/{name}": text for name, text in pages.items()}


def requirements(root: Path) -> list[dict[str, Any]]:
    """The entries of the published index."""
    entries: list[dict[str, Any]] = _index(root)["requirements"]
    return entries


def _index(root: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((root / "spec" / "v1" / INDEX).read_text(encoding="utf-8"))
    return index


def _compact_json(table: Any) -> str:
    return json.dumps(table, ensure_ascii=False, separators=(",", ":"), default=str) + "\n"


def with_links_to_made_pages(text: str, page: Path, root: Path) -> str:
    """The text of this page with links to files that the site makes a page of, which lead to that page."""
    places = {root / file: root / "spec" / place for file, place in PLACES.items()}

    def follow(link: re.Match[str]) -> str:
        place = places.get((page.parent / link["target"]).resolve())
        return f"]({posixpath.relpath(place, page.parent)}{link['rest'] or ''})" if place else link[0]

    return outside_fences(text, lambda part: LINK.sub(follow, part))


def with_repository_links(text: str, page: Path, root: Path, repository: str) -> str:
    """The text of this page with links to files outside the pages that lead to the repository.

    Where the repository has no address yet, the words stay, and say that the file is in the repository.
    """

    def follow(link: re.Match[str]) -> str:
        file = _outside(link["target"], page, root)
        return f"]({repository}/{file}{link['rest'] or ''})" if file else link[0]

    def name(link: re.Match[str]) -> str:
        file = _outside(link["target"], page, root)
        if not file:
            return link[0]
        place = "in the repository" if file in link["words"] else f"`{file}` in the repository"
        return f"{link['words']} ({place})"

    if repository:
        return outside_fences(text, lambda part: LINK.sub(follow, part))
    return outside_fences(text, lambda part: WHOLE_LINK.sub(name, part))


def _outside(target: str, page: Path, root: Path) -> str:
    """The path of a file that a page links to, in the repository; empty for a page of the site."""
    file = (page.parent / target).resolve()
    if file.is_relative_to(root / "spec"):
        return ""
    if not file.exists():
        raise BrokenLinkError(f"{page.relative_to(root)}: {target} does not exist")
    return file.relative_to(root).as_posix()


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """A text with its parts that are not code changed."""
    pieces, start = [], 0
    for fence in FENCE.finditer(text):
        pieces += [change(text[start : fence.start()]), fence[0]]
        start = fence.end()
    return "".join([*pieces, change(text[start:])])
