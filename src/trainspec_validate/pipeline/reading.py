"""Reads the files of a run into typed documents, and judges their form."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from trainspec_validate.documents.kind import KindFailure, kind_of, misnamed
from trainspec_validate.documents.load import LoadError, Source, load_text, read_file, too_many_items
from trainspec_validate.documents.types import (
    API_VERSION,
    KINDS,
    Document,
    Waiver,
    read,
    read_partial,
    read_plain,
    read_waiver,
    without,
)
from trainspec_validate.documents.types.base import DAY
from trainspec_validate.model.finding import Finding, Origin, Pointer, Span
from trainspec_validate.model.requirements import Index
from trainspec_validate.pipeline.claims import is_ours
from trainspec_validate.pipeline.engine import Member
from trainspec_validate.pipeline.files import SUFFIXES, File
from trainspec_validate.system.boundary import UnreadableError
from trainspec_validate.system.digits import is_digits

if TYPE_CHECKING:
    from trainspec_validate.documents.schema import SchemaFailure

KIND_UNKNOWN = "TS-DOC-004"
LOAD_REQUIREMENTS: Mapping[str, str] = {
    "duplicate-key": "TS-DOC-002",
    "too-large": "TS-DOC-003",
    "too-slow": "TS-DOC-003",
    "too-deep": "TS-DOC-003",
    "too-many-values": "TS-DOC-003",
    "alias-budget": "TS-DOC-003",
    "number-too-large": "TS-DOC-003",
}
"""Requirement that each failure to load belongs to; all others are TS-DOC-001."""
SYNTAX = "TS-DOC-001"
AMBIGUOUS = "TS-DOC-020"
NOT_ABSENT = "TS-DOC-021"
DAY_TO_COME = "TS-DOC-022"
_JUDGED_TOGETHER = frozenset({"ClusterProfile", "TrainingPlan", "CheckpointPolicy"})
"""Kinds whose rules compare items of lists, of other documents too."""
_DAY = re.compile(DAY)
_SMALL = 100_000
"""Characters of a file up to which the typed reader alone is quicker than starting the schema validator."""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """One file of the run, as far as it could be read."""

    path: str
    """As findings name it."""
    real: str
    """Its real path, so that one file under two names is read once."""
    origin: Origin
    """Why the file is judged."""
    text: str = ""
    source: Source | None = None
    """None where it could not be loaded."""
    kind: str | None = None
    """The known kind that it names."""
    member: Member | None = None
    """The document, without what is wrong with it and what it lists as unknown."""
    is_empty: bool = False
    """Whether the file holds no document, and so not the one that another document names."""
    is_whole: bool = False
    """Whether the document lacks nothing; rules that do not need what is absent judge the others."""
    is_complete: bool = False
    """Whether the document satisfies its schema, but for keys that it lists as unknown."""
    unknown: frozenset[Pointer] = frozenset()
    """The absent keys that the document lists as unknown."""
    waivers: tuple[tuple[int, Waiver], ...] = ()
    """The waivers that satisfy their schema, with their place in the list."""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)  # cached properties need a dictionary
class DocumentSet:
    """The files that were read, by the path that findings name."""

    index: Index
    files: Mapping[str, ReadFile] = field(default_factory=dict)

    def including(self, more: Iterable[ReadFile]) -> DocumentSet:
        """The set with more files."""
        return DocumentSet(self.index, {**self.files, **{file.path: file for file in more}})

    @cached_property
    def sources(self) -> Mapping[str, Source]:
        """The files that could be loaded."""
        return {path: file.source for path, file in self.files.items() if file.source is not None}

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        """The files that named a known kind."""
        return {path: file.kind for path, file in self.files.items() if file.kind is not None}

    @cached_property
    def judged(self) -> Mapping[str, Member]:
        """All documents that rules judge, in the order in which they were read."""
        return {path: file.member for path, file in self.files.items() if file.member is not None}

    @cached_property
    def whole(self) -> Mapping[str, Member]:
        """The documents that lack nothing."""
        return {path: member for path, member in self.judged.items() if self.files[path].is_whole}

    @cached_property
    def complete(self) -> frozenset[str]:
        """The documents that satisfy their schema, those that list unknown keys among them."""
        return frozenset(path for path, file in self.files.items() if file.is_complete)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Faults in the form of the files."""
        return tuple(finding for file in self.files.values() for finding in file.findings)

    def declares(self, kind: type[Document], name: str) -> bool:
        """Whether a document of this kind and name is in the set."""
        return (kind, name) in self._declared

    def provides(self, kind: str, name: str) -> bool:
        """Whether a document of this kind and name is in the set, or may be one of it that could not be read."""
        return (kind, name) in self._provided or self.may_be_unread(kind, name)

    @cached_property
    def _provided(self) -> Set[tuple[str, str]]:
        return {(kind.__name__, name) for kind, name in self._declared}

    @cached_property
    def _declared(self) -> Set[tuple[type[Document], str]]:
        return {(type(member.document), member.document.metadata.name) for member in self.judged.values()}

    @cached_property
    def _names(self) -> Mapping[str, str]:
        return {file.real: path for path, file in self.files.items()}

    def known_as(self, path: str | Path) -> str | None:
        """The name of a file that was read."""
        return self._names.get(os.path.realpath(path))

    def knows(self, path: str | Path) -> bool:
        """Whether a file was read."""
        return self.known_as(path) is not None

    def may_be_unread(self, kind: str, name: str) -> bool:
        """Whether a file that could not be read as a document may hold the one of this kind and name."""
        may_be = self._may_be_unread
        return not may_be.isdisjoint({(kind, name), (kind, None), (None, name), (None, None)})

    @cached_property
    def _may_be_unread(self) -> Set[tuple[str | None, str | None]]:
        """Kind and name of what files may hold that could not be read as documents; None is any."""
        return {_unread_claim(file) for file in self.files.values() if not (file.is_whole or file.is_empty)}


