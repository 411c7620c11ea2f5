"""Declares what is kept of values: by series, of the whole job, by window, and rank against rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainspec_validate.telemetry.view.places import NOWHERE, Key, Location, Subject


@dataclass(frozen=True, slots=True)
class Series:
    """State of the fold for one key of one subject in one attempt from one emitter. Times in us since 1970 UTC."""

    key: Key
    subject: Subject
    attempt: int
    emitter: str
    num: int
    """Number of values."""
    first_time_us: int
    last_time_us: int
    first_value: float
    last_value: float
    first_location: Location
    last_location: Location
    first_step: int
    """-1 where the record has none."""
    last_step: int
    minimum: float
    maximum: float
    total: float
    """Sum of the values."""
    num_intervals: int
    """Pairs of neighbouring values with a later second."""
    num_late: int
    """Intervals longer than 1.5 cadences; 0 for metrics without a cadence in seconds."""
    longest_interval_us: int
    longest_interval_end_us: int
    longest_interval_location: Location
    """Of the record that ends it."""
    longest_run: int
    """Longest run of bit-identical values over which the step of the record advances each time; at least 1."""
    longest_run_location: Location
    """Of the first record of that run."""
    longest_run_start_us: int
    longest_run_end_us: int
    longest_run_value: float
    num_above: int
    """Values above 1.5: a fraction that is written as per cent, a straggler's slowdown."""
    longest_above: int
    """Most values above 1.5 in a row."""
    longest_above_location: Location
    """Of the first record of those."""
    num_falls: int
    """Times that a counter fell, declared or not."""
    integral: float
    """Integral over time of the value in unit seconds, by trapezoids over intervals that are no gap."""
    integral_seconds: float
    """Time that the integral covers."""
    start_us: int
    """Start time of a counter at its last value."""
    num_finite: int
    """Values that `total`, `minimum` and `maximum` are of; the others are no numbers or infinite."""


@dataclass(frozen=True, slots=True)
class SeriesTable:
    """Every series of the run as columns, so that checks over millions of them stay in NumPy.

    `rows` is a structured array; its fields are those of `Series`, with `key`, `subject` and `emitter` as indices into
    the tuples here and with the places as `..._file` and `..._offset`.
    """

    rows: Any
    keys: tuple[Key, ...]
    subjects: tuple[Subject, ...]
    emitters: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, metric: str) -> Any:
        """Indices of the rows of a metric, whatever its series attributes."""
        import numpy as np  # noqa: PLC0415

        wanted = [number for number, key in enumerate(self.keys) if key.metric == metric]
        return np.flatnonzero(np.isin(self.rows["key"], wanted))

    def metrics(self) -> frozenset[str]:
        """Names of all metrics that have a value."""
        import numpy as np  # noqa: PLC0415

        return frozenset(self.keys[number].metric for number in np.unique(self.rows["key"]))

    def at(self, index: int) -> Series:
        """One row, spelt out."""
        row = self.rows[index]
        found: dict[str, Any] = {}
        for name in Series.__dataclass_fields__:
            if name.endswith("_location"):
                stem = name.removesuffix("_location")
                found[name] = Location(int(row[f"{stem}_file"]), int(row[f"{stem}_offset"]))
            else:
                found[name] = row[name].item()
        found["key"] = self.keys[found["key"]]
        found["subject"] = self.subjects[found["subject"]]
        found["emitter"] = self.emitters[found["emitter"]]
        return Series(**found)

    def each(self, metric: str) -> Iterator[Series]:
        """The rows of a metric, spelt out; for metrics of few series."""
        return (self.at(int(index)) for index in self.of(metric))


@dataclass(frozen=True, slots=True)
class JobSeries:
    """Every value of a job-scope series, in order of attempt, then sequence number: arrays of one length.

    A histogram is its mean, with its number of values in `weight`. Above 2,000,000 values only every second step is
    kept, above 4,000,000 every fourth, and so on; above 6,000,000 of all series together, those with most are kept so
    too; `thinned` says so.
    """

    key: Key
    time_us: Any
    step: Any
    """-1 where the record has none."""
    attempt: Any
    value: Any
    weight: Any
    warmup: Any
    """Whether the record says `train.step.warmup`."""
    offset: Any
    file: Any
    thinned: int = 1
    low: Any = None
    """Low end of `train.gradient.ci95` of the record, not a number where it has none; None where no record has one."""
    high: Any = None
    """High end of it."""

    def __len__(self) -> int:
        return len(self.value)

    def location(self, index: int) -> Location:
        """Where a value is."""
        return Location(int(self.file[index]), int(self.offset[index]))


@dataclass(frozen=True, slots=True)
class Windows:
    """All values of one key by time window, over all subjects and attempts; empty windows are included."""

    key: Key
    width_us: int
    start_us: int
    """Start of the first window, a multiple of the width."""
    count: Any
    total: Any
    minimum: Any
    maximum: Any
    file: Any = None
    """File of the first record in each window, -1 for an empty one."""
    offset: Any = None
    """Place of that record in its file."""

    def location(self, index: int) -> Location:
        """Where the first record of a window is."""
        return NOWHERE if self.file is None else Location(int(self.file[index]), int(self.offset[index]))


@dataclass(frozen=True, slots=True)
class Lockstep:
    """How far apart the ranks of one key are: their last value in each time window, in one attempt.

    `train.rank.step` has one; `train.collective.sequence` has one for each process group.
    """

    key: Key
    attempt: int
    width_us: int
    start_us: int
    low: Any
    """Smallest last value of a rank in the window."""
    high: Any
    """Largest last value of a rank in the window."""
    low_rank: Any
    high_rank: Any
    num: Any
    """Ranks with a value in the window; 0 for an empty window."""
    low_location: Any
    """File and offset of the smallest one, as an array of two columns."""
