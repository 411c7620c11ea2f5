"""Writes the page of each requirement and the table of all of them, from the index."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

Place = tuple[str, str]
"""A file of a schema, and the JSON Pointer of what names the requirement."""


@dataclass(slots=True)
class SchemaPlaces:
    """Places in the schemas by requirement."""

    places: dict[str, list[Place]] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> SchemaPlaces:
        """The places of all schemas in a directory."""
        found = cls()
        for path in sorted(directory.glob("*.schema.json")):
            for identifier, pointer in _named(json.loads(path.read_text(encoding="utf-8")), ""):
                found.places.setdefault(identifier, []).append((path.name, pointer))
        return found

    def of(self, identifier: str) -> list[Place]:
        """The places of a requirement, none when no schema names it."""
        return self.places.get(identifier, [])


def _named(node: Any, pointer: str) -> Iterator[Place]:
    if isinstance(node, dict):
        if isinstance(node.get("x-requirement"), str):
            yield node["x-requirement"], pointer or "/"
        by_keyword = node.get("x-requirements", {})
        for identifier in dict.fromkeys(by_keyword.values()):
            words = ", ".join(keyword for keyword, owner in by_keyword.items() if owner == identifier)
            yield identifier, f"every {words}"
        for key, value in node.items():
            yield from _named(value, f"{pointer}/{key}")
    elif isinstance(node, list):
        for number, item in enumerate(node):
            yield from _named(item, f"{pointer}/{number}")


Entry = Mapping[str, Any]

HOW = {
    "load": "While files are read, before anything about their content.",
    "schema": "By the published JSON Schema, so any JSON Schema validator sees it too.",
    "rule": "By a rule over one document, or over documents that belong together.",
    "stream": "On the metric stream that a run writes.",
    "artifact": "On the files of a checkpoint.",
    "runtime": "By a scenario of the conformance suite.",
    "manual": "By a person, with the checklist below.",
}
EXAMPLES = {
    "document": "Examples hold the keys that differ from a whole document.",
    "stack": "Examples are stacks. The suite fails the bad ones, made with this fault, and passes the good one.",
}
SILENCED = {
    False: "[How a finding is silenced](../../guide/silence.md).",
    True: "[How a gap is declared](../../guide/conformance.md#known-gaps).",
}
"""By whether a scenario checks it."""
LANGUAGES = {".yaml": "yaml", ".jsonl": "jsonl"}
RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:)(?P<target>[^)]+)\)")
WIDE = "---\nhide:\n  - navigation\n  - toc\n---"
"""Leaves the width of the window to the table."""
SHORT = "---\nhide:\n  - toc\n---"
"""A page of three parts needs no contents."""
INTRODUCTION = """\
# Requirements

