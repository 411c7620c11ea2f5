"""Judges the streams of a run: it gives each check the view and stamps its findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from trainspec_validate.checking.answers import CheckInput, evaluate_all, severity_of
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, Document, TrainingPlan
from trainspec_validate.model.finding import CheckResult, CutRecord, Finding, Related, Span
from trainspec_validate.model.requirements import Index, Requirement
from trainspec_validate.performance.derived.groups import narrowed
from trainspec_validate.system.boundary import UnreadableError
from trainspec_validate.telemetry.checks import Violation, checks_of
from trainspec_validate.telemetry.checks._rows import states_start
from trainspec_validate.telemetry.covered import coverage_of
from trainspec_validate.telemetry.decode.run_file import RunFile
from trainspec_validate.telemetry.fold.engine import Options, read_run
from trainspec_validate.telemetry.formats.format import FORMATS
from trainspec_validate.telemetry.formats.source import lines_at
from trainspec_validate.telemetry.view.run_view import NOWHERE, Location, RunView, StreamFile

_DOCUMENT_WORDS: Mapping[type[Document], str] = {
    TrainingPlan: "plan",
    ClusterProfile: "profile",
    CheckpointPolicy: "policy",
}
"""How messages call the documents."""


def judge_run(  # noqa: PLR0913
    files: Sequence[RunFile],
    wanted: Iterable[Requirement],
    index: Index,
    documents: Mapping[type[Document], Document],
    options: Options | None = None,
    *,
    names: Mapping[type[Document], str] | None = None,
) -> tuple[RunView, CheckResult]:
    """Read the streams of a run and judge them by every requirement that is wanted; `names` are files of documents."""
    view = read_run(files, options)
    return view, judge_view(view, files, wanted, index, documents, names=names)


def judge_view(  # noqa: PLR0913
    view: RunView,
    files: Sequence[RunFile],
    wanted: Iterable[Requirement],
    index: Index,
    documents: Mapping[type[Document], Document],
    *,
    is_followed: bool = False,
    names: Mapping[type[Document], str] | None = None,
) -> CheckResult:
    """Judge what was folded out of the streams of a run; followed files can be gone, which was reported before.

    `names` are those of the files of documents, as far as they are known, for the messages of findings.
    """
    documents = _of_the_job(documents)
    given = CheckInput(view, documents, "streams", f"of run {view.run!r}")
    requirements = list(wanted)
    violations, outcomes = evaluate_all(given, requirements, checks_of((r.module, r.id) for r in requirements))
    if not states_start(view):
        violations = [(requirement, _without_times(violation)) for requirement, violation in violations]
    places = Places(files, _first_head(view), is_live=is_followed or view.is_live)
    cut = [Location(number, file.tail_offset) for number, file in enumerate(view.files) if file.tail_bytes]
    for place in cut:
        places.want(place)
    findings = tuple(_findings(violations, index, places, names or {}))
    cut_records = [_cut_record(view.files[place.file], place, places) for place in cut]
    return CheckResult(findings, outcomes, coverage=(coverage_of(view, documents, outcomes, cut_records),))


def _without_times(violation: Violation) -> Violation:
    """A violation without moments, in a run whose source states none: they would be times of 1970."""
    return replace(violation, evidence=replace(violation.evidence, first_time_us=None, last_time_us=None))


def _cut_record(file: StreamFile, place: Location, places: Places) -> CutRecord:
    path, span, _ = places.at(place)
    return CutRecord(path, span.line, file.tail_offset, file.tail_bytes)


def _of_the_job(documents: Mapping[type[Document], Document]) -> Mapping[type[Document], Document]:
    """The documents, with the part of the cluster that the plan names: another group excuses nothing there."""
    plan, cluster = documents.get(TrainingPlan), documents.get(ClusterProfile)
    if isinstance(plan, TrainingPlan) and isinstance(cluster, ClusterProfile):
        return {**documents, ClusterProfile: narrowed(plan, cluster)}
    return documents


def _first_head(view: RunView) -> Location:
    return min((head.location for head in view.heads), default=Location(0, 0))


class Places:
    """Lines of places in files, looked up for all findings at once."""

    def __init__(self, files: Sequence[RunFile], home: Location, *, is_live: bool = False) -> None:
        self.is_live = is_live
        """Whether files may be gone by now, which was told."""
        self.files = {file.number: file for file in files}
        self.home = home
        """Where what is absent is reported: the first head."""
        self.wanted: dict[int, set[int]] = {}
        self.lines: dict[int, dict[int, tuple[int, str]]] = {}

    def want(self, place: Location) -> Location:
        """Note a place to look up; a finding about nothing in particular is at the first head."""
        place = self.home if place == NOWHERE or place.file not in self.files else place
        self.wanted.setdefault(place.file, set()).add(place.offset)
        return place

    def look_up(self) -> None:
        """Find the lines of all places."""
        for number, offsets in self.wanted.items():
            file = self.files[number]
            if FORMATS[file.format].is_binary:
                self.lines[number] = {offset: (offset + 1, "") for offset in offsets}
            else:
                self.lines[number] = {}
                with suppress(UnreadableError) if self.is_live else nullcontext(), file.reading():
                    self.lines[number] = lines_at(Path(file.path), offsets)

    def at(self, place: Location, word: str = "") -> tuple[str, Span, str]:
        """Name of the file, the word on its line or the whole line as a span, and the text of the line."""
        place = self.want(place)
        line, text = self.lines[place.file].get(place.offset, (1, ""))
        begin = text.find(f'"{word}"') if word else -1
        begin, end = (begin + 1, begin + 1 + len(word)) if begin >= 0 else (0, len(text))
        return self.files[place.file].name, Span(line, begin + 1, line, max(end, begin) + 1), text


def with_names(message: str, names: Mapping[type[Document], str]) -> str:
    """A message that says which file a document is of which it says what is in it.

    >>> with_names("it has 512, but the plan says 256", {TrainingPlan: "plan.yaml"})
    'it has 512, but the plan plan.yaml says 256'
    """
    for kind, word in _DOCUMENT_WORDS.items():
        if name := names.get(kind):
            message = re.sub(rf"\bthe {word} (?=(?:says|has)\b)", rf"\g<0>{_literal(name)} ", message, count=1)
    return message


def _literal(text: str) -> str:
    """A text as the replacement of a pattern, which gives backslashes a meaning."""
    return text.replace("\\", r"\\")


def _findings(
    violations: Sequence[tuple[Requirement, Violation]],
    index: Index,
    places: Places,
    names: Mapping[type[Document], str],
) -> Iterator[Finding]:
    for _, violation in violations:
        places.want(violation.place)
        for place, _ in violation.related:
            places.want(place)
    places.look_up()
    for requirement, violation in violations:
        path, span, text = places.at(violation.place, violation.evidence.series)
        yield index.finding(
            requirement,
            with_names(violation.message, names),
            violation.help,
            path,
            severity=severity_of(violation, requirement),
            span=span,
            related=tuple(_related(place, words, places) for place, words in violation.related),
            evidence=violation.evidence,
            source_line=text,
        )


def _related(place: Location, words: str, places: Places) -> Related:
    path, span, _ = places.at(place)
    return Related(words, path, (), span)
