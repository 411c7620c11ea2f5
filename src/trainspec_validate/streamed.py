"""Separates streams from documents among the files of a run, and has the streams of each run judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trainspec_validate.boundary import TogetherOverLimitError, UnreadableError, open_regular, untrusted
from trainspec_validate.boundary import unreadable as failure_of
from trainspec_validate.checkpoints.view import SavedStep
from trainspec_validate.collect import STREAM_SUFFIXES, SUFFIXES, Candidate, InputError, unreadable
from trainspec_validate.documents import CheckpointPolicy, Document, TrainingPlan
from trainspec_validate.findings import Coverage, DocumentSummary, Finding, Outcome, Verdict
from trainspec_validate.requirements import Index
from trainspec_validate.selection import Selection

if TYPE_CHECKING:
    from trainspec_validate.telemetry.reader import RunFile
    from trainspec_validate.telemetry.view import RunView
    from trainspec_validate.user_rules import RuleSet

Seen = Callable[["RunView"], None]
Judged = TypeVar("Judged")
_START_BYTES = 65_536
_MOST_ATTEMPTS = 4
"""Times that a run is read while its files vanish."""
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
_MARKS = (b'"MetricStream"', b'"k":"m"', b'"k": "m"', b'"k":"e"', b'"k": "e"', b":::MLLOG", b'"resourceMetrics"')


@dataclass(slots=True)
class Streams:
    """The files of the set that are streams, and what came of them."""

    candidates: list[Candidate] = field(default_factory=list)
    num_workers: int | None = None
    """Processes, or shares on Spark; None lets the engine choose."""
    engine: str = "local"
    saved: list[tuple[SavedStep, ...]] = field(default_factory=list)
    """Saves of each run that were committed and not deleted."""
    findings: list[Finding] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    documents: list[DocumentSummary] = field(default_factory=list)
    seen: Seen | None = None
    """Is called with the view of each run that was judged."""
    rules: RuleSet | None = None
    """Rules of the user."""

    @property
    def paths(self) -> frozenset[str]:
        """The files that were judged."""
        return frozenset(document.path for document in self.documents)


def is_stream(candidate: Candidate) -> bool:
    """Whether a file is a stream and no document: by its name where it was found, by its content where it was named.

    Raises:
        InputError: the file cannot be opened.
    """
    if candidate.path.name.endswith(STREAM_SUFFIXES):
        return not candidate.found or _is_ours(candidate.path)
    if candidate.found:
        return False
    start = _start(candidate.path)
    if candidate.path.suffix in SUFFIXES:
        first = start.lstrip().partition(b"\n")[0]
        if first.startswith((b"{", b":::MLLOG")) and any(mark in first for mark in _MARKS):
            return True
        return candidate.path.suffix == ".json" and (b'"resourceMetrics"' in start or b'"resourceLogs"' in start)
    if start.startswith((b"PAR1", *_COMPRESSED)) or any(mark in start for mark in _MARKS):
        return True
    from trainspec_validate.streams.format import detect  # noqa: PLC0415

    return detect(start) is not None


def _is_ours(path: Path) -> bool:
    """Whether a file that was found in a directory is a stream that somebody meant to be judged."""
    start = _start(path)
    if path.suffix in {".prom", ".mllog"} or start.startswith((b"PAR1", *_COMPRESSED)):
        return True
    return not start.strip() or any(mark in start for mark in _MARKS)


def _start(path: Path) -> bytes:
    with untrusted(unreadable(path.as_posix())), open_regular(path) as file:
        return file.read(_START_BYTES)


def judge_streams(
    streams: Streams, selection: Selection, index: Index, documents: Sequence[Mapping[type[Document], Document]]
) -> list[str]:
    """Judge the streams of every run; returns what could not be read.

    A kind of document counts where there is one of it, or where the only plan or policy refers to one of several.
    """
    from trainspec_validate.telemetry.engine import Options  # noqa: PLC0415
    from trainspec_validate.telemetry.judge import judge_run  # noqa: PLC0415

    failures: list[str] = []
    files = _opened(streams.candidates, failures)
    wanted = [r for r in index.by_id.values() if r.check == "stream" and selection.takes(index, r.id)]
    beside = belonging(documents)
    options = Options(streams.num_workers, streams.engine, now_us=time.time_ns() // 1_000)
    for those in runs(files):
        run, judgement = readable(those, lambda some: judge_run(some, wanted, index, beside, options), failures)
        if judgement is None:
            continue
        streams.findings += judgement.findings
        streams.outcomes += judgement.outcomes
        streams.saved.append(_saved(judgement.view))
        if streams.seen is not None:
            streams.seen(judgement.view)
        name = judgement.view.run
        streams.documents += (DocumentSummary(file.name, "MetricStream", name) for file in run)
        if judgement.coverage is not None:
            streams.coverage.append(judgement.coverage)
    if streams.rules is not None:
        judged = [file for file in files if file.name in streams.paths]
        failures += _judge_by_rules(streams, streams.rules, judged, selection, index)
    return failures


def _opened(candidates: Iterable[Candidate], failures: list[str]) -> list[RunFile]:
    """The streams whose start can be read; each other one is told in `failures`."""
    from trainspec_validate.streams.source import SourceError  # noqa: PLC0415
    from trainspec_validate.telemetry.engine import run_file  # noqa: PLC0415

    files: list[RunFile] = []
    for candidate in candidates:
        try:
            with untrusted(failure_of(candidate.name)):
                files.append(run_file(len(files), candidate.path, candidate.name))
        except UnreadableError as error:
            failures.append(str(error))
        except SourceError as error:
            failures.append("; ".join(filter(None, (f"{candidate.name}: {error}", error.help))))
    return files


def readable(
    files: Sequence[RunFile], judge: Callable[[list[RunFile]], Judged], failures: list[str]
) -> tuple[list[RunFile], Judged | None]:
    """The files that could be read to their end, and what came of them; each other one is told in `failures`, once.

    A file that vanishes while it is read takes no other with it: those that are left are read once more.
    """
    left = list(files)
    for _ in range(_MOST_ATTEMPTS):
        try:
            return left, judge(left)
        except UnreadableError as error:
            failures.append(str(error))
            left = _numbered([file for file in left if file.name != error.name and _is_there(file, failures)])
            if not left:
                break
        except TogetherOverLimitError as error:
            more = f" and {len(left) - 1:,} more files of its run" if len(left) > 1 else ""
            failures.append(f"{left[0].name}{more}: {error}; leave some of it out")
            return [], None
    failures.extend(f"{file.name}: not judged, other files of its run change while it is read" for file in left)
    return [], None


def _is_there(file: RunFile, failures: list[str]) -> bool:
    """Whether a file can still be opened; one that cannot is told."""
    try:
        with untrusted(failure_of(file.name)), open_regular(file.path):
            return True
    except UnreadableError as error:
        failures.append(str(error))
        return False


def _saved(view: RunView) -> tuple[SavedStep, ...]:
    """The saves of a run that outlive its processes and nodes, or do not say what they outlive."""
    from trainspec_validate.telemetry.checks._saves import saves  # noqa: PLC0415

    return tuple(
        SavedStep(save.id, save.step)
        for save in saves(view)
        if save.step is not None and save.deleted is None and save.outlives_the_job
    )


def _judge_by_rules(
    streams: Streams, rules: RuleSet, files: Sequence[RunFile], selection: Selection, index: Index
) -> list[str]:
    """Judge all runs by the rules of the user; returns what went wrong with the rules."""
    from trainspec_validate.streams.source import SourceError  # noqa: PLC0415
    from trainspec_validate.user_rules.judge import judge_rules  # noqa: PLC0415

    wanted = [rule for rule in rules.rules if selection.takes(index, rule.id)]
    failures: list[str] = []
    try:
        _, judgement = readable(files, lambda some: judge_rules(some, rules, wanted), failures)
    except SourceError as error:
        return ["; ".join(filter(None, (f"--rules: {error}", error.help)))]
    if judgement is not None:
        streams.findings += judgement.findings
        streams.outcomes += judgement.outcomes
        failures += judgement.failures
    return failures


def documents_beside(paths: Sequence[str]) -> Mapping[type[Document], Document]:
    """The documents below the paths that belong together; none where there are none, or several sets.

    Raises:
        InputError: a document cannot be read.
    """
    from trainspec_validate.collect import collect  # noqa: PLC0415
    from trainspec_validate.reading import State, read_candidate  # noqa: PLC0415
    from trainspec_validate.requirements import load_index  # noqa: PLC0415

    state = State(load_index())
    failures: list[InputError] = []
    for candidate in collect(paths, failures):
        if not is_stream(candidate):
            with untrusted(unreadable(candidate.name)):
                read_candidate(state, candidate)
    return only_ones(member.document for member in state.members.values())


def only_ones(documents: Iterable[Document]) -> dict[type[Document], Document]:
    """The documents that are the only ones of their kind; each can come more than once."""
    found: dict[type[Document], dict[int, Document]] = {}
    for document in documents:
        found.setdefault(type(document), {})[id(document)] = document
    return {kind: next(iter(those.values())) for kind, those in found.items() if len(those) == 1}


def belonging(bound: Iterable[Mapping[type[Document], Document]]) -> dict[type[Document], Document]:
    """The documents that are the only ones of their kind, and those that the only policy or plan is bound to."""
    sets = list(bound)
    found = only_ones(document for documents in sets for document in documents.values())
    owners: tuple[tuple[type[Document], bool], ...] = ((CheckpointPolicy, False), (TrainingPlan, True))
    for kind, alone in owners:
        for documents in sets:
            if kind in found and documents.get(kind) is found[kind] and not (alone and CheckpointPolicy in documents):
                found = {**documents, **found}
    return found


def runs(files: Iterable[RunFile]) -> list[list[RunFile]]:
    """The files by run: those of our format by the run of their head, every other one by itself."""
    from trainspec_validate.telemetry.reader import NATIVE  # noqa: PLC0415

    by_run: dict[str, list[RunFile]] = {}
    headless, alone = [], []
    for file in files:
        if file.head is not None:
            by_run.setdefault(file.head.run, []).append(file)
        elif file.format in {NATIVE, "parquet"}:
            headless.append(file)
        else:
            alone.append([file])
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


def together(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """One outcome for each requirement over all runs: the heaviest, with all findings and all reasons."""
    found: dict[str, Outcome] = {}
    for outcome in outcomes:
        before = found.get(outcome.requirement)
        if before is None:
            found[outcome.requirement] = outcome
            continue
        heavier = max(before, outcome, key=lambda each: _WEIGHT.index(each.verdict))
        reasons = "; ".join(dict.fromkeys(filter(None, (before.reason, outcome.reason))))
        number = before.num_findings + outcome.num_findings
        kept = reasons if heavier.verdict in _WEIGHT[:3] else ""
        found[outcome.requirement] = Outcome(outcome.requirement, heavier.verdict, number, kept)
    return list(found.values())
