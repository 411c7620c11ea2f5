"""Checks how attempts follow each other: limits, fences, sizes, drained nodes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from trainspec_validate.documents.types import CheckpointPolicy
from trainspec_validate.telemetry.checks import NOWHERE, Location, NotApplicable, RunView, Violation, check, require
from trainspec_validate.telemetry.checks._attributes import word
from trainspec_validate.telemetry.checks._intervals import intervals
from trainspec_validate.telemetry.checks._progress import progress
from trainspec_validate.telemetry.checks._saves import COMMIT
from trainspec_validate.telemetry.checks._words import few, moment, number, seconds_in_words
from trainspec_validate.telemetry.view.run_view import AttemptSpan

ON_PURPOSE = frozenset({"preempted", "resized", "operator", "completed"})
"""Reasons of attempts that ended without a fault."""
BATCH = "train.batch.size"


def _place(run: RunView, span: AttemptSpan) -> Location:
    """Where an attempt begins: its event, else its first head."""
    if span.started is not None:
        return span.started.location
    return next((head.location for head in run.heads if head.record.att == span.number), NOWHERE)


def _several(run: RunView) -> list[tuple[AttemptSpan, AttemptSpan]]:
    if len(run.attempts) < 2:
        raise NotApplicable("the run has one attempt")
    return list(pairwise(run.attempts))


@check("TS-REC-009")
def restarts_within_limits(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """A job is not restarted more often, or without progress more often, than the policy allows."""
    updates, limits = progress(run), policy.restart
    restarts, idle = 0, 0
    for before, span in _several(run):
        if before.ended is not None and word(before.ended, "train.attempt.reason") in ON_PURPOSE:
            continue
        restarts += 1
        if restarts == limits.max_restarts + 1:
            message = (
                f"attempt {span.number} is restart number {restarts:,}, and the policy allows {limits.max_restarts:,}"
            )
            yield Violation(_place(run, span), message, "stop with an error, or raise max_restarts")
        largest, mine = updates.largest(below=span.number), updates.last(span.number)
        if run.is_live and span is run.attempts[-1]:
            continue
        reached = largest.step if largest is not None else 0
        idle = 0 if mine is not None and mine.step > reached else idle + 1
        if idle == limits.max_restarts_without_progress + 1:
            message = (
                f"attempt {span.number} is restart number {idle:,} in a row that passes no step beyond {reached:,}, "
                f"and the policy allows {limits.max_restarts_without_progress:,}"
            )
            help_text = "stop with an error; a fault that recurs at once recurs for ever"
            yield Violation(_place(run, span), message, help_text)


@check("TS-REC-019")
def attempts_fenced(run: RunView) -> Iterator[Violation]:
    """When a new attempt has started, the old one completes no step and commits no checkpoint."""
    updates = progress(run)
    judged, found = False, []
    for before, span in _several(run):
        if span.started is None:
            continue
        judged = True
        start, related = span.started.time_us, ((span.started.location, f"where attempt {span.number} starts"),)
        late = updates.first(before.number, after_us=start + 1)
        commits = [e for e in run.events_named(COMMIT) if e.attempt == before.number and e.time_us > start]
        happened = [(late.time_us, late.location, f"completes step {late.step:,}")] if late is not None else []
        happened += [(e.time_us, e.location, f"commits checkpoint {e.record.id!r}") for e in commits[:1]]
        for time_us, location, what in happened:
            after = seconds_in_words((time_us - start) / 1e6)
            message = f"attempt {before.number} {what} {after} after attempt {span.number} has started"
            help_text = "fence the old attempt before a new one starts"
            found.append(Violation(location, message, help_text, related=related))
    if not judged:
        raise NotApplicable("no event says when a later attempt starts")
    yield from few(found)


@check("TS-REC-010")
def layout_change_recorded(run: RunView) -> Iterator[Violation]:
    """An attempt with another world size has the batch of the one before, or an event that says how it changed."""
    resized = [
        (before, span)
        for before, span in _several(run)
        if before.world_size and span.world_size and before.world_size != span.world_size
    ]
    if not resized:
        raise NotApplicable("all attempts that state their world size have the same one")
    told = {event.attempt for event in run.events_named("train.batch_size.changed")}
    for before, span in resized:
        sizes = _batch_sizes(run, before.number), _batch_sizes(run, span.number)
        change = f"attempt {span.number} has {span.world_size:,} ranks after {before.world_size:,}"
        if not sizes[1]:
            yield Violation(
                _place(run, span), f"{change}, and no value of {BATCH}", f"write {BATCH} when an attempt starts"
            )
        elif sizes[0] and sizes[0][-1][0] != sizes[1][0][0] and span.number not in told:
            message = (
                f"{change}, and a step has {number(sizes[1][0][0])} samples after {number(sizes[0][-1][0])}, "
                f"without train.batch_size.changed"
            )
            related = ((sizes[0][-1][1], "the batch before"),)
            yield Violation(sizes[1][0][1], message, "keep the batch, or write the event", related=related)


def _batch_sizes(run: RunView, attempt: int) -> list[tuple[float, Location]]:
    """The batch sizes that an attempt reports, in order."""
    series = run.job.get(BATCH)
    if series is None:
        return []
    mine = [index for index in range(len(series)) if int(series.attempt[index]) == attempt]
    return [(float(series.value[index]), series.location(index)) for index in mine]


@check("TS-REC-011")
def node_quarantine(run: RunView) -> Iterator[Violation]:
    """A node that was drained takes no part in a new attempt until it returns."""
    drained = require(intervals(run, "train.node.drained"), "no node was drained")
    if not any(placement.host for placement in run.placements):
        raise NotApplicable("no record names the host of a rank")
    found = []
    for interval in drained:
        host = word(interval.opened, "host.id") or interval.opened.subject.host
        until = interval.closed.time_us if interval.closed is not None else None
        for placement in run.placements:
            inside = placement.first_time_us > interval.opened.time_us and (
                until is None or placement.first_time_us < until
            )
            if placement.host == host and inside:
                message = (
                    f"rank {placement.rank:,} of attempt {placement.attempt} runs on host {host}, which was drained at "
                    f"{moment(interval.opened.time_us)} and has not returned"
                )
                related = ((interval.opened.location, "where it was drained"),)
                help_text = "test the node and write train.node.returned before it is used again"
                found.append(Violation(placement.location, message, help_text, related=related))
    yield from few(found)
