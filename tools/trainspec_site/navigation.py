"""Orders the pages of the site: in groups, chapters by number, within it and all others as the front page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

from trainspec_site import alert_page, document_pages

GROUPS = {
    "00": "Overview",
    "02": "Cluster profile",
    "03": "Topology",
    "04": "Parallelism",
    "05": "Communication",
    "06": "Memory",
    "07": "Precision and kernels",
    "08": "Batch",
    "09": "Telemetry",
    "10": "Checkpoints",
    "11": "Recovery",
    "14": "Conformance",
    "15": "Plausible figures",
}
"""Names of the parts that several chapters with one number make up."""
PARTS = {"02": "Machine", "03": "Machine", **dict.fromkeys(("04", "05", "06", "07", "08"), "Training plan")}
"""Names of the parts that several numbers make up, so that no level of the menu is long."""
SECTIONS = {
    "guide": {
        "Documents": ("cluster", "import", "plan", "mixture-of-experts", "export", "validate", "silence", "extension"),
        "Runs": ("streams", "record", "adapters", "checkpoints", "run", "report", "dashboards", "device-errors"),
        "Conformance": ("conformant", "conformance", "per-step-recovery"),
        "Tools": ("ci", "editor", "python", "agents", "own-rules", "propose"),
    },
    "reference": {
        "Formulas": ("collectives", "memory", "step-time", "reliability", "batch", "energy", "scale", "blueprints"),
        "Metrics": ("metrics", "events", "metric-names", "alerts"),
        "Evidence": ("scenarios", "stacks", "public-logs"),
    },
}
"""Groups of the pages of a folder; a page of none of them comes before the groups."""
MADE = (alert_page.PAGE, "reference/stacks.md", "reference/governance.md", "reference/security.md")
"""Pages that are made with the site, from files elsewhere."""
APPENDIX = "9"
"""First digit of the numbers of appendices; informative all."""
CHAPTERS = "## Chapters\n"
"""Heading of the list of chapters on the front page."""
LINK = re.compile(r"\]\((?P<page>[\w./-]+\.md)")
START = "nav: # written by tools/trainspec_site/navigation.py from the files; never edited below this line\n"


def settings(root: Path) -> str:
    """The text of mkdocs.yml with the navigation that the pages make."""
    text = (root / "mkdocs.yml").read_text(encoding="utf-8")
    return text[: text.index(START)] + START + "".join(f"{line}\n" for line in _lines(root, root / "spec"))


def _lines(root: Path, pages: Path) -> Iterator[str]:
    text = (pages / "index.md").read_text(encoding="utf-8")
    named = [match["page"] for match in LINK.finditer(text)]
    yield "  - Home: index.md"
    yield "  - Specification:"
    listed = [match["page"].removeprefix("v1/") for match in LINK.finditer(text.partition(CHAPTERS)[2])]
    places = {page: place for place, page in enumerate(dict.fromkeys(listed))}
    chapters = [path.name for path in (pages / "v1").glob("[0-9][0-9]-*.md")]
    yield from _chapters(sorted(chapters, key=lambda name: (name[:2], places.get(name, len(places)), name)))
    yield "  - Playground: playground.md"
    yield "  - Requirements:"
    yield from (f"      - {page}" for page in ("rules/index.md", "changes.md", "downloads.md"))
    yield "  - Data model:"
    yield from (f"      - documents/{page}.md" for page in ("index", *sorted(document_pages.kinds_of(root))))
    for title, folder in (("How-tos", "guide"), ("Reference", "reference")):
        yield f"  - {title}:"
        found = {path.relative_to(pages).as_posix() for path in (pages / folder).glob("*.md")}
        found |= {page for page in MADE if page.startswith(f"{folder}/")}
        ordered = [page for page in dict.fromkeys(named) if page in found]
        yield from _sections([*ordered, *sorted(found.difference(ordered))], SECTIONS[folder])
        if folder == "reference":
            yield from (f"      - {path.name}" for path in sorted(pages.glob("*.md")) if path.name not in _PLACED)


_PLACED = ("index.md", "playground.md", "changes.md", "downloads.md")


def _sections(pages: list[str], groups: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Lines of the pages of a folder: those of no group, then each group with its pages in the order of the list."""
    group_of = {name: group for group, names in groups.items() for name in names}
    grouped = {page: group_of.get(page.rpartition("/")[2].removesuffix(".md"), "") for page in pages}
    for title in ("", *groups):
        if title:
            yield f"      - {title}:"
        yield from (f"{' ' * (10 if title else 6)}- {page}" for page, group in grouped.items() if group == title)


def _chapters(names: list[str]) -> Iterator[str]:
    normative = [name for name in names if not name.startswith(APPENDIX)]
    for part, members in groupby(normative, lambda name: PARTS.get(name[:2], "")):
        indent = " " * 6
        if part:
            yield f"{indent}- {part}:"
            indent += " " * 4
        for number, group in groupby(members, lambda name: name[:2]):
            if number in GROUPS:
                yield f"{indent}- {GROUPS[number]}:"
            yield from (f"{indent}{'    ' * (number in GROUPS)}- v1/{name}" for name in group)
    yield "      - Appendices:"
    yield from (f"          - v1/{name}" for name in names if name.startswith(APPENDIX))
