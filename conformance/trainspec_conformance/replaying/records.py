"""Declares the results of a replay: incidents, and the verdict on each criterion, for programs and for text."""

from __future__ import annotations

from typing import Literal

import msgspec

from trainspec_validate.documents.types.conformance import Claims

Verdict = Literal["pass", "fail", "not-run", "error"]
Kind = Literal[
    "process-failure",
    "device-failure",
    "node-failure",
    "network-failure",
    "storage-failure",
    "hang",
    "out-of-memory",
    "silent-corruption",
    "unknown-fault",
    "unreported-fault",
    "preemption",
    "planned-restart",
    "resize",
    "restart",
    "failed-save",
    "failed-restore",
    "device-error",
    "step-fall",
    "console-report",
]
"""Kind of an incident; `restart` is one without any reported cause."""
ON_CONTINUATION = frozenset(
    {
        *("recovered-within", "lost-steps-at-most", "not-from-nothing"),
        *("restores-newest-good", "resumes-within", "one-lineage"),
    }
)
"""Criteria on the continuation of the job after an incident."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class CriterionResult(_Part, frozen=True, kw_only=True):
    """Verdict on one criterion of a scenario for one incident."""

    scenario: str
    requirement: str
    check: str
    verdict: Verdict
    messages: tuple[str, ...] = ()
    """Fault that was found; of a criterion that was not run, the reason."""
    places: tuple[str, ...] = ()
    """Records that show it, as `file:line`, or `file:record N` in a format without lines."""


class MomentRange(_Part, frozen=True, kw_only=True):
    """A moment of the recovery, in seconds after the fault, whose time is known within an interval."""

    name: str
    least_seconds: float
    most_seconds: float


class IncidentResult(_Part, frozen=True, kw_only=True):
    """One incident with all criteria of the scenarios that apply to it."""

    number: int
    kind: Kind
    summary: str
    attempt: int | None = None
    next_attempt: int | None = None
    """The first later attempt that completed an optimizer step; None where the files have none."""
    time: str | None = None
    """In UTC, by the clock of the record; None where its format has no times."""
    place: str | None = None
    count: int = 1
    """How often it was reported, where equal reports are one incident."""
    ambiguities: tuple[str, ...] = ()
    """Facts about the incident that the records leave open."""
    moments: tuple[MomentRange, ...] = ()
    criteria: tuple[CriterionResult, ...] = ()


class RunResult(_Part, frozen=True, kw_only=True):
    """One run of the directory."""

    run: str
    files: tuple[str, ...]
    num_attempts: int
    is_refused: bool = False
    """Whether the reader refused a head or a record of its files, so that nothing is judged."""
    incidents: tuple[IncidentResult, ...] = ()


class Limits(_Part, frozen=True, kw_only=True):
    """Claims that incidents were judged by; the times are None without a stack descriptor, and then judge nothing."""

    recovery_seconds: float | None
    detection_seconds: float | None
    resume_class: str
    relative_tolerance: float


def limits_of(claims: Claims, *, are_claimed: bool) -> Limits:
    """The claims of a stack that a replay judges by, without times that no descriptor claims for the job."""
    return Limits(
        recovery_seconds=claims.recovery_seconds if are_claimed else None,
        detection_seconds=claims.detection_seconds if are_claimed else None,
        resume_class=claims.resume_class,
        relative_tolerance=claims.relative_tolerance,
    )


class Replay(_Part, frozen=True, kw_only=True, tag_field="kind", tag="ConformanceReplay"):
    """Result of a replay. It is no conformance report: no level and no badge follow from it."""

    is_replay: Literal[True] = True
    specification_version: str
    suite_version: str
    stack: str | None = None
    """Name of the stack descriptor whose claims are the limits; None where none was named."""
    limits: Limits
    runs: tuple[RunResult, ...] = ()
    failures: tuple[str, ...] = ()
    """Files that cannot be read, each as `file: reason`."""
    not_read: tuple[str, ...] = ()
    """Files whose name is one of a stream or document, and that are none, each as `file: reason`."""

    @property
    def recoveries(self) -> list[bool]:
        """Of each incident that has criteria on the continuation of the job: whether any of these was judged."""
        found = []
        for incident in (one for run in self.runs for one in run.incidents):
            those = [one.verdict for one in incident.criteria if one.check in ON_CONTINUATION]
            if those:
                found.append(any(verdict != "not-run" for verdict in those))
        return found

    @property
    def is_unjudged(self) -> bool:
        """Whether nothing passed, or no recovery was judged where there were incidents to recover from."""
        recoveries = self.recoveries
        return "pass" not in self.verdicts or (bool(recoveries) and not any(recoveries))

    @property
    def verdicts(self) -> list[Verdict]:
        """Every verdict of every incident."""
        return [one.verdict for run in self.runs for incident in run.incidents for one in incident.criteria]
