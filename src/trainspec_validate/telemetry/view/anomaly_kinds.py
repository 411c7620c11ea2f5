"""Lists the anomalies that the fold detects in series of values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from trainspec_validate.telemetry.view.places import Key, Location, Subject


class Trouble(IntEnum):
    """Anomalies that the fold notices about one sample, or about a sample and the one before it in its series."""

    BELOW_MINIMUM = 0
    """Value below what the catalog allows."""
    ABOVE_MAXIMUM = 1
    """Value above what the catalog allows."""
    SENTINEL = 2
    """Value is one that represents 'no value' in some driver."""
    NOT_FINITE = 3
    """Value is not finite where the catalog does not allow it."""
    TIME_BACK = 4
    """Time is before that of the record before it in the same series and attempt."""
    DUPLICATE_SAME = 5
    """Same series, time and value once more."""
    DUPLICATE_OTHER = 6
    """Same series and time with another value."""
    GAP = 7
    """More than three cadences after the value before it."""
    BURST = 8
    """Three or more values in a tenth of a cadence right after a gap."""
    COUNTER_FALL = 9
    """A counter is below its last value in the attempt, and its start time is not newer."""
    COUNTER_RESET = 10
    """A counter is below its last value in the attempt, with a newer start time."""
    SECOND_WRITER = 11
    """Another emitter than before writes the series in the same attempt."""
    WRONG_SCOPE = 12
    """The record lacks what the scope of the metric needs, or names more than it has."""
    STEP_JUMP = 13
    """`train.step.count` or `train.rank.step` moves by more than the report interval within an attempt."""


class Occurrence(NamedTuple):
    """One time that the fold noticed something."""

    trouble: Trouble
    key: Key
    subject: Subject
    attempt: int
    emitter: str
    location: Location
    """Of the later record."""
    location_before: Location
    """Of the earlier record, or NOWHERE."""
    time_us: int
    time_before_us: int
    """-1 where there is no earlier record."""
    value: float
    value_before: float
    """Not a number where there is no earlier record."""
    step: int
    """-1 where the record has none."""


@dataclass(frozen=True, slots=True)
class Trail:
    """All occurrences of one trouble in one key and attempt: how many, and the first of them in order of place."""

    trouble: Trouble
    key: Key
    attempt: int
    num: int
    subjects: tuple[Subject, ...]
    """Every subject that has it, in order; at most 200,000."""
    first: tuple[Occurrence, ...]
    """The first ones by place, at most 64."""
    first_time_us: int
    last_time_us: int
