"""Runs the whole check: from paths to a report."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainspec_validate._version import __version__
from trainspec_validate.checking.selection import Selection
from trainspec_validate.checking.suppress import Run, Tally, is_below, silence
from trainspec_validate.documents.load import MAX_BYTES, LoadError
from trainspec_validate.model.finding import (
    CheckResult,
    DocumentSummary,
    Finding,
    Outcome,
    Report,
    Span,
    Unjudged,
    sort_findings,
)
from trainspec_validate.model.requirements import load_index
from trainspec_validate.pipeline.checkpoints import judge_stored
from trainspec_validate.pipeline.detect import Search as Found
from trainspec_validate.pipeline.detect import detect, of_content, search
from trainspec_validate.pipeline.engine import Binding, Member, not_together, run_rules, wanted_places, with_spans
from trainspec_validate.pipeline.files import STDIN, STDIN_NAME, File, kept
from trainspec_validate.pipeline.named import Absent, Trees
from trainspec_validate.pipeline.outcomes import NAME_TAKEN, judged_on, outcomes_of_form, without_input
from trainspec_validate.pipeline.overlooked import overlooked
from trainspec_validate.pipeline.reading import State, read_content, read_document, read_named
from trainspec_validate.pipeline.references import DANGLING, ReferenceFailure, bindings, links, referenced_files
from trainspec_validate.pipeline.streams import Seen, judge_by_rules, judge_streams, merge_outcomes, open_streams
from trainspec_validate.pipeline.unjudged import unexplained, unjudged_of, with_reasons
from trainspec_validate.rules import rules_of
from trainspec_validate.system.boundary import InputError, UnreadableError, unreadable, untrusted

if TYPE_CHECKING:
    from datetime import date

    from trainspec_validate.checking.suppress.baseline import Baseline
    from trainspec_validate.checking.suppress.waivers import WaiverFile
    from trainspec_validate.checkpoints.inventory import Group
    from trainspec_validate.checkpoints.view import SavedStep
    from trainspec_validate.telemetry.user_rules import RuleSet

Progress = Callable[[int, int], None]
"""Called with the number of files read so far and the number of files."""

_NOTHING = "nothing to judge: no TrainSpec document, no stream and no checkpoint in "
_MOST_NAMED = 5


class PartialInputError(InputError):
    """Some of what was named cannot be read; `report` is what came of the rest."""

    def __init__(self, failures: Iterable[str], report: Report) -> None:
        super().__init__(*failures)
        self.report = report


@dataclass(frozen=True, slots=True)
class Terms:
    """How to judge, as `validate` explains it."""

    selection: Selection = field(default_factory=Selection)
    stdin_name: str = STDIN_NAME
    waivers: str | os.PathLike[str] | None = None
    baseline: Baseline | str | os.PathLike[str] | None = None
    today: date | None = None
    progress: Progress | None = None
    seen: Seen | None = None
    """Called with the view of each run whose streams were judged."""
    engine: str = "local"
    """What folds streams: `local`, or `spark`."""
    num_workers: int | None = None
    rules: RuleSet | None = None
    """Rules of the user, beside those of the specification."""
    dependents: bool = False
    """Whether documents of the tree that name one of these are judged too."""
    values: bool = False
    """Whether the values of tensors in checkpoints are read too."""
    settings: str = ""
    """The settings file in force."""
    from_settings: Collection[str] = ()
    """The names of the options that it sets."""
    settings_from: str | None = None
    """A copy of another state of the working directory; waivers and baselines in it speak of the working directory."""


def validate(  # noqa: PLR0913
    paths: Iterable[str | os.PathLike[str]],
    selection: Selection | None = None,
    *,
    stdin_name: str = STDIN_NAME,
    waivers: str | os.PathLike[str] | None = None,
    baseline: Baseline | str | os.PathLike[str] | None = None,
    today: date | None = None,
    progress: Progress | None = None,
) -> Report:
    """Judge files, directories, patterns, or `-` for standard input, and the documents that they refer to.

    Raises:
        PartialInputError: some of the paths cannot be read; it carries the report on the others.
        InputError: none of them can be read, none is a TrainSpec document, or the waiver file or the baseline
            cannot be read.
    """
    return examine(paths, Terms(selection or Selection(), stdin_name, waivers, baseline, today, progress))


def examine(paths: Iterable[str | os.PathLike[str]], terms: Terms) -> Report:
    """Judge on terms.

    Raises:
        PartialInputError: as `validate`.
        InputError: as `validate`.
    """
    with ExitStack() as stack:
        return _examine([os.fspath(path) for path in paths], terms, stack)


def _examine(arguments: Sequence[str], terms: Terms, stack: ExitStack) -> Report:
    selection = terms.selection
    state = State(terms.rules.known_to(load_index()) if terms.rules else load_index())
    recorded = _baseline(terms.baseline)
    inputs = _read_all(state, arguments, terms, stack)
    if not (state.texts or inputs.streams or inputs.checkpoints):
        raise InputError(*(inputs.failures or [_NOTHING + ", ".join(arguments or ["no argument"])]))
    waiver_file = _waiver_file(state, terms) if terms.waivers is not None else None
    absent, bound = _complete(state, dependents=terms.dependents), _bind(state)
    outcomes, unjudged = _run_rules(state, selection, bound, absent)
    bound = _whole(state, bound)
    streamed, saved = _judge_streams(state, inputs, terms, bound)
    stored = _judge_checkpoints(state, inputs, terms, bound, saved)
    elsewhere = dict.fromkeys(("stream", "user"), streamed.paths) | {"artifact": stored.paths}
    both = streamed + stored
    judged = judged_on(state, selection, bound, [*outcomes, *both.outcomes], elsewhere)
    outcomes += [*outcomes_of_form(state, selection, judged), *without_input(state, selection, elsewhere)]
    run = Run(state.index, state.sources, tuple(state.texts), judged)
    tally = silence([*_located(state, selection), *both.findings], run, waiver_file, recorded, terms.today)
    tally.complaints = [one for one in tally.complaints if not is_below(one.path, terms.settings_from)]
    if recorded and recorded.source:
        state.sources[recorded.path] = recorded.source
    outcomes += with_reasons(merge_outcomes(both.outcomes), both.unjudged)
    report = _report(state, terms, outcomes, tally)
    left_open = [*unjudged, *both.unjudged, *inputs.left_out, *_overlooked(arguments, state, inputs)]
    documents = (*report.documents, *both.documents)
    report = replace(
        report, documents=documents, coverage=both.coverage, unjudged=unexplained(left_open, report.findings)
    )
    failures = [*inputs.failures, *state.failures, *both.failures]
    if failures:
        raise PartialInputError(failures, report)
    return report


def _baseline(baseline: Baseline | str | os.PathLike[str] | None) -> Baseline | None:
    if baseline is None:
        return None
    from trainspec_validate.checking.suppress.baseline import Baseline  # noqa: PLC0415

    return baseline if isinstance(baseline, Baseline) else Baseline(os.fspath(baseline))


def _judge_streams(
    state: State, inputs: Inputs, terms: Terms, bound: Sequence[Binding]
) -> tuple[CheckResult, tuple[SavedStep, ...] | None]:
    """What came of the streams, and the saves that the only run reports."""
    if not (inputs.streams or terms.rules):
        return CheckResult(), None
    opened, unread = open_streams(inputs.streams)
    documents = [{kind: member.document for kind, member in binding.items()} for binding in bound]
    result, saved = judge_streams(
        opened,
        terms.selection,
        state.index,
        documents,
        engine=terms.engine,
        num_workers=terms.num_workers,
        seen=terms.seen,
    )
    if terms.rules is not None:
        judged = [file for file in opened if file.name in result.paths]
        result += judge_by_rules(judged, terms.rules, terms.selection, state.index)
    return replace(result, failures=unread + result.failures), saved[0] if len(saved) == 1 else None


def _judge_checkpoints(
    state: State, inputs: Inputs, terms: Terms, bound: Sequence[Binding], saved: tuple[SavedStep, ...] | None
) -> CheckResult:
    if not inputs.checkpoints:
        return CheckResult()
    return judge_stored(
        inputs.checkpoints,
        terms.selection,
        state.index,
        bound,
        saved,
        reads_values=terms.values,
        progress=terms.progress,
    )


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was found besides documents."""

    streams: tuple[File, ...] = ()
    checkpoints: tuple[Group, ...] = ()
    left_out: tuple[Unjudged, ...] = ()
    """Files whose names are those of streams and whose content is of no known format."""
    failures: tuple[str, ...] = ()
    """What could not be read."""
    looked_at: frozenset[str] = frozenset()
    """Real paths of the files that the search found."""


