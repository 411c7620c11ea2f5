"""Reads jobs of Slurm from its accounting: entries of `sacct --json`, and rows of `sacct --parsable2` tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.system.digits import is_digits
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.local_times import local_us

_STATE = re.compile(r"[A-Z][A-Z_]{1,40}")
_NUMBER = re.compile(r"[0-9]{1,10}")
_ZONE = re.compile(r":[0-9][0-9](?:[.,][0-9]+)?(?:[Zz]|[+-][0-9][0-9](?::?[0-9][0-9]){0,2})$")
"""What a time with an offset from UTC ends with, as opposed to a date alone."""
_EXIT = re.compile(r"([0-9]{1,5}):([0-9]{1,3})")
_ABSENT = frozenset({"", "None", "Unknown", "None assigned", "N/A", "INVALID"})
_UNSET = frozenset({0xFFFFFFFE, 0xFFFFFFFF})
"""NO_VAL and INFINITE of slurm/slurm.h, which older schemas write as numbers."""
_MAX_TEXT = 200
_OF_SLURM = frozenset({"batch", "extern", "interactive"})
"""Steps that Slurm makes for every job."""
FAILED = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "LAUNCH_FAILED", "RECONFIG_FAIL"})
NOT_STARTED = frozenset({"PENDING", "CONFIGURING"})
CONTINUES = frozenset({"RUNNING", "SUSPENDED", "STOPPED"})
_CLEAN_UP = frozenset({"COMPLETING", "STAGE_OUT", "UPDATE_DB", "SIGNALING", "EXPEDITING", "RESIZING"})
"""What a job also is while it has another state."""


@dataclass(slots=True)
class Step:
    """A step of a job that failed."""

    name: str
    state: str
    code: int | None = None
    signal: int | None = None
    end_us: int | None = None


@dataclass(slots=True)
class Job:
    """One execution of a job: a job that was requeued has several."""

    offset: int
    id: str
    name: str | None
    state: str
    start_us: int | None
    end_us: int | None
    code: int | None = None
    signal: int | None = None
    restarts: int | None = None
    """How often the job was requeued before, where the accounting says so."""
    node: str | None = None
    """Node whose failure ended the job, where the accounting says so."""
    reason: str | None = None
    failed_steps: list[Step] = field(default_factory=list)


def job_of(offset: int, entry: Mapping[str, Any]) -> Job | Refusal:
    """The job of an entry of `sacct --json`, of any version of its schema."""
    state, times = _part(entry, "state"), _part(entry, "time")
    number, found = _number(entry.get("job_id")), _state(state.get("current"))
    if number is None:
        return Refusal("a job has no job_id", '"job_id": 12345', "value")
    if found is None:
        shown = str(state.get("current"))[:60]
        return Refusal(f"job {number} has the state {shown!r}", "a state of Slurm, such as COMPLETED", "value")
    array = _part(entry, "array")
    task, parent = _number(array.get("task_id")), _number(array.get("job_id"))
    job = Job(
        offset,
        f"{parent}_{task}" if parent and task is not None else str(number),
        _text(entry.get("name")),
        found,
        _seconds(times.get("start")),
        _seconds(times.get("end")),
        *_exit_of(entry.get("exit_code")),
        restarts=_number(entry.get("restart_cnt")),
        node=_text(entry.get("failed_node")),
        reason=_text(state.get("reason")),
    )
    steps = entry.get("steps")
    for each in steps if isinstance(steps, list) else ():
        if isinstance(each, dict):
            _take_step(job, each)
    return job


def _take_step(job: Job, entry: Mapping[str, Any]) -> None:
    state = _state(entry.get("state"))
    step = _part(entry, "step")
    identifier = step.get("id")
    name = identifier.get("step_id") if isinstance(identifier, dict) else identifier
    words = str(name or step.get("name") or "").rpartition(".")[2]
    if state in FAILED and words.lower() not in _OF_SLURM:
        end_us = _seconds(_part(entry, "time").get("end"))
        job.failed_steps.append(Step(words[:_MAX_TEXT], state, *_exit_of(entry.get("exit_code")), end_us))


def _part(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = entry.get(name)
    return found if isinstance(found, dict) else {}


def _number(value: Any) -> int | None:
    """A whole number, as versions write it: by itself, or with whether it is set."""
    if isinstance(value, dict):
        if value.get("set") is False or value.get("infinite") is True:
            return None
        value = value.get("number")
    number = fit.whole(value, 2**53)
    return None if number in _UNSET else number


def _seconds(value: Any) -> int | None:
    """A moment in seconds since 1970 UTC, in microseconds; 0 is none."""
    number = _number(value)
    return fit.time_us(number * 1_000_000) if number else None


def _state(value: Any) -> str | None:
    """The one state of several that says how a job is, or how it ended."""
    words = value if isinstance(value, list) else str(value or "").split()[:1]
    found = [word for word in words if isinstance(word, str) and _STATE.fullmatch(word)]
    return next((word for word in found if word not in _CLEAN_UP), None)


def _exit_of(value: Any) -> tuple[int | None, int | None]:
    """The exit code and the signal of an entry; None where it has none."""
    if not isinstance(value, dict):
        return None, None
    signal = value.get("signal")
    number = _number(signal.get("id", signal.get("signal_id"))) if isinstance(signal, dict) else None
    return _number(value.get("return_code")), number or None


def _text(value: Any) -> str | None:
    found = fit.identity(value) if isinstance(value, str) else None
    return found[:_MAX_TEXT] if found and found not in _ABSENT else None


class Table:
    """The columns of a table, and the job that its newest rows are about."""

    def __init__(self, header: Sequence[str], utc_offset_seconds: int | None) -> None:
        self._columns = [name.strip() for name in header]
        self._offset_seconds = utc_offset_seconds
        self._job: Job | None = None
        self.has_times = {"Start", "End"} <= set(self._columns)
        self.is_utc = True
        """Whether no time so far is of no zone: each is seconds since 1970, or has its offset from UTC."""

    def row(self, offset: int, cells: Sequence[str]) -> Job | Refusal | None:
        """The job that a row is about; None for a step, which is kept with its job, and for a header again."""
        if len(cells) != len(self._columns):
            message = f"the row has {len(cells)} cells, and the header {len(self._columns)}"
            return Refusal(message, "sacct --parsable2, with names that have no |", "value")
        if list(cells) == self._columns:
            return None
        row = dict(zip(self._columns, cells, strict=True))
        identifier, dot, step = (row.get("JobID") or row.get("JobIDRaw") or "").partition(".")
        word = row.get("State", "")
        state = _state(word)
        if not is_digits(identifier[:1]) or state is None:
            shown = f"{identifier} {word}"[:60]
            return Refusal(f"the row has no job and state: {shown!r}", "12345|COMPLETED", "value")
        found = _EXIT.fullmatch(row.get("ExitCode", ""))
        code, signal = (int(found[1]), int(found[2]) or None) if found else (None, None)
        end_us = self._time(row.get("End", ""))
        if dot:
            if self._job is not None and self._job.id == identifier and state in FAILED and step not in _OF_SLURM:
                self._job.failed_steps.append(Step(step[:_MAX_TEXT], state, code, signal, end_us))
            return None
        self._job = Job(
            offset,
            identifier[:_MAX_TEXT],
            _text(row.get("JobName")),
            state,
            self._time(row.get("Start", "")),
            end_us,
            code,
            signal,
            restarts=int(row["Restarts"]) if _NUMBER.fullmatch(row.get("Restarts", "")) else None,
            node=_text(row.get("FailedNode")),
            reason=_text(row.get("Reason")),
        )
        return self._job

    def _time(self, text: str) -> int | None:
        if _NUMBER.fullmatch(text):
            return _seconds(int(text))
        time_us = None if text in _ABSENT else local_us(text, self._offset_seconds)
        self.is_utc = self.is_utc and (time_us is None or _ZONE.search(text) is not None)
        return time_us
