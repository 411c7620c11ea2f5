"""The only place that runs the whole check: from paths to a report."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainspec_validate import schema
from trainspec_validate._version import __version__
from trainspec_validate.collect import STDIN, STDIN_NAME, Candidate, InputError, collect, is_ours
from trainspec_validate.documents import API_VERSION, KINDS, read
from trainspec_validate.engine import Member, run_rules, wanted_places, with_spans
from trainspec_validate.findings import DocumentSummary, Finding, Outcome, Report, Span, sort_findings
from trainspec_validate.load import LoadError, Source, load_text, read_file
from trainspec_validate.references import DANGLING, ReferenceFailure, bindings, referenced_files
from trainspec_validate.requirements import Index, load_index
from trainspec_validate.rules import all_rules
from trainspec_validate.suggest import hint

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
NAME_TAKEN = "TS-DOC-013"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which requirements are judged."""

    profile: str = "full"
    select: tuple[str, ...] = ()
    """Ids, names or chapter prefixes to judge; empty means all of the profile."""
    ignore: tuple[str, ...] = ()
    """Ids, names or chapter prefixes to leave out."""

    def takes(self, index: Index, identifier: str) -> bool:
        """Whether a requirement is judged."""
        requirement = index.by_id[identifier]
        words = {requirement.id, requirement.area, requirement.name}
        if self.select:
            return bool(words & set(self.select)) and not words & set(self.ignore)
        in_profile = self.profile == "full" or requirement.profile == "core"
        return in_profile and not words & set(self.ignore)


@dataclass(slots=True)
class _State:
    """What has been read so far."""

    index: Index
    sources: dict[str, Source]
    texts: dict[str, str]
    members: dict[str, Member]
    findings: list[Finding]
    num_skipped: int = 0

    def add(self, requirement: str, path: str, message: str, help_text: str, **place: object) -> None:
        known = self.index.by_id[requirement]
        self.findings.append(
            Finding(
                requirement=requirement,
                name=known.name,
                severity=known.severity,
                message=message,
                path=path,
                help=help_text,
                url=self.index.url(known),
                **place,  # type: ignore[arg-type]
            )
        )


def validate(
    paths: Iterable[str | os.PathLike[str]], selection: Selection | None = None, *, stdin_name: str = STDIN_NAME
) -> Report:
    """Judge files, directories, patterns, or `-` for standard input, and the documents that they refer to.

    Raises:
        InputError: a path does not exist or cannot be read, or nothing that was named is a TrainSpec document.
    """
    selection = selection or Selection()
    state = _State(load_index(), {}, {}, {}, [])
    arguments = [os.fspath(path) for path in paths]
    if STDIN in arguments:
        _read_content(state, sys.stdin.buffer.read(), stdin_name)
    for candidate in collect(argument for argument in arguments if argument != STDIN):
        _read_candidate(state, candidate)
    if not state.texts:
        raise InputError("nothing to judge: no TrainSpec document in " + ", ".join(arguments or ["no argument"]))
    _follow_references(state)
    outcomes = _judge(state, selection)
    return _report(state, selection, outcomes)


def _read_candidate(state: _State, candidate: Candidate) -> None:
    try:
        content = read_file(candidate.path)
    except LoadError as error:
        if error.code == "unreadable":
            raise InputError(f"{candidate.name}: {error.message}") from error
        state.texts[candidate.name] = ""
        _load_failure(state, candidate.name, error)
        return
    if candidate.found and not is_ours(candidate, content):
        state.num_skipped += 1
        return
    _read_content(state, content, candidate.name)


def _read_content(state: _State, content: bytes, path: str) -> None:
    state.texts[path] = content.decode("utf-8-sig", errors="replace")
    try:
        source = load_text(content, path)
    except LoadError as error:
        _load_failure(state, path, error)
        return
    state.sources[path] = source
    kind = _kind(state, source)
    if kind is None:
        return
    failures = list(schema.failures(kind, source.data))
    for failure in failures:
        place = {"pointer": failure.pointer, "points_at_key": failure.key}
        state.add(failure.requirement, path, failure.message, failure.help, **place)
    if not failures:
        state.members[path] = Member(path, read(kind, source.data))