def _read_all(state: State, arguments: Sequence[str], terms: Terms, stack: ExitStack) -> Inputs:
    """Read the documents, and find the rest; a file that cannot be read hinders no other."""
    streams: list[File] = []
    failures: list[InputError] = []
    if STDIN in arguments:
        try:
            with untrusted(unreadable(terms.stdin_name)):
                streams += _read_stdin(state, terms.stdin_name, stack)
        except UnreadableError as error:
            failures.append(error)
            state.forget(terms.stdin_name)
    found = search(arguments)
    failures += found.failures
    taken, left_out = set(found.with_checkpoints), list[File]()
    for number, file in enumerate(found.files):
        if terms.progress:
            terms.progress(number, len(found.files))
        try:
            with untrusted(unreadable(file.name)):
                source = detect(file)
                if source.kind == "document":
                    read_document(state, file)
        except InputError as error:
            failures.append(error)
            state.forget(file.name)
            continue
        except Exception as error:
            error.add_note(f"while reading {file.name}")
            raise
        if source.kind != "other":
            taken.add(file.argument)
        streams += [file] if source.kind == "stream" else []
        left_out += [file] if source.is_unknown_stream else []
    if terms.progress:
        terms.progress(len(found.files), len(found.files))
    told = [str(failure) for failure in failures]
    told += _nothing_in(found, taken, left_out, told)
    looked_at = frozenset(os.path.realpath(file.path) for file in found.files)
    return Inputs(tuple(streams), found.checkpoints, tuple(map(_unknown_stream, left_out)), tuple(told), looked_at)


