"""Checks that values which are computed or read anew do not freeze."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import numpy as np

from trainspec_validate.telemetry.checks import Evidence, NotApplicable, Violation, check
from trainspec_validate.telemetry.checks._job import stretches
from trainspec_validate.telemetry.checks._rows import Columns, refuse_snapshot, rows_of, violations_of_rows
from trainspec_validate.telemetry.checks._words import Fault, few, number, series_in_words
from trainspec_validate.telemetry.view.run_view import JobSeries, RunView, Series

MOVING = frozenset(
    {
        *("train.loss.mean", "train.loss.max", "train.gradient.norm", "train.gradient.variance"),
        *("train.gradient.signal", "train.gradient.noise_scale", "train.token.rate", "train.step.duration"),
        *("train.evaluation.loss",),
    }
)
"""Metrics that are computed or timed afresh in each step: limits, set rates and integers can repeat."""
MEASURED = frozenset({"train.token.rate", "train.step.duration"})
"""Those that a clock measures: in a steady run they move by few units of their last decimal, and repeat by chance."""
FROZEN_TIMES = 12
"""Equal ones of a rank where others differ: where every tenth is equal to the one before, a million hold none so."""
FROZEN_VALUES = 3
"""Equal values of full precision: the gradient norm of one public run stayed the same for 3 steps and again for 5."""
FROZEN_ZEROS = 10
"""Zeros in a row: an accumulator that is read after it was cleared gives nothing else."""
FROZEN_LOST = 30
"""Gradient norms that are not finite, in a row: a loss scale that starts at 2^32 is halved in fewer updates."""
FROZEN_LOST_TO_END = 10
"""The same up to the end of an attempt: a loss scale that is halved so often has come down a thousandfold."""
FROZEN_NEVER = 5
"""Reports of an attempt, all without a gradient norm that is a number; a scale that comes down makes it infinite."""
FROZEN_EVALUATIONS_TO_END = 3
"""Losses of evaluations that are not finite, up to the end of an attempt: no loss scale has a part in them."""
FROZEN_NORMS = 100
"""Gradient norms in a row that are equal in their few digits: a norm before clipping moves by tenths of itself."""
LEAST_UNITS = 10
"""Units of its last decimal from which a norm is more than its rounding."""
FROZEN_READINGS = 30
"""Equal readings of a power meter that never gives another: a quarter of an hour at the usual cadence."""
METER_DIGITS = 4
"""Significant digits from which a steady reading is no accident of rounding to whole watts."""
FULL_DIGITS = 6
"""Significant digits from which two equal values are no accident of rounding."""
FROZEN_LOSSES = 5
"""Losses of exactly 0 in a row: one step can have no label that counts, and five in a row have none for a reason."""
COARSE_STEPS = 5.0
"""Units of the last decimal by which values move elsewhere, from which rounding does not explain that they do not."""
WINDOW = 200
"""Values whose decimals are counted."""
UNLIKELY = 1e-6
"""Chance of as many equal values, by how often neighbours are equal elsewhere, below which they are frozen."""
FEWEST_LEVELS = 8
"""Different values from which it shows that all are multiples of one step."""
ROUNDED = 0.05
"""Part of that step by which multiples of it are off, at most."""
MOST_CHANCE = 0.5
"""Share of neighbours that are equal, at most, where values move by less than that step."""
_MOST_LOST = {"train.gradient.norm": FROZEN_LOST_TO_END, "train.evaluation.loss": FROZEN_EVALUATIONS_TO_END}
HELP = "write what each step gives; a value that was cleared, cached or skipped is left out"


@check("TS-TEL-026")
def frozen_value(run: RunView) -> Iterator[Violation]:
    """No value that is computed afresh in each step stays the same to the last bit over several of them."""
    refuse_snapshot(run)
    rows, meters = rows_of(run, MOVING, least=FROZEN_VALUES), rows_of(run, ["hw.power"], least=FROZEN_READINGS)
    if not len(rows) and not len(meters):
        raise NotApplicable("no loss, gradient norm or power comes often enough")
    found = [violation for series in run.job.values() for violation in _frozen_in_job(run, series)]
    for is_long in (True, False):
        yield from few(each for each in found if (each.evidence.count >= FROZEN_ZEROS) is is_long)
    of_job = np.array([subject.rank is None and subject.device is None for subject in run.series.subjects], dtype=bool)
    rows = rows[~of_job[run.series.rows["subject"][rows]]]
    suspects = rows[run.series.rows["longest_run"][rows] >= FROZEN_VALUES].tolist()
    frozen = [row for row in suspects if _is_frozen(*_longest_run(run, row), _metric(run, row))]
    frozen = [row for row in frozen if not _may_repeat(run, row)]
    yield from violations_of_rows(run, np.array(frozen, dtype=np.int64), "longest_run", _frozen)
    columns = Columns(run, meters)
    still = meters[(columns["minimum"] == columns["maximum"]) & (columns["maximum"] != 0)].tolist()
    still = [row for row in still if num_digits(float(run.series.rows["maximum"][row])) >= METER_DIGITS]
    yield from violations_of_rows(run, np.array(still, dtype=np.int64), "first", _still)


def _frozen_in_job(run: RunView, series: JobSeries) -> Iterator[Violation]:
    """Each run of equal values of a series of the job."""
    if series.key.metric not in MOVING:
        return
    value, step = np.asarray(series.value), np.asarray(series.step)
    goes_on = (value[1:] == value[:-1]) & (step[1:] > step[:-1]) & (step[:-1] >= 0)
    most_lost = _MOST_LOST.get(series.key.metric, 0)
    if series.key.metric == "train.loss.mean":  # reports without a step are each of another one
        goes_on |= (value[1:] == 0) & (value[:-1] == 0) & (step[1:] < 0) & (step[:-1] < 0)
    if most_lost:
        is_next = (step[1:] > step[:-1]) | ((step[1:] < 0) & (step[:-1] < 0))
        goes_on |= ~np.isfinite(value[1:]) & ~np.isfinite(value[:-1]) & is_next
    goes_on &= series.attempt[1:] == series.attempt[:-1]
    for begin, end in stretches(goes_on, FROZEN_VALUES - 1):
        held, length = float(value[begin]), end - begin + 1
        is_measured = series.key.metric in MEASURED
        if _is_chance(series, begin, end) if is_measured else _is_coarse(series, begin, end):
            continue
        is_lost = not np.isfinite(held) and most_lost > 0 and _is_lost_to_end(series, begin, end, most_lost)
        is_lost = is_lost or _is_never_a_number(run, series, begin, end)
        if is_lost or _is_frozen(held, length, series.key.metric) or _is_held(series, begin, end):
            until = " to the end" if is_lost else ""
            yield Violation(
                series.location(begin),
                f"{series.key} is {_shown(held)} for {length:,} {_of_what(series, begin, end)} in a row{until}",
                HELP,
                Evidence(str(series.key), "", int(series.time_us[begin]), int(series.time_us[end]), length),
            )


def _is_lost_to_end(series: JobSeries, begin: int, end: int, fewest: int) -> bool:
    """Whether so many values that are not finite, or fewer over many steps, end an attempt.

    Those that begin it too may be of a scale that comes down.
    """
    if end + 1 < len(series) and series.attempt[end + 1] == series.attempt[end]:
        return False
    is_start = begin == 0 or series.attempt[begin - 1] != series.attempt[begin]
    is_norm, num_steps = series.key.metric == "train.gradient.norm", int(series.step[end] - series.step[begin])
    if is_start and is_norm:
        return end - begin + 1 >= fewest and num_steps >= FROZEN_LOST
    return end - begin + 1 >= fewest or num_steps >= FROZEN_LOST


def _is_never_a_number(run: RunView, series: JobSeries, begin: int, end: int) -> bool:
    """Whether no gradient norm of an attempt is a number, where no step is counted as skipped."""
    is_all = len(np.flatnonzero(series.attempt == series.attempt[begin])) == end - begin + 1 >= FROZEN_NEVER
    if series.key.metric != "train.gradient.norm" or not is_all or not np.isnan(series.value[begin : end + 1]).all():
        return False
    return not any(each.key.metric == "train.step.skipped" for each in run.job.values())


def _of_what(series: JobSeries, begin: int, end: int) -> str:
    if series.step[begin] < 0 or series.step[end] - series.step[begin] != end - begin:
        return "reports"
    return "evaluations" if series.key.metric.startswith("train.evaluation.") else "optimizer steps"


def _longest_run(run: RunView, row: int) -> tuple[float, int]:
    return float(run.series.rows["longest_run_value"][row]), int(run.series.rows["longest_run"][row])


def _frozen(series: Series) -> Fault:
    return Fault(
        key=series.key,
        subject=series.subject,
        location=series.longest_run_location,
        message=f"{series_in_words(series.key, series.subject)} is {_shown(series.longest_run_value)} for "
        f"{series.longest_run} optimizer steps in a row",
        help=HELP,
        first_time_us=series.longest_run_start_us,
        last_time_us=series.longest_run_end_us,
        samples=(_shown(series.longest_run_value),),
    )


def _still(series: Series) -> Fault:
    return Fault(
        key=series.key,
        subject=series.subject,
        location=series.first_location,
        message=f"{series_in_words(series.key, series.subject)} is {number(series.maximum)} W in all of its "
        f"{series.num:,} readings",
        help="read the meter anew for each value; one that is not read any more is left out",
        first_time_us=series.first_time_us,
        last_time_us=series.last_time_us,
    )


def _is_frozen(value: float, length: int, metric: str) -> bool:
    if value == 0:
        return length >= (FROZEN_LOSSES if metric.startswith("train.loss.") else FROZEN_ZEROS)
    is_norm = metric == "train.gradient.norm"
    if not np.isfinite(value):
        return is_norm and length >= FROZEN_LOST
    is_more_than_rounding = value * 10.0 ** max(_num_decimals(value), 1) >= LEAST_UNITS
    return num_digits(value) >= FULL_DIGITS or (is_norm and length >= FROZEN_NORMS and is_more_than_rounding)


def _metric(run: RunView, row: int) -> str:
    return run.series.keys[int(run.series.rows["key"][row])].metric


def _may_repeat(run: RunView, row: int) -> bool:
    """Whether equal times of a rank, of which no more is known than their number and bounds, may be so by chance."""
    rows = run.series.rows
    moves = rows["minimum"][row] < rows["maximum"][row]
    return bool(_metric(run, row) in MEASURED and moves and rows["longest_run"][row] < FROZEN_TIMES)


def _is_chance(series: JobSeries, begin: int, end: int) -> bool:
    """Whether neighbours that differ by as few units of the last decimal as elsewhere are equal as often by chance."""
    value, length = np.asarray(series.value), end - begin + 1
    others = [part[np.isfinite(part)] for part in (value[:begin], value[end + 1 :])]
    changes = np.abs(np.concatenate([np.diff(part) for part in others]))
    if not len(changes) or value[begin] == 0:
        return False
    decimals = max(_num_decimals(float(each)) for part in others for each in part[-WINDOW:])
    units = max(float(np.median(changes)) * 10.0**decimals, 1.0)
    return bool((len(changes) + length) * units ** (1 - length) > UNLIKELY)


def _is_coarse(series: JobSeries, begin: int, end: int) -> bool:
    """Whether a value other than 0 repeats by the step of its series, of which all values around it are multiples.

    Losses near 0 are so: a float of 32 bits holds what is next to 1 to 6e-8. What moves by few such steps repeats.
    """
    around = np.asarray(series.value[max(0, begin - WINDOW) : end + WINDOW])
    around = around[np.isfinite(around)]
    levels, changes = np.unique(around), np.abs(np.diff(around))
    moves = changes[changes > 0]
    if series.value[begin] == 0 or len(levels) < FEWEST_LEVELS:
        return False
    multiples = np.diff(levels) / np.diff(levels).min()
    if np.abs(multiples - np.round(multiples)).max() > ROUNDED:
        return False
    chance = min(np.diff(levels).min() / float(np.median(moves)), MOST_CHANCE)
    return bool(len(series) * chance ** (end - begin) > UNLIKELY)


def _is_held(series: JobSeries, begin: int, end: int) -> bool:
    """Whether a value of few digits repeats as the other values of its series never would.

    Where others move by several units of the last decimal, two neighbours are equal about as often as elsewhere.
    """
    metric, value, length = series.key.metric, np.asarray(series.value), end - begin + 1
    mine = np.flatnonzero(series.attempt == series.attempt[begin])
    others = [value[part][np.isfinite(value[part])] for part in (mine[mine < begin], mine[mine > end])]
    changes = np.abs(np.concatenate([np.diff(part) for part in others]))
    chance = (int((changes == 0).sum()) + 1) / (len(changes) + 2)
    is_likely = (len(changes) + length) * chance ** (length - 1) > UNLIKELY
    # A gradient that is clipped has the same norm in many steps, and rates are rounded before they are converted.
    if is_likely or "loss" not in metric or not np.isfinite(value[begin]):
        return False
    if not len(changes):
        return True
    decimals = max(_num_decimals(float(each)) for part in others for each in part[-WINDOW:])
    # A loss that has come close to 0 moves by as much less: by its share, rounding may hide all of it.
    shares = np.concatenate([np.abs(np.diff(part)) / np.maximum(np.abs(part[:-1]), 1e-300) for part in others])
    expected = min(float(np.median(changes)), float(np.median(shares)) * abs(float(value[begin])))
    return expected >= COARSE_STEPS * 10.0**-decimals


def _decimal(value: float) -> Decimal:
    """A value in 15 digits, which a conversion to another unit keeps: the last bit of a double makes two more."""
    return Decimal(f"{value:.15g}").normalize()


def _num_decimals(value: float) -> int:
    exponent = _decimal(value).as_tuple().exponent
    return max(-exponent, 0) if isinstance(exponent, int) else 0


def num_digits(value: float) -> int:
    """Significant digits of a value.

    >>> num_digits(464441.887), num_digits(2.5), num_digits(417.03 / 1000)
    (9, 2, 5)
    """
    return len(_decimal(value).as_tuple().digits)


def _shown(value: float) -> str:
    return number(value) if value == 0 else str(float(_decimal(value)))