def _unread_claim(file: ReadFile) -> tuple[str | None, str | None]:
    data = file.source.data if file.source else None
    metadata = data.get("metadata") if isinstance(data, dict) else None
    named = metadata.get("name") if isinstance(metadata, dict) else None
    if file.member is not None and file.member.document.metadata.name != named:
        named = None  # what it has is no name
    return (file.kind, None) if named is None else (None, str(named))  # a mistake may be in the kind itself


@dataclass(frozen=True, slots=True)
class _Findings:
    """Builds the findings on one file."""

    index: Index
    path: str

    def of(  # noqa: PLR0913
        self,
        requirement: str,
        message: str,
        help_text: str,
        pointer: Pointer = (),
        *,
        points_at_key: bool = False,
        span: Span | None = None,
    ) -> Finding:
        known = self.index.by_id[requirement]
        return self.index.finding(
            known, message, help_text, self.path, pointer=pointer, points_at_key=points_at_key, span=span
        )

    def of_load(self, error: LoadError, pointer: Pointer = ()) -> Finding:
        requirement = LOAD_REQUIREMENTS.get(error.code, SYNTAX)
        return self.of(requirement, error.message, error.help, pointer, points_at_key=bool(pointer), span=error.span)

    def of_kind(self, failure: KindFailure) -> Finding:
        at_key = failure.points_at_key
        return self.of(KIND_UNKNOWN, failure.message, failure.help, failure.pointer, points_at_key=at_key)


def read_document(index: Index, file: File) -> ReadFile:
    """Read one document that was named or found.

    Raises:
        UnreadableError: the file cannot be read.
    """
    try:
        content = read_file(file.path)
    except LoadError as error:
        if error.code == "unreadable":
            raise UnreadableError(file.name, error.message, error.help) from error
        finding = _Findings(index, file.name).of_load(error)
        return ReadFile(file.name, os.path.realpath(file.name), "given", findings=(finding,))
    return read_content(index, content, file.name)


_FOREIGN = "a document refers to this file, which has no apiVersion and no kind of TrainSpec"
_REFER = f"refer to a document with apiVersion: {API_VERSION}"


def read_named(index: Index, path: Path, name: str, origin: Origin = "given") -> ReadFile:
    """Read a file that a document or the command line refers to.

    Raises:
        LoadError: the file cannot be read.
    """
    content = read_file(path)
    file = read_content(index, content, name, origin)
    return file if origin != "referenced" or is_ours(content) else _without_content(file)


