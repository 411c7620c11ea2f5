"""Checks for values that appear to be in another unit than the unit of their metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from trainspec_validate.model.metrics import metrics
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._rows import finite, has_times
from trainspec_validate.telemetry.checks._words import Fault, grouped, number, seconds_in_words, series_in_words
from trainspec_validate.telemetry.view.run_view import Series

MIB = 2**20
LEAST_LIMIT_BYTES = 16 * MIB
"""No accelerator has less memory, and no count of MiB is as large."""
MOST_WATTS = 20e3
"""No accelerator draws more; a reading in mW is above it where more than 20 W are drawn."""
LEAST_HERTZ = 1e6
MOST_FRACTION = 1.5
"""Bound above which the fold counts the values."""
DECADES = {3: "milliseconds", 6: "microseconds", -3: "thousands of seconds"}
NEAR_DECADES = 0.15
"""A ratio counts as a power of ten within a factor of 1.4."""
FEWEST_UPDATES = 2

Rows = Any
"""Rows of the table of series: a structured array."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Test of series of a metric over many rows at once; message on a suspect one; and remedy."""

    metric: str
    suspects: Callable[[Rows], Any]
    said: Callable[[Series], str]
    help: str
    needs_device: bool = False


@check("TS-TEL-013")
def scale_plausible(run: RunView) -> Iterator[Violation]:
    """Values have the size that they have in the unit of their metric."""
    present = run.series.metrics() if len(run.series) else frozenset()
    wanted = [suspicion for suspicion in suspicions() if suspicion.metric in present]
    if not has_times(run):  # such a log has made-up times, not those of a clock
        wanted = [suspicion for suspicion in wanted if suspicion.suspects not in _TIMED]
    if not wanted:
        raise NotApplicable("no value of a metric whose size shows its unit")
    for suspicion in wanted:
        yield from grouped(_faults(run, suspicion))


def _faults(run: RunView, suspicion: Suspicion) -> Iterator[Fault]:
    indices = run.series.of(suspicion.metric)
    for index in indices[suspicion.suspects(run.series.rows[indices])]:
        series = run.series.at(int(index))
        if suspicion.needs_device and series.subject.device is None:
            continue
        yield Fault(
            key=series.key,
            subject=series.subject,
            location=series.first_location,
            message=f"{series_in_words(series.key, series.subject)} {suspicion.said(series)}",
            help=suspicion.help,
            first_time_us=series.first_time_us,
            last_time_us=series.last_time_us,
            samples=(number(series.first_value), number(series.maximum)),
        )


# --- what is suspect ----------------------------------------------------------------------------------------


def _seconds(rows: Rows) -> Any:
    return np.maximum((rows["last_time_us"] - rows["first_time_us"]) / 1e6, 1e-6)


def _updates(rows: Rows) -> Any:
    return np.where(rows["first_step"] < 0, 0, rows["last_step"] - rows["first_step"])


def _mostly_above(rows: Rows) -> Any:
    return rows["num_above"] > rows["num"] / 2


def _below(limit: float) -> Callable[[Rows], Any]:
    return lambda rows: (rows["maximum"] > 0) & (rows["maximum"] < limit)


def _mean_above(limit: float) -> Callable[[Rows], Any]:
    return lambda rows: rows["total"] > limit * rows["num_finite"]


def _grows_faster(limit: float) -> Callable[[Rows], Any]:
    return lambda rows: (rows["num"] > 1) & (_grown(rows) > limit * _seconds(rows))


def _grown(rows: Rows) -> Any:
    return finite(rows["last_value"]) - finite(rows["first_value"])


def _decades_off(rows: Rows) -> Any:
    """Whether the mean of step times is a power of ten off the time that passes between updates."""
    updates, mean = _updates(rows), rows["total"] / np.maximum(rows["num_finite"], 1)
    timed = (updates >= FEWEST_UPDATES) & (rows["last_time_us"] > rows["first_time_us"]) & (mean > 0)
    ratio = np.where(timed, mean * updates / _seconds(rows), 1.0)
    near = [np.abs(np.log10(ratio) - exponent) < NEAR_DECADES for exponent in DECADES]
    return timed & np.logical_or.reduce(near)


_grows_as_no_device = _grows_faster(MOST_WATTS)
_TIMED = (_decades_off, _grows_as_no_device)
"""What compares values with the time that passes."""


# --- what is said -------------------------------------------------------------------------------------------


def _fraction(series: Series) -> str:
    counts = f"{series.num_above:,} of {series.num:,} values above {MOST_FRACTION}"
    return f"has {counts}, up to {number(series.maximum)}"


def _largest(unit: str) -> Callable[[Series], str]:
    return lambda series: f"is at most {number(series.maximum)} {unit}"


def _mean(series: Series) -> str:
    return f"is {number(series.total / max(series.num_finite, 1))} W on average"


def _growth(series: Series) -> str:
    seconds = max((series.last_time_us - series.first_time_us) / 1e6, 1e-6)
    return f"grows by {number((series.last_value - series.first_value) / seconds)} J in a second"


def _duration(series: Series) -> str:
    mean = series.total / max(series.num_finite, 1)
    passed = (series.last_time_us - series.first_time_us) / 1e6 / (series.last_step - series.first_step)
    unit = DECADES[round(math.log10(mean / passed))]
    return f"is {number(mean)} on average while a step takes {seconds_in_words(passed)}; this looks like {unit}"


@cache
def suspicions() -> tuple[Suspicion, ...]:
    """Every metric whose size shows its unit."""
    fractions = [metric.name for metric in metrics().values() if metric.unit == "1" and metric.maximum == 1]
    in_bytes = "write bytes: a MiB has 1048576, a GiB 1073741824"
    used = ("hw.gpu.memory.usage", "train.memory.allocator.reserved", "train.memory.allocator.active")
    clock, limit = "train.accelerator.clock.frequency", "hw.gpu.memory.limit"
    return (
        *(
            Suspicion(name, _mostly_above, _fraction, "fractions are 0 to 1; divide per cent by 100")
            for name in fractions
        ),
        *(Suspicion(name, _below(MIB), _largest("bytes"), in_bytes) for name in used),
        Suspicion(limit, _below(LEAST_LIMIT_BYTES), _largest("bytes"), in_bytes),
        Suspicion(clock, _below(LEAST_HERTZ), _largest("Hz"), "write hertz; drivers report megahertz"),
        Suspicion("hw.power", _mean_above(MOST_WATTS), _mean, "write watts; drivers report milliwatts", True),
        Suspicion("hw.energy", _grows_as_no_device, _growth, "write joules; drivers count millijoules", True),
        Suspicion("train.step.duration", _decades_off, _duration, "write seconds"),
    )
