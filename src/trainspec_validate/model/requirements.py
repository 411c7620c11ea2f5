"""Reads the index of requirements that the specification's chapters declare."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from trainspec_validate.model.finding import Evidence, Finding, Pointer, Related, Severity, Span
from trainspec_validate.model.quantities import singular_of_one

DATA_DIRECTORY = Path(__file__).resolve().parents[1] / "data"

Level = Literal[
    "MUST",
    "MUST NOT",
    "SHALL",
    "SHALL NOT",
    "SHOULD",
    "SHOULD NOT",
    "MAY",
    "REQUIRED",
    "RECOMMENDED",
    "OPTIONAL",
]
Ground = Literal["", "arithmetic", "identity", "integrity", "practice"]
Check = Literal["load", "schema", "rule", "stream", "artifact", "runtime", "manual", "user"]


@dataclass(frozen=True, slots=True)
class Example:
    """One document of an example: its file name decides its kind, its text is laid over the base document."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement as its chapter states it."""

    id: str
    name: str
    title: str
    level: Level
    check: Check
    profile: Literal["core", "full"]
    since: str
    chapter: str
    """File name of the chapter without suffix, for example `05-parallelism`."""
    statement: str
    why: str
    bad: tuple[Example, ...]
    good: tuple[Example, ...]
    details: str = ""
    """Paragraphs after the statement that define its words, with an empty line between two."""
    checklist: str = ""
    """Checklist of a reviewer, for `check=manual`."""
    documents: tuple[str, ...] = ()
    """Kinds of documents that the rule judges together, for `check=rule`."""
    ground: Ground = ""
    """Why a MUST is one; empty for the other levels."""
    former_names: tuple[str, ...] = ()
    """Names that the requirement had before, which are still understood."""
    module: str = ""
    """Module of `rules` that holds the rule; only in the packaged index."""

    @property
    def severity(self) -> Severity:
        """MUST is an error, SHOULD a warning, everything else a note."""
        if self.level in {"MUST", "MUST NOT", "SHALL", "SHALL NOT", "REQUIRED"}:
            return Severity.ERROR
        return Severity.WARNING if self.level in {"SHOULD", "SHOULD NOT", "RECOMMENDED"} else Severity.NOTE

    @property
    def area(self) -> str:
        """Chapter prefix such as `TS-PAR`, which selects a whole chapter."""
        return self.id.rsplit("-", 1)[0]


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """All requirements of one version of the specification, by id and by name.

    It is compared by identity, so that caches can have it as a key.
    """

    specification_version: str
    site: str
    by_id: Mapping[str, Requirement]

    def url(self, requirement: Requirement) -> str:
        """The permanent link of a requirement."""
        return f"{self.site}{requirement.chapter}/#{requirement.id}"

    def finding(  # noqa: PLR0913
        self,
        requirement: Requirement,
        message: str,
        help: str,  # noqa: A002
        path: str,
        *,
        severity: Severity | None = None,
        pointer: Pointer = (),
        points_at_key: bool = False,
        span: Span | None = None,
        related: tuple[Related, ...] = (),
        evidence: Evidence | None = None,
        source_line: str = "",
    ) -> Finding:
        """A finding of a requirement, which weighs what the requirement says where nothing else is given."""
        return Finding(
            requirement=requirement.id,
            name=requirement.name,
            severity=severity or requirement.severity,
            message=singular_of_one(message),
            path=path,
            pointer=pointer,
            points_at_key=points_at_key,
            span=span,
            help=singular_of_one(help),
            url=self.url(requirement),
            related=related,
            evidence=evidence,
            source_line=source_line,
        )

    def find(self, word: str) -> Requirement | None:
        """The requirement with this id, name or former name, whatever its case."""
        wanted = word.strip().upper()
        if wanted in self.by_id:
            return self.by_id[wanted]
        name = _name(word)
        return self._by_name.get(name) or self._by_former_name.get(name)

    def renamed(self, word: str) -> Requirement | None:
        """The requirement whose former name a word is, None for every other word."""
        return self._by_former_name.get(_name(word))

    def words(self) -> Iterable[str]:
        """Every id, name and chapter prefix that `--select` takes."""
        yield from self.by_id
        yield from self._by_name
        yield from sorted({requirement.area for requirement in self.by_id.values()})

    @property
    def _by_name(self) -> Mapping[str, Requirement]:
        return {requirement.name: requirement for requirement in self.by_id.values()}

    @property
    def _by_former_name(self) -> Mapping[str, Requirement]:
        return {name: requirement for requirement in self.by_id.values() for name in requirement.former_names}


def _name(word: str) -> str:
    """A word as names are written."""
    return word.strip().lower().replace("_", "-")


@cache
def load_index() -> Index:
    """The packaged index."""
    return parse_index((DATA_DIRECTORY / "requirements.json").read_text(encoding="utf-8"))


def parse_index(text: str) -> Index:
    """An index from the text of a `requirements.json`."""
    raw = json.loads(text)
    requirements = {}
    for entry in raw["requirements"]:
        bad, good = (tuple(Example(**example) for example in entry.pop(key)) for key in ("bad", "good"))
        documents, former = (tuple(entry.pop(key, ())) for key in ("documents", "former_names"))
        requirements[entry["id"]] = Requirement(**entry, bad=bad, good=good, documents=documents, former_names=former)
    return Index(raw["specification_version"], raw["site"], requirements)
