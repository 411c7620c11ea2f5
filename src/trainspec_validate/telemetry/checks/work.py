"""Checks that devices that read busy also work and draw power, as their counters say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trainspec_validate.telemetry.checks import Evidence, NotApplicable, Violation, check
from trainspec_validate.telemetry.checks._job import stretches
from trainspec_validate.telemetry.checks._pauses import interruptions
from trainspec_validate.telemetry.checks._rows import Columns, finite, refuse_timeless, rows_of, violations_of_rows
from trainspec_validate.telemetry.checks._words import (
    Fault,
    few,
    moment,
    number,
    seconds_in_words,
    series_in_words,
    subjects_in_words,
)
from trainspec_validate.telemetry.view.run_view import Location, RunView, Series, Windows

POWER, ENERGY = "hw.power", "hw.energy"
BUSY, MATRIX = "hw.gpu.utilization", "train.accelerator.matrix.active"
POWER_TOLERANCE = 0.1
LEAST_ENERGY_SECONDS = 20
"""A reading of power is a mean of about a second: over a shorter time both ends are more than the tolerance."""
"""Between counter and integral: boards are read in a quarter of the time at most, and limits vary by as much."""
SAME_SPAN = 0.9
"""Share of the time of the energy counter that the power readings cover."""
DEVICE_WATTS = (10.0, 50_000.0)
"""Least and most that a busy device draws: from a card for inference to a system of one wafer."""
BUSY_SHARE = 0.9
WORK_SHARE = 0.02
"""Activity of the matrix units below which nothing is computed; training has 0.2 and more."""
WORK_SECONDS = 300.0
"""How long devices may spin: ten values at the usual cadence, and half of what one operator waits for traffic."""
HELD_SECONDS = 60.0
"""How long a reading of the devices holds: two cadences."""

HELP = "a kernel that waits for ever reads busy: look for a hang, or for a counter that is not read"


@check("TS-TEL-040")
def energy_power(run: RunView) -> Iterator[Violation]:
    """The growth of the energy counter is the integral of power, and a busy device draws what one can draw."""
    refuse_timeless(run)
    if run.is_live:
        raise NotApplicable("the run continues; the first values of a counter say little about power")
    energy = rows_of(run, [ENERGY], least=2)
    columns = Columns(run, energy)
    seconds = (columns["last_time_us"] - columns["first_time_us"]) / 1e6
    energy = energy[(columns["num_falls"] == 0) & (seconds >= LEAST_ENERGY_SECONDS)]
    watts, drawn = _mean_watts(run, energy), _power_beside(run, energy)
    metered, busy = np.isfinite(drawn), np.isin(_whose(run, energy), _busy_devices(run))
    if not (metered | busy).any():
        others = f"{POWER} of the same device or node, or of a busy device"
        raise NotApplicable(f"no {ENERGY} with {others}, over {LEAST_ENERGY_SECONDS} s or more")
    apart = metered & (np.abs(watts - drawn) > POWER_TOLERANCE * np.maximum(watts, drawn))
    absurd = ~metered & busy & ((watts < DEVICE_WATTS[0]) | (watts > DEVICE_WATTS[1]))

    def metered_otherwise(series: Series) -> Fault:
        place = np.flatnonzero(_is_series(run, energy, series))[0]
        return _odd_energy(series, f"{number(float(watts[place]))} W, and {POWER} is {number(float(drawn[place]))} W")

    def beyond_devices(series: Series) -> Fault:
        place = np.flatnonzero(_is_series(run, energy, series))[0]
        return _odd_energy(series, f"{number(float(watts[place]))} W while the device is busy")

    yield from violations_of_rows(run, energy[apart], "last", metered_otherwise)
    yield from violations_of_rows(run, energy[absurd], "last", beyond_devices)


def _odd_energy(series: Series, message: str) -> Fault:
    return Fault(
        key=series.key,
        subject=series.subject,
        location=series.last_location,
        message=f"{series_in_words(series.key, series.subject)} grows by {message}",
        help="write joules since the start of the counter; drivers count in mJ or uJ",
        first_time_us=series.first_time_us,
        last_time_us=series.last_time_us,
    )


def _is_series(run: RunView, rows: Any, series: Series) -> Any:
    columns = Columns(run, rows)
    key, subject = run.series.keys.index(series.key), run.series.subjects.index(series.subject)
    return (columns["key"] == key) & (columns["subject"] == subject) & (columns["attempt"] == series.attempt)


def _whose(run: RunView, rows: Any) -> Any:
    """A number for each of some rows that is the same for all rows of one device, or one host, in one attempt."""
    numbers: dict[tuple[str | None, str | None], int] = {}
    subjects = [(None if s.device else s.host, s.device) for s in run.series.subjects]
    things = np.array([numbers.setdefault(thing, len(numbers)) for thing in subjects], dtype=np.int64)
    columns = Columns(run, rows)
    return columns["attempt"].astype(np.int64) * (len(numbers) + 1) + things[columns["subject"]]


def _mean_watts(run: RunView, rows: Any) -> Any:
    columns = Columns(run, rows)
    seconds = (columns["last_time_us"] - columns["first_time_us"]) / 1e6
    return (finite(columns["last_value"]) - finite(columns["first_value"])) / seconds


def _power_beside(run: RunView, energy: Any) -> Any:
    """Mean of the power readings beside each energy counter; not a number where they do not cover its time."""
    power = rows_of(run, [POWER], least=2)
    found = np.full(len(energy), np.nan)
    if not len(power):
        return found
    codes, first = np.unique(_whose(run, power), return_index=True)
    wanted = _whose(run, energy)
    place = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
    one, other = Columns(run, energy), run.series.rows[power[first[place]]]
    span = (one["last_time_us"] - one["first_time_us"]) / 1e6
    begin = np.maximum(one["first_time_us"], other["first_time_us"])
    common = (np.minimum(one["last_time_us"], other["last_time_us"]) - begin) / 1e6
    covered = np.minimum(common, other["integral_seconds"]) >= SAME_SPAN * span
    usable = (codes[place] == wanted) & covered & (other["integral_seconds"] > 0)
    found[usable] = other["integral"][usable] / other["integral_seconds"][usable]
    return found


def _busy_devices(run: RunView) -> Any:
    rows = rows_of(run, [BUSY], least=2)
    columns = Columns(run, rows)
    return _whose(run, rows[columns["total"] > BUSY_SHARE * columns["num_finite"]])


# --- busy without work --------------------------------------------------------------------------------------


@check("TS-TEL-041")
def busy_without_work(run: RunView) -> Iterator[Violation]:
    """Devices that read busy for minutes use their matrix units."""
    refuse_timeless(run)
    busy, matrix = run.windows.get(BUSY), run.windows.get(MATRIX)
    if busy is None or matrix is None:
        raise NotApplicable(f"no {BUSY if busy is None else MATRIX}")
    spinning = _spinning_devices(run)
    yield from violations_of_rows(run, spinning, "first", _spins)
    if not len(spinning):
        yield from few(_spinning_stretches(run, busy, matrix))


def _spinning_devices(run: RunView) -> Any:
    """Rows of the matrix activity of devices that were busy, and never computed, for as long as they reported."""
    rows = rows_of(run, [MATRIX], least=2)
    columns = Columns(run, rows)
    long = columns["last_time_us"] - columns["first_time_us"] >= WORK_SECONDS * 1e6
    idle = rows[long & (columns["maximum"] < WORK_SHARE)]
    return idle[np.isin(_whose(run, idle), _busy_devices(run))]


def _spins(series: Series) -> Fault:
    length = seconds_in_words((series.last_time_us - series.first_time_us) / 1e6)
    return Fault(
        key=series.key,
        subject=series.subject,
        location=series.first_location,
        message=f"{series_in_words(series.key, series.subject)} is at most {number(series.maximum)} for {length}, "
        "while the device reads busy",
        help=HELP,
        first_time_us=series.first_time_us,
        last_time_us=series.last_time_us,
    )


def _spinning_stretches(run: RunView, busy: Windows, matrix: Windows) -> Iterator[Violation]:
    """Stretches in which all devices are busy and at least one computes nothing, interruptions left out."""
    width = busy.width_us
    first = max(busy.start_us, matrix.start_us)
    one, other = (slice((first - windows.start_us) // width, None) for windows in (busy, matrix))
    num = min(len(busy.count[one]), len(matrix.count[other]))
    hold = max(1, round(HELD_SECONDS * 1e6 / width))
    share = _least_of_last(busy.minimum[one][:num], busy.count[one][:num], hold)
    active = _least_of_last(matrix.minimum[other][:num], matrix.count[other][:num], hold)
    begins = first + width * np.arange(num)
    judged = np.flatnonzero((share > BUSY_SHARE) & (interruptions(run).covered_us(begins, begins + width) == 0))
    for low, high in stretches(active[judged] < WORK_SHARE, int(np.ceil(WORK_SECONDS * 1e6 / width))):
        begin, end = int(judged[low]), int(judged[high - 1])
        at, told = _idle_devices(run)
        yield Violation(
            at or matrix.location(begin + (other.start or 0)),
            f"devices read busy for {seconds_in_words((high - low) * width / 1e6)} from {moment(int(begins[begin]))} "
            f"on, and the matrix units of {told or 'at least one'} do nothing",
            HELP,
            Evidence(MATRIX, told, int(begins[begin]), int(begins[end]) + width, high - low),
        )


def _least_of_last(values: Any, counts: Any, hold: int) -> Any:
    """Least value of each window and those before it; not a number where none has a value."""
    known = np.where(counts > 0, values, np.nan)
    padded = np.concatenate([np.full(hold - 1, np.nan), known])
    parts = np.lib.stride_tricks.sliding_window_view(padded, hold)
    return np.fmin.reduce(parts, axis=1) if len(known) else known


def _idle_devices(run: RunView) -> tuple[Location | None, str]:
    """Last record of the first device that ends without work, and all such devices in words."""
    rows = rows_of(run, [MATRIX], least=2)
    idle = rows[run.series.rows["last_value"][rows] < WORK_SHARE]
    if not len(idle) or len(idle) == len(rows):
        return None, ""
    places = [run.series.at(int(row)).last_location for row in idle[:1_000]]
    subjects = (run.series.subjects[number] for number in np.unique(run.series.rows["subject"][idle]).tolist())
    return min(places), subjects_in_words(subjects)
