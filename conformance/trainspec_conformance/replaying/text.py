"""Prints a replay: what happened, what was judged, and what was not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from trainspec_conformance.replaying.records import IncidentResult, Replay, RunResult
from trainspec_validate.model.units import counted
from trainspec_validate.system.neutral import neutral

NO_LEVEL = (
    "A replay judges incidents that happened and were recorded, and the suite injected nothing: "
    "no level and no badge follow from it."
)
_MOST_FILES, _MOST_MESSAGES, _MOST_COMPLAINTS = 3, 3, 20


def as_json(replay: Replay) -> str:
    """A replay for programs."""
    plain = _encodable(msgspec.to_builtins(replay))
    return neutral(msgspec.json.format(msgspec.json.encode(plain), indent=1).decode(), "json") + "\n"


def _encodable(value: Any) -> Any:
    """The same with a backslash before what UTF-8 has no bytes for, as names of files can hold any bytes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _encodable(one) for key, one in value.items()}
    return [_encodable(one) for one in value] if isinstance(value, list | tuple) else value


def as_lines(replay: Replay) -> Iterator[str]:
    """A replay for people."""
    for run in replay.runs:
        yield from _run(run)
    yield _sum(replay)
    yield _limits(replay)
    yield NO_LEVEL
    num_unjudged = replay.recoveries.count(False)
    if num_unjudged:
        yield f"The recovery was not judged in {num_unjudged:,} of {counted(len(replay.recoveries), 'incident')}."


def complaints(replay: Replay) -> Iterator[str]:
    """Files that cannot be read, and files that hold no stream."""
    yield from replay.failures
    for line in replay.not_read[:_MOST_COMPLAINTS]:
        yield f"not read: {line}"
    if len(replay.not_read) > _MOST_COMPLAINTS:
        yield f"not read: {len(replay.not_read) - _MOST_COMPLAINTS:,} more files"


def _run(run: RunResult) -> Iterator[str]:
    more = f" and {len(run.files) - _MOST_FILES:,} more" if len(run.files) > _MOST_FILES else ""
    attempts = counted(run.num_attempts, "attempt")
    none = (
        "records were refused, so that nothing is judged"
        if run.is_refused
        else "no incident, so that nothing is judged"
    )
    incidents = counted(len(run.incidents), "incident") if run.incidents else none
    yield f"run {run.run or 'unknown'} ({', '.join(run.files[:_MOST_FILES])}{more}): {attempts}, {incidents}"
    for incident in run.incidents:
        yield from _incident(incident)


def _incident(one: IncidentResult) -> Iterator[str]:
    times = f", {one.count:,} times" if one.count > 1 else ""
    time = f" at {one.time}" if one.time else ""
    place = f" ({one.place})" if one.place else ""
    yield f"{one.number}. {one.kind}{time}{times}: {one.summary}{place}"
    for ambiguity in one.ambiguities:
        yield f"   ambiguous: {ambiguity}"
    if one.moments:
        said = (f"{m.name} {m.least_seconds:.3g} to {m.most_seconds:.3g} s" for m in one.moments)
        yield f"   after the fault: {', '.join(said)}"
    for result in one.criteria:
        if result.verdict != "not-run":
            more = len(result.messages) - _MOST_MESSAGES
            told = [*result.messages[:_MOST_MESSAGES], *([f"{more} more"] if more > 0 else [])]
            words = f": {'; '.join(told)}" if told else ""
            where = f" ({', '.join(result.places[:2])})" if result.places else ""
            yield f"   {result.verdict:<8} {result.requirement} {result.scenario}: {result.check}{words}{where}"
    yield from _not_run(one)
    if not one.criteria:
        yield "   not-run  no scenario has a criterion for it"


def _not_run(one: IncidentResult) -> Iterator[str]:
    """Criteria that were not run, by their reason."""
    by_reason: dict[str, list[str]] = {}
    for result in one.criteria:
        if result.verdict == "not-run":
            by_reason.setdefault("; ".join(result.messages), []).append(result.check)
    for reason, checks in by_reason.items():
        yield f"   not-run  {', '.join(dict.fromkeys(checks))}: {reason}"


def _sum(replay: Replay) -> str:
    verdicts = replay.verdicts
    num_incidents = sum(len(run.incidents) for run in replay.runs)
    said = [f"{verdicts.count(name)} {name}" for name in ("pass", "fail", "not-run", "error") if name in verdicts]
    judged = f"criteria: {', '.join(said)}" if said else "nothing to judge"
    return f"{counted(num_incidents, 'incident')} in {counted(len(replay.runs), 'run')}; {judged}"


def _limits(replay: Replay) -> str:
    limits = replay.limits
    tolerance = 0.0 if limits.resume_class == "bitwise" else limits.relative_tolerance
    if replay.stack is None:
        return f"limits: no times, as no stack descriptor was named; relative tolerance of losses {tolerance:g}"
    whose = f"claims of {replay.stack}"
    return (
        f"limits: {whose}: recovery {limits.recovery_seconds:g} s, detection {limits.detection_seconds:g} s, "
        f"relative tolerance of losses {tolerance:g}"
    )
