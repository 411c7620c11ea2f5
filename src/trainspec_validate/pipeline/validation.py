"""Runs the whole check: from paths to a report."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainspec_validate._version import __version__
from trainspec_validate.checking.selection import Selection, taken_by
from trainspec_validate.checking.suppress import Run, SuppressionResult, is_below, silence
from trainspec_validate.documents.load import MAX_BYTES, LoadError
from trainspec_validate.model import suggest
from trainspec_validate.model.finding import (
    CheckResult,
    DocumentSummary,
    Finding,
    Report,
    Unjudged,
    sort_findings,
)
from trainspec_validate.model.requirements import Index, load_index
from trainspec_validate.pipeline import excluded
from trainspec_validate.pipeline.alike import merged
from trainspec_validate.pipeline.checkpoints import judge_stored
from trainspec_validate.pipeline.completion import complete
from trainspec_validate.pipeline.detect import Source as FoundSource
from trainspec_validate.pipeline.detect import detect, of_content, search
from trainspec_validate.pipeline.engine import Binding, Member, located, not_together, run_rules
from trainspec_validate.pipeline.files import STDIN, STDIN_NAME, File, kept
from trainspec_validate.pipeline.importable import hint_of
from trainspec_validate.pipeline.other_inputs import (
    NOTHING,
    Inputs,
    first_of_each_path,
    inputs_of,
    left_out_of,
    lines_on,
    passed_over_of,
)
from trainspec_validate.pipeline.outcomes import NAME_TAKEN, judged_on, outcomes_of_form, without_input
from trainspec_validate.pipeline.outside import without_links_out
from trainspec_validate.pipeline.reading import DocumentSet, ReadFile, read_content, read_document, read_named
from trainspec_validate.pipeline.references import Absent, ReferenceFailure, bindings, repository_of, tree_of
from trainspec_validate.pipeline.streams import Seen, judge_by_rules, judge_streams, merge_outcomes, open_streams
from trainspec_validate.pipeline.unjudged import unexplained, unjudged_of, with_reasons
from trainspec_validate.pipeline.unpacked import one_run
from trainspec_validate.rules import rules_of
from trainspec_validate.system.boundary import InputError, UnreadableError, unreadable, untrusted, waiting
from trainspec_validate.system.budget import OverLimitError

if TYPE_CHECKING:
    from datetime import date

    from trainspec_validate.checking.suppress.baseline import Baseline
    from trainspec_validate.checking.suppress.waivers import WaiverFile
    from trainspec_validate.checkpoints.view import SavedStep
    from trainspec_validate.pipeline.inputs import Given, Input
    from trainspec_validate.telemetry.user_rules import RuleSet

Progress = Callable[[int, int], None]
"""Called with the number of files read so far and the number of files."""


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
    given: tuple[Given, ...] = ()
    """Texts that are judged together with the files."""
    waivers: str | os.PathLike[str] | None = None
    baseline: Baseline | str | os.PathLike[str] | None = None
    today: date | None = None
    progress: Progress | None = None
    seen: Seen | None = None
    """Called with the view of each run whose streams were judged."""
    engine: str = "local"
    """Engine that folds streams: `local`, or `spark`."""
    num_workers: int | None = None
    rules: RuleSet | None = None
    """Rules of the user, in addition to those of the specification."""
    dependents: bool = False
    """Whether documents of the tree that name one of these, or one that is not there, are judged too."""
    left_out: tuple[Unjudged, ...] = ()
    """Inputs that were named and are not judged, such as changed files of other programs."""
    merges: bool = True
    """Whether findings that say the same of many items of a list are made one, which names the first of them."""
    values: bool = False
    """Whether the values of tensors in checkpoints are read too."""
    settings: str = ""
    """The settings file in force."""
    from_settings: Collection[str] = ()
    """The names of the options that it sets."""
    settings_from: str | None = None
    """A copy of another state of the working directory; waivers and baselines in it speak of the working directory."""

    @property
    def judges_change(self) -> bool:
        """Whether what is judged is a change, which may come from anybody."""
        return self.dependents or self.settings_from is not None


def validate(  # noqa: PLR0913
    inputs: Input | Iterable[Input],
    selection: Selection | None = None,
    *,
    stdin_name: str = STDIN_NAME,
    waivers: str | os.PathLike[str] | None = None,
    baseline: Baseline | str | os.PathLike[str] | None = None,
    today: date | None = None,
    progress: Progress | None = None,
) -> Report:
    """Judge documents, streams and checkpoints together, and the documents that they refer to.

    Args:
        inputs: one input or several. A text is the path of a file or a directory, a pattern, or `-` for standard
            input. A `NamedText` holds a document or a stream. A mapping, a typed document and a pydantic model are
            judged as the YAML text of them; findings call them by their kind, such as `<TrainingPlan>`, and documents
            that they refer to are looked for from the working directory.
        selection: requirements to judge; all of them without it.
        stdin_name: what findings call standard input.
        waivers: file of accepted findings.
        baseline: file of known findings.
        today: day for which waivers count.
        progress: called with the number of files that were read, and of all files; then with the number of runs whose
            streams were judged, and of all runs.

    Nothing is written and no setting of the process changes.

    Raises:
        PartialInputError: some of the inputs cannot be read; it carries the report on the others.
        InputError: none of them can be read, none is a TrainSpec document, a mapping holds what no document can
            hold, or the waiver file or the baseline cannot be read.
        TypeError: an input is none of these.
    """
    from trainspec_validate.pipeline.inputs import sorted_out  # noqa: PLC0415 - the command line has paths alone

    paths, given = sorted_out(inputs)
    terms = Terms(selection or Selection(), stdin_name, given, waivers, baseline, today, progress)
    return examine(paths, terms)


def examine(paths: Iterable[str | os.PathLike[str]], terms: Terms) -> Report:
    """Judge on terms.

    Raises:
        PartialInputError: as `validate`.
        InputError: as `validate`.
    """
    with ExitStack() as stack, one_run(), suggest.one_run():
        report, failures = _examine([os.fspath(path) for path in paths], terms, stack)
    index = terms.rules.known_to(load_index()) if terms.rules else load_index()
    left_out = terms.selection.left_out(index, terms.settings, terms.from_settings)
    report = replace(report, settings=terms.settings, left_out=tuple(left_out))
    if failures:
        raise PartialInputError(failures, report)
    return report


def _examine(arguments: Sequence[str], terms: Terms, stack: ExitStack) -> tuple[Report, list[str]]:
    """The report on what could be read, and why the rest could not."""
    index = terms.rules.known_to(load_index()) if terms.rules else load_index()
    selection, recorded = terms.selection, _baseline(terms.baseline)
    arguments, refused = without_links_out(arguments) if terms.judges_change else (arguments, [])
    documents, inputs = _refuse_nothing(arguments, terms, *_read_all(index, arguments, terms, stack, refused))
    documents, waivers = _with_waivers(documents, terms)
    is_set = terms.dependents or len(documents.judged) > 1 or any(map(os.path.isdir, arguments))
    completion = complete(documents, dependents=terms.dependents, named=set(filter(os.path.isfile, arguments)))
    documents, absent = completion.documents, completion.absent
    bound, misbound = _bind(documents, repository_of if terms.dependents else tree_of, absent if is_set else None)
    ruled = _run_rules(documents, selection, bound, absent)
    found = (*documents.findings, *completion.findings, *misbound, *ruled.findings)
    bound = _whole(documents, bound)
    streamed, saved = _judge_streams(index, inputs, terms, bound)
    stored = _judge_checkpoints(index, inputs, terms, bound, saved)
    both = streamed + stored
    elsewhere = dict.fromkeys(("stream", "user"), streamed.paths) | {"artifact": stored.paths}
    judged = judged_on(documents, selection, bound, [*ruled.outcomes, *both.outcomes], elsewhere)
    form = [*outcomes_of_form(documents, found, selection, judged), *without_input(documents, selection, elsewhere)]
    run = Run(index, documents.sources, tuple(documents.files), judged, terms.settings_from)
    tally = silence([*_located(documents, found, selection), *both.findings], run, waivers, recorded, terms.today)
    left_out = first_of_each_path([*left_out_of(arguments, documents, inputs), *terms.left_out], completion.unreached)
    open_ = [*ruled.unjudged, *first_of_each_path([*both.unjudged], left_out)]
    open_ = recorded.mark(open_, run, tally) if recorded else open_
    findings = sort_findings([*_merged(tally, documents, terms), *_complaints(documents, tally, recorded, terms)])
    outcomes = [*ruled.outcomes, *form, *with_reasons(merge_outcomes(both.outcomes), both.unjudged)]
    report = Report(
        findings=findings,
        suppressed=tuple(tally.suppressed),
        documents=(*map(_summary, documents.files.values()), *both.documents),
        outcomes=tuple(sorted(outcomes, key=lambda outcome: outcome.requirement)),
        specification_version=index.specification_version,
        tool_version=__version__,
        coverage=both.coverage,
        unjudged=unexplained(open_, findings),
        passed_over=passed_over_of(inputs),
    )
    return report, [*inputs.failures, *completion.failures, *both.failures]


def _merged(tally: SuppressionResult, documents: DocumentSet, terms: Terms) -> Iterable[Finding]:
    """The findings that are kept, with those that say the same of many items of a list as one where this is asked."""
    if not terms.merges:
        return tally.kept
    return merged(tally.kept, {path: source.data for path, source in documents.sources.items()})


def _refuse_nothing(
    arguments: Sequence[str], terms: Terms, documents: DocumentSet, inputs: Inputs
) -> tuple[DocumentSet, Inputs]:
    """These documents and inputs; raise `InputError` where nothing is to be judged."""
    if documents.files or inputs.streams or inputs.checkpoints or (terms.left_out and not arguments):
        return documents, inputs
    named = ", ".join([*arguments, *(text.name for text in terms.given)]) or "no argument"
    left_out = lines_on([*left_out_of(arguments, documents, inputs)])
    kept_out = map(str, excluded.passed_over())
    told = [*(inputs.failures or [NOTHING + named]), *left_out, *kept_out]
    raise InputError(*told, *filter(None, [hint_of(arguments)]))


def _baseline(baseline: Baseline | str | os.PathLike[str] | None) -> Baseline | None:
    if baseline is None:
        return None
    from trainspec_validate.checking.suppress.baseline import Baseline  # noqa: PLC0415

    return baseline if isinstance(baseline, Baseline) else Baseline(os.fspath(baseline))


def _judge_streams(
    index: Index, inputs: Inputs, terms: Terms, bound: Sequence[Binding]
) -> tuple[CheckResult, tuple[SavedStep, ...] | None]:
    """What came of the streams, and the saves that the only run reports."""
    if not (inputs.streams or terms.rules):
        return CheckResult(), None
    opened, unread = open_streams(inputs.streams)
    documents = [{kind: member.document for kind, member in binding.items()} for binding in bound]
    result, saved = judge_streams(
        opened,
        terms.selection,
        index,
        documents,
        engine=terms.engine,
        num_workers=terms.num_workers,
        seen=terms.seen,
        names={id(member.document): member.path for binding in bound for member in binding.values()},
        progress=terms.progress,
    )
    if terms.rules is not None:
        judged = [file for file in opened if file.name in result.paths]
        result += judge_by_rules(judged, terms.rules, terms.selection, index)
    return replace(result, failures=unread + result.failures), saved[0] if len(saved) == 1 else None


def _judge_checkpoints(
    index: Index, inputs: Inputs, terms: Terms, bound: Sequence[Binding], saved: tuple[SavedStep, ...] | None
) -> CheckResult:
    if not inputs.checkpoints:
        return CheckResult()
    return judge_stored(
        inputs.checkpoints,
        terms.selection,
        index,
        bound,
        saved,
        reads_values=terms.values,
        progress=terms.progress,
    )


def _read_all(
    index: Index, arguments: Sequence[str], terms: Terms, stack: ExitStack, refused: Sequence[InputError]
) -> tuple[DocumentSet, Inputs]:
    """Read the documents, and find the rest; a file that cannot be read hinders no other."""
    documents, streams = list[ReadFile](), list[File]()
    found = search(arguments)
    failures = [*refused, *found.failures]
    texts = [(text.name, partial(_read_given, index, text, stack)) for text in terms.given]
    if STDIN in arguments:
        texts.append((terms.stdin_name, partial(_read_stdin, index, terms.stdin_name, stack)))
    for name, read in texts:
        try:
            with untrusted(unreadable(name)):
                text = read()
            documents += [text] if isinstance(text, ReadFile) else []
            streams += [text] if isinstance(text, File) else []
        except UnreadableError as error:
            failures.insert(0, error)
    sources = list[FoundSource]()
    for number, file in enumerate(found.files):
        if terms.progress:
            terms.progress(number, len(found.files))
        try:
            with untrusted(unreadable(file.name)):
                source = detect(file)
                documents += [read_document(index, file)] if source.kind == "document" else []
        except InputError as error:
            failures.append(error)
            continue
        except Exception as error:
            error.add_note(f"while reading {file.name}")
            raise
        sources.append(source)
    if terms.progress:
        terms.progress(len(found.files), len(found.files))
    return DocumentSet(index).including(documents), inputs_of(found, sources, streams, failures)


def _read_stdin(index: Index, name: str, stack: ExitStack) -> ReadFile | File:
    """The document on standard input, or the file that its stream is kept in."""
    if sys.stdin is None:
        raise InputError("standard input is closed")
    # One byte more than a document may have, which its reader refuses.
    start = waiting(sys.stdin.buffer).read(MAX_BYTES + 1)
    if not start and name == STDIN_NAME:
        raise InputError("standard input is empty; pipe a document or a stream into it")
    if of_content(name, start).kind == "stream":
        return stack.enter_context(kept(start, sys.stdin.buffer, name))
    return read_content(index, start, name)


def _read_given(index: Index, given: Given, stack: ExitStack) -> ReadFile | File:
    """The document that a program hands over, or the file that its stream is kept in."""
    if not given.is_document and of_content(given.name, given.content).kind == "stream":
        return stack.enter_context(kept(given.content, io.BytesIO(), given.name))
    return read_content(index, given.content, given.name)


def _with_waivers(documents: DocumentSet, terms: Terms) -> tuple[DocumentSet, WaiverFile | None]:
    """The set with the file that was named for its waivers, which also is a document of the run, and the waivers."""
    if terms.waivers is None:
        return documents, None
    from trainspec_validate.checking.suppress.waivers import WaiverFile  # noqa: PLC0415

    path = Path(os.fspath(terms.waivers or ""))
    name = documents.known_as(path) or path.as_posix()
    if name not in documents.files:
        said = f"waivers in {terms.settings}: {name}" if "waivers" in terms.from_settings else name
        try:
            with untrusted(unreadable(said)):
                documents = documents.including([read_named(documents.index, path, name)])
        except LoadError as error:
            raise InputError(f"{said}: {error}") from error
    file = documents.files[name]
    if file.kind is not None and file.kind != "Waivers":
        raise InputError(f"{name}: this is a {file.kind}; a waiver file is of kind Waivers")
    waivers = WaiverFile(name, list(file.waivers), terms.settings_from)
    try:
        waivers.check()
    except OverLimitError as error:
        raise InputError(f"{name}: {error}") from error
    return documents, waivers


def _bind(
    documents: DocumentSet, tree: Callable[[str], Path], absent: Mapping[tuple[str, str], Absent] | None
) -> tuple[list[Binding], list[Finding]]:
    """The documents that belong together, and findings on those that cannot be told apart or found."""
    members = list(documents.judged.values())
    bound, failures = bindings(
        members,
        lambda path: documents.judged.get(documents.known_as(path) or ""),
        documents.may_be_unread,
        tree,
        absent,
    )
    found_first = sorted(members, key=lambda member: documents.files[member.path].origin == "given")
    return bound, [failure.finding(documents.index) for failure in (*_same_names(found_first), *failures)]


def _whole(documents: DocumentSet, bound: Sequence[Binding]) -> list[Binding]:
    """The sets of documents without those that lack something, which rules alone can judge."""
    return [{kind: m for kind, m in binding.items() if m.path in documents.whole} for binding in bound]


def _run_rules(
    documents: DocumentSet, selection: Selection, bound: Sequence[Binding], absent: Mapping[tuple[str, str], Absent]
) -> CheckResult:
    """Judge what there are documents for; rules that ask for others are not even imported."""
    if not documents.files:
        return CheckResult()
    index = documents.index
    present = {kind.__name__ for binding in bound for kind in binding}
    taken = taken_by(selection, index)
    wanted = [r for r in index.by_id.values() if r.check == "rule" and r.id in taken]
    can_run = [r for r in wanted if present.issuperset(r.documents)]
    findings, outcomes, lacks = run_rules(rules_of((r.module, r.id) for r in can_run), bound, index)
    outcomes += [not_together(r) for r in wanted if not present.issuperset(r.documents)]
    unjudged = unjudged_of(documents, bound, wanted, absent, lacks)
    return CheckResult(tuple(findings), tuple(with_reasons(outcomes, unjudged)), unjudged=unjudged)


def _same_names(members: Sequence[Member]) -> Iterator[ReferenceFailure]:
    seen: dict[tuple[type, str], str] = {}
    for member in members:
        key = (type(member.document), member.document.metadata.name)
        first = seen.setdefault(key, member.path)
        if first != member.path:
            message = f"{key[0].__name__} {key[1]!r} is also declared in {first}"
            help_text = "give each document a name of its own"
            yield ReferenceFailure(NAME_TAKEN, member.path, ("metadata", "name"), message, help_text)


def _located(documents: DocumentSet, found: Sequence[Finding], selection: Selection) -> list[Finding]:
    """The findings to report, with their lines.

    What keeps a file from being judged is reported whatever was selected: silence would read as a pass.
    """
    findings = []
    for finding in found:
        taken = selection.takes(documents.index, finding.requirement)
        leaves_out = selection.leaves_out(documents.index, finding.requirement)
        if taken or (finding.path not in documents.complete and not leaves_out):
            findings.append(finding)
    return located(documents.sources, findings)


def _complaints(
    documents: DocumentSet, tally: SuppressionResult, recorded: Baseline | None, terms: Terms
) -> list[Finding]:
    """The findings on silencers, which are silenced by none."""
    index = documents.index
    findings = [
        index.finding(index.by_id[one.requirement], one.message, one.help, one.path, pointer=one.pointer, span=one.span)
        for one in tally.complaints
        if not is_below(one.path, terms.settings_from) and terms.selection.takes(index, one.requirement)
    ]
    baseline = {recorded.path: recorded.source} if recorded and recorded.source else {}
    return located({**documents.sources, **baseline}, findings)


def _summary(file: ReadFile) -> DocumentSummary:
    if file.member is None or not file.is_complete:
        return DocumentSummary(file.path, "", "", file.text, file.origin)
    kind, name = type(file.member.document).__name__, file.member.document.metadata.name
    return DocumentSummary(file.path, kind, name, file.text, file.origin)


__all__ = ["InputError", "PartialInputError", "Selection", "validate"]