def _nothing_in(found: Found, taken: set[str], left_out: Sequence[File], failures: Sequence[str]) -> Iterator[str]:
    """The directories and patterns by which nothing was found to judge, and nothing that is reported already."""
    refused = {failure.partition(":")[0] for failure in failures}
    for argument in dict.fromkeys(file.argument for file in found.files if file.found):
        if argument not in taken and not any(path.startswith(argument) for path in refused):
            names = [file.name for file in left_out if file.argument == argument]
            more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
            told = f"; of no known format: {', '.join(names[:_MOST_NAMED])}{more}" if names else ""
            yield f"{_NOTHING}{argument}{told}"


def _overlooked(arguments: Sequence[str], state: State, inputs: Inputs) -> Iterator[Unjudged]:
    """What searches leave out, without what a document refers to."""
    members = {os.path.realpath(member) for group in inputs.checkpoints for member in group.members}
    for path, reason, remedy in overlooked(arguments, {*inputs.looked_at, *state.names, *members}):
        yield Unjudged(path, reason, remedy, ())


def _unknown_stream(file: File) -> Unjudged:
    return Unjudged(file.name, "is no stream of a known format", "see: trainspec import --list", ())


def _read_stdin(state: State, name: str, stack: ExitStack) -> Iterator[File]:
    """Read the document on standard input, or give the file that its stream is kept in."""
    if sys.stdin is None:
        raise InputError("standard input is closed")
    # One byte more than a document may have, which its reader refuses.
    start = sys.stdin.buffer.read(MAX_BYTES + 1)
    if of_content(name, start).kind == "stream":
        yield stack.enter_context(kept(start, sys.stdin.buffer, name))
    else:
        read_content(state, start, name)


