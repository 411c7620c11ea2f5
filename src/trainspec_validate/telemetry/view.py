"""The only place that says what checks see of a run: what was folded out of its streams, never the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from trainspec_validate.documents.stream import Event, Head
from trainspec_validate.metrics import Metric


class Location(NamedTuple):
    """Where a record starts: number of the file in the run, and bytes from its start (row number in Parquet)."""

    file: int
    offset: int


NOWHERE = Location(-1, -1)
"""Of a finding about what is not there."""


class Subject(NamedTuple):
    """What a value is of; None for what the record does not name."""

    rank: int | None
    host: str | None
    device: str | None


class Key(NamedTuple):
    """A metric with its series attributes, as `name{key=value}` names it."""

    metric: str
    attributes: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        inner = ",".join(f"{name}={value}" for name, value in self.attributes)
        return f"{self.metric}{{{inner}}}" if inner else self.metric

    def attribute(self, name: str) -> str | None:
        """Value of a series attribute; None where the series does not have it."""
        return next((value for key, value in self.attributes if key == name), None)


class Trouble(IntEnum):
    """What the fold notices about one sample, or about a sample and the one before it in its series."""

    BELOW_MINIMUM = 0
    """Value below what the catalog allows."""
    ABOVE_MAXIMUM = 1
    """Value above what the catalog allows."""
    SENTINEL = 2
    """Value is one that stands for 'no value' in some driver."""
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


@dataclass(frozen=True, slots=True)
class Series:
    """What the fold keeps of one key of one subject in one attempt. Times in microseconds since 1970 UTC."""

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
    num_falls: int
    """Times that a counter fell, declared or not."""
    integral: float
    """Integral over time of the value in unit seconds, by trapezoids over intervals that are no gap."""
    integral_seconds: float
    """Time that the integral covers."""
    start_us: int
    """Start time of a counter at its last value."""


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
    kept, above 4,000,000 every fourth, and so on; `thinned` says so.
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
        """Where a value stands."""
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
        """Where the first record of a window stands."""
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


@dataclass(frozen=True, slots=True)
class PlacedEvent:
    """An event with what the head adds to it."""

    record: Event
    attempt: int
    run: str
    emitter: str
    subject: Subject
    location: Location

    @property
    def name(self) -> str:
        """Name of the event."""
        return self.record.name

    @property
    def time_us(self) -> int:
        """When it happened."""
        return self.record.time_us

    @property
    def seconds(self) -> float:
        """When it happened, in seconds since 1970 UTC."""
        return self.record.time_us / 1e6

    @property
    def step(self) -> int | None:
        """Step of the record."""
        return self.record.step

    def attribute(self, name: str) -> Any:
        """Value of an attribute; None where it has none."""
        return self.record.a.get(name)

    def value(self, metric: str) -> float | None:
        """A finite value that the event carries; the mean of a histogram; None where there is none."""
        found = self.record.m.get(metric)
        if found is None or isinstance(found, str):
            return None
        if isinstance(found, (int, float)):
            return float(found)
        return found.sum / found.count if found.count else None


@dataclass(frozen=True, slots=True)
class PlacedHead:
    """A head with its place."""

    record: Head
    location: Location


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """One attempt of the run, over all its emitters. Times in microseconds since 1970 UTC."""

    number: int
    first_time_us: int
    last_time_us: int
    world_size: int | None
    """From the event that starts it, else from a head; None where neither says so."""
    started: PlacedEvent | None
    ended: PlacedEvent | None

    @property
    def seconds(self) -> float:
        """From the first to the last record."""
        return (self.last_time_us - self.first_time_us) / 1e6


@dataclass(frozen=True, slots=True)
class EmitterSpan:
    """One emitter in one attempt."""

    emitter: str
    attempt: int
    num_records: int
    first_time_us: int
    last_time_us: int
    first_seq: int
    """-1 where the format has no sequence numbers."""
    last_seq: int
    num_missing: int
    """Sequence numbers that are skipped between the first and the last."""
    num_repeated: int
    """Records whose sequence number was seen before."""
    missing: tuple[tuple[int, int, Location], ...]
    """First skipped number, how many, and the record after them; at most 64."""
    repeated: tuple[tuple[int, Location], ...]
    """Repeated number and the record; at most 64."""
    first_location: Location
    last_location: Location
    lags: Any
    """Number of records by lag (written minus happened) in buckets of a quarter of a power of two above 1 ms."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A rank, the host and the device that records name together, in one attempt."""

    attempt: int
    rank: int
    host: str | None
    device: str | None
    first_time_us: int
    last_time_us: int
    location: Location
    """Of the first such record."""


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """One name of a metric as the streams write it."""

    text: str
    key: Key
    metric: Metric | None
    """What the catalog says; None for a name that it does not have."""
    num: int
    location: Location
    """Of the first record that has it."""
    unit: str | None = None
    """Unit that the input states, in formats that state one."""
    instrument: str | None = None
    """Instrument that the input states; in our streams `number`, `histogram` or `mixed`, by how values are written."""
    attributes: frozenset[str] = frozenset()
    """Names of attributes that its records carry beside it."""
    spellings: tuple[tuple[str, Location], ...] = ()
    """Every name that streams write it as, with the first place of each, in order of place."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A line that is no record, with the requirement that it breaks."""

    requirement: str
    location: Location
    message: str
    help: str


