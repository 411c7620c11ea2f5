"""Reads the files of a run into typed documents, and judges their form."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from trainspec_validate.documents.kind import KindFailure, kind_of, misnamed
from trainspec_validate.documents.load import LoadError, Source, load_text, read_file
from trainspec_validate.documents.types import (
    KINDS,
    Document,
    Waiver,
    read,
    read_partial,
    read_plain,
    read_waiver,
    without,
)
from trainspec_validate.model.finding import Finding, Origin, Pointer, Span
from trainspec_validate.model.requirements import Index
from trainspec_validate.pipeline.engine import Member
from trainspec_validate.pipeline.files import SUFFIXES, File
from trainspec_validate.system.boundary import UnreadableError

if TYPE_CHECKING:
    from trainspec_validate.documents.schema import SchemaFailure

KIND_UNKNOWN = "TS-DOC-004"
LOAD_REQUIREMENTS: Mapping[str, str] = {
    "duplicate-key": "TS-DOC-002",
    "too-large": "TS-DOC-003",
    "too-deep": "TS-DOC-003",
    "too-many-values": "TS-DOC-003",
    "alias-budget": "TS-DOC-003",
    "number-too-large": "TS-DOC-003",
}
"""Requirement that each failure to load belongs to; all others are TS-DOC-001."""
SYNTAX = "TS-DOC-001"
AMBIGUOUS = "TS-DOC-020"
NOT_ABSENT = "TS-DOC-021"
_SMALL = 100_000
"""Characters of a file up to which the typed reader alone is quicker than starting the schema validator."""


@dataclass(slots=True)
class State:
    """What has been read so far, by the path that findings name."""

    index: Index
    texts: dict[str, str] = field(default_factory=dict)
    """Every file of the run, readable or not."""
    sources: dict[str, Source] = field(default_factory=dict)
    """The files that could be loaded."""
    kinds: dict[str, str] = field(default_factory=dict)
    """The files that named a known kind."""
    members: dict[str, Member] = field(default_factory=dict)
    """The documents that satisfy their schema."""
    partial: dict[str, Member] = field(default_factory=dict)
    """The documents that lack something or have a mistake; rules that do not need the value judge them."""
    complete: set[str] = field(default_factory=set)
    """The documents that satisfy their schema, those that list unknown keys among them."""
    waivers: dict[str, list[tuple[int, Waiver]]] = field(default_factory=dict)
    """The waivers that satisfy their schema, with their place in the list."""
    findings: list[Finding] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """What could not be read at all."""
    names: dict[str, str] = field(default_factory=dict)
    """Name in findings by real path, so that one file under two names is read once."""

    origins: dict[str, Origin] = field(default_factory=dict)
    """Why each file of the run is judged."""

    @property
    def judged(self) -> dict[str, Member]:
        """All documents that rules judge, in the order in which they were read."""
        both = self.members | self.partial
        return {path: both[path] for path in self.texts if path in both}

    def may_be_unread(self, kind: str, name: str) -> bool:
        """Whether a file that could not be read as a document may hold the one of this kind and name."""
        for path in self.texts.keys() - self.members.keys():
            data = self.sources[path].data if path in self.sources else None
            if path not in self.kinds and not isinstance(data, dict):
                return True
            metadata = data.get("metadata") if isinstance(data, dict) else None
            named = metadata.get("name") if isinstance(metadata, dict) else None
            if path in self.partial and self.partial[path].document.metadata.name != named:
                named = None  # what it has is no name
            if self.kinds.get(path, kind) == kind and named in {name, None}:
                return True
        return False

    def forget(self, path: str) -> None:
        """Take back what was kept of a file that turned out to be unreadable."""
        for kept in (self.texts, self.sources, self.kinds, self.members, self.partial, self.waivers):
            kept.pop(path, None)
        self.complete.discard(path)
        self.findings = [finding for finding in self.findings if finding.path != path]

    def add(  # noqa: PLR0913
        self,
        requirement: str,
        path: str,
        message: str,
        help_text: str,
        *,
        pointer: Pointer = (),
        points_at_key: bool = False,
        span: Span | None = None,
    ) -> None:
        """Keep a finding of a requirement that the pipeline itself checks."""
        known = self.index.by_id[requirement]
        finding = self.index.finding(
            known, message, help_text, path, pointer=pointer, points_at_key=points_at_key, span=span
        )
        self.findings.append(finding)


def read_document(state: State, file: File) -> None:
    """Read one document that was named or found.

    Raises:
        UnreadableError: the file cannot be read.
    """
    try:
        content = read_file(file.path)
    except LoadError as error:
        if error.code == "unreadable":
            raise UnreadableError(file.name, error.message, error.help) from error
        state.texts[file.name] = ""
        state.origins[file.name] = "given"
        state.names[os.path.realpath(file.name)] = file.name
        _load_failure(state, file.name, error)
        return
    read_content(state, content, file.name)


def read_named(state: State, path: Path, name: str, origin: Origin = "given") -> None:
    """Read a file that a document or the command line refers to.

    Raises:
        LoadError: the file cannot be read.
    """
    read_content(state, read_file(path), name, origin)


def read_content(state: State, content: bytes, path: str, origin: Origin = "given") -> None:
    """Load a text, judge it by the schema of its kind, and keep it as a typed document if it passes."""
    state.origins[path] = origin
    state.texts[path] = content.decode("utf-8-sig", errors="replace")
    state.names[os.path.realpath(path)] = path
    try:
        source = load_text(content, path)
    except LoadError as error:
        _load_failure(state, path, error)
        return
    state.sources[path] = source
    _judge_form(state, source)
    _ambiguous_scalars(state, source)


def _judge_form(state: State, source: Source) -> None:
    path = source.path
    kind = _kind(state, source)
    if kind is None:
        return
    state.kinds[path] = kind
    listed = source.data.get("unknowns")
    if kind in KINDS and len(source.text) <= _SMALL and not listed:
        document = read_plain(kind, source.data)
        if document is not None:
            state.members[path] = Member(path, document)
            state.complete.add(path)
            return
    wrong = misnamed(kind, source.data)
    if wrong:
        _kind_failure(state, path, wrong)
        return
    from trainspec_validate.documents.schema import failures as schema_failures  # noqa: PLC0415

    failures = list(schema_failures(kind, source.data))
    for failure in failures:
        place = (failure.pointer, failure.key)
        state.add(failure.requirement, path, failure.message, failure.help, pointer=place[0], points_at_key=place[1])
    if kind == "Waivers":
        state.waivers[path] = _waivers(source.data, {failure.pointer for failure in failures})
    elif kind in KINDS:
        _keep_document(state, source, kind, failures)


def _keep_document(state: State, source: Source, kind: str, failures: Sequence[SchemaFailure]) -> None:
    """Keep a document for the rules: whole, or without what is wrong and what it lists as unknown."""
    path = source.path
    if not failures:
        state.complete.add(path)
        if not source.data.get("unknowns"):
            state.members[path] = Member(path, read(kind, source.data))
            return
    unknown = _unknowns(state, source, kind, {failure.pointer for failure in failures})
    document = _rest(source, kind, failures, unknown)
    if document is not None:
        state.partial[path] = Member(path, document)


def _unknowns(state: State, source: Source, kind: str, wrong: Set[Pointer]) -> frozenset[Pointer]:
    """The keys that a document lists as unknown, after reporting those that it gives or cannot have."""
    from trainspec_validate.documents.schema import has_place  # noqa: PLC0415

    listed = source.data.get("unknowns")
    found = set()
    for number, text in enumerate(listed if isinstance(listed, list) else ()):
        place = ("unknowns", number)
        if place in wrong or not isinstance(text, str):
            continue
        pointer = tuple(int(step) if step.isdecimal() else step for step in text.split("."))
        if not has_place(kind, pointer):
            message = f"{text!r} is no key of a {kind}"
            state.add(NOT_ABSENT, source.path, message, "write the keys from the root, with dots", pointer=place)
        elif _given(source.data, pointer):
            message = f"{text!r} is listed as unknown, and the document gives it"
            state.add(NOT_ABSENT, source.path, message, "remove the entry, or the key", pointer=place)
        else:
            found.add(pointer)
    return frozenset(found)


def _given(value: Any, pointer: Pointer) -> bool:
    """Whether plain data has a value at a place."""
    for step in pointer:
        if isinstance(value, dict):
            value = value.get(step)
        else:
            value = value[step] if isinstance(value, list) and isinstance(step, int) and step < len(value) else None
    return value is not None


def _rest(source: Source, kind: str, failures: Sequence[SchemaFailure], unknown: frozenset[Pointer]) -> Document | None:
    """A document without what its failures are about; what an unknown key may have been meant for is unknown."""
    keys = [failure.pointer for failure in failures if failure.key]
    wrong = [failure.pointer for failure in failures if not failure.key and not failure.is_absence]
    untold = {failure.pointer for failure in failures if not failure.key}
    meant = {pointer for failure in failures for pointer in failure.meant}
    known = without(source.data, wrong, keys)
    document: Document | None = read_partial(KINDS[kind], known, source.path, unknown | untold | meant)
    return document


def _waivers(data: Mapping[str, Any], broken: set[Pointer]) -> list[tuple[int, Waiver]]:
    """The entries that have no failure of their own; none when the file itself is broken."""
    indices = {pointer[1] for pointer in broken if len(pointer) > 1 and pointer[0] == "waivers"}
    if any(len(pointer) < 2 for pointer in broken):
        return []
    return [(i, read_waiver(entry)) for i, entry in enumerate(data["waivers"]) if i not in indices]


def _load_failure(state: State, path: str, error: LoadError) -> None:
    requirement = LOAD_REQUIREMENTS.get(error.code, SYNTAX)
    state.add(requirement, path, error.message, error.help, span=error.span)


def _ambiguous_scalars(state: State, source: Source) -> None:
    """Report scalars that older readers take for another value, but for those whose value is wrong already."""
    places = {(f.pointer, False) for f in state.findings if f.path == source.path} if source.ambiguous else set()
    wrong = set(source.locate(places).values()) if places else set()
    for one in source.ambiguous:
        if one.span in wrong:
            continue
        help_text = (
            f'write "{one.text}" in quotes if it is text' if isinstance(one.value, str) else f"write {one.value}"
        )
        message = f"{one.text} is {one.value!r} in YAML 1.2 and {one.older} in YAML 1.1"
        state.add(AMBIGUOUS, source.path, message, help_text, span=one.span)


def _kind(state: State, source: Source) -> str | None:
    """The kind that a document names, or None after saying what is wrong with it."""
    kind = kind_of(source.data)
    if isinstance(kind, KindFailure):
        unknown = not isinstance(source.data, dict) and PurePath(source.path).suffix.lower() not in {"", *SUFFIXES}
        _kind_failure(state, source.path, _of_no_format(kind) if unknown else kind)
        return None
    return kind


def _of_no_format(failure: KindFailure) -> KindFailure:
    """What to say of a file whose name is none of a document, and whose content is no mapping and no known stream."""
    remedy = f"streams are recognised by their content, not by their name; in a document {failure.help}"
    return KindFailure("the file is no document, and no stream of a known format", remedy)


def _kind_failure(state: State, path: str, failure: KindFailure) -> None:
    place, at_key = failure.pointer, failure.points_at_key
    state.add(KIND_UNKNOWN, path, failure.message, failure.help, pointer=place, points_at_key=at_key)
