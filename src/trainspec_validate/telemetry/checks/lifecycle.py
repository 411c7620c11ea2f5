"""Checks that the events of a job follow the order of its life cycle."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest

import numpy as np

from trainspec_validate.model.metrics import events
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._episodes import FAULT, RECOVERY, fault_id
from trainspec_validate.telemetry.checks._lives import END, START, Rest, rests
from trainspec_validate.telemetry.checks._members import attempt_of
from trainspec_validate.telemetry.checks._progress import STEPS, Progress, find_progress
from trainspec_validate.telemetry.checks._restarts import restarts
from trainspec_validate.telemetry.checks._words import few, moment, seconds_in_words
from trainspec_validate.telemetry.view.run_view import AttemptSpan, PlacedEvent

ATTEMPT = "train.attempt.start"
BEFORE_FIRST = frozenset({START, FAULT})
"""Events that can come before an attempt starts; faults of nodes are found while a job waits for them too."""
BEFORE_AGAIN = frozenset({FAULT, RECOVERY, "train.recovery.end"})
"""Events that can come before a run that has ended starts again: what was done about the fault that it ended with."""
JITTER_US = 10_000
"""Times this close count as equal: clocks of ranks differ, and logs round to milliseconds."""
LAST = "write train.run.end last, or train.run.start again where the run continues"


@check("TS-TEL-044")
def lifecycle_order(run: RunView) -> Iterator[Violation]:
    """Run, attempts, restores and optimizer steps come in this order, and a fault before its recovery."""
    updates = find_progress(run)
    if not any(name.startswith(("train.run.", "train.attempt.", RECOVERY)) for name in run.event_facts.num_by_file):
        raise NotApplicable("no event says when the run, an attempt or a recovery starts or ends")
    found = [*_run_order(run), *_attempt_numbers(run), *_recoveries(run)]
    if updates is not None:
        lives = _lives(run)
        for span in run.attempts:
            found += [*_before_start(span, updates), *_after_end(lives.get(span.number, []), span.number, updates)]
        found += _restores(run, updates)
    yield from few(found)


def _run_order(run: RunView) -> Iterator[Violation]:
    for start in run.events_named(START)[:1]:
        for event in _of_job(run):
            if event.time_us >= start.time_us - JITTER_US:
                break
            if event.name not in BEFORE_FIRST:
                message = f"{event.name} is {_apart(start.time_us, event.time_us)} before the run starts"
                related = ((start.location, "where the run starts"),)
                yield Violation(event.location, message, "write train.run.start first", related=related)
    over = list(rests(run))
    yield from _events_after_end(run, over)
    for rest in over:
        yield from _values_after_end(run, rest)


def _events_after_end(run: RunView, over: Sequence[Rest]) -> Iterator[Violation]:
    """What the job tells of while it is over, by events; agents of nodes may write a last value."""
    ends = [rest.end.time_us for rest in over]
    for event in _of_job(run) if over else ():
        first = max(bisect_left(ends, event.time_us) - 1, 0)
        for rest in over[first : bisect_right(ends, event.time_us)]:
            allowed = {END} if rest.start is None else {END, *BEFORE_AGAIN}
            end = rest.end
            if rest.holds(event.time_us, JITTER_US) and event.name not in allowed:
                message = f"{event.name} is {_apart(event.time_us, end.time_us)} after the run has ended"
                yield Violation(event.location, message, LAST, related=((end.location, "where the run ends"),))


def _values_after_end(run: RunView, rest: Rest) -> Iterator[Violation]:
    """What metrics of the job tell of while it is over."""
    end, related = rest.end, ((rest.end.location, "where the run ends"),)
    for series in run.job.values():
        times = np.asarray(series.time_us)
        until = np.inf if rest.start is None else rest.start.time_us - JITTER_US
        late = np.flatnonzero((times > end.time_us + JITTER_US) & (times < until))
        if len(late):
            index = int(late[0])
            behind = _apart(int(series.time_us[index]), end.time_us)
            message = f"{series.key} has a value {behind} after the run has ended"
            yield Violation(series.location(index), message, LAST, related=related)


def _of_job(run: RunView) -> Sequence[PlacedEvent]:
    """Events of the job; those of nodes can come from agents that outlive it."""
    known, names = events(), run.event_facts.num_by_file
    return run.events_named(*(name for name in names if name not in known or known[name].scope == "job"))


def _attempt_numbers(run: RunView) -> Iterator[Violation]:
    """An attempt starts after the one before it started."""
    starts = [span.started for span in run.attempts if span.started is not None]
    for before, start in pairwise(starts):
        if start.time_us < before.time_us - JITTER_US:
            early = _apart(before.time_us, start.time_us)
            message = f"attempt {start.attempt} starts {early} before attempt {before.attempt}"
            related = ((before.location, f"where attempt {before.attempt} starts"),)
            yield Violation(start.location, message, "number attempts in the order of time", related=related)


def _before_start(span: AttemptSpan, updates: Progress) -> Iterator[Violation]:
    first = updates.first(span.number)
    if first is not None and span.started is not None and first.time_us < span.started.time_us - JITTER_US:
        early = _apart(span.started.time_us, first.time_us)
        message = f"{STEPS} has a value {early} before attempt {span.number} starts"
        related = ((span.started.location, "where the attempt starts"),)
        yield Violation(first.location, message, "write train.attempt.start before the first step", related=related)


def _lives(run: RunView) -> dict[int, list[PlacedEvent]]:
    """The starts and ends of each attempt, in order of time."""
    found: dict[int, list[PlacedEvent]] = {}
    for event in run.events_named(ATTEMPT, "train.attempt.end"):
        found.setdefault(attempt_of(event), []).append(event)
    return found


def _after_end(events: Sequence[PlacedEvent], attempt: int, updates: Progress) -> Iterator[Violation]:
    """The first step of an attempt that has ended and did not start again; of several ends in a row the last counts."""
    pairs = zip_longest(events, events[1:])
    ends = [(end, after) for end, after in pairs if end.name != ATTEMPT and (after is None or after.name == ATTEMPT)]
    times = np.sort(updates.series.time_us[updates.rows(attempt)])
    index = np.searchsorted(times, [end.time_us + JITTER_US for end, _ in ends], side="right")
    for (end, after), place in zip(ends, index.tolist(), strict=True):
        if place == len(times) or (after is not None and times[place] >= after.time_us - JITTER_US):
            continue
        late = updates.first(attempt, after_us=end.time_us + JITTER_US + 1)
        if late is not None:
            behind = _apart(late.time_us, end.time_us)
            message = f"{STEPS} has a value {behind} after attempt {attempt} ended, at {moment(end.time_us)}"
            related = ((end.location, "where the attempt ends"),)
            help_text = "train.attempt.end has the time of the last sign of life"
            yield Violation(late.location, message, help_text, related=related)
        return


def _restores(run: RunView, updates: Progress) -> Iterator[Violation]:
    """No step of an attempt is completed while the state that it goes on from is still loaded."""
    for restart in restarts(run):
        restore, step = restart.restore, restart.step
        if restore is None or restore.closed is None or step is None:
            continue
        first = updates.first(restart.attempt, above=step)
        if first is not None and first.time_us < restore.closed.time_us - JITTER_US:
            early = _apart(restore.closed.time_us, first.time_us)
            message = f"step {first.step:,} of attempt {restart.attempt} is completed {early} before its restore ends"
            related = ((restore.closed.location, "where the restore ends"),)
            yield Violation(first.location, message, "a step needs the restored state of all ranks", related=related)


def _recoveries(run: RunView) -> Iterator[Violation]:
    detected: dict[str | None, PlacedEvent] = {}
    for event in run.events_named(FAULT):
        detected.setdefault(fault_id(event), event)
    for begin in run.events_named(RECOVERY):
        fault = detected.get(fault_id(begin))
        if fault is None:
            message = f"a recovery begins from the fault {fault_id(begin)!r}, which nothing detected"
            yield Violation(begin.location, message, "write train.fault.detected with the same train.fault.id before")
        elif begin.time_us < fault.time_us - JITTER_US:
            early = _apart(fault.time_us, begin.time_us)
            message = f"the recovery from the fault {fault_id(begin)!r} begins {early} before the fault is detected"
            related = ((fault.location, "where it is detected"),)
            yield Violation(begin.location, message, "a recovery answers a fault", related=related)


def _apart(later_us: int, earlier_us: int) -> str:
    return seconds_in_words((later_us - earlier_us) / 1e6)
