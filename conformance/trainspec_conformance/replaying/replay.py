"""Reads the files of production runs with the readers of the validator, and has their incidents judged."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from trainspec_conformance.figures import marks
from trainspec_conformance.observing import judge_checkpoint
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.records import Listed, Streams
from trainspec_conformance.replaying.facts import NATIVE, Facts
from trainspec_conformance.replaying.incidents import FAULTS, find_incidents
from trainspec_conformance.replaying.judging import (
    AFTER_READING,
    OF_A_CHOICE,
    SCENARIOS,
    Judge,
    Skipped,
    Terms,
    judged_after,
)
from trainspec_conformance.replaying.records import (
    CriterionResult,
    IncidentResult,
    MomentRange,
    Replay,
    RunResult,
    limits_of,
)
from trainspec_conformance.store import CheckpointStore
from trainspec_conformance.view import View
from trainspec_validate import __version__
from trainspec_validate.documents.types import CheckpointPolicy
from trainspec_validate.documents.types.conformance import Claims, StackDescriptor
from trainspec_validate.model.finding import Report, Severity
from trainspec_validate.model.requirements import load_index
from trainspec_validate.pipeline.detect import Search, detect, search
from trainspec_validate.pipeline.overlooked import overlooked
from trainspec_validate.pipeline.reading import ReadFile, read_document
from trainspec_validate.pipeline.streams import unambiguous_documents
from trainspec_validate.pipeline.unpacked import one_run
from trainspec_validate.pipeline.validation import PartialInputError, examine
from trainspec_validate.pipeline.validation import Terms as ValidatorTerms
from trainspec_validate.system.boundary import InputError, unreadable, untrusted
from trainspec_validate.telemetry.checks._saves import Save
from trainspec_validate.telemetry.formats.source import lines_at
from trainspec_validate.telemetry.view.run_view import NOWHERE, Location, RunView

MOST_INCIDENTS = 1_000
"""Of one run; the others are counted."""
_BINARY = frozenset({"parquet", "tensorboard"})
_WHOLE = -1
"""Offset of a place that is a whole file."""
_HISTORY = "history.jsonl:"
_REFUSALS = frozenset({"TS-TEL-001", "TS-TEL-002"})
"""Requirements of heads and records that break the schema."""
_MOST_FINDINGS, _MOST_PLACES, _MOST_SKIPPED = 200, 20, 10


@dataclass
class _Found:
    """What a search of the directories gave."""

    streams: list[str] = field(default_factory=list)
    checkpoints: list[Path] = field(default_factory=list)
    policy: CheckpointPolicy | None = None
    shared: Collection[str] = ()
    """Names of checkpoints that several runs committed."""
    failures: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    """Links that were not followed, with the reason."""

    def is_link(self, name: str) -> bool:
        """Whether a link that was not followed has the name of a checkpoint."""
        return any(Path(path).name == name for path in self.links)


@dataclass
class _Judged:
    """A run whose records were judged, and what is left to judge by its files."""

    result: RunResult
    newest: str | None
    """The checkpoint that was committed last and not deleted."""
    committed: frozenset[str]
    """Every checkpoint that was committed."""
    skipped: Mapping[int, Skipped]
    """Newer checkpoints than the restored one, by the number of the incident."""
    left_out: int
    refused: tuple[str, ...] = ()
    """Files whose head or records the reader refused, each as `file: reason`; then nothing is judged."""


def replay(paths: Sequence[str], stack: StackDescriptor | None = None) -> Replay:
    """Judge the incidents of every run below some paths.

    Args:
        paths: directories or files of production runs.
        stack: descriptor whose claims are the limits; without one no time is judged, and losses by the defaults.

    Nothing is executed, and no stream, checkpoint or log is written.

    Raises:
        InputError: none of the files is a stream, or none can be read.
    """
    found = _search(paths)
    if not found.streams:
        raise InputError(*(found.failures or [f"no stream or log of a known format in {', '.join(paths)}"]))
    claims = stack.claims if stack is not None else Claims()
    terms = Terms(claims, stack is not None, found.policy, stack.store if stack is not None else None)
    judged: list[_Judged] = []
    report, failures = _examined(found.streams, lambda view: judged.append(_run(view, terms)))
    shared = {name for name, count in Counter(name for one in judged for name in one.committed).items() if count > 1}
    runs = tuple(_with_files(one, report, replace(found, shared=shared), terms) for one in judged)
    return Replay(
        specification_version=load_index().specification_version,
        suite_version=__version__,
        stack=stack.metadata.name if stack is not None else None,
        limits=limits_of(claims, are_claimed=stack is not None),
        runs=runs,
        failures=(*found.failures, *failures, *(line for one in judged for line in one.refused)),
        not_read=(*found.not_read, *_left_out(judged)),
    )


def _left_out(judged: Iterable[_Judged]) -> list[str]:
    return [f"run {one.result.run}: {one.left_out:,} more incidents were not judged" for one in judged if one.left_out]


def _search(paths: Sequence[str]) -> _Found:
    """Streams, checkpoints and the only policy below the paths; what cannot be read hinders nothing else."""
    result, documents = _Found(), list[ReadFile]()
    index = load_index()
    with one_run():
        found: Search = search(paths)
        result.failures += map(str, found.failures)
        for file in found.files:
            try:
                with untrusted(unreadable(file.name)):
                    source = detect(file)
                    if source.kind == "document":
                        documents.append(read_document(index, file))
            except InputError as error:
                result.failures.append(str(error))
                continue
            if source.kind == "stream":
                result.streams.append(file.name)
            elif source.unread:
                result.not_read.append(f"{file.name}: {source.unread}")
    result.links = {path: reason for path, reason, _ in _links(paths, found)}
    result.not_read += [f"{path}: {reason}" for path, reason in result.links.items()]
    result.checkpoints = [member for group in found.checkpoints for member in group.members]
    whole = [file.member.document for file in documents if file.member and file.is_whole]
    policy = unambiguous_documents(whole).get(CheckpointPolicy)
    result.policy = policy if isinstance(policy, CheckpointPolicy) else None
    return result


def _links(paths: Sequence[str], found: Search) -> Iterator[tuple[str, str, str]]:
    """Links below the paths that were not followed, with the reason."""
    judged = {os.path.realpath(file.path) for file in found.files}
    judged |= {os.path.realpath(member) for group in found.checkpoints for member in group.members}
    yield from (one for one in overlooked(paths, judged) if Path(one[0]).is_symlink())


def _examined(streams: Sequence[str], seen: object) -> tuple[Report, tuple[str, ...]]:
    """Findings of the validator on the streams alone, as the suite asks for them; why some were not read.

    Raises:
        InputError: none can be read.
    """
    try:
        return examine(streams, ValidatorTerms(seen=seen)), ()  # type: ignore[arg-type]
    except PartialInputError as error:
        return error.report, tuple(map(str, error.args))


# --- one run


def _run(view: RunView, terms: Terms) -> _Judged:
    """Judge the incidents of one run by its records, so that no other view is needed at the time."""
    facts = Facts(view)
    refused = _refused(view)
    if refused:
        names = tuple(file.path for file in view.files)
        result = RunResult(run=view.run, files=names, num_attempts=len(view.attempts), is_refused=True)
        return _Judged(result, None, frozenset(), {}, 0, refused)
    incidents = find_incidents(facts)
    judgeable = [one for one in incidents if one.kind in SCENARIOS]
    last = judgeable[-1] if judgeable else None
    kept = incidents[:MOST_INCIDENTS]
    places = _Places(view)
    judges = [Judge(facts, one, terms, is_last=one is last) for one in kept]
    found = [_incident(judge, number, places) for number, judge in enumerate(judges, 1)]
    results = places.with_lines(found)
    newest = [save for save in facts.saves if save.committed and save.deleted is None and save.step is not None]
    return _Judged(
        RunResult(
            run=view.run,
            files=tuple(file.path for file in view.files),
            num_attempts=len(view.attempts),
            incidents=results,
        ),
        max(newest, key=_when).id if newest else None,
        frozenset(save.id for save in facts.saves if save.committed),
        {number: judge.skipped for number, judge in enumerate(judges, 1) if judge.skipped is not None},
        len(incidents) - len(kept),
    )


def _refused(view: RunView) -> tuple[str, ...]:
    """Metric streams of which the head or a record was refused, so that records are missing or of another attempt."""
    found: dict[str, str] = {}
    for damage in view.damage:
        file = view.files[damage.location.file] if 0 <= damage.location.file < len(view.files) else None
        if file is None or file.format not in NATIVE or damage.is_accepted or damage.requirement not in _REFUSALS:
            continue
        found.setdefault(file.path, f"{file.path}: nothing of its run is judged: {damage.message}")
    return tuple(found.values())


def _when(save: Save) -> tuple[int, int]:
    """Attempt and time of the commit of a save: clocks of two attempts can differ."""
    return (save.committed.attempt, save.committed.time_us) if save.committed is not None else (-1, 0)


def _incident(judge: Judge, number: int, places: _Places) -> IncidentResult:
    incident = judge.incident
    return IncidentResult(
        number=number,
        kind=incident.kind,
        summary=incident.summary,
        attempt=incident.before.number if incident.before is not None else None,
        next_attempt=incident.after.number if incident.after is not None else None,
        time=_time(incident.time_us),
        place=places.of(incident.location),
        count=incident.count,
        ambiguities=incident.ambiguities,
        moments=_moments(judge),
        criteria=tuple(_without_history(one) for one in judge.results()),
    )


def _time(time_us: int | None) -> str | None:
    if time_us is None:
        return None
    try:
        return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return None


def _moments(judge: Judge) -> tuple[MomentRange, ...]:
    """Moments of the recovery, as the figures of the suite measure them, on both readings of the records."""
    incident = judge.incident
    if incident.kind not in FAULTS or incident.in_attempt or incident.after is None or judge.no_times():
        return ()
    late, early = ({mark.name: mark.seconds for mark in marks(View(one))} for one in judge.histories)
    return tuple(
        MomentRange(name=name, least_seconds=late[name], most_seconds=early[name]) for name in late if name in early
    )


class _Places:
    """Names places of records by the offset first; their lines are looked up once for all of a run."""

    def __init__(self, view: RunView) -> None:
        self._files = view.files
        self._formats = {file.path: file.format for file in view.files}

    def of(self, location: Location) -> str | None:
        """A place; None where there is none."""
        if location == NOWHERE or not 0 <= location.file < len(self._files):
            return None
        return f"{self._files[location.file].path}:{max(location.offset, _WHOLE)}"

    def with_lines(self, incidents: Sequence[IncidentResult]) -> tuple[IncidentResult, ...]:
        """The incidents with lines in place of offsets."""
        wanted: dict[str, set[int]] = {}
        for incident in incidents:
            for place in (incident.place, *(place for one in incident.criteria for place in one.places)):
                if place is not None:
                    path, _, offset = place.rpartition(":")
                    wanted.setdefault(path, set()).add(int(offset))
        told = {f"{path}:{at}": name for path, those in wanted.items() for at, name in self._lines(path, those)}
        return tuple(
            msgspec.structs.replace(
                incident,
                place=told[incident.place] if incident.place is not None else None,
                criteria=tuple(
                    msgspec.structs.replace(one, places=tuple(dict.fromkeys(told[place] for place in one.places)))
                    for one in incident.criteria
                ),
            )
            for incident in incidents
        )

    def _lines(self, path: str, offsets: set[int]) -> Iterator[tuple[int, str]]:
        if self._formats.get(path) in _BINARY:
            yield from ((offset, f"{path}:record {offset + 1}" if offset >= 0 else path) for offset in offsets)
            return
        try:
            found = lines_at(Path(path), offsets - {_WHOLE})
        except OSError:
            found = {}
        for offset in offsets:
            yield offset, f"{path}:{found[offset][0]}" if offset in found else path


def _without_history(one: CriterionResult) -> CriterionResult:
    """A verdict without the lines of a history, which is not kept."""
    places = [place for place in one.places if not place.startswith(_HISTORY)]
    return msgspec.structs.replace(one, places=tuple(places[:_MOST_PLACES]))


# --- what the files say


def _with_files(judged: _Judged, report: Report, found: _Found, terms: Terms) -> RunResult:
    """A run with the verdicts on its newest checkpoint and on its streams."""
    incidents = []
    for incident in judged.result.incidents:
        criteria = []
        for one in incident.criteria:
            if one.check in AFTER_READING and one.verdict == "not-run" and not one.messages:
                criteria.append(_of_files(one, judged, report, found, terms))
            elif one.check in OF_A_CHOICE and one.verdict == "fail" and incident.number in judged.skipped:
                criteria.append(_of_choice(one, judged.skipped[incident.number], found))
            else:
                criteria.append(one)
        incidents.append(msgspec.structs.replace(incident, criteria=tuple(criteria)))
    return msgspec.structs.replace(judged.result, incidents=tuple(incidents))


def _of_files(one: CriterionResult, judged: _Judged, report: Report, found: _Found, terms: Terms) -> CriterionResult:
    scenario = all_scenarios()[one.scenario]
    record: Listed | Streams | str
    record = _listed(judged, found, terms) if one.check == "newest-is-whole" else _streams(judged, report)
    if isinstance(record, str):
        return msgspec.structs.replace(one, messages=(record,))
    verdict, messages = judged_after(one.check, record, terms, scenario)
    return msgspec.structs.replace(one, verdict=verdict, messages=messages)


def _of_choice(one: CriterionResult, skipped: Skipped, found: _Found) -> CriterionResult:
    """A failure to continue from the newest checkpoint, which counts where the files show that a newer one is whole."""
    damaged: list[str] = []
    for name in reversed(skipped.names[-_MOST_SKIPPED:]):
        paths = [path for path in found.checkpoints if path.name == name]
        if len(paths) == 1 and name not in skipped.written_again and name not in found.shared:
            findings = [text for text in judge_checkpoint(paths[0]) if text.startswith("error")]
            if not findings:
                return msgspec.structs.replace(one, messages=(*one.messages, f"{name} is whole"))
            damaged.append(f"{name} ({findings[0]})")
            continue
        absent = (
            "is a link, which is not followed" if found.is_link(name) else "is not below the paths, or several times"
        )
        why = "was written again" if name in skipped.written_again else absent
        reason = f"no file shows whether {name} was damaged, as it {why}: {one.messages[0]}"
        return msgspec.structs.replace(one, verdict="not-run", messages=(reason,), places=())
    if one.check == "restores-newest-good" and len(damaged) == len(skipped.names):
        return msgspec.structs.replace(one, verdict="pass", messages=(), places=())
    reason = f"newer checkpoints are damaged: {', '.join(damaged)}"
    return msgspec.structs.replace(one, verdict="not-run", messages=(reason,), places=())


def _listed(judged: _Judged, found: _Found, terms: Terms) -> Listed | str:
    """The newest committed checkpoint as the validator finds it; the reason where it cannot be found."""
    if judged.newest is None:
        return "no record names a checkpoint that was committed and not deleted"
    paths = [path for path in found.checkpoints if path.name == judged.newest]
    if len(paths) != 1:
        absent = "is a link, which is not followed" if found.is_link(judged.newest) else "is not below the paths"
        where = absent if not paths else "is below the paths several times"
        return f"{judged.newest}, which was committed last, {where}"
    if judged.newest in found.shared:
        return f"several runs committed a checkpoint {judged.newest}, and one is below the paths"
    pointer = None
    if terms.store is not None:
        store = msgspec.structs.replace(terms.store, directory=".")
        pointer = CheckpointStore(paths[0].parent, store).pointed()
    findings = judge_checkpoint(paths[0])
    return Listed(checkpoints=(judged.newest,), pointer=pointer, newest=judged.newest, findings=findings)


def _streams(judged: _Judged, report: Report) -> Streams:
    files = {os.fspath(name) for name in judged.result.files}
    told = [one for one in report.at_or_above(Severity.WARNING) if one.path in files]
    findings = tuple(f"{one.severity.value} {one.requirement}: {one.message}" for one in told)
    return Streams(num_files=len(files), findings=findings[:_MOST_FINDINGS])
