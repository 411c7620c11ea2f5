"""Numbers the names in streams: keys of metrics, subjects, and writers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from trainspec_validate.documents.types.stream import Head
from trainspec_validate.model.metrics import Metric, by_name, catalog
from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.view.run_view import Key, Subject

T = TypeVar("T")

CADENCES = ("C1", "C10", "C30", "C60", "C300")
SCOPES = ("job", "rank", "group", "device", "link", "nic", "node", "pair", "emitter")
RANK, HOST, DEVICE = 1, 2, 4
_NEEDS = {"rank": RANK, "group": RANK, "device": DEVICE, "link": DEVICE, "nic": DEVICE, "node": HOST}
_FALLS = {"any": 0, "attempt": 1, "restart": 2, "never": 3}
LOCKSTEP = frozenset({"train.rank.step", "train.collective.sequence"})
"""Counters that ranks advance together."""
MAX_KEYS = int(Limit("a run", 4_096, "keys of metrics").most)
"""Keys of metrics in one run; more is a label that holds a step or a job."""
_MOST_WRITERS: Final = Limit("a run", 500_000, "emitters, in each attempt anew")
MOST_SUBJECTS: Final = Limit("a run", 1_000_000, "ranks, devices and hosts that values are of")
_TOO_MANY = Key("train.telemetry.too_many_keys")
"""What the values of all further keys are counted as."""


class Interner(Generic[T]):
    """Numbers for things, in the order in which they come."""

    def __init__(self, items: Iterable[T] = (), most: Limit | None = None) -> None:
        self.most = most
        self.items: list[T] = []
        self.numbers: dict[T, int] = {}
        for item in items:
            self.number(item)

    def number(self, item: T) -> int:
        """The number of a thing; a new one where it has none.

        Raises:
            OverLimitError: there are more of them than may be.
        """
        found = self.numbers.get(item)
        if found is None:
            found = self.numbers[item] = len(self.items)
            self.items.append(item)
            if self.most is not None:
                self.most.check(len(self.items))
        return found

    def __len__(self) -> int:
        return len(self.items)


class Writer(NamedTuple):
    """One emitter in one attempt of one run."""

    run: str
    emitter: str
    attempt: int


def parse_key(text: str) -> tuple[Key, Metric | None]:
    """The key that a name represents, and what the catalog says of its metric.

    >>> parse_key("train.step.phase.time{train.phase=data_wait}")[0].attributes
    (('train.phase', 'data_wait'),)
    """
    name, _, inner = text.partition("{")
    metric = by_name(name)
    pairs = (part.partition("=") for part in inner.removesuffix("}").split(",")) if inner else ()
    attributes = tuple(sorted((key, value) for key, _, value in pairs))
    return Key(metric.name if metric else name, attributes), metric


def scope_bits(scopes: Iterable[str]) -> int:
    """Scopes as bits, in the order of `SCOPES`."""
    return sum(1 << SCOPES.index(scope) for scope in scopes)


class KeyColumns(NamedTuple):
    """Facts of each key that the fold needs: arrays by number of the key."""

    minimum: Any
    maximum: Any
    finite: Any
    """1 where values must be finite."""
    falls: Any
    """0 for what may fall at any time, 1 at an attempt, 2 at a restart, 3 never."""
    cadence: Any
    """Index into `CADENCES`; -1 for metrics without a cadence in seconds."""
    scopes: Any
    needs: Any
    """Bits of what the record must name; -1 where each of several scopes needs something else."""
    steps: Any
    """1 for the count of steps, which advances by the report interval."""
    lock: Any
    """1 for counters that ranks advance together."""
    job: Any
    """1 for metrics that can be of the whole job."""


def key_row(key: Key, metric: Metric | None) -> tuple[float | int, ...]:
    """The row of `KeyColumns` for one key; a metric that the catalog does not have is held to nothing."""
    if metric is None:
        return (-np.inf, np.inf, 0, 0, -1, (1 << len(SCOPES)) - 1, 0, 0, 0, 0)
    low = -np.inf if metric.minimum is None else metric.minimum
    high = np.inf if metric.maximum is None else metric.maximum
    cadence = next((CADENCES.index(name) for name in metric.cadences if name in CADENCES), -1)
    needs = {_NEEDS.get(scope, 0) for scope in metric.scopes}
    falls = _FALLS[metric.falls] if metric.instrument == "counter" else 0
    is_step = key.metric == "train.step.count"
    return (
        *(low, high, int(not metric.nonfinite), falls, cadence, scope_bits(metric.scopes)),
        *(
            needs.pop() if len(needs) == 1 else -1,
            int(is_step),
            int(key.metric in LOCKSTEP),
            int("job" in metric.scopes),
        ),
    )


_KEY_TYPES = (np.float64, np.float64, np.int64, np.int64, np.int64, np.int64, np.int64, np.int64, np.int64, np.int64)


class WriterColumns(NamedTuple):
    """Facts of each writer that the fold needs: arrays by its number."""

    emitter: Any
    attempt: Any
    scopes: Any
    """Bits; all are set for an emitter without a head."""
    cadence_us: Any
    """Two dimensions: writer, index into `CADENCES`."""
    report_steps: Any
    start_us: Any
    """Start of counters."""
    low_us: Any
    """Times outside of these two are no times of the run."""
    high_us: Any


_DAY_US = 86_400_000_000
_LONGEST_RUN_US = 400 * _DAY_US
_WRITER_TYPES = (np.int64,) * 8


def writer_row(head: Head | None, emitter: int, attempt: int) -> tuple[Any, ...]:
    """The row of `WriterColumns` for one writer."""
    longest = {name: catalog().cadences[name].seconds or 0 for name in CADENCES}
    if head is None:
        cadences = [int(longest[name] * 1e6) for name in CADENCES]
        return emitter, attempt, (1 << len(SCOPES)) - 1, cadences, 1, -1, 0, np.iinfo(np.int64).max
    cadences = [int(head.cadence_seconds.get(name, longest[name]) * 1e6) for name in CADENCES]  # type: ignore[call-overload]
    start = head.time_us if head.counters_start_us is None else head.counters_start_us
    bounds = (head.time_us - _DAY_US, head.time_us + _LONGEST_RUN_US)
    return emitter, attempt, scope_bits(head.scopes), cadences, head.report_interval_steps, start, *bounds


class Names:
    """Everything that one fold has given a number to."""

    def __init__(self) -> None:
        self.keys: Interner[Key] = Interner()
        self.metrics: list[Metric | None] = []
        self.texts: dict[str, int] = {}
        """Number of the key by its name as streams write it."""
        self.spelled: list[str] = []
        self.subjects: Interner[Subject] = Interner(most=MOST_SUBJECTS)
        self.emitters: Interner[str] = Interner()
        self.writers: Interner[Writer] = Interner(most=_MOST_WRITERS)
        self.heads: list[Head | None] = []
        self.num_heads = 0
        """Writers with a head."""
        self.has_late_heads = False
        """Whether the head of a writer came after a record of it."""
        self._key_rows: list[tuple[Any, ...]] = []
        self._writer_rows: list[tuple[Any, ...]] = []
        self._subject_facts: list[Any] = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
        self._keys: KeyColumns | None = None
        self._writers: WriterColumns | None = None
        self.run = ""
        """Of the first head: that of records in files without one."""

    def know(self, heads: Iterable[Head | None]) -> None:
        """Enter heads before the records that rest on them."""
        for head in heads:
            if head is not None:
                self.writer(Writer(head.run, head.emitter, head.att), head)

    def key(self, text: str) -> int:
        """Number of the key that a name represents."""
        found = self.texts.get(text)
        if found is not None:
            return found
        key, metric = parse_key(text)
        if len(self.keys) >= MAX_KEYS and key not in self.keys.numbers:
            key, metric = _TOO_MANY, None
        number = self.keys.number(key)
        if number == len(self.metrics):
            self.metrics.append(metric)
            self.spelled.append(text if key != _TOO_MANY else key.metric)
            self._key_rows.append(key_row(key, metric))
            self._keys = None
        if len(self.texts) < 4 * MAX_KEYS:
            self.texts[text] = number
        return number

    def writer(self, writer: Writer, head: Head | None = None) -> int:
        """Number of a writer; a head that comes later than its first record counts from then on."""
        self.run = self.run or (head.run if head else "")
        number = self.writers.number(writer)
        emitter = self.emitters.number(writer.emitter)
        if number == len(self.heads):
            self.num_heads += head is not None
            self.heads.append(head)
            self._writer_rows.append(writer_row(head, emitter, writer.attempt))
            self._writers = None
        elif head is not None and self.heads[number] is None:
            self.heads[number] = head
            self.num_heads += 1
            self.has_late_heads = True
            self._writer_rows[number] = writer_row(head, emitter, writer.attempt)
            self._writers = None
        return number

    def key_columns(self) -> KeyColumns:
        """Facts of each key that the fold needs."""
        if self._keys is None:
            self._keys = KeyColumns(*_columns(self._key_rows, _KEY_TYPES))
        return self._keys

    def writer_columns(self) -> WriterColumns:
        """Facts of each writer that the fold needs."""
        if self._writers is None:
            self._writers = WriterColumns(*_columns(self._writer_rows, _WRITER_TYPES))
        return self._writers

    def subject_bits(self) -> Any:
        """Keys that each subject names, as bits."""
        return self._subject_column(0)

    def subject_ranks(self) -> Any:
        """Rank of each subject; -1 for none."""
        return self._subject_column(1)

    def _subject_column(self, column: int) -> Any:
        known = len(self._subject_facts[0])
        if known < len(self.subjects):
            new = self.subjects.items[known:]
            bits = [
                RANK * (s.rank is not None) + HOST * (s.host is not None) + DEVICE * (s.device is not None) for s in new
            ]
            ranks = [-1 if s.rank is None else s.rank for s in new]
            both = zip(self._subject_facts, (bits, ranks), strict=True)
            self._subject_facts = [np.concatenate([old, np.array(more, np.int64)]) for old, more in both]
        return self._subject_facts[column]


def _columns(rows: list[tuple[Any, ...]], types: tuple[Any, ...]) -> list[Any]:
    columns = zip(*rows, strict=True) if rows else ((),) * len(types)
    arrays = [np.array(column, dtype=kind) for column, kind in zip(columns, types, strict=True)]
    return [array.reshape(0, len(CADENCES)) if not rows and n == 3 else array for n, array in enumerate(arrays)]