def _waiver_file(state: State, terms: Terms) -> WaiverFile:
    """The waivers of a file that was named for it, which also is a document of the run."""
    from trainspec_validate.checking.suppress.waivers import WaiverFile  # noqa: PLC0415

    path = os.fspath(terms.waivers or "")
    name = _known_as(state, Path(path)) or Path(path).as_posix()
    if name not in state.texts:
        try:
            with untrusted(unreadable(name)):
                read_named(state, Path(path), name)
        except LoadError as error:
            raise InputError(f"{name}: {error}") from error
    kind = state.kinds.get(name)
    if kind is not None and kind != "Waivers":
        raise InputError(f"{name}: this is a {kind}; a waiver file is of kind Waivers")
    return WaiverFile(name, state.waivers.get(name, []), terms.settings_from)


def _complete(state: State, *, dependents: bool) -> dict[tuple[str, str], Absent]:
    """Load what the documents refer to by file or by name; returns by path and key why a name was not found.

    With `dependents`, load what refers to them too.
    """
    trees, pending = Trees(), list(state.judged.values())
    while True:
        _follow_references(state, pending)
        pending = _search_dependents(state, trees) if dependents else []
        absent, found = _search_names(state, trees)
        pending += found
        if not pending:
            return absent


def _search_names(state: State, trees: Trees) -> tuple[dict[tuple[str, str], Absent], list[Member]]:
    """Load the documents that are named and were not given, from the trees of those that name them."""
    absent: dict[tuple[str, str], Absent] = {}
    found: list[Member] = []
    for member in state.judged.values():
        for link in links(member):
            kind, name = link.kind.__name__, link.reference.name
            declared = {m.document.metadata.name for m in state.judged.values() if isinstance(m.document, link.kind)}
            if link.reference.file or not name or name in declared or state.may_be_unread(kind, name):
                continue
            target = trees.named(member.path, link.key, kind, name)
            if isinstance(target, Absent):
                absent[member.path, link.key] = target
                continue
            try:
                with untrusted(lambda reason, remedy: LoadError("unreadable", reason, remedy)):
                    read_named(state, target, target.as_posix(), "named")
            except LoadError as error:
                state.forget(target.as_posix())
                absent[member.path, link.key] = Absent(f"names {link.key} {name!r}: {error.message}", error.help)
            if target.as_posix() in state.judged:
                found.append(state.judged[target.as_posix()])
    return absent, found


def _search_dependents(state: State, trees: Trees) -> list[Member]:
    """Load the documents that name one that was given, or one that names it, from the tree of that one."""
    found: list[Member] = []
    for member in state.judged.values():
        kind, name = type(member.document).__name__, member.document.metadata.name
        if state.origins[member.path] not in {"given", "naming"}:
            continue
        for path in trees.naming(member.path, kind, name):
            known = path.as_posix()
            if _known_as(state, path) is None:
                try:
                    with untrusted(unreadable(known)):
                        read_named(state, path, known, "naming")
                except (InputError, LoadError) as error:
                    state.failures.append(str(error))
                    state.forget(known)
                found += [state.judged[known]] if known in state.judged else []
    return found


def _follow_references(state: State, pending: list[Member]) -> None:
    """Load the files that the documents refer to, until nothing new turns up."""
    while pending:
        member = pending.pop()
        for link, target in referenced_files([member]):
            if isinstance(target, ReferenceFailure):
                _reference_failure(state, target)
            elif _known_as(state, target) is None:
                name = target.as_posix()
                try:
                    with untrusted(unreadable(name)):
                        read_named(state, target, name, "referenced")
                except LoadError as error:
                    pointer = (link.key, "file")
                    state.add(DANGLING, member.path, error.message, error.help, pointer=pointer)
                except InputError as error:
                    state.failures.append(str(error))
                    state.forget(name)
                if name in state.judged:
                    pending.append(state.judged[name])


def _known_as(state: State, target: Path) -> str | None:
    return state.names.get(os.path.realpath(target))


def _reference_failure(state: State, failure: ReferenceFailure) -> None:
    state.add(failure.requirement, failure.path, failure.message, failure.help, pointer=failure.pointer)


