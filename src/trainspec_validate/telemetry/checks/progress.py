"""Checks that a run advances, step by step, on all ranks together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trainspec_validate.telemetry.checks import Evidence, NotApplicable, Violation, check
from trainspec_validate.telemetry.checks._absences import LOST, Absences, ranks_named
from trainspec_validate.telemetry.checks._cadences import Cadences
from trainspec_validate.telemetry.checks._job import report_interval, segments, stretches
from trainspec_validate.telemetry.checks._members import ranks_of_rows
from trainspec_validate.telemetry.checks._pauses import Pauses, end_by, judged_attempts, of_attempt, standstills
from trainspec_validate.telemetry.checks._progress import STEPS, Progress, find_progress, progress
from trainspec_validate.telemetry.checks._rows import (
    Columns,
    finite,
    has_times,
    refuse_snapshot,
    refuse_timeless,
    rows_of,
    when,
)
from trainspec_validate.telemetry.checks._seen import advice
from trainspec_validate.telemetry.checks._signs import HELP as STALL_HELP
from trainspec_validate.telemetry.checks._signs import long_pauses, signs_of
from trainspec_validate.telemetry.checks._skips import runs_of_skips
from trainspec_validate.telemetry.checks._untimed import long_report
from trainspec_validate.telemetry.checks._words import (
    damaged,
    few,
    number,
    seconds_in_words,
    series_in_words,
    violations_of,
)
from trainspec_validate.telemetry.view.run_view import Location, Lockstep, Occurrence, RunView, Trouble

DURATION = "train.step.duration"
SPREAD_STEPS = 1
"""Steps that ranks of one job may be apart: they wait for each other in every step, and a pipeline drains."""
FEWEST_VALUES = 5
"""Values of a rank by which it is judged where it ends."""
LEAST_STOP_SECONDS = 10.0
"""Clocks of hosts differ, and a writer that is killed loses what it has not written."""
STOPPED_INTERVALS = 2
"""Times its longest interval after which a rank has stopped for good."""
SPREAD_INSTANTS = 3
"""Comparisons in a row with a larger spread: fewer can come from values that are written late."""
STALL_STEPS = 5
"""Median steps without progress that need a reason."""
FEWEST_REPORTS = 3
UNREPORTED_INTERVALS = 2
"""Median times between reports that may pass after the last one of an attempt."""
LEAST_STALL_SECONDS = 60.0
"""Jobs whose optimizer steps take less pause now and then; collectives are given up after minutes."""


@check("TS-TEL-031")
def step_advance(run: RunView) -> Iterator[Violation]:
    """The count of steps advances by the report interval, also from one attempt to the next."""
    yield from damaged(run, "TS-TEL-031")
    known = progress(run)
    refuse_snapshot(run)
    if len(known.steps) < 2:
        raise NotApplicable(f"{STEPS} comes once only")

    def message(jump: Occurrence) -> str:
        before, now = number(jump.value_before), number(jump.value)
        return f"{series_in_words(jump.key, jump.subject)} jumps from {before} to {now}{when(run, jump.time_us)}"

    of_header = ", or every n-th and report_interval_steps: n in the head"
    help_text = advice(run, "write each completed step", of_header)
    trails = [trail for trail in run.trails_of(Trouble.STEP_JUMP) if trail.key.metric == STEPS]
    yield from violations_of(trails, message, help_text)
    yield from few(_falling_records(known))
    yield from few(_starts_beyond(run, known))


def _falling_records(known: Progress) -> Iterator[Violation]:
    """Records whose step is below that of the record before, while the count that they hold grows."""
    series = known.series
    steps, times = np.asarray(series.step), np.asarray(series.time_us)
    is_together = np.diff(np.asarray(series.attempt)) == 0
    is_fall = (np.diff(steps) < 0) & (steps[1:] >= 0) & (np.diff(known.steps) > 0) & (np.diff(times) >= 0)
    for after in (np.flatnonzero(is_together & is_fall) + 1).tolist():
        before = after - 1
        yield Violation(
            series.location(after),
            f"the step of the record falls from {steps[before]:,} to {steps[after]:,}, while {STEPS} grows from "
            f"{known.steps[before]:,} to {known.steps[after]:,}",
            "write the optimizer steps that are completed as the step of each record",
            Evidence(STEPS, first_time_us=int(times[before]), last_time_us=int(times[after])),
            related=((series.location(before), "the record before"),),
        )


def _starts_beyond(run: RunView, known: Progress) -> Iterator[Violation]:
    """Attempts whose first count is more than a report beyond what the attempts before came to."""
    for attempt in known.attempts()[1:]:
        first, before = known.first(attempt), known.largest(below=attempt)
        if first is None or before is None:
            continue
        if first.step > before.step + report_interval(run, attempt):
            yield Violation(
                first.location,
                f"attempt {attempt} begins with step {first.step:,}, and no attempt before came beyond {before.step:,}",
                "continue counting from the restored step",
                Evidence(STEPS, first_time_us=before.time_us, last_time_us=first.time_us),
                related=((before.location, "the newest step before"),),
            )


# --- together -----------------------------------------------------------------------------------------------


@check("TS-TEL-032")
def step_spread(run: RunView) -> Iterator[Violation]:
    """Ranks are no more than one step apart, except for what passes between two of their values."""
    refuse_timeless(run)
    locks = [lock for lock in run.lockstep if lock.key.metric == "train.rank.step" and lock.num.max(initial=0) > 1]
    compared = {span.number: rows for span in run.attempts if len(rows := _ranks_at_end(run, span.number))}
    found = {number: _behind_at_end(run, rows) or _stopped(run, number, rows) for number, rows in compared.items()}
    ends = {number: behind for number, behind in found.items() if behind}
    if not locks and not compared:
        raise NotApplicable("no two ranks report train.rank.step at the same time")
    cadences = Cadences(run)
    for lock in locks:
        rows = rows_of(run, ["train.rank.step"])
        wanted = cadences.of_rows(run, rows[run.series.rows["attempt"][rows] == lock.attempt]).max() / 1e6
        bound = SPREAD_STEPS + np.ceil(_steps_per_second(lock) * wanted)
        spread = finite(lock.high) - finite(lock.low)
        for begin, end in stretches((lock.num > 1) & (spread > bound), SPREAD_INSTANTS):
            yield Violation(
                Location(*(int(n) for n in lock.low_location[begin])),
                f"rank {int(lock.low_rank[begin])} is at step {number(lock.low[begin])} and rank "
                f"{int(lock.high_rank[begin])} at {number(lock.high[begin])}, for "
                f"{seconds_in_words((end - begin) * lock.width_us / 1e6)}",
                f"ranks that step together are at most {number(bound)} apart when their values are compared",
                lock_evidence(lock, begin, end, f"spread {number(spread[begin:end].max())}"),
            )
            ends.pop(lock.attempt, None)
            break
    yield from ends.values()


def _ranks_at_end(run: RunView, attempt: int) -> Any:
    """The rows of ranks that an attempt did not lose and that wrote several values; none for fewer than two ranks."""
    rows = rows_of(run, ["train.rank.step"], least=FEWEST_VALUES)
    rows = rows[run.series.rows["attempt"][rows] == attempt]
    ranks = ranks_of_rows(run, rows)
    lost = [r for event in run.events_named(LOST) if event.attempt == attempt for r in ranks_named(event)]
    ends = run.series.rows[["first_value", "last_value"]][rows]
    is_known = np.isfinite(ends["first_value"]) & np.isfinite(ends["last_value"])
    rows = rows[(ranks >= 0) & ~np.isin(ranks, lost) & is_known]
    return rows if len(np.unique(ranks_of_rows(run, rows))) > 1 else rows[:0]


def _behind_at_end(run: RunView, rows: Any) -> Violation | None:
    """The rank whose last step is furthest behind that of the foremost one, beside what passes between the two.

    It judges attempts that are too short for windows of a cadence, in which ranks may write several times.
    """
    columns = Columns(run, rows)
    first = int(np.argmax(columns["last_value"]))
    seconds = np.maximum((columns["last_time_us"] - columns["first_time_us"]) / 1e6, 1e-6)
    per_second = float((columns["last_value"] - columns["first_value"])[first] / seconds[first])
    between = float(np.median(seconds / np.maximum(columns["num"] - 1, 1)))
    apart = (columns["last_time_us"][first] - columns["last_time_us"]) / 1e6
    lag = columns["last_value"][first] - columns["last_value"]
    bound = SPREAD_STEPS + np.ceil(per_second * (np.maximum(apart, 0) + between)) + 1
    beyond = lag - bound
    last = int(np.argmax(beyond))
    # A rank that is silent for long before the end is judged as silent; one of a live run writes a heartbeat at times.
    silent = SPREAD_INSTANTS * (max(between, _heartbeat_seconds(run, rows)) if run.is_live else between)
    if beyond[last] <= 0 or apart[last] > silent:
        return None
    help_text = (
        f"ranks that step together are at most {number(float(bound[last]))} apart when their values are compared"
    )
    return _ends_apart(run, int(rows[last]), int(rows[first]), "", help_text)


def _stopped(run: RunView, attempt: int, rows: Any) -> Violation | None:
    """The rank that is the first to stop for good in an attempt that has ended, while another one completes updates.

    By its own interval, a rank has stopped long before three cadences without a value make it silent.
    """
    span = run.attempt(attempt)
    if span is None or span not in judged_attempts(run) or (run.is_live and span.ended is None):
        return None
    columns = Columns(run, rows)
    first = int(np.argmax(columns["last_value"]))
    usual = (columns["last_time_us"] - columns["first_time_us"]) / np.maximum(columns["num"] - 1, 1)
    longest = np.maximum(STOPPED_INTERVALS * columns["longest_interval_us"], LEAST_STOP_SECONDS * 1e6)
    allowed = np.maximum(SPREAD_INSTANTS * usual, longest)
    apart = columns["last_time_us"][first] - columns["last_time_us"]
    lag = columns["last_value"][first] - columns["last_value"]
    is_told = Absences(run).told_us(run, rows) >= columns["last_time_us"]
    is_silent = apart > SPREAD_INSTANTS * _heartbeat_seconds(run, rows) * 1e6
    stopped = np.flatnonzero((apart > allowed) & (lag > SPREAD_STEPS + 1) & ~is_told & ~is_silent)
    if not len(stopped):
        return None
    last = int(stopped[np.argmax(apart[stopped])])
    when = f" {seconds_in_words(float(apart[last]) / 1e6)} later"
    help_text = "look for a rank that hangs or was killed; one that is lost is named by an event train.rank.lost"
    return _ends_apart(run, int(rows[last]), int(rows[first]), when, help_text)


def _ends_apart(run: RunView, behind: int, foremost: int, when: str, help_text: str) -> Violation:
    """Two ranks whose last steps are too far apart, by their rows; `when` says how much later the other ends."""
    series, other = run.series.at(behind), run.series.at(foremost)
    rank, before = (int(each) for each in ranks_of_rows(run, np.array([behind, foremost])))
    return Violation(
        series.last_location,
        f"rank {rank} ends at step {number(series.last_value)} and rank {before}{when} at {number(other.last_value)}",
        help_text,
        Evidence(str(series.key), first_time_us=series.last_time_us, last_time_us=other.last_time_us),
        ((other.last_location, "the foremost rank"),),
    )


def _heartbeat_seconds(run: RunView, rows: Any) -> float:
    """The longest time between two values of these series that their heads or the catalog allow."""
    return float(Cadences(run).of_rows(run, rows).max(initial=0)) / 1e6


def _steps_per_second(lock: Lockstep) -> float:
    """How fast the foremost rank advances."""
    used = np.flatnonzero((lock.num > 0) & np.isfinite(lock.high))
    elapsed = (used[-1] - used[0]) * lock.width_us / 1e6 if len(used) else 0.0
    return float((lock.high[used[-1]] - lock.high[used[0]]) / elapsed) if elapsed else 0.0


def lock_evidence(lock: Lockstep, begin: int, end: int, sample: str) -> Evidence:
    """Result of a stretch of comparisons."""
    first, last = (lock.start_us + place * lock.width_us for place in (begin, end - 1))
    return Evidence(str(lock.key), f"rank {int(lock.low_rank[begin])}", first, last, end - begin, (sample,))


# --- standing still -----------------------------------------------------------------------------------------


@check("TS-TEL-033")
def no_progress(run: RunView) -> Iterator[Violation]:
    """A job that completes no step for long says why."""
    found = runs_of_skips(run)
    if not has_times(run) and (untimed := [*found, *_long_steps(run)]):
        yield from few(untimed)
        return
    refuse_timeless(run)
    known = find_progress(run)
    pauses = standstills(run)
    judged = bool(found)
    found += long_pauses(run, known)
    for span in run.attempts:
        mine = of_attempt(known.series, span.number) if known else slice(0, 0)
        if known is not None and mine.stop - mine.start >= FEWEST_REPORTS:
            judged = True
            last = int(known.series.time_us[mine][-1])
            end = end_by(run, span, known.series.location(mine.stop - 1)) if span in judged_attempts(run) else last
            found += _stands(run, known, mine, pauses, end)
        signs = signs_of(run, span)
        judged |= signs.show_rhythm
        found += signs.late_start()
        found += [] if mine.stop - mine.start >= FEWEST_REPORTS else signs.stalls()
    if not judged:
        raise NotApplicable("fewer than three steps are reported in each attempt")
    yield from few(found)


def _long_steps(run: RunView) -> Iterator[Violation]:
    """Steps of a log without times that take minutes, and far longer than any other."""
    series = run.job.get(DURATION)
    for part in segments(run, series) if series is not None else ():
        if series is not None and (found := long_report(run, series, part)):
            yield Violation(
                series.location(found.first),
                f"step {int(series.step[found.first]):,} takes {seconds_in_words(found.seconds)}, and no other more "
                f"than {seconds_in_words(found.baseline)}",
                "look for a rank, a node or a store that hung meanwhile",
                Evidence(DURATION, count=1),
            )


def _longest_stand_us(times: Any, steps: Any, pauses: Pauses) -> float:
    advances = np.flatnonzero(np.diff(steps) > 0)
    left = pauses.left_us(times[advances], times[advances + 1]) / np.diff(steps)[advances]
    median = float(np.median(left)) if len(left) else 0.0
    return max(STALL_STEPS * median, LEAST_STALL_SECONDS * 1e6)


def _stands(run: RunView, known: Progress, mine: slice, pauses: Pauses, end: int) -> Iterator[Violation]:
    """Stretches of an attempt without a new optimizer step, longer than the limit beside pauses."""
    steps = known.steps[mine]
    limit = _longest_stand_us(known.series.time_us[mine], steps, pauses)
    new = np.concatenate([[0], np.flatnonzero(np.diff(steps) > 0) + 1])
    begins = known.series.time_us[mine][new]
    ends = np.concatenate([begins[1:], [max(int(end), int(begins[-1]))]])
    updates = np.concatenate([np.diff(steps[new]), [_updates_shown(run, known, mine, int(steps[new[-1]]))]])
    left_us = pauses.left_us(begins, ends)
    limits = limit * np.maximum(updates, 1)
    if len(left_us) > 1:  # what is completed after the last report shows only where the next is due
        limits[-1] = max(limits[-1], UNREPORTED_INTERVALS * float(np.median(left_us[:-1])))
    for place in np.flatnonzero(left_us > limits):
        at = mine.start + int(new[place])
        left = int(left_us[place])
        yield Violation(
            known.series.location(at),
            f"no step is completed for {seconds_in_words(left / 1e6)} after step {int(steps[new[place]]):,}, and no "
            f"event says why{_busy(run, int(begins[place]), int(ends[place]))}",
            STALL_HELP,
            Evidence(STEPS, first_time_us=int(begins[place]), last_time_us=int(ends[place])),
        )


def _updates_shown(run: RunView, known: Progress, mine: slice, last: int) -> int:
    """Optimizer steps beyond the last report of an attempt that its events show by their steps; at least 1."""
    attempt = int(known.series.attempt[mine.start])
    return max(1, run.event_facts.last_step.get(attempt, last) - last)


def _busy(run: RunView, begin_us: int, end_us: int) -> str:
    """What the devices say that they do meanwhile; empty where they do not report."""
    windows = run.windows.get("hw.gpu.utilization")
    if windows is None:
        return ""
    low, high = (int((time - windows.start_us) // windows.width_us) for time in (begin_us, end_us))
    low, high = max(low + 1, 0), min(max(high, 0), len(windows.count))
    count = int(windows.count[low:high].sum()) if high > low else 0
    share = float(windows.total[low:high].sum()) / count if count else 0.0
    return f"; the devices read {100 * share:.0f} % busy" if count else ""
