"""Reads the accounting of Slurm: which attempts of a run its jobs were, how they ended, and what failed in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

from trainspec_validate.documents.types.stream import AttributeValue
from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.json_list import JsonList
from trainspec_validate.telemetry.formats.slurm_jobs import CONTINUES, FAILED, NOT_STARTED, Job, Table, job_of
from trainspec_validate.telemetry.formats.transcript import Transcript

_REASONS = {
    "COMPLETED": "completed",
    "PREEMPTED": "preempted",
    "CANCELLED": "operator",
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
} | dict.fromkeys(FAILED, "fault")
_STATUS = {
    "COMPLETED": "completed",
    "PREEMPTED": "cancelled",
    "CANCELLED": "cancelled",
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
} | dict.fromkeys(FAILED, "failed")
"""How a job ended for good; a state that is absent here, such as REQUEUED, is no end of a run."""
_NODE_STATES = frozenset({"NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"})
_CHOOSES = "trainspec import FILE --known run"
_MOST_NAMED = 5
_MOST_STEPS = 1_000
_STOPPING_US = 120_000_000
"""Within which the steps of a job that is stopped end: Slurm waits 30 s by default before it kills them."""
_CHANGE_US = 3_600_000_000
"""By which clocks are set back in autumn."""
_MOST_JOBS: Final = Limit("a file of Slurm accounting", 500_000, "jobs")


class Reader:
    """Reads one file: the document of `sacct --json`, or the table of `sacct --parsable2`."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._list: JsonList | None = None
        self._table: Table | None = None
        self._has_end_bars = False
        """Whether a | ends each line, as `sacct --parsable` writes it."""
        self._jobs: list[Job] = []

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The refusals of a line; jobs are kept, since attempts are counted in the order of their starts."""
        if self._list is None and self._table is None:
            if text.lstrip().startswith("{"):
                self._list = JsonList("jobs")
            else:
                self._has_end_bars = text.rstrip("\r\n").endswith("|")
                self._table = Table(self._cells(text), self._transcript.given.utc_offset_seconds)
                return
        if self._table is not None:
            yield from self._take(offset, self._table.row(offset, self._cells(text)))
        elif self._list is not None:
            for place, entry in self._list.line(offset, text):
                if isinstance(entry, Refusal):
                    yield place, entry
                elif isinstance(entry, dict):
                    yield from self._take(place, job_of(place, entry))

    def _cells(self, text: str) -> list[str]:
        """The cells of a line; the last of them can be empty."""
        cells = text.strip("\r\n").split("|")
        return cells[:-1] if self._has_end_bars and cells[-1] == "" else cells

    def _take(self, offset: int, job: Job | Refusal | None) -> Iterator[Found]:
        if isinstance(job, Refusal):
            yield offset, job
        elif job is not None:
            if self._ends_early(job):
                yield offset, Refusal(f"job {job.id} ends before it starts", "the times that sacct shows", "value")
                return
            _MOST_JOBS.check(len(self._jobs) + 1)
            self._jobs.append(job)

    def _ends_early(self, job: Job) -> bool:
        """Whether a job that ran ends before it starts, by more than a change of local time makes of it.

        A job that was cancelled while it waited can have the start that Slurm expected.
        """
        if job.start_us is None or job.end_us is None or job.state in {"CANCELLED", *NOT_STARTED, *CONTINUES}:
            return False
        is_utc = self._table is None or self._table.is_utc
        return job.end_us + (0 if is_utc else _CHANGE_US) < job.start_us

    def end(self) -> Iterator[Found]:
        """The attempts and faults of the run, and the damage of a document that is not whole."""
        rest = self._list.end() if self._list is not None else None
        self._note_clock()
        chosen = self._chosen(self._started())
        if isinstance(chosen, Refusal):
            yield 0, chosen
        elif chosen is not None:
            yield from self._run(*chosen)
        if isinstance(rest, Refusal):
            yield 0, rest

    def _note_clock(self) -> None:
        transcript, table = self._transcript, self._table
        if table is not None and not table.has_times:
            transcript.clock = "none"
            message = "the table has no columns Start and End; each job counts as a second"
            transcript.lose("time", "time", message, 0)
        elif table is None or table.is_utc or transcript.given.utc_offset_seconds is not None:
            transcript.clock = "utc"
        else:
            transcript.clock = "local"
            transcript.lose("time", "time", "times have no zone; they are taken for UTC", 0)

    def _chosen(self, jobs: list[Job]) -> tuple[str, list[Job]] | Refusal | None:
        """The run and its jobs: those that the given name means, or all where they can be attempts of one run."""
        named = self._transcript.given.run
        if not jobs:
            return None
        if named is not None:
            mine = [job for job in jobs if named in {job.id, job.id.partition("_")[0], job.name}]
            if mine and len(mine) < len(jobs):
                message = f"jobs that are not called {named!r} are no part of the run"
                self._transcript.lose("identity", "JobID", message, 0, len(jobs) - len(mine))
            jobs = mine or jobs
        ids, names = {job.id for job in jobs}, {job.name for job in jobs}
        if named is None and len(ids) > 1 and (len(names) > 1 or None in names):
            message = f"is about several runs: the file has {len(ids):,} jobs, and no run was named: {_listed(ids)}"
            return Refusal(
                message,
                f"name the run by a job or the name of jobs: {_CHOOSES}=NAME",
                "several-runs",
            )
        if pair := _at_once(jobs):
            ids_of_pair = f"jobs {pair[0].id} and {pair[1].id}"
            message = f"is about several runs: {ids_of_pair} run at the same time, so they are no attempts of one run"
            return Refusal(message, f"name the run by the number of its job: {_CHOOSES}=ID", "several-runs")
        if named is None and len(done := sorted({job.id for job in jobs if job.state == "COMPLETED"})) > 1:
            message = f"is about several runs: {len(done):,} jobs were completed, each of which ends a run: "
            message += _listed(done)
            remedy = f"name the run by a job, or its attempts by the name of their jobs: {_CHOOSES}=NAME"
            return Refusal(message, remedy, "several-runs")
        if len(ids) > 1:
            message = "jobs are taken for attempts of one run, in the order of their starts"
            self._transcript.lose("meaning", "JobID", message, 0, len(jobs))
        return named or (jobs[0].id if len(ids) == 1 else str(jobs[0].name)), jobs

    def _started(self) -> list[Job]:
        """Jobs that began, each with a start and an end in the order of the file where it has no times."""
        found: list[Job] = []
        base_us = self._transcript.given.start_us or 0
        has_times = self._table is None or self._table.has_times
        for job in self._jobs:
            if job.state in NOT_STARTED or (has_times and job.start_us is None):
                message = "jobs that have not started are no attempts"
                self._transcript.lose("meaning", "PENDING", message, job.offset)
            elif job.state in CONTINUES or (has_times and job.end_us is None):
                message = "jobs that still run have no end; their attempts are left out"
                self._transcript.lose("meaning", job.state, message, job.offset)
            else:
                if not has_times:
                    job.start_us, job.end_us = (base_us + (len(found) + n) * 1_000_000 for n in (0, 1))
                found.append(job)
        return sorted(found, key=lambda job: job.start_us or 0)

    def _run(self, run: str, jobs: Sequence[Job]) -> Iterator[Found]:
        transcript, first, last = self._transcript, jobs[0], jobs[-1]
        numbers = self._numbers(jobs)
        start_us = first.start_us or 0
        status = _STATUS.get(last.state) if self._is_whole(jobs, numbers) else None
        yield first.offset, transcript.head(start_us, ("job",), run=run, att=numbers[0])
        if status:
            a: dict[str, AttributeValue] = {"train.run.id": run}
            yield first.offset, transcript.event(start_us, "train.run.start", id="run", att=numbers[0], a=a)
        for number, job in zip(numbers, jobs, strict=True):
            yield from self._attempt(job, number)
        if status:
            a = {"train.run.id": run, "train.run.status": status}
            yield last.offset, transcript.event(_end_of(last), "train.run.end", id="run", att=numbers[-1], a=a)

    def _is_whole(self, jobs: Sequence[Job], numbers: Sequence[int]) -> bool:
        """Whether the run is one job of Slurm from its first start on, so that it ends with that job."""
        return self._transcript.given.run in {None, jobs[0].id} and len({j.id for j in jobs}) == 1 and numbers[0] == 0

    def _numbers(self, jobs: Sequence[Job]) -> list[int]:
        """Attempts by the count of restarts where it is stated for all, else in the order of their starts."""
        first = self._transcript.given.attempt
        stated = [job.restarts for job in jobs if job.restarts is not None]
        is_one = len({job.id for job in jobs}) == 1
        if is_one and len(stated) == len(jobs) and all(before < after for before, after in pairwise(stated)):
            return [fit.attempt(first + number) or 0 for number in stated]
        return [first + number for number in range(len(jobs))]

    def _attempt(self, job: Job, number: int) -> Iterator[Found]:
        transcript, identifier = self._transcript, f"attempt-{number}"
        a: dict[str, AttributeValue] = {"train.run.attempt": number}
        event = transcript.event(job.start_us or 0, "train.attempt.start", id=identifier, att=number, a=a)
        yield job.offset, event
        for time_us, attributes in sorted(_faults(job), key=lambda fault: fault[0]):
            name = f"{job.id}-{transcript.num_records}"
            attributes["train.fault.id"] = name
            yield job.offset, transcript.event(time_us, "train.fault.detected", id=name, att=number, a=attributes)
        a = {"train.run.attempt": number, "train.attempt.reason": _REASONS.get(job.state, job.state.lower())}
        yield job.offset, transcript.event(_end_of(job), "train.attempt.end", id=identifier, att=number, a=a)


def _at_once(jobs: Sequence[Job]) -> tuple[Job, Job] | None:
    """Two jobs, the second of which starts before the first ends; jobs are in the order of their starts."""
    return next((pair for pair in pairwise(jobs) if (pair[1].start_us or 0) < _end_of(pair[0])), None)


def _listed(names: Collection[str]) -> str:
    shown = sorted(names)[:_MOST_NAMED]
    return ", ".join(shown) + (" and more" if len(names) > len(shown) else "")


def _end_of(job: Job) -> int:
    return max(job.end_us or 0, job.start_us or 0)


def _faults(job: Job) -> Iterator[tuple[int, dict[str, AttributeValue]]]:
    """The fault that ended a job; of a job that ended otherwise, those of its steps.

    Steps that fail as a job is stopped, at its time limit for one, fail since it is stopped.
    """
    end_us = _end_of(job)
    if job.state in FAILED:
        words = _words(f"job {job.id} of Slurm ended as {job.state}", job.code, job.signal, job.reason)
        attributes = _fault(job.state, words)
        if job.node and job.state in _NODE_STATES:
            attributes["train.fault.component"] = job.node
        yield end_us, attributes
        return
    for step in job.failed_steps[:_MOST_STEPS]:
        words = _words(f"step {step.name} of job {job.id} of Slurm ended as {step.state}", step.code, step.signal, None)
        time_us = end_us if step.end_us is None else min(max(step.end_us, job.start_us or 0), end_us)
        if job.state != "COMPLETED" and end_us - time_us <= _STOPPING_US:
            continue
        yield time_us, _fault(step.state, words)


def _fault(state: str, words: str) -> dict[str, AttributeValue]:
    return {
        "train.fault.domain": _domain(state),
        "train.fault.class": "node" if state in _NODE_STATES else "process",
        "train.fault.vendor_code": f"slurm:{state}",
        "train.reason": words,
    }


def _domain(state: str) -> str:
    """Whose fault a state is: Slurm says it of nodes and of memory, and of other failures it does not."""
    if state in _NODE_STATES:
        return "infrastructure"
    return "workload" if state == "OUT_OF_MEMORY" else "unknown"


def _words(text: str, code: int | None, signal: int | None, reason: str | None) -> str:
    parts = [text]
    if code:
        parts.append(f"exit code {code}")
    if signal:
        parts.append(f"signal {signal}")
    if reason:
        parts.append(f"reason {reason}")
    return ", ".join(parts)
