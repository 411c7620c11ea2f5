"""Checks the language of the specification beyond its form; prints file, line and fault."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import committed_reports
from trainspec_site.source_links import SOURCE as SOURCE_LINK

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = "[0-9][0-9]-*.md"
PROFILES = {"core", "full"}
GROUNDS = {"arithmetic", "identity", "integrity", "practice"}
NUM_IMPLEMENTATIONS = 2
"""Implementations that show a behaviour before it is a MUST on the ground of practice."""
OWN_STACKS = "reference-"
"""How the names of the trainers of this repository begin, which are not enough on their own."""
ANNEX = "15-plausible-"
"""How the pages of the annex begin, whose requirements keep the prefix of the chapter that has their subject."""
CHECKS = {"load", "schema", "rule", "stream", "artifact", "runtime", "manual"}
IDENTIFIER = re.compile(r"\bTS-([A-Z]{3})-\d{3}\b")
LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")
TERM_LINK = re.compile(r"\[(?P<term>[^\]]+)\]\(00-terms\.md#[\w-]+\)")
SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)\.\s+(?=[A-Z`])")
SOURCE = re.compile(r"\bSource: \S")
SOURCES = re.compile(r"\bSources?:\s(?P<clauses>.*?)(?=\n\n|\Z)", re.DOTALL)
CLOSED_SOURCE = re.compile(r"^(?:arithmetic|the meaning of the keys?)\b|\ba choice of this specification\b")
"""Sources without an address: what follows from the text itself, and what somebody had to settle."""
VOICE = re.compile(
    r"—|!(?!=)|\b(?:e\.g|i\.e|etc)\.|\b(?:please|simply|obviously|very|basically|of course|leverage)\b", re.IGNORECASE
)
"""Words that say nothing, and abbreviations where a word would do."""
EMPTY_WORDS = {"a", "an", "and", "as", "in", "is", "it", "its", "of", "the"}
"""Words that add nothing to a description."""
WORDS_OF_UNITS = {
    "By": "bytes",
    "By/s": "bytes_per_second",
    "s": "seconds",
    "us": "us",
    "d": "days",
    "W": "watts",
    "J": "joules",
    "Cel": "celsius",
    "kg/kW.h": "kilograms_per_kilowatt_hour",
    "{flop}/s": "flops_per_second",
    "{token}": "tokens",
    "{sample}": "samples",
}
MAX_HEADING_WORDS = 10
MAX_STATEMENT_WORDS = 30
MIN_OPENING_WORDS = 150
MAX_OPENING_WORDS = 300
FIRST_REQUIREMENT = re.compile(r"^### .*\{#TS-", re.MULTILINE)
NOT_OPENING = re.compile(r"^Terms:.*?\n\n|^```.*?^```|^[#|<].*?$", re.MULTILINE | re.DOTALL)
SENTENCE = re.compile(
    r"^(?:Nothing|Nobody|Everybody|Who|Whoever|What)\b|\b(?:is|are|was|were|has|have|does|do|comes?|goes?|keeps?|holds?)\b"
)
"""Heading that states something in place of naming its topic."""
LEVEL = re.compile(r"\b(?:MUST|SHOULD)(?: NOT)?\b|\bMAY\b")
SECOND_CLAUSE = re.compile(
    r";|, and (?:(?:no|every|each|all) [^,;]*"
    r"|(?:the|a|an|its|one|[a-z]+s) [^,;]*?\b(?:is|are|has|be|have|hold|give|exist|belong|appears?|used|join|name)\b)"
)
"""Second subject with a verb of its own after the word of the level: a second duty in one sentence."""
BARE_PRONOUN = re.compile(r"\b(?:that|those) of\b|\b(?:one|those) that\b|^(?:What|Who|Whoever|Nothing)\b")
"""Pronoun where a sentence needs the noun, or a clause in place of its subject."""
FIELD_TERMS = {
    r"(?:data|tensor|pipeline|context|expert) (?:ranks?|degrees?)": "the rank or degree of DP, TP, PP, CP or EP",
    r"ax[ie]s": "parallelism dimension",
    r"virtual stages?": "virtual pipeline (VPP) stage",
    r"master cop(?:y|ies)": "master weights",
    r"(?:blocking|persist) time": "checkpoint stall, time to durable",
    r"(?:process|node)-loss": "process failure, node failure",
    r"emitters?": "writer",
}
"""Terms of the field, by the words that a statement or a title would have in their place."""
SHORT_UNITS = re.compile(
    r"_(?:[kmgt]i?b|[kmgt]bps|ms|ns|sec|secs|mins|hrs|[kmg]hz|pct|percent|kw|mw|gflops|tflops)(?:_|$)"
)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A required part that the text lacks."""

    place: str
    line: int
    words: str

    def __str__(self) -> str:
        return f"{self.place}:{self.line}: {self.words}"


