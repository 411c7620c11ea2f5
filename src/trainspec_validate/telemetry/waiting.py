"""Says what a run that is followed waits for now: optimizer steps, a save, or emitters that are silent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from trainspec_validate.telemetry.checks._attributes import word
from trainspec_validate.telemetry.checks._intervals import intervals
from trainspec_validate.telemetry.checks._pauses import can_close, end_by, of_attempt
from trainspec_validate.telemetry.checks._progress import find_progress
from trainspec_validate.telemetry.checks._words import moment, seconds_in_words
from trainspec_validate.telemetry.view.run_view import AttemptSpan, PlacedEvent, RunView

_STEPS: Final = 5.0
"""Median steps without progress that are worth a line."""
_LEAST_SECONDS: Final = 20.0
"""Two cadences of a heartbeat."""
_FIRST_SECONDS: Final = 120.0
"""Until the first step, and until that after a warm-up: compilation takes as long."""
_HABIT, _ABOVE_HABIT, _LONGEST_HABIT_SECONDS = 2, 1.5, 600.0
"""A pause is a habit of the job, such as rollouts between optimizer steps, when it came twice before."""
_LONGER: Final = 3.0
"""Times the longest one of its kind that a save, or an evaluation, takes."""
_WORK: Final = {
    "train.evaluation.begin": "an evaluation",
    "train.checkpoint.begin": "a save",
    "train.checkpoint.restore.begin": "a restore",
    "train.recovery.begin": "a recovery",
}
_FEWEST_RECORDS: Final = 2
_MOST_NAMED: Final = 3
_SECOND_US: Final = 1_000_000


class Wait(NamedTuple):
    """One thing that a run waits for."""

    what: str
    """The same as long as it lasts."""
    details: str


def waits(run: RunView) -> Iterator[Wait]:
    """Event that the attempt that is followed waits for; nothing where it does not."""
    span = run.attempts[-1] if run.is_live and run.attempts else None
    if span is None or not run.watched_until_us:
        return
    if span.ended is not None:
        yield from _no_attempt(run, span, span.ended)
        return
    work = list(_open_work(run, span))
    yield from (Wait(each.what, each.details) for each in work if each.is_long)
    if not any(each.is_known for each in work):
        yield from _no_update(run, span, [each.what for each in work])
    yield from _silent(run, span)


def _no_attempt(run: RunView, span: AttemptSpan, ended: PlacedEvent) -> Iterator[Wait]:
    """The time after an attempt in which the run neither ends nor begins another one."""
    seconds = (run.watched_until_us.get(ended.location.file, ended.time_us) - ended.time_us) / 1e6
    if seconds > _LEAST_SECONDS:
        reason = word(ended, "train.attempt.reason")
        why = f" by {reason}" if reason else ""
        yield Wait(f"no attempt after attempt {span.number}", f"which ended{why} {seconds_in_words(seconds)} ago")


class _Work(NamedTuple):
    """Work that is under way."""

    what: str
    details: str
    is_long: bool
    """Whether it takes longer than those before."""
    is_known: bool
    """Whether there was one before, so that its time explains a pause, or is too long."""


def _open_work(run: RunView, span: AttemptSpan) -> Iterator[_Work]:
    for name, what in _WORK.items():
        all_of_kind = intervals(run, name)
        longest = max((i.closed.time_us - i.opened.time_us for i in all_of_kind if i.closed), default=0) / 1e6
        for interval in all_of_kind:
            if interval.is_open and can_close(run, interval.opened):
                seconds = (end_by(run, span, interval.opened.location) - interval.opened.time_us) / 1e6
                is_long = longest > 0 and seconds > max(_LONGER * longest, _LEAST_SECONDS)
                told = f"after {seconds_in_words(seconds)}; the longest before took {seconds_in_words(longest)}"
                since = moment(interval.opened.time_us // _SECOND_US * _SECOND_US)
                yield _Work(f"{what} since {since}", told, is_long, longest > 0)


def _no_update(run: RunView, span: AttemptSpan, work: list[str]) -> Iterator[Wait]:
    known = find_progress(run)
    mine = of_attempt(known.series, span.number) if known else slice(0, 0)
    if known is None or mine.stop - mine.start < 2:
        yield from _no_first_update(run, span, work)
        return
    steps, times = known.steps[mine], known.series.time_us[mine]
    new = np.concatenate([[0], np.flatnonzero(np.diff(steps) > 0) + 1])
    usual = float(np.median(np.diff(times[new]))) / 1e6 if len(new) > 1 else 0.0
    last = known.series.location(mine.start + int(new[-1]))
    seconds = (end_by(run, span, last) - int(times[new[-1]])) / 1e6
    if seconds > max(_STEPS * usual, _LEAST_SECONDS, _explained_seconds(run, span, times[new])):
        step = int(steps[new[-1]])
        why = f"under way: {', '.join(work)}" if work else "no event says why"
        often = f", one about every {seconds_in_words(usual)} before" if usual else ""
        yield Wait(f"no step after step {step:,}", f"for {seconds_in_words(seconds)}{often}; {why}")


def _explained_seconds(run: RunView, span: AttemptSpan, times: Any) -> float:
    """How long the next step may take for what was seen: a warm-up that was declared, or pauses that come again."""
    warm_ups = (event for event in run.events_named("train.step.warmup_reset") if event.attempt == span.number)
    if any(event.time_us >= times[-1] for event in warm_ups):
        return _FIRST_SECONDS
    pauses = np.sort(np.diff(times))[-_HABIT:] / 1e6
    return min(_LONGEST_HABIT_SECONDS, _ABOVE_HABIT * float(pauses[0])) if len(pauses) == _HABIT else 0.0


def _no_first_update(run: RunView, span: AttemptSpan, work: list[str]) -> Iterator[Wait]:
    """The time from the start of an attempt of a job to its second report, which compilation can take up."""
    if span.started is None:
        return
    seconds = (end_by(run, span, span.started.location) - span.started.time_us) / 1e6
    if seconds > _FIRST_SECONDS:
        why = f"under way: {', '.join(work)}" if work else "compilation and reading of data take long, or it hangs"
        yield Wait("no two steps yet", f"{seconds_in_words(seconds)} after the start of the attempt; {why}")


def _silent(run: RunView, span: AttemptSpan) -> Iterator[Wait]:
    """Emitters without a record for two cadences of a heartbeat, and for several times what they usually take.

    That of the job is left out: it writes with the updates.
    """
    of_job = {head.record.emitter for head in run.heads if "job" in head.record.scopes}
    mine = [
        each
        for each in run.emitters
        if each.attempt == span.number and each.num_records > _FEWEST_RECORDS and each.emitter not in of_job
    ]
    late = []
    for each in mine:
        seconds = (end_by(run, span, each.last_location) - each.last_time_us) / 1e6
        usual = (each.last_time_us - each.first_time_us) / 1e6 / (each.num_records - 1)
        if seconds > max(_LEAST_SECONDS, _LONGER * usual):
            late.append((each.emitter, seconds))
    if len(late) == len(mine) > 1:
        least = seconds_in_words(min(seconds for _, seconds in late))
        yield Wait("nothing from any emitter", f"for {least} or longer; {len(mine):,} wrote before: {_names(late)}")
        return
    for name, seconds in late if len(late) <= _MOST_NAMED else ():
        yield Wait(f"nothing from {name}", f"for {seconds_in_words(seconds)}")
    if len(late) > _MOST_NAMED:
        least = seconds_in_words(min(seconds for _, seconds in late))
        more = f"{len(late):,} of {len(mine):,} have written nothing for {least} or longer: {_names(late)}"
        yield Wait(f"nothing from more than {_MOST_NAMED} emitters", more)


def _names(late: list[tuple[str, float]]) -> str:
    return ", ".join(name for name, _ in late[:_MOST_NAMED]) + ", ..." * (len(late) > _MOST_NAMED)
