"""Finds when a job pauses, or its streams are silent, for a reason that the run itself states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from trainspec_validate.model.metrics import Metric
from trainspec_validate.telemetry.checks._intervals import Interval, intervals, paired
from trainspec_validate.telemetry.checks._rows import IMPORTED
from trainspec_validate.telemetry.checks._words import seconds_in_words
from trainspec_validate.telemetry.view.run_view import AttemptSpan, JobSeries, Location, PlacedEvent, RunView

BLOCKING = "train.checkpoint.duration{train.checkpoint.phase=blocking}"
EVALUATION = "train.evaluation.begin"
_INTERVALS = (EVALUATION, "train.checkpoint.restore.begin", "train.recovery.begin")
_UPDATES = frozenset({"train.step.count", "train.step.duration"})
_LOOP_SCOPES = frozenset({"job", "rank", "group"})
_RESULT = "train.evaluation.loss"
_FEWEST_RESULTS = 3
"""Results that show in which report the program writes them, counted from the pause."""
LIKE_PAUSES = 3.0
"""Times the median of the pauses with results up to which a pause is an evaluation as the others."""
_LONGER = 2.0
"""Times the usual time of a step above which an interval of one step with a result holds a pause."""


class Pause(NamedTuple):
    """One stretch of time in which the job is paused or a stream is silent, and why."""

    begin_us: int
    end_us: int
    reason: str


class Pauses:
    """Pauses of a run as one axis of time, on which overlapping ones count once."""

    def __init__(self, pauses: Iterable[Pause]) -> None:
        self.each = tuple(sorted(pause for pause in pauses if pause.end_us > pause.begin_us))
        merged: list[list[int]] = []
        for begin, end, _ in self.each:
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        self._begins = np.array([begin for begin, _ in merged], dtype=np.int64)
        self._ends = np.array([end for _, end in merged], dtype=np.int64)
        self._before = np.concatenate([[0], np.cumsum(self._ends - self._begins)]).astype(np.int64)

    def covered_us(self, begin_us: Any, end_us: Any) -> Any:
        """How much of an interval, or of each of many, pauses cover."""
        return self._until(end_us) - self._until(begin_us)

    def left_us(self, begin_us: Any, end_us: Any) -> Any:
        """How much of an interval, or of each of many, no pause covers."""
        return np.asarray(end_us) - np.asarray(begin_us) - self.covered_us(begin_us, end_us)

    def num_within(self, begin_us: Any, end_us: Any, least_us: float) -> Any:
        """Pauses of at least some length that end in an interval, or in each of many."""
        ends = self._ends[self._ends - self._begins >= least_us]
        return np.searchsorted(ends, end_us, side="right") - np.searchsorted(ends, begin_us, side="right")

    def _until(self, time_us: Any) -> Any:
        """Time that pauses have taken up to a moment."""
        if not len(self._begins):
            return np.zeros_like(np.asarray(time_us))
        index = np.searchsorted(self._begins, time_us, side="right")
        last = np.maximum(index - 1, 0)
        inside = np.minimum(time_us, self._ends[last]) - self._begins[last]
        return np.where(index > 0, self._before[last] + inside, 0)


# --- what is a pause ----------------------------------------------------------------------------------------


def silences(run: RunView, emitter: str | None = None) -> Pauses:
    """When no one writes: declared gaps, faults until they are fixed, and the time between two attempts.

    With an emitter, only the gaps that this one declares of itself.
    """
    return Pauses(_silences(run, emitter))


def standstills(run: RunView, emitter: str | None = None) -> Pauses:
    """When the training loop is paused as well: evaluations, blocking saves, restores, and the warm-up of updates."""
    return Pauses([*_silences(run, emitter), *_standstills(run)])


def interruptions(run: RunView) -> Pauses:
    """As standstills, without evaluations, which compute as optimizer steps do."""
    return Pauses([*_silences(run), *_standstills(run, with_evaluations=False)])


def evaluations(run: RunView) -> Pauses:
    """When evaluations run, which rates of training leave out."""
    return Pauses(
        Pause(interval.opened.time_us, interval.closed.time_us, "an evaluation runs")
        for interval in evaluated(run)
        if interval.closed
    )


def evaluated(run: RunView) -> Iterator[Interval]:
    """The evaluations of a run; one without a begin reaches back to the last step that is reported before its end."""
    pairing = paired(run, EVALUATION)
    yield from pairing.of(EVALUATION)
    times = [np.sort(series.time_us) for name, series in run.job.items() if name in _UPDATES and len(series)]
    for end in pairing.stray:
        before = [int(each[place - 1]) for each in times if (place := int(np.searchsorted(each, end.time_us)))]
        yield Interval(end.at(max(before, default=end.time_us)), end)


def pauses_of(metric: Metric, standing: Pauses, silent: Pauses) -> Pauses:
    """The pauses that excuse a metric: what the training loop writes pauses with it, except for the heartbeat.

    The heartbeat of ranks is written on time even when nothing advances, and agents of nodes know no evaluation.
    """
    by_loop = _LOOP_SCOPES & set(metric.scopes) and metric.name != "train.rank.step"
    return standing if by_loop else silent


def declares_gap(run: RunView) -> frozenset[str]:
    """The emitters that say of themselves that they wrote nothing for some time."""
    return frozenset(event.emitter for event in run.events_named("train.telemetry.gap"))


def _silences(run: RunView, emitter: str | None = None) -> Iterator[Pause]:
    for event in run.events_named("train.telemetry.gap"):
        begin, end = event.attribute("train.gap.start"), event.attribute("train.gap.end")
        if isinstance(begin, int) and isinstance(end, int) and emitter in {None, event.emitter}:
            yield Pause(begin, end, "the stream says that it was silent")
    for before, after in zip(run.attempts, run.attempts[1:], strict=False):
        yield Pause(end_us(before), _begin_us(after), "no attempt runs")
    for fault in run.events_named("train.fault.detected"):
        yield Pause(fault.time_us, _mended_us(run, fault), "a fault is not yet repaired")


def _standstills(run: RunView, *, with_evaluations: bool = True) -> Iterator[Pause]:
    for name in _INTERVALS if with_evaluations else _INTERVALS[1:]:
        reason = name.removeprefix("train.").removesuffix(".begin").replace(".", " ")
        for interval in evaluated(run) if name == EVALUATION else intervals(run, name):
            if interval.closed:
                yield Pause(interval.opened.time_us, interval.closed.time_us, f"a {reason} runs")
            elif can_close(run, interval.opened):
                yield Pause(interval.opened.time_us, end_us(run.attempts[-1]), f"a {reason} runs")
    if with_evaluations and not run.events_named(EVALUATION, "train.evaluation.end"):
        yield from _with_results(run)
    for save in intervals(run, "train.checkpoint.begin"):
        begin = save.opened.time_us
        end = save.closed.time_us if save.closed else end_us(run.attempts[-1]) if can_close(run, save.opened) else begin
        yield Pause(begin, min(end, begin + _blocking_us(run, save.closed, end - begin)), "a save blocks")
    for span in run.attempts:
        yield from _warmup(run, span)


def _with_results(run: RunView) -> Iterator[Pause]:
    """Intervals between optimizer steps of a converted log in which evaluations run, as their results alone show.

    A result ends the interval that it is in. Loggers that write a row once the next one begins give the result to a row
    after that or before it, which several results show.
    """
    results, updates = (run.job.get(name) for name in (_result_key(run), "train.step.count"))
    if results is None or updates is None or not all(IMPORTED in head.record.extensions for head in run.heads):
        return
    for span in run.attempts:
        mine, ends = of_attempt(updates, span.number), results.time_us[of_attempt(results, span.number)]
        times, first = np.unique(updates.time_us[mine], return_index=True)
        steps = np.maximum(np.diff(updates.value[mine][first]), 1)
        inside = np.unique(np.searchsorted(times, ends)) - 1
        sought = {0: 1, -1: _FEWEST_RESULTS, 1: _FEWEST_RESULTS}
        shown = [_paused(np.diff(times), steps, inside + shift, fewest) for shift, fewest in sought.items()]
        for place, left_us in max(
            shown, key=lambda found: float(np.median(list(found.values()))) if found else 0.0
        ).items():
            yield Pause(int(times[place + 1]) - left_us, int(times[place + 1]), "an evaluation runs")


def _paused(lengths: Any, steps: Any, places: Any, fewest: int) -> dict[int, int]:
    """The intervals at some places that are longer than their steps take elsewhere, and by how much.

    Most of them have to be, and one that is much longer than the others is none.
    """
    places = places[(places >= 0) & (places < len(lengths))]
    others = np.delete(lengths / steps, places)
    if len(places) < fewest or not len(others):
        return {}
    usual = float(np.median(others))
    left = lengths[places] - steps[places] * usual
    long = left > (_LONGER - 1) * usual
    if 2 * int(long.sum()) < len(places):
        return {}
    long &= left <= LIKE_PAUSES * float(np.median(left[long]))
    return dict(zip(places[long].tolist(), left[long].astype(np.int64).tolist(), strict=True))


def _result_key(run: RunView) -> str:
    """The series of results that a run reports most often."""
    found = [(len(series), name) for name, series in run.job.items() if series.key.metric == _RESULT]
    return max(found, default=(0, ""))[1]


def end_us(span: AttemptSpan) -> int:
    """When an attempt ends: as its event says, else with its last record, or now where it continues."""
    if span.ended:
        return span.ended.time_us
    return span.watched_until_us if span.watched_until_us >= 0 else span.last_time_us


def judged_attempts(run: RunView) -> Sequence[AttemptSpan]:
    """The attempts whose end is known: that of a live run is, as long as all of its files can be read."""
    return run.attempts[:-1] if run.is_live and not run.watched_until_us else run.attempts


def end_by(run: RunView, span: AttemptSpan, place: Location) -> int:
    """When an attempt ends; one that is followed ends now, by the clock that wrote a record."""
    is_followed = span.ended is None and span.watched_until_us >= 0
    return run.watched_until_us.get(place.file, end_us(span)) if is_followed else end_us(span)


def before_end(run: RunView, span: AttemptSpan, place: Location, time_us: int) -> str:
    """How long a record at a place is before the end of its attempt, in words."""
    length = seconds_in_words((end_by(run, span, place) - time_us) / 1e6)
    is_open = span.ended is None and span.watched_until_us >= 0
    return f"{length} before {'now, and' if is_open else 'the end of'} attempt {span.number}{' continues' * is_open}"


def can_close(run: RunView, event: PlacedEvent) -> bool:
    """Whether an event is of the attempt that is still followed, so that what it opens can still be closed."""
    return run.is_live and event.attempt == run.attempts[-1].number and run.attempts[-1].ended is None


def _begin_us(span: AttemptSpan) -> int:
    return span.started.time_us if span.started else span.first_time_us


def _mended_us(run: RunView, fault: PlacedEvent) -> int:
    """When the job works again: its recovery ends, or the fault is cleared, or the next attempt begins."""
    name = fault.attribute("train.fault.id")
    answers = ("train.recovery.end", "train.fault.cleared")
    later = [event for event in run.events_named(*answers) if event.time_us >= fault.time_us]
    mine = [event for event in later if event.attribute("train.fault.id") == name]
    ends = [event for event in mine if event.name == "train.recovery.end"] or mine
    if ends:
        return ends[-1].time_us
    starts = [_begin_us(span) for span in run.attempts if span.number > fault.attempt]
    if not starts and can_close(run, fault):
        return end_us(run.attempts[-1])
    return min(starts, default=fault.time_us)


def _blocking_us(run: RunView, end: PlacedEvent | None, whole_us: int) -> int:
    """How long training stands for a save: as its commit says, else as the run says of its saves, else all of it."""
    said = end.value(BLOCKING) if end else None
    if said is None and BLOCKING in run.job and len(run.job[BLOCKING]):
        said = float(np.nanmax(run.job[BLOCKING].value))
    return whole_us if said is None or not np.isfinite(said) else round(said * 1e6)


def _warmup(run: RunView, span: AttemptSpan) -> Iterator[Pause]:
    """From the start of the attempt to its first report of a step, and the reports that are marked as warm-up."""
    reason = "the job starts or warms up"
    for name in ("train.step.duration", "train.step.count"):
        series = run.job.get(name)
        mine = of_attempt(series, span.number) if series is not None else slice(0, 0)
        if series is None or mine.start == mine.stop:
            continue
        times, marked = series.time_us[mine], np.asarray(series.warmup[mine], dtype=bool)
        yield Pause(_begin_us(span), int(times[0]), reason)
        for index in np.flatnonzero(marked[1:]):
            yield Pause(int(times[index]), int(times[index + 1]), reason)
        return


def of_attempt(series: JobSeries, number: int) -> slice:
    """Where the values of one attempt are in a series."""
    return slice(
        int(np.searchsorted(series.attempt, number, side="left")),
        int(np.searchsorted(series.attempt, number, side="right")),
    )