@cache
def outside_code(path: Path) -> tuple[tuple[int, str], ...]:
    """Numbered lines of a page outside code fences."""
    found, fenced = [], False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            found.append((number, line))
    return tuple(found)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Lines outside of fences, without `code`, quotations, targets of links and the facts of headings."""
    for number, line in outside_code(path):
        yield number, re.sub(r"`[^`]*`|\"[^\"]*\"|\{#TS-[^}]*\}|\]\([^)]*\)|<!--.*?-->", " ", line)


def requirement_faults(entries: list[Mapping[str, Any]], versions: set[str]) -> Iterator[Fault]:
    """Requirements whose sentence, reason or facts are not complete."""
    chapters: dict[str, set[str]] = {}
    for entry in entries:
        area = entry["id"][3:6]
        if not entry["chapter"].startswith(ANNEX):
            chapters.setdefault(area, set()).add(entry["chapter"][:2])
        for fault in _of_one(entry, versions):
            yield Fault(f"spec/v1/{entry['chapter']}.md", 0, f"{entry['id']}: {fault}")
    for area, numbers in chapters.items():
        if len(numbers) > 1:
            yield Fault("spec/v1", 0, f"TS-{area} occurs in several chapters: {', '.join(sorted(numbers))}")


def _of_one(entry: Mapping[str, Any], versions: set[str]) -> Iterator[str]:
    num_words = len(LINK.sub(r"\g<text>", entry["statement"]).split())
    if num_words > MAX_STATEMENT_WORDS:
        yield f"its statement has {num_words} words, more than {MAX_STATEMENT_WORDS}; define words in a paragraph below"
    if SENTENCE_END.search(entry["statement"]):
        yield "its paragraph has more than one sentence; explain in a paragraph below"
    if second := SECOND_CLAUSE.search(LEVEL.split(LINK.sub(r"\g<text>", entry["statement"]), maxsplit=1)[-1]):
        yield f"its sentence has a second duty, {second[0]!r}; split the requirement or explain in a paragraph below"
    if bare := BARE_PRONOUN.search(entry["statement"]):
        yield f"its sentence has {bare[0]!r}; repeat or name the noun"
    yield from _term_faults(f"{entry['title']}: {entry['statement']}")
    if not SOURCE.search(entry["why"]):
        yield "its reason names no source; arithmetic, the meaning of the keys and a choice are sources too"
    if entry["profile"] not in PROFILES:
        yield f"the profile is {entry['profile']!r}"
    if entry["check"] not in CHECKS:
        yield f"the check is {entry['check']!r}"
    yield from _ground_faults(entry)
    if entry["since"] not in versions:
        yield f"there is no version {entry['since']!r}"
    if entry["check"] != "manual" and not (entry["bad"] and entry["good"]):
        yield "it has no example of both signs"


def _term_faults(text: str) -> Iterator[str]:
    words = re.sub(r"`[^`]*`", " ", LINK.sub(r"\g<text>", text))
    for old, term in FIELD_TERMS.items():
        if found := re.search(rf"\b(?:{old})\b", words, re.IGNORECASE):
            yield f"it says {found[0]!r}; the term of the field is {term}"


PATH_AFTER_COMMA = re.compile(
    r",\s+(?P<path>[\w.-]+(?:/[\w.-]*[\w-])+)(?![\w/@#-]|\.\w|,?\s+(?:issue|pull\srequest|PR|discussion))"
)


def source_faults(pages: list[Path]) -> Iterator[Fault]:
    """Clauses of sources without a link, a path of this repository that exists, or one of the closed words."""
    for path in pages:
        lines = dict(outside_code(path))
        text = "\n".join(lines.get(number, "") for number in range(1, max(lines, default=0) + 1))
        for match in SOURCES.finditer(text):
            number = text.count("\n", 0, match.start()) + 1
            for clause in re.split(r";\s+", " ".join(match["clauses"].split())):
                if fault := _clause_fault(clause):
                    yield Fault(str(path.relative_to(ROOT)), number, fault)


def _clause_fault(clause: str) -> str | None:
    """What one clause of a source lacks."""
    paths = [found["own"] for found in SOURCE_LINK.finditer(clause) if found["own"]]
    for path in paths:
        if not (ROOT / path).exists():
            return f"the source {path!r} is no file of this repository"
    for found in SOURCE_LINK.finditer(clause):
        if found["newest"] or found["known"]:
            return f"the source {found[0]!r} has no commit; what a repository holds moves or goes"
        if found["commit"] and not found["path"] and (path := PATH_AFTER_COMMA.match(clause, found.end())):
            return f"the source {found[0]!r} has its path, {path['path']!r}, after a comma; write it after a colon"
    if LINK.search(clause) or SOURCE_LINK.search(clause) or CLOSED_SOURCE.search(clause):
        return None
    return (
        f"the source {clause!r} has no address; name a page, a commit, a paper or a script, or write 'arithmetic', "
        "'the meaning of the keys' or 'a choice of this specification' with the reason"
    )


def _ground_faults(entry: Mapping[str, Any]) -> Iterator[str]:
    """What a MUST lacks that says on what ground it is one, or another level has too much."""
    is_must, ground = entry["level"].startswith("MUST"), entry["ground"]
    if is_must and ground not in GROUNDS:
        yield f"it is a MUST on the ground {ground!r}, which is none of {', '.join(sorted(GROUNDS))}"
    if ground and not is_must:
        yield f"it is a {entry['level']} and has the ground {ground!r} of a MUST"
    if ground == "practice" and entry["check"] != "runtime":
        sources = entry["why"].partition("Source: ")[2].split(";")
        makers = {re.split(r"[/,:@]", source.strip().lower())[0] for source in sources}
        if len(makers) < NUM_IMPLEMENTATIONS:
            yield f"it rests on practice and its reason names less than {NUM_IMPLEMENTATIONS} implementations"


def practice_faults(entries: list[Mapping[str, Any]], passed: Mapping[str, Sequence[str]]) -> Iterator[Fault]:
    """Scenarios that are a MUST by practice and that too few stacks pass; `passed` has stacks by requirement."""
    for entry in entries:
        if entry["ground"] == "practice" and entry["check"] == "runtime":
            stacks = passed.get(entry["id"], ())
            if len(stacks) < NUM_IMPLEMENTATIONS or all(stack.startswith(OWN_STACKS) for stack in stacks):
                words = f"{entry['id']}: it rests on practice and is passed by {', '.join(stacks) or 'no stack'}"
                yield Fault(f"spec/v1/{entry['chapter']}.md", 0, words)


def stacks_that_pass(results: Path) -> dict[str, list[str]]:
    """Stacks whose newest committed report has a pass, by requirement."""
    found: dict[str, list[str]] = {}
    for stack, reports in committed_reports.by_stack(results).items():
        for judged in committed_reports.by_scenario(reports).values():
            if judged[-1].verdict == "pass":
                found.setdefault(judged[-1].requirement, []).append(stack)
    return found


def heading_faults(entries: list[Mapping[str, Any]]) -> Iterator[Fault]:
    """Headings of requirements that are sentences, or long, where a topic is needed."""
    for entry in entries:
        title = str(entry["title"])
        if SENTENCE.search(title) or len(title.split()) > MAX_HEADING_WORDS:
            yield Fault(f"spec/v1/{entry['chapter']}.md", 0, f"{entry['id']}: {title!r} is not the name of a topic")


def opening_faults(pages: list[Path]) -> Iterator[Fault]:
    """Pages with too short or too long a text before their first section, and chapters that open without a figure."""
    with_figure = set()
    for path in pages:
        text = path.read_text(encoding="utf-8")
        first = FIRST_REQUIREMENT.search(text)
        opening = re.split(r"^##", text, maxsplit=1, flags=re.MULTILINE)[0]
        words = len(NOT_OPENING.sub("", opening).split())
        if first and not MIN_OPENING_WORDS <= words <= MAX_OPENING_WORDS:
            words_of_fault = f"the opening has {words} words, not {MIN_OPENING_WORDS} to {MAX_OPENING_WORDS}"
            yield Fault(str(path.relative_to(ROOT)), 1, words_of_fault)
        if "<figure" in opening:
            with_figure.add(path.stem[:2])
    for path in pages:
        if FIRST_REQUIREMENT.search(path.read_text(encoding="utf-8")) and path.stem[:2] not in with_figure:
            with_figure.add(path.stem[:2])
            yield Fault(str(path.relative_to(ROOT)), 1, f"no page of chapter {path.stem[:2]} opens with a figure")


def voice_faults(pages: list[Path]) -> Iterator[Fault]:
    """Words that carry nothing."""
    for path in pages:
        for number, line in prose(path):
            for match in VOICE.finditer(line):
                yield Fault(str(path.relative_to(ROOT)), number, f"{match[0]!r} says nothing here")


def term_faults(pages: list[Path]) -> Iterator[Fault]:
    """Terms that a page introduces and then does not use, in its text or in its examples."""
    for path in pages:
        lines = path.read_text(encoding="utf-8").splitlines()
        first = next((n for n, line in enumerate(lines) if line.startswith("##")), len(lines))
        start = next((n for n, line in enumerate(lines) if line.startswith("Terms:")), first)
        body = LINK.sub(r"\g<text>", " ".join([*lines[:start], *lines[first:]])).replace("_", " ")
        for number, line in enumerate(lines[start:first], start=start + 1):
            for match in TERM_LINK.finditer(line):
                if not _used(match["term"], body):
                    yield Fault(str(path.relative_to(ROOT)), number, f"{match['term']!r} is introduced and not used")


def _used(term: str, body: str) -> bool:
    """Whether a text has a term in some form; a tier is a checkpoint tier on the page that introduces one."""
    words = term.split()
    stems = [re.escape(re.sub(r"(?:ies|es|s|e|y|d)$", "", word) if len(word) > 3 else word) for word in words]
    phrase = r"\w*[ -]".join(stems)
    return any(re.search(rf"(?<!\w){form}", body, re.IGNORECASE) for form in (phrase, stems[-1]))


def identifier_faults(pages: list[Path], known: set[str]) -> Iterator[Fault]:
    """Requirements that a page names and that do not exist."""
    areas = {identifier[3:6] for identifier in known}
    for path in pages:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for match in IDENTIFIER.finditer(line):
                if match[0] not in known and match[1] in areas and "trainspec: ignore[" not in line:
                    yield Fault(str(path.relative_to(ROOT)), number, f"{match[0]} does not exist")


def orphans(index: Path, pages: list[Path]) -> Iterator[Fault]:
    """Pages that no way of links leads to from the first page."""
    seen, waiting = set(), [index]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        targets = [m["target"].partition("#")[0] for _, line in outside_code(page) for m in LINK.finditer(line)]
        waiting += [(page.parent / target).resolve() for target in targets if target and ":" not in target]
    for page in pages:
        if page not in seen:
            yield Fault(str(page.relative_to(ROOT)), 1, "no page leads here")


def unit_faults(schema: Mapping[str, Any], name: str) -> Iterator[Fault]:
    """Keys whose number has a unit that their name does not say, or says in short."""
    for key, value in _properties(schema):
        unit = _unit(value)
        if unit in (None, "1") or not isinstance(unit, str):
            if SHORT_UNITS.search(key):
                yield Fault(name, 0, f"{key!r} abbreviates its unit")
        elif unit not in WORDS_OF_UNITS:
            yield Fault(name, 0, f"{key!r} has the unit {unit!r}, which has no word")
        elif not re.search(rf"(?:^|_){WORDS_OF_UNITS[unit]}(?:_|$)", key):
            yield Fault(name, 0, f"{key!r} does not say {WORDS_OF_UNITS[unit]!r}")


def description_faults(schema: Mapping[str, Any], name: str) -> Iterator[Fault]:
    """Keys whose description repeats their name: it has fewer than two further words."""
    for key, value in _properties(schema):
        text = value.get("description") or next(
            (one["description"] for one in value.get("anyOf", ()) if one.get("description")), ""
        )
        words = set(re.findall(r"[\w%]+", text.lower())) - EMPTY_WORDS
        known = {form for word in key.lower().split("_") for form in (word, f"{word}s")}
        if "const" not in value and len(words - known) < 2:
            yield Fault(name, 0, f"{key!r} is described by {text!r} alone")


def _properties(schema: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(schema, dict):
        yield from ((key, value) for key, value in schema.get("properties", {}).items() if isinstance(value, dict))
        for value in schema.values():
            yield from _properties(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _properties(value)


def _unit(value: Mapping[str, Any]) -> Any:
    return value.get("x-unit") or next((one["x-unit"] for one in value.get("anyOf", ()) if "x-unit" in one), None)


def faults() -> list[Fault]:
    """All faults of the specification as it is in the repository, in order."""
    spec = ROOT / "spec"
    index = json.loads((spec / "v1" / "requirements.json").read_text(encoding="utf-8"))
    entries = index["requirements"]
    chapters = sorted((spec / "v1").glob(CHAPTERS))
    guides = sorted((spec / "guide").glob("*.md"))
    written = [spec / "index.md", *chapters, *guides, *sorted(ROOT.glob("*.md"))]
    found = [
        *requirement_faults(entries, {".".join(index["specification_version"].split("-")[0].split(".")[:2])}),
        *practice_faults(entries, stacks_that_pass(ROOT / "conformance" / "results")),
        *heading_faults(entries),
        *opening_faults([path for path in chapters if path.stem != "00-introduction"]),
        *source_faults(chapters),
        *voice_faults([spec / "index.md", *chapters, *guides]),
        *term_faults(chapters),
        *identifier_faults(written, {entry["id"] for entry in entries}),
        *orphans(spec / "index.md", sorted(spec.rglob("*.md"))),
    ]
    for path in sorted((ROOT / "schemas" / "v1").glob("*.schema.json")):
        schema, name = json.loads(path.read_text(encoding="utf-8")), str(path.relative_to(ROOT))
        found += [*unit_faults(schema, name), *description_faults(schema, name)]
    return sorted(found)


def main() -> int:
    """Print the faults; exit 1 when there is one."""
    found = faults()
    for fault in found:
        print(fault)
    print(f"{len(found)} faults in the language of the specification")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