def _load_failure(state: _State, path: str, error: LoadError) -> None:
    requirement = LOAD_REQUIREMENTS.get(error.code, SYNTAX)
    state.add(requirement, path, error.message, error.help, span=error.span)


def _kind(state: _State, source: Source) -> str | None:
    """The kind that a document names, or None after saying what is wrong with it."""
    data = source.data
    if not isinstance(data, dict):
        message = "the document is not a mapping of keys to values"
        state.add(KIND_UNKNOWN, source.path, message, f"start with `apiVersion: {API_VERSION}` and `kind:`")
        return None
    for key, known in (("apiVersion", (API_VERSION,)), ("kind", tuple(KINDS))):
        value = data.get(key)
        if value in known:
            continue
        place = {"pointer": (key,) if key in data else ()}
        message = f"the document has no {key}" if key not in data else f"{key} is {value!r}"
        help_text = f"{hint(str(value), known)}" if key in data else f"one of: {', '.join(known)}"
        state.add(KIND_UNKNOWN, source.path, message, help_text, **place)
        return None
    return str(data["kind"])


def _follow_references(state: _State) -> None:
    """Load what the documents refer to, until nothing new turns up."""
    pending = list(state.members.values())
    while pending:
        member = pending.pop()
        for link, target in referenced_files([member]):
            if isinstance(target, ReferenceFailure):
                _reference_failure(state, target)
                continue
            name = _known_as(state, target)
            if name is None:
                name = target.as_posix()
                try:
                    _read_content(state, read_file(target), name)
                except LoadError as error:
                    _reference_failure(
                        state,
                        ReferenceFailure(DANGLING, member.path, (link.key, "file"), error.message, error.help),
                    )
                if name in state.members:
                    pending.append(state.members[name])


def _known_as(state: _State, target: Path) -> str | None:
    wanted = os.path.realpath(target)
    return next((path for path in state.texts if os.path.realpath(path) == wanted), None)


def _reference_failure(state: _State, failure: ReferenceFailure) -> None:
    state.add(failure.requirement, failure.path, failure.message, failure.help, pointer=failure.pointer)


def _judge(state: _State, selection: Selection) -> list[Outcome]:
    members = list(state.members.values())
    _same_names(state, members)
    by_real_path = {os.path.realpath(path): member for path, member in state.members.items()}
    bound, failures = bindings(members, lambda path: by_real_path.get(os.path.realpath(path)))
    for failure in failures:
        _reference_failure(state, failure)
    rules = [rule for identifier, rule in all_rules().items() if selection.takes(state.index, identifier)]
    findings, outcomes = run_rules(rules, bound, state.index)
    state.findings.extend(findings)
    return outcomes


def _same_names(state: _State, members: Sequence[Member]) -> None:
    seen: dict[tuple[type, str], str] = {}
    for member in members:
        key = (type(member.document), member.document.metadata.name)
        first = seen.setdefault(key, member.path)
        if first != member.path:
            message = f"{key[0].__name__} {key[1]!r} is also declared in {first}"
            place = {"pointer": ("metadata", "name")}
            state.add(NAME_TAKEN, member.path, message, "give each document a name of its own", **place)


def _report(state: _State, selection: Selection, outcomes: list[Outcome]) -> Report:
    findings = [finding for finding in state.findings if selection.takes(state.index, finding.requirement)]
    spans: dict[str, Mapping[tuple[tuple[str | int, ...], bool], Span]] = {}
    for path, places in wanted_places(findings).items():
        if path in state.sources:
            spans[path] = state.sources[path].locate(places)
    documents = tuple(_summary(state, path) for path in state.texts)
    return Report(
        findings=sort_findings(with_spans(finding, spans) for finding in findings),
        documents=documents,
        outcomes=tuple(sorted(outcomes, key=lambda outcome: outcome.requirement)),
        specification_version=state.index.specification_version,
        tool_version=__version__,
    )


def _summary(state: _State, path: str) -> DocumentSummary:
    member = state.members.get(path)
    if member is None:
        return DocumentSummary(path, "", "", state.texts[path])
    return DocumentSummary(path, type(member.document).__name__, member.document.metadata.name, state.texts[path])


__all__ = ["InputError", "Selection", "validate"]