def _without_content(file: ReadFile) -> ReadFile:
    """A file of another program that a document refers to, such as one of secrets: nothing of its text is shown."""
    findings = tuple(
        replace(one, message=_FOREIGN, help=_REFER, span=None, pointer=(), related=(), source_line="")
        for one in file.findings[:1]
    )
    return replace(file, text="", source=None, findings=findings)


def read_content(index: Index, content: bytes, path: str, origin: Origin = "given") -> ReadFile:
    """Load a text, judge it by the schema of its kind, and make a typed document of it."""
    found = _Findings(index, path)
    file = ReadFile(path, os.path.realpath(path), origin, content.decode("utf-8-sig", errors="replace"))
    try:
        source = load_text(content, path)
    except LoadError as error:
        return replace(file, findings=(found.of_load(error),), is_empty=error.code == "empty")
    file = _with_form(replace(file, source=source), source, found)
    more = [*_ambiguous_scalars(source, file.findings, found)]
    more += _days_to_come(source, found) if file.kind in KINDS and "accessed" in source.text else ()
    return replace(file, findings=(*file.findings, *more))


def _with_form(file: ReadFile, source: Source, found: _Findings) -> ReadFile:
    """The file with its kind, its document, and what is wrong with its form."""
    kind = kind_of(source.data)
    if isinstance(kind, KindFailure):
        unknown = not isinstance(source.data, dict) and PurePath(source.path).suffix.lower() not in {"", *SUFFIXES}
        return replace(file, findings=(found.of_kind(_of_no_format(kind) if unknown else kind),))
    file = replace(file, kind=kind)
    too_many = too_many_items(source.data) if kind in _JUDGED_TOGETHER else None
    if too_many is not None:
        return replace(file, findings=(found.of_load(too_many[1], too_many[0]),))
    if kind in KINDS and len(source.text) <= _SMALL and not source.data.get("unknowns"):
        document = read_plain(kind, source.data)
        if document is not None:
            return replace(file, member=Member(file.path, document), is_whole=True, is_complete=True)
    wrong = misnamed(kind, source.data)
    if wrong:
        return replace(file, findings=(found.of_kind(wrong),))
    from trainspec_validate.documents.schema import failures as schema_failures  # noqa: PLC0415

    listed = frozenset(place for _, _, place in listed_unknowns(source.data)) if kind in KINDS else frozenset()
    # Silenced place by place, then merged.
    failures = list(schema_failures(kind, source.data, max_alike=sys.maxsize, unknown=listed))
    findings = tuple(
        found.of(each.requirement, each.message, each.help, each.pointer, points_at_key=each.key) for each in failures
    )
    file = replace(file, findings=findings)
    if kind == "Waivers":
        return replace(file, waivers=_waivers(source.data, {failure.pointer for failure in failures}))
    return _with_document(file, source, kind, failures, found) if kind in KINDS else file


def _with_document(
    file: ReadFile, source: Source, kind: str, failures: Sequence[SchemaFailure], found: _Findings
) -> ReadFile:
    """The file with its document for the rules: whole, or without what is wrong and what it lists as unknown."""
    file = replace(file, is_complete=not failures)
    if not (failures or source.data.get("unknowns")):
        return replace(file, member=Member(file.path, read(kind, source.data)), is_whole=True)
    unknown, wrong = _unknowns(source, kind, {failure.pointer for failure in failures}, found)
    document = _rest(source, kind, failures, unknown)
    member = None if document is None else Member(file.path, document)
    return replace(file, member=member, unknown=unknown, findings=file.findings + wrong)


def _unknowns(
    source: Source, kind: str, wrong: Set[Pointer], found: _Findings
) -> tuple[frozenset[Pointer], tuple[Finding, ...]]:
    """The keys that a document lists as unknown, and findings on those that it gives or cannot have."""
    from trainspec_validate.documents.schema import has_place  # noqa: PLC0415

    unknown: set[Pointer] = set()
    findings: list[Finding] = []
    for number, text, pointer in listed_unknowns(source.data):
        place = ("unknowns", number)
        if place in wrong:
            continue
        if not has_place(kind, pointer):
            message, remedy = f"{text!r} is no key of a {kind}", "write the keys from the root, with dots"
            findings.append(found.of(NOT_ABSENT, message, remedy, place))
        elif value_at(source.data, pointer) is not None:
            message = f"{text!r} is listed as unknown, and the document gives it"
            findings.append(found.of(NOT_ABSENT, message, "remove the entry, or the key", place))
        else:
            unknown.add(pointer)
    return frozenset(unknown), tuple(findings)


