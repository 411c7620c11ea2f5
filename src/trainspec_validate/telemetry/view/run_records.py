"""Declares what is kept of events, headers, attempts, emitters, names, damage and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from trainspec_validate.documents.types.stream import Event, Head
from trainspec_validate.model.metrics import Metric
from trainspec_validate.telemetry.view.places import Key, Location, Subject


class PlacedEvent(msgspec.Struct, frozen=True):
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

    def at(self, time_us: int) -> PlacedEvent:
        """The same at another time."""
        return msgspec.structs.replace(self, record=msgspec.structs.replace(self.record, time_us=time_us))

    @property
    def order(self) -> tuple[int, int, str, int]:
        """Order of events."""
        return self.record.time_us, self.attempt, self.emitter, self.record.seq

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
    watched_until_us: int = -1
    """Up to when a run that is followed would have shown more of it; -1 where it is not followed, or has ended."""

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
    """Catalog entry; None for a name that it does not have."""
    num: int
    location: Location
    """Of the first record that has it."""
    unit: str | None = None
    """Unit that the input states, in formats that state one."""
    instrument: str | None = None
    """Instrument that the input states; in our streams `number`, `histogram` or `mixed`, by how values are written."""
    attributes: frozenset[str] = frozenset()
    """Names of attributes that its records carry in addition."""
    spellings: tuple[tuple[str, Location], ...] = ()
    """Every name that streams write it as, with the first place of each, in order of place."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A line that is no record, with the requirement that it breaks."""

    requirement: str
    location: Location
    message: str
    help: str
    is_accepted: bool = False
    """Whether the rules of the program that wrote the file let it be."""
    is_unjudged: bool = False
    """Whether the file is of several runs or no training, so that none of it was judged and nothing in it is wrong."""


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
    """Kind of its times: `utc`, `local` of an unknown zone, `relative` to some start, or `none`: made up."""
    losses: tuple[str, ...] = ()
    """Losses when another format became records, in words, each once."""
    left_out: tuple[str, ...] = ()
    """Ranks whose lines were left out, with their number."""
    unread: tuple[tuple[int, str], ...] = ()
    """Reports and losses that were not read: the place of the first of each kind, and what they are."""
    is_index: bool = False
    """Whether its program counts steps from 0, so that each is one less there than here."""
    unread_names: tuple[str, ...] = ()
    """Names of values in it of which none is read, such as those for which the catalog has no metric."""
    incidents: tuple[str, ...] = ()
    """Reports of other programs in it on the end of the training program, in words, each once."""
    end: tuple[int, str] | None = None
    """Place and words of the first of those reports that it ends with."""