def _bind(state: State) -> list[Binding]:
    judged = state.judged
    members = list(judged.values())
    _same_names(state, members)
    bound, failures = bindings(
        members,
        lambda path: judged.get(state.names.get(os.path.realpath(path), "")),
        state.may_be_unread,
    )
    for failure in failures:
        _reference_failure(state, failure)
    return bound


def _whole(state: State, bound: Sequence[Binding]) -> list[Binding]:
    """The sets of documents without those that lack something, which rules alone can judge."""
    return [{kind: m for kind, m in binding.items() if m.path in state.members} for binding in bound]


def _run_rules(
    state: State, selection: Selection, bound: Sequence[Binding], absent: Mapping[tuple[str, str], Absent]
) -> tuple[list[Outcome], tuple[Unjudged, ...]]:
    """Judge what there are documents for; rules that ask for others are not even imported."""
    if not state.texts:
        return [], ()
    present = {kind.__name__ for binding in bound for kind in binding}
    wanted = [r for r in state.index.by_id.values() if r.check == "rule" and selection.takes(state.index, r.id)]
    can_run = [r for r in wanted if present.issuperset(r.documents)]
    findings, outcomes, lacks = run_rules(rules_of((r.module, r.id) for r in can_run), bound, state.index)
    state.findings.extend(findings)
    outcomes += [not_together(r) for r in wanted if not present.issuperset(r.documents)]
    unjudged = unjudged_of(state, bound, wanted, absent, lacks)
    return list(with_reasons(outcomes, unjudged)), unjudged


def _same_names(state: State, members: Sequence[Member]) -> None:
    seen: dict[tuple[type, str], str] = {}
    for member in members:
        key = (type(member.document), member.document.metadata.name)
        first = seen.setdefault(key, member.path)
        if first != member.path:
            message = f"{key[0].__name__} {key[1]!r} is also declared in {first}"
            help_text = "give each document a name of its own"
            state.add(NAME_TAKEN, member.path, message, help_text, pointer=("metadata", "name"))


def _located(state: State, selection: Selection) -> list[Finding]:
    """The findings to report, with their lines.

    What keeps a file from being judged is reported whatever was selected: silence would read as a pass.
    """
    findings = []
    for finding in state.findings:
        taken = selection.takes(state.index, finding.requirement)
        blocking = finding.path not in state.complete and not selection.leaves_out(state.index, finding.requirement)
        if taken or blocking:
            findings.append(finding)
    return _with_spans(state, findings)


def _with_spans(state: State, findings: Sequence[Finding]) -> list[Finding]:
    spans: dict[str, Mapping[tuple[tuple[str | int, ...], bool], Span]] = {}
    for path, places in wanted_places(findings).items():
        if path in state.sources:
            spans[path] = state.sources[path].locate(places)
    return [with_spans(finding, spans) for finding in findings]


def _report(state: State, terms: Terms, outcomes: list[Outcome], tally: Tally) -> Report:
    state.findings.clear()
    for complaint in tally.complaints:
        if terms.selection.takes(state.index, complaint.requirement):
            place = {"pointer": complaint.pointer, "span": complaint.span}
            state.add(complaint.requirement, complaint.path, complaint.message, complaint.help, **place)  # type: ignore[arg-type]
    return Report(
        findings=sort_findings([*tally.kept, *_with_spans(state, state.findings)]),
        suppressed=tuple(tally.suppressed),
        documents=tuple(_summary(state, path) for path in state.texts),
        outcomes=tuple(sorted(outcomes, key=lambda outcome: outcome.requirement)),
        specification_version=state.index.specification_version,
        tool_version=__version__,
        settings=terms.settings,
        left_out=tuple(terms.selection.left_out(state.index, terms.settings, terms.from_settings)),
    )


def _summary(state: State, path: str) -> DocumentSummary:
    member = state.judged.get(path)
    if member is None or path not in state.complete:
        return DocumentSummary(path, "", "", state.texts[path], state.origins[path])
    kind, name = type(member.document).__name__, member.document.metadata.name
    return DocumentSummary(path, kind, name, state.texts[path], state.origins[path])


__all__ = ["InputError", "PartialInputError", "Selection", "validate"]
