"""Defines what the three ways of silencing share: the run, the tally, the complaints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainspec_validate.checking.selection import NOT_READ
from trainspec_validate.documents.load import Source
from trainspec_validate.model.finding import Finding, Pointer, Span, Suppressed
from trainspec_validate.model.requirements import Index, Requirement
from trainspec_validate.model.suggest import hint
from trainspec_validate.system.repository import original_of

NO_REASON = "TS-DOC-014"
UNKNOWN = "TS-DOC-015"
UNUSED = "TS-DOC-016"
EXPIRED = "TS-DOC-017"
NEVER_SILENCED = frozenset({NO_REASON, UNKNOWN, UNUSED, EXPIRED})
"""Requirements on silencers themselves; silencing them would hide what hides."""
_INVISIBLE_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")


@dataclass(frozen=True, slots=True)
class Complaint:
    """Fault of a silencer; the pipeline makes a finding of it."""

    requirement: str
    path: str
    message: str
    help: str
    pointer: Pointer = ()
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Facts of the run that silencers are applied to."""

    index: Index
    sources: Mapping[str, Source]
    paths: tuple[str, ...]
    """Every file of the run as the user named it."""
    judged: Callable[[str, str], bool]
    """Whether a requirement was really judged on a file: only then has a silencer had its chance."""
    tree: str | None = None
    """A copy of another state of the working directory; comments that its files do not have silence nothing."""


@dataclass(slots=True)
class SuppressionResult:
    """Findings that are left after one way of silencing."""

    kept: list[Finding] = field(default_factory=list)
    suppressed: list[Suppressed] = field(default_factory=list)
    complaints: list[Complaint] = field(default_factory=list)


def says_something(text: str) -> bool:
    """Whether a text has a letter or a digit that can be seen."""
    return any(char.isalnum() and char not in _INVISIBLE_LETTERS for char in text)


def is_below(path: str, tree: str | None) -> bool:
    """Whether a file is in a directory of settings."""
    return tree is not None and Path(os.path.abspath(path)).is_relative_to(os.path.abspath(tree))  # noqa: PTH100


def home_of(path: str, tree: str | None) -> str:
    """The directory that names in a waiver file or a baseline are relative to: its own, without following links.

    A file in `tree`, a copy of another state of the working directory or of its repository, speaks of what is judged.
    """
    directory = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120
    if tree is None or not is_below(path, tree):
        return directory
    return os.path.normpath(original_of(tree) / os.path.relpath(directory, tree))


def lookup(word: str, index: Index) -> tuple[Requirement | None, str, str]:
    """The requirement that a silencer names, or None with what is wrong and what would be right."""
    requirement = index.find(word)
    if requirement is None:
        return None, f"no requirement is called {word!r}", hint(word, _words(index))
    if requirement.id in NEVER_SILENCED:
        return None, f"{requirement.id} cannot be silenced", "fix what it reports"
    if requirement.id in NOT_READ:
        message = (
            f"{requirement.id} cannot be silenced: it reports a file that was not read, so nothing in it was judged"
        )
        return None, message, "fix or remove the file"
    return requirement, "", ""


def _words(index: Index) -> Iterator[str]:
    for requirement in index.by_id.values():
        yield requirement.id
        yield requirement.name