@dataclass(frozen=True, slots=True)
class StreamFile:
    """One file of the run."""

    path: str
    format: str
    """`metric-stream`, `parquet`, `otlp`, `prometheus`, `mllog` or `torchtitan`."""
    num_bytes: int
    num_records: int
    is_open: bool
    """Whether it may still grow: it is followed, or its last line has no end."""
    has_head: bool
    starts_with_head: bool
    tail_bytes: int = 0
    """Bytes of a last line without an end."""
    tail_offset: int = -1
    """Where that line begins in the uncompressed text; -1 where there is none."""
    clock: str = "utc"
    """What its times are: `utc`, `local` of a zone that is not told, `relative` to some start, or `none`: made up."""
    losses: tuple[str, ...] = ()
    """What was lost when another format became records, in words, each once."""


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything that checks may look at, for one run."""

    run: str
    files: tuple[StreamFile, ...]
    heads: tuple[PlacedHead, ...]
    """In order of attempt, then emitter."""
    attempts: tuple[AttemptSpan, ...]
    """In order of their numbers."""
    events: tuple[PlacedEvent, ...]
    """In order of time, then attempt, emitter and sequence number."""
    keys: tuple[KeyInfo, ...]
    series: SeriesTable
    trails: tuple[Trail, ...]
    job: Mapping[str, JobSeries]
    """By the text of the key, such as `train.step.count` or `train.goodput.time{train.time.category=idle}`."""
    windows: Mapping[str, Windows]
    """By the text of the key; device and node metrics and those of ranks."""
    lockstep: tuple[Lockstep, ...]
    emitters: tuple[EmitterSpan, ...]
    placements: tuple[Placement, ...]
    damage: tuple[Damage, ...]
    other_runs: Mapping[str, Location]
    """Other run identifiers that records carry, with the first place."""
    num_records: int
    num_samples: int
    first_time_us: int
    last_time_us: int
    is_live: bool = False
    """Whether the run goes on: it is followed and has not said that it ends."""
    snapshot: bool = False
    """Whether the input is one snapshot, so that nothing about time can be judged."""
    has_order: bool = True
    """Whether the format promises the order of records."""
    now_us: int | None = None
    """Moment of judging, for times in the future; None where the caller gives none."""
    capabilities: frozenset[str] = field(default_factory=frozenset)

    # --- finding one's way

    def trails_of(self, *troubles: Trouble) -> Sequence[Trail]:
        """The trails of these troubles, in order of place."""
        found = [trail for trail in self.trails if trail.trouble in troubles]
        return sorted(found, key=lambda trail: trail.first[0].location if trail.first else NOWHERE)

    def events_named(self, *names: str) -> Sequence[PlacedEvent]:
        """The events with these names, in order of time."""
        return [event for event in self.events if event.name in names]

    def attempt(self, number: int) -> AttemptSpan | None:
        """The attempt with this number."""
        return next((span for span in self.attempts if span.number == number), None)

    def head_of(self, emitter: str, attempt: int) -> PlacedHead | None:
        """The head of an emitter in an attempt."""
        mine = (h for h in self.heads if h.record.emitter == emitter and h.record.att == attempt)
        return next(mine, None)

    def declared(self, attribute: str) -> list[tuple[Any, PlacedHead]]:
        """Values of a declared attribute over all heads, with the head that says so."""
        return [(head.record.declared[attribute], head) for head in self.heads if attribute in head.record.declared]

    def unsupported(self, metric: str) -> str | None:
        """The reason why a metric is declared unsupported; None where no head says so."""
        reasons = (head.record.unsupported.get(metric) for head in self.heads)
        return next((reason for reason in reasons if reason), None)
