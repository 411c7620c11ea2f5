"""Reads requirements out of the chapters of the specification."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainspec_validate.documents.load import load_file

CHAPTERS = "[0-9][0-9]-*.md"
HEADING = re.compile(r"^### (?P<title>.+?) \{#(?P<id>TS-[A-Z]{3}-\d{3})(?P<facts>( [a-z_]+=(\"[^\"]+\"|[^ }\"]+))*)\}$")
FACT = re.compile(r' (?P<key>[a-z_]+)=("(?P<quoted>[^"]+)"|(?P<plain>[^ }"]+))')
FENCE = re.compile(r'^```(?:yaml|jsonl|tree|stack) title="(?P<file>[\w.-]+)"$')
MARK = re.compile(r"# <-- (?P<ids>TS-[A-Z]{3}-\d{3}( TS-[A-Z]{3}-\d{3})*)$", re.MULTILINE)
LEVELS = "MUST NOT|MUST|SHALL NOT|SHALL|SHOULD NOT|SHOULD|REQUIRED|RECOMMENDED|MAY|OPTIONAL"
LEVEL_WORD = re.compile(rf"\b({LEVELS})\b")


class SpecificationError(Exception):
    """A chapter breaks the form that requirements have."""


@dataclass(frozen=True, slots=True)
class Section:
    """The lines under one requirement's heading."""

    chapter: str
    line: int
    title: str
    id: str
    facts: dict[str, str]
    lines: list[str]


def requirements(directory: Path) -> list[dict[str, object]]:
    """All requirements of the chapters in a directory, by chapter number and id, as plain values.

    Raises:
        SpecificationError: a heading, sentence, reason or example does not have its form, or an id is used twice.
    """
    entries = []
    seen = removed(directory)
    for path in sorted(directory.glob(CHAPTERS)):
        for section in _sections(path):
            place = f"{path.name}:{section.line}"
            for word in (section.id, section.facts.get("name", ""), *former_names(section.facts)):
                if word in seen:
                    raise SpecificationError(f"{place}: {word} is already used at {seen[word]}")
                seen[word] = place
            entries.append(_entry(section, place))
    first = {str(entry["id"])[:6]: str(entry["chapter"])[:2] for entry in reversed(entries)}
    return sorted(entries, key=lambda entry: (first[str(entry["id"])[:6]], str(entry["id"])))


def former_names(facts: Mapping[str, str]) -> list[str]:
    """Names that a requirement had before, from `was=` of its heading, which has commas between several."""
    return facts["was"].split(",") if "was" in facts else []


def removed(directory: Path) -> dict[str, str]:
    """Ids and names that were given once and are never given again, with the place that says so."""
    path = directory / "removed.yaml"
    entries = load_file(path).data["removed"]
    return {
        word: f"{path.name} (removed in {entry['removed']})"
        for entry in entries
        for word in (entry["id"], entry["name"])
    }


def _sections(path: Path) -> Iterator[Section]:
    current: Section | None = None
    in_fence = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("```"):
            in_fence = not in_fence
        if not in_fence and line.startswith("#"):
            if current:
                yield current
            current = None
            if line.startswith("### ") and "{#TS-" in line:
                match = HEADING.match(line)
                if not match:
                    raise SpecificationError(f"{path.name}:{number}: the heading is not of the form of a requirement")
                facts = {m["key"]: m["quoted"] or m["plain"] for m in FACT.finditer(match["facts"])}
                current = Section(path.stem, number, match["title"], match["id"], facts, [])
                continue
        if current:
            current.lines.append(line)
    if current:
        yield current


def _entry(section: Section, place: str) -> dict[str, object]:
    facts = section.facts
    for key in ("level", "check", "profile", "since", "name"):
        if key not in facts:
            raise SpecificationError(f"{place}: {section.id} lacks {key}=")
    prose, examples = _split(section, place)
    statement = prose[0] if prose else ""
    words = LEVEL_WORD.findall(statement)
    if words != [facts["level"].replace("_", " ")]:
        raise SpecificationError(f"{place}: the sentence of {section.id} has {words}, wanted one {facts['level']}")
    why = next((p.removeprefix("*Why:*").strip() for p in prose if p.startswith("*Why:*")), "")
    first = next((place for place, p in enumerate(prose) if p.startswith("*Why:*")), 0)
    checklist = next((p.removeprefix("*Checklist:*").strip() for p in prose if p.startswith("*Checklist:*")), "")
    if not why:
        raise SpecificationError(f"{place}: {section.id} has no *Why:*")
    _check_examples(section, facts["check"], examples, checklist, place)
    return {
        "id": section.id,
        "name": facts["name"],
        "former_names": former_names(facts),
        "title": section.title,
        "level": facts["level"].replace("_", " "),
        "ground": facts.get("ground", ""),
        "check": facts["check"],
        "profile": facts["profile"],
        "since": facts["since"],
        "chapter": section.chapter,
        "statement": statement,
        "details": "\n\n".join(prose[1:first]),
        "why": why,
        "checklist": checklist,
        "bad": examples["bad"],
        "good": examples["good"],
    }


def _check_examples(
    section: Section, check: str, examples: dict[str, list[dict[str, str]]], checklist: str, place: str
) -> None:
    if check == "manual":
        if not checklist:
            raise SpecificationError(f"{place}: {section.id} is check=manual and has no *Checklist:*")
        return
    for sign in ("bad", "good"):
        if not examples[sign]:
            raise SpecificationError(f"{place}: {section.id} has no {sign} example")
    marked = [match for example in examples["bad"] for match in MARK.finditer(example["text"])]
    if sum(section.id in match["ids"].split() for match in marked) != 1:
        raise SpecificationError(f"{place}: the bad example of {section.id} needs one line marked '# <-- {section.id}'")


def _split(section: Section, place: str) -> tuple[list[str], dict[str, list[dict[str, str]]]]:
    """The paragraphs of prose, and the example files under *Bad:* and *Good:*."""
    prose: list[str] = []
    examples: dict[str, list[dict[str, str]]] = {"bad": [], "good": []}
    sign, paragraph = "", []
    lines = iter([*section.lines, ""])
    for line in lines:
        fence = FENCE.match(line)
        if fence:
            if not sign:
                raise SpecificationError(f"{place}: an example of {section.id} precedes *Bad:* or *Good:*")
            body = []
            for inner in lines:
                if inner == "```":
                    break
                body.append(inner)
            if fence["file"] in {example["file"] for example in examples[sign]}:
                raise SpecificationError(f"{place}: an example of {section.id} shows {fence['file']} twice")
            examples[sign].append({"file": fence["file"], "text": "\n".join(body) + "\n"})
        elif line.strip() in {"*Bad:*", "*Good:*"}:
            sign = line.strip().strip("*:").lower()
        elif line.strip():
            paragraph.append(line.strip())
            continue
        if paragraph:
            prose.append(_in_lines(paragraph))
            paragraph = []
    return prose, examples


def _in_lines(paragraph: Sequence[str]) -> str:
    """A paragraph in one line, and each item of a list or row of a table in a line of its own."""
    starts = ("- ", "| ", "|-")
    return paragraph[0] + "".join(f"\n{line}" if line.startswith(starts) else f" {line}" for line in paragraph[1:])