def listed_unknowns(data: Mapping[str, Any]) -> Iterator[tuple[int, str, Pointer]]:
    """The entries of `unknowns` that are texts: number, text and place."""
    listed = data.get("unknowns")
    for number, text in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(text, str):
            yield number, text, tuple(int(step) if is_digits(step) else step for step in text.split("."))


def unknown_required_keys(kind: str, data: Mapping[str, Any]) -> list[str]:
    """The keys that a document lists as unknown although its schema requires them: it has no typed document."""
    from trainspec_validate.documents.schema import is_required  # noqa: PLC0415

    return [
        text
        for _, text, pointer in listed_unknowns(data)
        if isinstance(above := value_at(data, pointer[:-1]), dict)
        and pointer[-1] not in above
        and is_required(kind, pointer)
    ]


def value_at(value: Any, pointer: Pointer) -> Any:
    """Value of plain data at a place; None where it has nothing."""
    for step in pointer:
        if isinstance(value, dict):
            value = value.get(step)
        else:
            value = value[step] if isinstance(value, list) and isinstance(step, int) and step < len(value) else None
    return value


def _rest(source: Source, kind: str, failures: Sequence[SchemaFailure], unknown: frozenset[Pointer]) -> Document | None:
    """A document without what its failures are about; what an unknown key may have been meant for is unknown."""
    keys = [failure.pointer for failure in failures if failure.key]
    wrong = [failure.pointer for failure in failures if not failure.key and not failure.is_absence]
    untold = {failure.pointer for failure in failures if not failure.key}
    meant = {pointer for failure in failures for pointer in failure.meant}
    known = without(source.data, wrong, keys)
    document: Document | None = read_partial(KINDS[kind], known, source.path, unknown | untold | meant)
    return document


def _waivers(data: Mapping[str, Any], broken: set[Pointer]) -> tuple[tuple[int, Waiver], ...]:
    """The entries that have no failure of their own; none when the file itself is broken."""
    indices = {pointer[1] for pointer in broken if len(pointer) > 1 and pointer[0] == "waivers"}
    if any(len(pointer) < 2 for pointer in broken):
        return ()
    return tuple((i, read_waiver(entry)) for i, entry in enumerate(data["waivers"]) if i not in indices)


def _days_to_come(source: Source, found: _Findings) -> Iterator[Finding]:
    """Sources that were accessed later than today, anywhere on earth."""
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415 - only documents with days need a calendar

    last = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    pending: list[tuple[Pointer, Any]] = [((), source.data)]
    while pending:
        pointer, value = pending.pop()
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in items:
            if key != "accessed":
                pending.append(((*pointer, key), item))
            elif "sources" in pointer and isinstance(item, str) and _DAY.fullmatch(item) and item > last:
                message = f"the source was accessed on {item}, a day to come"
                yield found.of(DAY_TO_COME, message, "write the day on which it was read", (*pointer, key))


def _ambiguous_scalars(source: Source, known: Iterable[Finding], found: _Findings) -> Iterator[Finding]:
    """Scalars that older readers take for another value, but for those whose value is wrong already."""
    places = {(finding.pointer, False) for finding in known} if source.ambiguous else set()
    wrong = set(source.locate(places).values()) if places else set()
    for one in source.ambiguous:
        if one.span in wrong:
            continue
        help_text = (
            f'write "{one.text}" in quotes if it is text' if isinstance(one.value, str) else f"write {one.value}"
        )
        message = f"{one.text} is {one.value!r} in YAML 1.2 and {one.older} in YAML 1.1"
        yield found.of(AMBIGUOUS, message, help_text, span=one.span)


def _of_no_format(failure: KindFailure) -> KindFailure:
    """What to say of a file whose name is none of a document, and whose content is no mapping and no known stream."""
    remedy = f"streams are recognised by their content, not by their name; in a document {failure.help}"
    return KindFailure("the file is no document, and no stream of a known format", remedy)