Each requirement has a page with its examples and its check. The table narrows as you type. For programs the same table
is <a href="../v1/requirements.json">requirements.json</a>; `trainspec rules` prints it, and `trainspec explain ID` an
entry.
"""


def pages(entries: Sequence[Entry], schemas: Path, modules: Mapping[str, str]) -> dict[str, str]:
    """Text of every page, by its path below `rules/`; `modules` has the file of each check."""
    places = SchemaPlaces.read(schemas)
    found = {"index.md": table(entries)}
    for _, area in groupby(sorted(entries, key=lambda entry: str(entry["id"])), lambda entry: str(entry["id"])[:6]):
        members = list(area)
        for before, entry, after in zip([None, *members], members, [*members[1:], None], strict=False):
            text = page(entry, places, modules.get(str(entry["id"]), ""))
            found[page_path(str(entry["id"]))] = f"{text}{_neighbours(before, after)}\n"
    return found


def page_path(identifier: str) -> str:
    """Path of the page of a requirement; pages of one area share a folder."""
    return f"{identifier.split('-')[1]}/{identifier}.md"


def table(entries: Sequence[Entry]) -> str:
    """The page with all requirements in one table."""
    box = '<div class="ts-filterable" data-filters="level,ground,check,profile" markdown="1">'
    lines = [WIDE, "", INTRODUCTION, box, ""]
    lines += ["| id | requirement | level | ground | check | profile | since |", "|---|---|---|---|---|---|---|"]
    for entry in entries:
        identifier = str(entry["id"])
        place = f"[{entry['title']}](../v1/{entry['chapter']}.md#{identifier})"
        words = (f"[{identifier}]({page_path(identifier)})", place, *(entry[key] for key in _COLUMNS))
        lines.append(f"| {' | '.join(map(str, words))} |")
    return "\n".join([*lines, "", "</div>", ""])


_COLUMNS = ("level", "ground", "check", "profile", "since")


def page(entry: Entry, places: SchemaPlaces, module: str) -> str:
    """The page of one requirement."""
    return "\n".join([*_head(entry), *_body(entry), *_check(entry, places, module), ""])


def _head(entry: Entry) -> Iterator[str]:
    yield from (SHORT, "")
    yield f"# {entry['id']} {entry['name']}: {entry['title']}"
    yield ""
    level = str(entry["level"])
    ground = f"ground: [{entry['ground']}](../../v1/00-introduction.md#grounds)" if entry["ground"] else ""
    chapter = f"chapter: [{_words(str(entry['chapter']))}](../../v1/{entry['chapter']}.md#{entry['id']})"
    checked = "by a person" if entry["check"] == "manual" else f"by {entry['check']}"
    facts = [chip(level.replace("_", " "), f" ts-{level.split('_', maxsplit=1)[0].lower()}")]
    words = (ground, f"profile {entry['profile']}", f"checked {checked}", f"since {entry['since']}", chapter)
    facts += [chip(word) for word in words if word]
    facts += [chip(f"formerly `{name}`") for name in entry["former_names"]]
    yield f'<p class="ts-facts" id="ts-rule" markdown="span">{" ".join(facts)}</p>'
    yield ""


def chip(words: str, kind: str = "") -> str:
    """A fact in a frame of its own."""
    return f'<span class="ts-fact{kind}">{words}</span>'


def _body(entry: Entry) -> Iterator[str]:
    yield _linked(str(entry["statement"]), entry)
    yield ""
    if entry["details"]:
        yield _linked(str(entry["details"]), entry)
        yield ""
    yield f"*Why:* {_linked(str(entry['why']), entry)}"
    for title, examples in (("Bad", entry["bad"]), ("Good", entry["good"])):
        if examples:
            yield from ("", f"## {title} example", "")
        for example in examples:
            language = LANGUAGES.get(Path(example["file"]).suffix, "text")
            yield f'```{language} title="{example["file"]}"'
            yield example["text"].rstrip("\n")
            yield "```"
            yield ""


def _check(entry: Entry, places: SchemaPlaces, module: str) -> Iterator[str]:
    yield "## How it is checked"
    yield ""
    yield HOW[str(entry["check"])]
    kinds = entry.get("documents", [])
    if kinds:
        yield f"It reads {' and '.join(f'`{kind}`' for kind in kinds)}."
    if entry["checklist"]:
        yield from ("", f"*Checklist:* {_linked(str(entry['checklist']), entry)}")
    if module:
        kind = "Scenario" if entry["check"] == "runtime" else "Source of the check"
        yield from ("", f"{kind}: [{module}](../../../{module}).")
    found = places.of(str(entry["id"]))
    if found:
        yield from ("", "In the schemas:", "")
        for file, pointer in found:
            yield f'- <a href="../../../schemas/v1/{file}">{file}</a>: `{pointer}`'
    yield from ("", EXAMPLES["stack" if entry["check"] == "runtime" else "document"])
    yield ""
    yield f"On a command line: `trainspec explain {entry['id']}`. {SILENCED[entry['check'] == 'runtime']}"
    yield ""


def by_chapter(entries: Sequence[Entry]) -> str:
    """Id and title of the requirements of each chapter, as JSON by the words of the chapter, in its order."""
    chapters: dict[str, list[str]] = {}
    for entry in entries:
        chapters.setdefault(str(entry["chapter"]), []).append(f"{entry['id']} {entry['title']}")
    return json.dumps(chapters, ensure_ascii=False, separators=(",", ":"))


def _neighbours(before: Entry | None, after: Entry | None) -> str:
    """The line that leads to the requirements before and after one in its area, and to all of them."""
    sides = (("\u2190 ", before, ""), ("", after, " \u2192"))
    links = [f"[{start}{one['id']}]({one['id']}.md){end}" for start, one, end in sides if one is not None]
    return " \u00b7 ".join([*links[:1], "[All requirements](../index.md)", *links[1:]])


def _words(chapter: str) -> str:
    """The name of a chapter from that of its file: `09-expected-metrics` is on expected metrics."""
    return chapter.partition("-")[2].replace("-", " ")


def _linked(text: str, entry: Entry) -> str:
    """A text of a requirement with links that hold from the folder of its page, not from its chapter."""
    page = f"{entry['chapter']}.md"

    def follow(link: re.Match[str]) -> str:
        target = link["target"]
        return f"](../../v1/{page if target.startswith('#') else ''}{target})"

    return RELATIVE_LINK.sub(follow, text)
