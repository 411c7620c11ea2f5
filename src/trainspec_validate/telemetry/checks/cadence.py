"""Checks how regularly the series of a run are written: late values, gaps, bursts, silence and early ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from trainspec_validate.model.finding import Evidence
from trainspec_validate.model.metrics import by_name
from trainspec_validate.telemetry.checks import NotApplicable, Violation, check
from trainspec_validate.telemetry.checks._absences import Absences
from trainspec_validate.telemetry.checks._cadences import Cadences
from trainspec_validate.telemetry.checks._intervals import intervals
from trainspec_validate.telemetry.checks._pauses import (
    Pauses,
    before_end,
    declares_gap,
    end_by,
    end_us,
    judged_attempts,
    of_attempt,
    pauses_of,
    silences,
    standstills,
)
from trainspec_validate.telemetry.checks._rows import (
    Columns,
    has_times,
    refuse_snapshot,
    timed_rows,
    violations_by_emitter,
)
from trainspec_validate.telemetry.checks._seen import advice, steps_by_attempt
from trainspec_validate.telemetry.checks._words import (
    MAX_ALONE,
    Fault,
    damaged,
    few,
    moment,
    names_in_words,
    seconds_in_words,
    series_in_words,
    subjects_in_words,
)
from trainspec_validate.telemetry.view.run_view import (
    NOWHERE,
    AttemptSpan,
    Location,
    Occurrence,
    RunView,
    Series,
    Trail,
    Trouble,
)

Said = Callable[[Occurrence], str]
_EVALUATED = "train.evaluation.loss"
_REPORTED = frozenset(
    {
        *("train.step.count", "train.step.duration", "train.sample.count", "train.token.count", "train.token.rate"),
        *("train.sample.rate", "train.loss.mean", "train.gradient.norm", "train.learning_rate", _EVALUATED),
    }
)
"""Metrics that training loops report at an interval of their own."""
_FEWEST = 8
"""Reports that show an interval."""
_INTERVALS = 3
"""Intervals without a report that make a silence."""
_USUAL = 90
"""Percentile of the intervals of a series that counts as its own."""
_LEAST_SECONDS = 60.0
_HELP = "write it until the attempt ends, or an event that says why it stops"


def violations_at_once(occurrences: Iterable[Occurrence], message: Said, help_text: Said) -> Iterator[Violation]:
    """One violation for all occurrences whose times overlap; one for the rest where there are more than `MAX_ALONE`."""
    clusters = sorted(_clusters(occurrences), key=lambda cluster: cluster[0].location)
    if len(clusters) > MAX_ALONE:
        rest = [occurrence for cluster in clusters[MAX_ALONE - 1 :] for occurrence in cluster]
        clusters = [*clusters[: MAX_ALONE - 1], sorted(rest, key=lambda occurrence: occurrence.location)]
    for cluster in clusters:
        yield _violation(cluster, message(cluster[0]), help_text(cluster[0]))


def _clusters(occurrences: Iterable[Occurrence]) -> Iterator[list[Occurrence]]:
    """Occurrences of one attempt that all have some time in common, each cluster in order of place."""
    cluster: list[Occurrence] = []
    end = -1
    for occurrence in sorted(occurrences, key=lambda o: (o.attempt, _begin_us(o), o.time_us)):
        if not cluster or occurrence.attempt != cluster[0].attempt or _begin_us(occurrence) > end:
            if cluster:
                yield sorted(cluster, key=lambda o: o.location)
            cluster, end = [], occurrence.time_us
        cluster.append(occurrence)
        end = min(end, occurrence.time_us)
    if cluster:
        yield sorted(cluster, key=lambda o: o.location)


def _begin_us(occurrence: Occurrence) -> int:
    return occurrence.time_before_us if occurrence.time_before_us >= 0 else occurrence.time_us


def _violation(cluster: Sequence[Occurrence], message: str, help_text: str) -> Violation:
    first = cluster[0]
    series = {(occurrence.key, occurrence.subject) for occurrence in cluster}
    subjects = subjects_in_words({subject for _, subject in series})
    evidence = Evidence(
        series=str(first.key) if len(series) == 1 else names_in_words({key.metric for key, _ in series}),
        subjects=subjects,
        first_time_us=min(map(_begin_us, cluster)),
        last_time_us=max(occurrence.time_us for occurrence in cluster),
        count=len(cluster),
    )
    related = () if first.location_before == NOWHERE else ((first.location_before, "the value before it"),)
    found = Violation(first.location, message, help_text, evidence, related)
    if len(cluster) == 1:
        return found
    where = f", on {subjects}" if len(series) > 1 and subjects else ""
    what = f"{len(series):,} series" if len(series) == len(cluster) else f"{len(cluster):,} cases"
    return replace(found, message=f"{message}; the first of {what}{where}")


LATE_SHARE = 0.01
"""Share of intervals that may be longer than 1.5 cadences: public series had from 0.01 % to 1.5 %."""
FEWEST_LATE = 2
"""One late value is a hiccup in a stream of any length."""
GAP_CADENCES = 3
"""Cadences without a value that make a gap; one lost value leaves two."""
LEAST_PAUSE = 0.5
"""Cadences that a pause lasts before it makes a value late, for the value itself comes one cadence after the last."""


class _Excuses:
    """The pauses that hold for each metric of a run."""

    def __init__(self, run: RunView) -> None:
        self._run, self._declaring = run, declares_gap(run)
        self._standing, self._silent = standstills(run), silences(run)
        self._of_emitters: dict[str, tuple[Pauses, Pauses]] = {}
        known = (by_name(key.metric) for key in run.series.keys)
        found = (m is not None and pauses_of(m, self._standing, self._silent) is self._standing for m in known)
        self._stands = np.fromiter(found, dtype=bool, count=len(run.series.keys))
        """Whether a key stands with the training loop."""

    def of(self, metric: str, emitter: str) -> Pauses:
        """The pauses in which an emitter need not write a metric; gaps that others declare are no excuse for it."""
        entry, mine = by_name(metric), emitter if emitter in self._declaring else ""
        if self._declaring and mine not in self._of_emitters:
            self._of_emitters[mine] = standstills(self._run, mine), silences(self._run, mine)
        standing, silent = self._of_emitters.get(mine, (self._standing, self._silent))
        return silent if entry is None else pauses_of(entry, standing, silent)

    def left_us(self, run: RunView, rows: Any, begin_us: Any, end_us: Any) -> Any:
        """For each of some rows, how much of its interval no pause covers."""
        stands = self._stands[run.series.rows["key"][rows]]
        one, other = (pauses.left_us(begin_us, end_us) for pauses in (self._standing, self._silent))
        return np.where(stands, one, other)

    def num_late(self, run: RunView, rows: Any, cadence_us: Any) -> Any:
        """For each of some rows, how many values pauses may have made late."""
        columns = Columns(run, rows)
        stands = self._stands[columns["key"]]
        found = np.zeros(len(rows), dtype=np.int64)
        for wanted in np.unique(cadence_us).tolist():
            for pauses, kind in ((self._standing, True), (self._silent, False)):
                mine = np.flatnonzero((stands == kind) & (cadence_us == wanted))
                first, last = columns["first_time_us"][mine], columns["last_time_us"][mine]
                found[mine] = pauses.num_within(first, last, LEAST_PAUSE * wanted)
        return found


@check("TS-TEL-020")
def cadence(run: RunView) -> Iterator[Violation]:
    """Nearly all values of a series come within 1.5 times their cadence."""
    timed = timed_rows(run)
    cadences = Cadences(run)
    rows = Columns(run, timed)
    late = rows["num_late"] - _Excuses(run).num_late(run, timed, cadences.of_rows(run, timed))
    wrong = timed[late > np.maximum(rows["num_intervals"] * LATE_SHARE, FEWEST_LATE - 1)]

    def fault(series: Series) -> Fault:
        wanted = cadences.seconds(by_name(series.key.metric), series.emitter, series.attempt) or 0
        longest = seconds_in_words(series.longest_interval_us / 1e6)
        return Fault(
            key=series.key,
            subject=series.subject,
            location=series.longest_interval_location,
            message=f"{series_in_words(series.key, series.subject)}: {series.num_late:,} of {series.num_intervals:,} "
            f"intervals are longer than 1.5 times the cadence of {seconds_in_words(wanted)}, the longest {longest}",
            help=advice(run, "write values on time", ", or state the real interval in cadence_seconds of the head"),
            first_time_us=series.first_time_us,
            last_time_us=series.last_time_us,
            samples=(longest,),
        )

    yield from violations_by_emitter(run, wrong, "longest_interval", fault)


@check("TS-TEL-021")
def gap(run: RunView) -> Iterator[Violation]:
    """No series is silent for more than three cadences, except for what pauses explain."""
    timed_rows(run)
    cadences, excuses = Cadences(run), _Excuses(run)

    def wanted(occurrence: Occurrence) -> float:
        return cadences.seconds(by_name(occurrence.key.metric), occurrence.emitter, occurrence.attempt) or 0

    def unexplained(occurrence: Occurrence) -> bool:
        left = excuses.of(occurrence.key.metric, occurrence.emitter).left_us(
            occurrence.time_before_us, occurrence.time_us
        )
        return bool(left > GAP_CADENCES * wanted(occurrence) * 1e6)

    def message(gap: Occurrence) -> str:
        length = seconds_in_words((gap.time_us - gap.time_before_us) / 1e6)
        return f"{series_in_words(gap.key, gap.subject)} has no value for {length} before {moment(gap.time_us)}"

    def help_text(gap: Occurrence) -> str:
        often = seconds_in_words(wanted(gap))
        return f"write a value at least every {often}, or an event train.telemetry.gap that says why there is none"

    found = [gap for trail in run.trails_of(Trouble.GAP) for gap in _gaps_of(trail, run) if unexplained(gap)]
    yield from violations_at_once(found, message, help_text)


def _gaps_of(trail: Trail, run: RunView) -> Iterator[Occurrence]:
    """The gaps of a trail, and the longest one of each series where not all are at hand."""
    yield from trail.first
    if len(trail.first) < trail.num:
        places = {occurrence.location for occurrence in trail.first}
        rows = run.series.rows
        mine = (rows["key"] == run.series.keys.index(trail.key)) & (rows["attempt"] == trail.attempt)
        longest = (_longest(run.series.at(int(row))) for row in np.flatnonzero(mine & (rows["num_late"] > 0)))
        yield from (gap for gap in longest if gap.location not in places)


def _longest(series: Series) -> Occurrence:
    """The longest interval of a series, as if the fold had noticed it."""
    return Occurrence(
        trouble=Trouble.GAP,
        key=series.key,
        subject=series.subject,
        attempt=series.attempt,
        emitter=series.emitter,
        location=series.longest_interval_location,
        location_before=NOWHERE,
        time_us=series.longest_interval_end_us,
        time_before_us=series.longest_interval_end_us - series.longest_interval_us,
        value=float("nan"),
        value_before=float("nan"),
        step=-1,
    )


@check("TS-TEL-022")
def burst(run: RunView) -> Iterator[Violation]:
    """Values that waited in a queue keep the times at which they were taken."""
    timed_rows(run)

    def message(found: Occurrence) -> str:
        name = series_in_words(found.key, found.subject)
        return f"{name} has several values within a tenth of its cadence at {moment(found.time_us)}, after a gap"

    help_text = "give each value the time at which it was taken; when it was written goes into observed_us"
    found = (occurrence for trail in run.trails_of(Trouble.BURST) for occurrence in trail.first)
    yield from violations_at_once(found, message, lambda _: help_text)


@check("TS-TEL-023")
def tail_silence(run: RunView) -> Iterator[Violation]:
    """No series stops before its attempt does, unless what it is of was lost."""
    refuse_snapshot(run)
    yield from damaged(run, "TS-TEL-023")
    early, judged = _tails(run, standstills(run))
    yield from few(early)
    try:
        yield from _silent_series(run)
    except NotApplicable:
        if not judged:
            raise


def _by_own_clocks(run: RunView, rows: Columns, end_us: Any) -> Any:
    """Ends of attempts for some series; the one that is followed ends now, by the clock of the file of each."""
    if not run.attempts or run.attempts[-1].watched_until_us < 0:
        return end_us
    known = [(file, until) for file, until in run.watched_until_us.items()]
    until = np.full(max(file for file, _ in known) + 1, run.attempts[-1].watched_until_us, dtype=np.int64)
    for file, moment_us in known:
        until[file] = moment_us
    return np.where(rows["attempt"] == run.attempts[-1].number, until[rows["last_file"]], end_us)


def _silent_series(run: RunView) -> Iterator[Violation]:
    """Series with a cadence that have no value in the last three of them.

    Raises:
        NotApplicable: no series has a cadence, or the run continues.
    """
    timed = timed_rows(run, least=1)
    ends = {span.number: end_us(span) for span in judged_attempts(run)}
    timed = timed[np.isin(Columns(run, timed)["attempt"], list(ends))]
    if not len(timed):
        raise NotApplicable("the run continues")
    rows = Columns(run, timed)
    numbers, which = np.unique(rows["attempt"], return_inverse=True)
    end = np.array([ends[number] for number in numbers.tolist()], dtype=np.int64)[which.reshape(-1)]
    end = _by_own_clocks(run, rows, end)
    cadences, absences = Cadences(run), Absences(run)
    left = _Excuses(run).left_us(run, timed, rows["last_time_us"], end)
    longest = GAP_CADENCES * cadences.of_rows(run, timed)
    silent = timed[left > longest]
    silent = silent[absences.told_us(run, silent) < run.series.rows["last_time_us"][silent]]

    def fault(series: Series) -> Fault:
        span = run.attempt(series.attempt)
        where = before_end(run, span, series.last_location, series.last_time_us) if span else ""
        return Fault(
            key=series.key,
            subject=series.subject,
            location=series.last_location,
            message=f"{series_in_words(series.key, series.subject)} has its last value {where}",
            help="write it until the attempt ends, or an event that says what was lost",
            first_time_us=series.last_time_us,
            last_time_us=ends[series.attempt],
        )

    yield from violations_by_emitter(run, silent, "last", fault)


class _Reports(NamedTuple):
    """Reports of one series in one attempt."""

    name: str
    times_us: Any
    steps: Any
    """-1 where a report has none."""
    last: Location


def _tails(run: RunView, standing: Pauses) -> tuple[list[Violation], bool]:
    """Series that stop early, and whether any series was judged."""
    found: list[Violation] = []
    judged = False
    highest = steps_by_attempt(run)
    for span in judged_attempts(run):
        last_step = max(highest.get(span.number, (-1, -1))[1], run.event_facts.last_step.get(span.number, -1))
        for reports in (*_series(run, span), *_evaluations(run, span)):
            if len(reports.times_us) >= _FEWEST:
                judged = True
                found += _stops(run, reports, span, last_step, standing if has_times(run) else None)
    return found, judged


def _series(run: RunView, span: AttemptSpan) -> Iterator[_Reports]:
    for series in run.job.values():
        mine = of_attempt(series, span.number)
        if series.key.metric in _REPORTED and mine.stop > mine.start:
            last = series.location(mine.start + int(np.argmax(series.time_us[mine])))
            yield _Reports(str(series.key), series.time_us[mine], series.step[mine], last)


def _evaluations(run: RunView, span: AttemptSpan) -> Iterator[_Reports]:
    ends = [i.closed for i in intervals(run, "train.evaluation.begin") if i.closed and i.closed.attempt == span.number]
    if ends:
        # Logs give evaluations positions of other units than those of training.
        steps = [-1 if has_times(run) or end.step is None else end.step for end in ends]
        times = np.array([end.time_us for end in ends], dtype=np.int64)
        yield _Reports("the evaluations", times, np.array(steps, dtype=np.int64), ends[-1].location)


def _stops(
    run: RunView, reports: _Reports, span: AttemptSpan, last_step: int, standing: Pauses | None
) -> Iterator[Violation]:
    """The silence after the last report, where steps and clock both show it, or the one that is known."""
    last_us = int(reports.times_us.max())
    steps = np.unique(reports.steps[reports.steps >= 0])
    if len(steps) >= _FEWEST:
        left_steps, usual_steps = last_step - int(steps[-1]), float(np.percentile(np.diff(steps), _USUAL))
        if left_steps <= _INTERVALS * usual_steps:
            return
        words = f"has its last value at step {int(steps[-1]):,}, and attempt {span.number} comes to step {last_step:,}"
    elif standing is None:
        return
    else:
        times = np.unique(reports.times_us)
        if len(times) < _FEWEST:
            return
        left = float(standing.left_us(last_us, end_by(run, span, reports.last))) / 1e6
        usual = float(np.percentile(standing.left_us(times[:-1], times[1:]), _USUAL)) / 1e6
        if left <= max(_INTERVALS * usual, _LEAST_SECONDS):
            return
        words = f"has its last value {before_end(run, span, reports.last, last_us)}"
        words += f", after one about every {seconds_in_words(usual)}"
    verb = words.replace("has its last value", "come last") if reports.name.startswith("the ") else words
    evidence = Evidence(reports.name, "", last_us, end_us(span))
    yield Violation(reports.last, f"{reports.name} {verb}", _HELP, evidence)
