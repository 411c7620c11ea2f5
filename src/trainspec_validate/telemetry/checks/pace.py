"""Checks the pace of a run: slow ranks, slow stretches, and durations against the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from trainspec_validate.telemetry.checks import Evidence, NotApplicable, Violation, check, require
from trainspec_validate.telemetry.checks._job import segments, updates_of
from trainspec_validate.telemetry.checks._members import ranks_of_rows
from trainspec_validate.telemetry.checks._pauses import of_attempt, standstills
from trainspec_validate.telemetry.checks._rows import (
    Columns,
    has_times,
    refuse_snapshot,
    rows_of,
    violations_of_rows,
)
from trainspec_validate.telemetry.checks._seen import owing
from trainspec_validate.telemetry.checks._untimed import Bounds, another_unit, slow_reports
from trainspec_validate.telemetry.checks._words import (
    Fault,
    damaged,
    few,
    moment,
    number,
    seconds_in_words,
    series_in_words,
)
from trainspec_validate.telemetry.view.run_view import JobSeries, Location, RunView, Series

SLOWDOWN = "train.rank.slowdown"
DURATION = "train.step.duration"
COMPUTE = "train.step.phase.time{train.phase=forward_backward}"
"""Time of a rank that no other rank is waited for in; that of a whole step is the same for ranks that wait."""
ALIKE = 0.02
"""Spread of the step times of ranks that wait for each other, of their mean: 0.1 % in a job with a slow rank."""
SLOW_FACTOR = 1.5
"""Times the median that makes a rank slow; four of ten workers of one public job were above it in 90 % of updates."""
SLOW_SHARE = 0.1
"""Share of the windows in which a rank may be slow."""
SLOW_IN_A_ROW = 4
"""Values in a row: one worker of a public job took twice the median in four measured steps, and then recovered."""
FEWEST_WINDOWS = 3
FEWEST_RANKS = 3
"""Ranks among which a median says who is slow."""
DRIFT = 0.03
"""Growth of the step time that counts; one slow node of a public job made it 5.7 %."""
DRIFT_SECONDS = 1800.0
WINDOW_SECONDS = 600.0
FEWEST_BASELINE = 3
"""Windows before a stretch that its pace is held against: half an hour."""
BASELINE_WINDOWS = 144
"""Windows that the baseline reaches back: a day."""
SLOW_HELP = "look for a slow node, link or store; a change of the work itself has an event"
CLOCK_TOLERANCE = 0.02
BETWEEN_STEPS = 0.1
"""Share of the time that logs of other programs may spend between the steps that they time."""
FEWEST_INTERVALS = 3
WRITTEN_SECONDS = 0.02
"""Logs of other programs have the times at which lines were written, some milliseconds after their steps."""


@check("TS-TEL-035")
def straggler(run: RunView) -> Iterator[Violation]:
    """No rank is slower than 1.5 times the others in a tenth of the windows, or in four in a row."""
    slowdowns = rows_of(run, [SLOWDOWN], least=FEWEST_WINDOWS)
    durations = [(mine, _means(run, mine)) for mine in _by_attempt(run, rows_of(run, [DURATION], least=FEWEST_WINDOWS))]
    computed = [(mine, _growths(run, mine)) for mine in _by_stage(run, _compute_rows(run))]
    if not len(slowdowns) and not durations and not computed:
        raise NotApplicable(f"no {SLOWDOWN}, and no {DURATION} of three ranks or more")
    if not len(slowdowns) and not computed and all(np.ptp(means) <= ALIKE * means.mean() for _, means in durations):
        raise NotApplicable(f"no {SLOWDOWN} or {COMPUTE}, and ranks that wait for each other take the same {DURATION}")
    rows = Columns(run, slowdowns)
    often = rows["num_above"] > SLOW_SHARE * rows["num"]
    for_a_while = ~often & (rows["longest_above"] >= SLOW_IN_A_ROW)

    def by_window(series: Series) -> Fault:
        message = f"is above {number(SLOW_FACTOR)} in {series.num_above:,} of {series.num:,} windows, up to "
        return _slow(series, message + number(series.maximum))

    yield from violations_of_rows(run, slowdowns[often], "last", by_window)
    yield from violations_of_rows(run, slowdowns[for_a_while], "longest_above", _slow_for_a_while)
    for mine, seconds in (*durations, *computed):
        yield from _slower_than_the_median(run, mine, seconds)


def _slower_than_the_median(run: RunView, rows: Any, seconds: Any) -> Iterator[Violation]:
    """Ranks with a mean time of a step, or of a part of it, far above that of the median rank."""
    median = float(np.median(seconds))
    own = {run.series.at(int(row)).subject: float(mean) for row, mean in zip(rows, seconds, strict=True)}

    def by_mean(series: Series) -> Fault:
        mean = seconds_in_words(own[series.subject])
        return _slow(series, f"is {mean} on average, and {seconds_in_words(median)} on the median rank")

    yield from violations_of_rows(run, rows[seconds > SLOW_FACTOR * median], "last", by_mean)


def _means(run: RunView, rows: Any) -> Any:
    return run.series.rows["total"][rows] / np.maximum(run.series.rows["num_finite"][rows], 1)


def _growths(run: RunView, rows: Any) -> Any:
    """Growth of counters for each step, after the first value, which has the time of the first step."""
    table = run.series.rows
    num_steps = table["last_step"][rows] - table["first_step"][rows]
    return (table["last_value"][rows] - table["first_value"][rows]) / num_steps


def _compute_rows(run: RunView) -> Any:
    """Rows with the compute time of ranks at two steps or more, in one counter that never fell."""
    rows = rows_of(run, [COMPUTE.partition("{")[0]], least=FEWEST_WINDOWS)
    wanted = [index for index, key in enumerate(run.series.keys) if str(key) == COMPUTE]
    table = run.series.rows
    usable = np.isin(table["key"][rows], wanted) & (table["num_falls"][rows] == 0) & (table["first_step"][rows] >= 0)
    return rows[usable & (table["last_step"][rows] > table["first_step"][rows])]


def _by_attempt(run: RunView, rows: Any) -> Iterator[Any]:
    """Those of some rows that are of single ranks, for each attempt with enough of them."""
    rows = rows[ranks_of_rows(run, rows) >= 0]
    for attempt in np.unique(run.series.rows["attempt"][rows]):
        mine = rows[run.series.rows["attempt"][rows] == attempt]
        if len(mine) >= FEWEST_RANKS:
            yield mine


def _by_stage(run: RunView, rows: Any) -> Iterator[Any]:
    """Rows for each attempt and pipeline stage: stages have different layers, so that their times differ by design."""
    stages = {
        (head.record.att, head.record.rank): head.record.declared.get("train.parallel.pipeline.rank")
        for head in run.heads
    }
    for mine in _by_attempt(run, rows):
        attempt = int(run.series.rows["attempt"][mine[0]])
        declared = [stages.get((attempt, int(rank))) for rank in ranks_of_rows(run, mine)]
        own = np.array([min(stage, 2**31) if isinstance(stage, int) else -1 for stage in declared])
        for stage in np.unique(own):
            if (own == stage).sum() >= FEWEST_RANKS:
                yield mine[own == stage]


def _slow_for_a_while(series: Series) -> Fault:
    message = f"is above {number(SLOW_FACTOR)} in {series.longest_above:,} windows in a row, up to "
    return _slow(series, message + number(series.maximum), series.longest_above_location)


def _slow(series: Series, message: str, location: Location | None = None) -> Fault:
    return Fault(
        key=series.key,
        subject=series.subject,
        location=location or series.last_location,
        message=f"{series_in_words(series.key, series.subject)} {message}",
        help="look at its host, its devices and its links; a rank that is slow slows down all",
        first_time_us=series.first_time_us,
        last_time_us=series.last_time_us,
    )


# --- slow stretches -----------------------------------------------------------------------------------------


@check("TS-TEL-036")
def slow_down(run: RunView) -> Iterator[Violation]:
    """Optimizer steps do not take 3 % longer for half an hour without an event that changes the work."""
    refuse_snapshot(run)
    series = require(run.job.get(DURATION), f"no {DURATION} of the job")
    if not has_times(run):
        yield from few(_of_segments(run, series, _drifts_untimed))
        return
    found: list[Violation] = []
    judged = False
    for part in segments(run, series):
        firsts, medians = _windows(series, part)
        judged = judged or len(medians) >= 2 * FEWEST_BASELINE
        found += _drifts(series, firsts, medians)
    if not judged:
        raise NotApplicable("no half hour of steps with as much before it")
    yield from few(found)


def _windows(series: JobSeries, part: Any) -> tuple[Any, Any]:
    """Index of the first step, and the median time, of each window of ten minutes of a stretch of updates."""
    part = part[np.isfinite(series.value[part]) & ~np.asarray(series.warmup[part], dtype=bool)]
    part = part[np.argsort(series.time_us[part], kind="stable")]
    windows = (series.time_us[part] // int(WINDOW_SECONDS * 1e6)).astype(np.int64)
    _, begins = np.unique(windows, return_index=True)
    medians = [float(np.median(series.value[some])) for some in np.split(part, begins[1:])] if len(part) else []
    return part[begins], np.array(medians)


def _of_segments(
    run: RunView, series: JobSeries, find: Callable[[RunView, JobSeries, Any], Iterator[Violation]]
) -> list[Violation]:
    """What is found in the segments of a series that have enough values.

    Raises:
        NotApplicable: none has.
    """
    found: list[list[Violation]] = []
    refusal: NotApplicable | None = None
    for part in segments(run, series):
        try:
            found.append(list(find(run, series, part)))
        except NotApplicable as error:
            refusal = error
    if refusal is not None and not found:
        raise refusal
    return [one for those in found for one in those]


def _drifts_untimed(run: RunView, series: JobSeries, part: Any) -> Iterator[Violation]:
    for slow in slow_reports(run, series, part, Bounds(DRIFT, FEWEST_BASELINE, DRIFT_SECONDS)):
        yield Violation(
            series.location(slow.first),
            f"optimizer steps take {seconds_in_words(slow.seconds)} in {slow.num:,} reports from step "
            f"{int(series.step[slow.first]):,} to {int(series.step[slow.last]):,}, "
            f"{100 * (slow.seconds / slow.baseline - 1):.1f} % more than before",
            SLOW_HELP,
            Evidence(DURATION, count=slow.num),
        )


def _drifts(series: JobSeries, firsts: Any, medians: Any) -> Iterator[Violation]:
    begin = FEWEST_BASELINE
    while begin < len(medians):
        baseline = float(np.median(medians[max(0, begin - BASELINE_WINDOWS) : begin]))
        end = begin
        while end < len(medians) and medians[end] > (1 + DRIFT) * baseline:
            end += 1
        last = min(end, len(firsts) - 1)
        seconds = float(series.time_us[firsts[last]] - series.time_us[firsts[begin]]) / 1e6
        if end > begin and seconds >= DRIFT_SECONDS:
            slow = float(np.median(medians[begin:end]))
            first = int(firsts[begin])
            yield Violation(
                series.location(first),
                f"optimizer steps take {seconds_in_words(slow)} for {seconds_in_words(seconds)} from "
                f"{moment(int(series.time_us[first]))} on, {100 * (slow / baseline - 1):.1f} % more than before",
                SLOW_HELP,
                Evidence(DURATION, "", int(series.time_us[first]), int(series.time_us[firsts[last]]), end - begin),
            )
        begin = max(end, begin + 1)


# --- durations and the clock --------------------------------------------------------------------------------


@check("TS-TEL-037")
def duration_vs_clock(run: RunView) -> Iterator[Violation]:
    """The times of steps add up to the time that passed, pauses left out."""
    refuse_snapshot(run)
    yield from damaged(run, "TS-TEL-037")
    series = require(run.job.get(DURATION), f"no {DURATION} of the job")
    if not has_times(run):
        yield from few(_of_segments(run, series, _of_another_unit))
        return
    pauses = standstills(run)
    judged = False
    for span in run.attempts:
        mine = of_attempt(series, span.number)
        if mine.stop - mine.start <= FEWEST_INTERVALS:
            continue
        times = series.time_us[mine]
        elapsed = np.diff(times) / 1e6
        updates = updates_of(run, series, mine)[1:]
        claimed = series.value[mine][1:] * updates
        usable = (elapsed > 0) & (updates > 0) & np.isfinite(claimed) & (pauses.covered_us(times[:-1], times[1:]) == 0)
        usable &= _are_counted(run, series.step[mine])
        total, clock = float(claimed[usable].sum()), float(elapsed[usable].sum())
        if usable.sum() < FEWEST_INTERVALS:
            continue
        judged = True
        allowed = CLOCK_TOLERANCE * clock + (0.0 if owing(run) else min(WRITTEN_SECONDS, BETWEEN_STEPS * clock))
        if abs(total - clock) > allowed and not _leaves_out(run, claimed[usable] / elapsed[usable]):
            worst = int(np.argmax(np.where(usable, np.abs(claimed - elapsed), -1)))
            yield Violation(
                series.location(mine.start + worst + 1),
                f"steps of attempt {span.number} add up to {seconds_in_words(total)} in {seconds_in_words(clock)}, a "
                f"ratio of {number(total / clock)}; here it is {seconds_in_words(float(claimed[worst]))} in "
                f"{seconds_in_words(float(elapsed[worst]))}",
                "write seconds from one completed step to the next, and an event for each time that training stalls",
                Evidence(DURATION, "", int(times[0]), int(times[-1]), int(usable.sum())),
            )
    if not judged:
        raise NotApplicable(f"fewer than {FEWEST_INTERVALS} intervals between optimizer steps without a pause")


def _of_another_unit(run: RunView, series: JobSeries, part: Any) -> Iterator[Violation]:
    found = another_unit(run, series, part, FEWEST_INTERVALS)
    if found is not None:
        yield Violation(
            series.location(found.first),
            f"steps take {seconds_in_words(found.seconds)} in {found.num:,} reports from step "
            f"{int(series.step[found.first]):,} on, and {seconds_in_words(found.baseline)} before",
            "write the time of each step in one unit",
            Evidence(DURATION, count=found.num),
        )


def _are_counted(run: RunView, steps: Any) -> Any:
    """Between which reports the number of steps is known: a log may report after many, and not say how many."""
    return owing(run) | ((steps[1:] >= 0) & (steps[:-1] >= 0))


def _leaves_out(run: RunView, ratios: Any) -> bool:
    """Whether a log of another program times its steps without the little that it does between them."""
    usual, low = float(np.median(ratios)), 1 - BETWEEN_STEPS
    return not owing(run) and low <= usual < 1 - CLOCK_TOLERANCE and float(np.mean(ratios)) >= low
