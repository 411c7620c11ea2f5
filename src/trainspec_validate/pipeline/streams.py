"""Has the streams of each run judged, by the requirements of the specification and by the rules of the user."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trainspec_validate.checking.answers import without_documents
from trainspec_validate.checking.selection import Selection
from trainspec_validate.checkpoints.view import SavedStep
from trainspec_validate.documents.types import CheckpointPolicy, Document, TrainingPlan
from trainspec_validate.model.finding import CheckResult, DocumentSummary, Outcome, Span, Unjudged, Verdict
from trainspec_validate.model.requirements import Index
from trainspec_validate.pipeline.files import File
from trainspec_validate.system.boundary import (
    TogetherUnreadableError,
    UnreadableError,
    open_regular,
    unreadable,
    untrusted,
)

if TYPE_CHECKING:
    from trainspec_validate.telemetry.decode.run_file import RunFile
    from trainspec_validate.telemetry.user_rules import RuleSet
    from trainspec_validate.telemetry.view.run_view import RunView

Seen = Callable[["RunView"], None]
Judged = TypeVar("Judged")
_TRAINER_STATE, _STEPS = "trainer-state", "train.step.count"
_LOSSES = frozenset({"train.loss.mean", "train.loss.max"})
_OF_A_LOSS = re.compile("loss", re.IGNORECASE)
_OF_SCALE = re.compile(r"loss[ _-]?scal", re.IGNORECASE)
_MOST_NAMED = 4
_OF_LOSS = ("TS-TEL-055", "TS-TEL-088")
"""Requirements for the course of the loss."""
_MOST_ATTEMPTS = 4
"""Times that a run is read while its files vanish."""


def judge_streams(  # noqa: PLR0913
    files: Sequence[RunFile],
    selection: Selection,
    index: Index,
    documents: Sequence[Mapping[type[Document], Document]],
    *,
    engine: str = "local",
    num_workers: int | None = None,
    seen: Seen | None = None,
    names: Mapping[int, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[CheckResult, list[tuple[SavedStep, ...]]]:
    """Judge the streams of every run.

    A kind of document counts where there is one of it, or where the only plan or policy refers to one of several.

    `engine` is `local` or `spark`; `num_workers` are processes, or shares on Spark; `seen` is called with the view of
    each run that was judged; `names` are the files of documents by their identity; `progress` is called with the number
    of runs that were judged, and of all runs.

    Returns:
        Results of the checks, and by run the saves that were committed and not deleted.
    """
    beside, given = belonging(documents), num_given(documents)
    judge = _judge_with(beside, selection, index, (num_workers, engine), names or {})
    result, saved = CheckResult(), []
    for those in _counted(runs(files), progress):
        run, judged, failures = readable(those, judge)
        result += CheckResult(failures=failures)
        if judged is None:
            continue
        view, found = judged
        those_judged = _result(run, view, found, given)
        if those_judged.documents:
            saved.append(_saved(view))
            if seen:
                seen(view)
        result += those_judged
    return result, saved


def _counted(by_run: Sequence[list[RunFile]], progress: Callable[[int, int], None] | None) -> Iterator[list[RunFile]]:
    """The files of each run, whose number is reported as progress."""
    for number, those in enumerate(by_run):
        if progress:
            progress(number, len(by_run))
        yield those


def _judge_with(
    beside: Mapping[type[Document], Document],
    selection: Selection,
    index: Index,
    engine: tuple[int | None, str],
    names: Mapping[int, str],
) -> Callable[[list[RunFile]], tuple[RunView, CheckResult]]:
    """What judges the files of a run with these documents, on so many workers of an engine."""
    from trainspec_validate.telemetry.fold.engine import Options  # noqa: PLC0415
    from trainspec_validate.telemetry.judge import judge_run  # noqa: PLC0415

    wanted = [r for r in index.by_id.values() if r.check == "stream" and selection.takes(index, r.id)]
    called = {kind: name for kind, one in beside.items() if (name := names.get(id(one)))}
    options = Options(*engine, now_us=time.time_ns() // 1_000)
    return partial(judge_run, wanted=wanted, index=index, documents=beside, options=options, names=called)


def _result(run: Sequence[RunFile], view: RunView, found: CheckResult, given: Mapping[str, int]) -> CheckResult:
    """What came of the checks on a run, with what was not judged; no findings where the files are no single run."""
    if several := tuple(_of_several_runs(view)):
        return CheckResult(unjudged=several)
    more = CheckResult(unjudged=(*_cut(found), *_without_zone(view), *_without_loss(view), *_unread(run, view)))
    return with_account(run, view.run, found, given) + more


def with_account(files: Sequence[RunFile], run: str, found: CheckResult, given: Mapping[str, int]) -> CheckResult:
    """Results of the checks on a run, with its files and the checks not run for lack of documents or records."""
    path = files[0].name
    streams = tuple(DocumentSummary(file.name, "MetricStream", run) for file in files)
    unjudged = (*without_documents(path, "streams", found.outcomes, given), *_incomplete(path, found))
    return found + CheckResult(documents=streams, unjudged=unjudged)


def _incomplete(path: str, result: CheckResult) -> Iterator[Unjudged]:
    """The requirements that found nothing to judge in streams that are no complete account of a run."""
    lacks = [lack for coverage in result.coverage for lack in coverage.lacks]
    ids = tuple(sorted(o.requirement for o in result.outcomes if o.verdict is Verdict.NOT_APPLICABLE and not o.absent))
    if lacks and ids:
        remedy = "give all streams of the run, and let it report what it completes"
        yield Unjudged(path, f"is incomplete: {' and '.join(lacks)}", remedy, ids)


def _of_several_runs(view: RunView) -> Iterator[Unjudged]:
    """The files that are about several runs or no training, so that there is no run to judge."""
    for damage in view.damage:
        if damage.is_unjudged:
            yield Unjudged(view.files[damage.location.file].path, damage.message, damage.help, ())


def _without_zone(view: RunView) -> Iterator[Unjudged]:
    """The files whose times are local, as their program writes them unless it is asked for another form."""
    from trainspec_validate.telemetry.formats.format import FORMATS  # noqa: PLC0415

    for file in view.files:
        if file.clock == "local" and FORMATS[file.format].omits_zone:
            remedy = "state the zone: trainspec import FILE --known utc_offset=+HH:MM"
            yield Unjudged(file.path, "has times without a zone, which are taken for UTC", remedy, ("TS-TEL-016",))


def _without_loss(view: RunView) -> Iterator[Unjudged]:
    """The logs of a run that has completed steps and reports no loss that is read.

    They are those of the Trainer, which logs one, and those with values that are called a loss.
    """
    metrics = {series.key.metric for series in view.job.values()}
    if _STEPS not in metrics or not metrics.isdisjoint(_LOSSES):
        return
    for file in view.files:
        losses = [name for name in file.unread_names if _OF_A_LOSS.search(name) and not _OF_SCALE.search(name)]
        if (losses or file.format == _TRAINER_STATE) and not file.unread:
            why = f" ({', '.join(losses[:_MOST_NAMED])} not read)" if losses else ""
            message = f"has no loss at any step{why}, so the course of the loss is unknown"
            yield Unjudged(file.path, message, "log the loss of training under the name loss", _OF_LOSS)


def _unread(run: Sequence[RunFile], view: RunView) -> Iterator[Unjudged]:
    """The logs with reports of steps, or losses in them, that their reader does not read."""
    from trainspec_validate.telemetry.formats.format import FORMATS  # noqa: PLC0415
    from trainspec_validate.telemetry.formats.source import lines_at  # noqa: PLC0415

    paths = {file.name: file.path for file in run}
    for file in view.files:
        offsets = [offset for offset, _ in file.unread]
        is_binary = FORMATS[file.format].is_binary
        lines = {} if is_binary or not offsets else lines_at(paths[file.path], offsets)
        for offset, what in file.unread:
            first = f"record {offset + 1:,}" if is_binary else f"line {lines.get(offset, (1, ''))[0]:,}"
            remedy = "write a number for each loss, in the form of the other reports, and each report on its own line"
            yield Unjudged(file.path, f"has {what}, the first on {first}", remedy, _OF_LOSS)


def _cut(result: CheckResult) -> Iterator[Unjudged]:
    """The last records of files that are cut, each with its place."""
    for record in (record for coverage in result.coverage for record in coverage.cut_records):
        span = Span(record.line, 1, record.line, record.num_bytes + 1)
        remedy = "end every record with a line end, or copy the file again"
        yield Unjudged(record.path, f"ends within its last record, at {record.place}", remedy, (), span=span)


def open_streams(files: Iterable[File]) -> tuple[list[RunFile], tuple[str, ...]]:
    """The streams whose start can be read, and why the others cannot."""
    from trainspec_validate.telemetry.fold.engine import of_each_run, run_file  # noqa: PLC0415
    from trainspec_validate.telemetry.formats.source import SourceError  # noqa: PLC0415

    opened: list[RunFile] = []
    failures: list[str] = []
    for file in files:
        try:
            with untrusted(unreadable(file.name)):
                opened += of_each_run(run_file(len(opened), file.path, file.name))
        except UnreadableError as error:
            failures.append(str(error))
        except SourceError as error:
            failures.append("; ".join(filter(None, (f"{file.name}: {error}", error.help))))
    return opened, tuple(failures)


def readable(
    files: Sequence[RunFile], judge: Callable[[list[RunFile]], Judged]
) -> tuple[list[RunFile], Judged | None, tuple[str, ...]]:
    """The files that could be read to their end, what came of them, and why the others could not, each once.

    A file that vanishes while it is read takes no other with it: those that are left are read once more.
    """
    left, failures = list(files), list[str]()
    for _ in range(_MOST_ATTEMPTS):
        try:
            return left, judge(left), tuple(failures)
        except UnreadableError as error:
            failures.append(str(error))
            gone = {file.name: why for file in left if file.name != error.name and (why := _why_gone(file))}
            failures += gone.values()
            left = _numbered([file for file in left if file.name not in {error.name, *gone}])
            if not left:
                break
        except TogetherUnreadableError as error:
            more = f" and {len(left) - 1:,} more files of its run" if len(left) > 1 else ""
            return [], None, (*failures, f"{left[0].name}{more}: {error}; {error.help}")
    failures.extend(f"{file.name}: not judged, other files of its run change while it is read" for file in left)
    return [], None, tuple(failures)


def _why_gone(file: RunFile) -> str:
    """Why a file cannot be opened any more; empty where it can."""
    try:
        with untrusted(unreadable(file.name)), open_regular(file.path):
            return ""
    except UnreadableError as error:
        return str(error)


def _saved(view: RunView) -> tuple[SavedStep, ...]:
    """The saves of a run that outlive its processes and nodes, or do not say what they outlive."""
    from trainspec_validate.telemetry.checks._saves import saves  # noqa: PLC0415

    return tuple(
        SavedStep(save.id, save.step)
        for save in saves(view)
        if save.step is not None and save.deleted is None and save.outlives_the_job
    )


def judge_by_rules(files: Sequence[RunFile], rules: RuleSet, selection: Selection, index: Index) -> CheckResult:
    """Judge all runs by the rules of the user; a rule that cannot be run is a failure."""
    from trainspec_validate.telemetry.formats.source import SourceError  # noqa: PLC0415
    from trainspec_validate.telemetry.user_rules.judge import judge_rules  # noqa: PLC0415

    wanted = [rule for rule in rules.rules if selection.takes(index, rule.id)]
    try:
        _, found, failures = readable(files, lambda some: judge_rules(some, rules, wanted, index))
    except SourceError as error:
        return CheckResult(failures=("; ".join(filter(None, (f"--rules: {error}", error.help))),))
    return CheckResult(failures=failures) + (found or CheckResult())


def documents_beside(paths: Sequence[str]) -> Mapping[type[Document], Document]:
    """The documents below the paths that belong together; none where there are none, or several sets.

    Raises:
        InputError: a document cannot be read.
    """
    from trainspec_validate.model.requirements import load_index  # noqa: PLC0415
    from trainspec_validate.pipeline.detect import detect, search  # noqa: PLC0415
    from trainspec_validate.pipeline.reading import ReadFile, read_document  # noqa: PLC0415

    index, found = load_index(), list[ReadFile]()
    for file in search(paths).files:
        if detect(file).kind == "document":
            with untrusted(unreadable(file.name)):
                found.append(read_document(index, file))
    return unambiguous_documents(file.member.document for file in found if file.member and file.is_whole)


def unambiguous_documents(documents: Iterable[Document]) -> dict[type[Document], Document]:
    """The documents that are the only ones of their kind; each can come more than once."""
    found: dict[type[Document], dict[int, Document]] = {}
    for document in documents:
        found.setdefault(type(document), {})[id(document)] = document
    return {kind: next(iter(those.values())) for kind, those in found.items() if len(those) == 1}


def belonging(bound: Iterable[Mapping[type[Document], Document]]) -> dict[type[Document], Document]:
    """The documents that are the only ones of their kind, and those that the only policy or plan is bound to."""
    sets = list(bound)
    found = unambiguous_documents(document for documents in sets for document in documents.values())
    owners: tuple[tuple[type[Document], bool], ...] = ((CheckpointPolicy, False), (TrainingPlan, True))
    for kind, alone in owners:
        for documents in sets:
            if kind in found and documents.get(kind) is found[kind] and not (alone and CheckpointPolicy in documents):
                found = {**documents, **found}
    return found


def num_given(bound: Iterable[Mapping[type[Document], Document]]) -> dict[str, int]:
    """Number of documents of a run by kind."""
    return Counter(type(one).__name__ for one in {id(one): one for each in bound for one in each.values()}.values())


def runs(files: Iterable[RunFile]) -> list[list[RunFile]]:
    """The files by run, where they name one; a file of another format that does not, by itself.

    The event files of a directory are one run.
    """
    from trainspec_validate.telemetry.decode.event_files import FORMAT, joined  # noqa: PLC0415
    from trainspec_validate.telemetry.decode.run_file import NATIVE  # noqa: PLC0415

    by_run: dict[str, list[RunFile]] = {}
    by_directory: dict[Path, list[RunFile]] = {}
    headless, alone = [], []
    for file in files:
        if file.head is not None:
            by_run.setdefault(file.head.run, []).append(file)
        elif file.run is not None:
            by_run.setdefault(file.run, []).append(file)
        elif file.format in {NATIVE, "parquet"}:
            headless.append(file)
        elif file.format == FORMAT:
            by_directory.setdefault(file.path.parent, []).append(file)
        else:
            alone.append([file])
    for those in by_directory.values():
        alone += joined(those) if len(those) > 1 else [those]
    groups = list(by_run.values())
    if headless and len(groups) == 1:
        groups[0] += headless
    elif headless:
        groups.append(headless)
    return [*(_numbered(group) for group in groups), *(_numbered(group) for group in alone)]


def _numbered(files: Sequence[RunFile]) -> list[RunFile]:
    from dataclasses import replace  # noqa: PLC0415

    return [replace(file, number=number) for number, file in enumerate(sorted(files, key=lambda file: file.name))]


_WEIGHT = (
    *(Verdict.NOT_APPLICABLE, Verdict.UNSUPPORTED, Verdict.NOT_RUN),
    *(Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.ERROR),
)


def merge_outcomes(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """One outcome for each requirement over all runs: the heaviest, with all findings and all reasons."""
    found: dict[str, Outcome] = {}
    for outcome in outcomes:
        before = found.get(outcome.requirement)
        if before is None:
            found[outcome.requirement] = outcome
            continue
        heavier = max(before, outcome, key=lambda each: _WEIGHT.index(each.verdict))
        told = f"{before.reason}; {outcome.reason}".split("; ")
        reasons = "; ".join(dict.fromkeys(filter(None, told)))
        number = before.num_findings + outcome.num_findings
        kept = reasons if heavier.verdict in _WEIGHT[:3] else ""
        found[outcome.requirement] = Outcome(outcome.requirement, heavier.verdict, number, kept)
    return list(found.values())
