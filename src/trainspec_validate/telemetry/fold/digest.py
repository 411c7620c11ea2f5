"""Folds batches of records into a digest of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.decode.batch import Batch, apart
from trainspec_validate.telemetry.decode.identities import Numbering
from trainspec_validate.telemetry.decode.names import Names
from trainspec_validate.telemetry.decode.rows import FileFacts, note_keys
from trainspec_validate.telemetry.decode.run_file import MAX_DAMAGE
from trainspec_validate.telemetry.fold.anomaly_groups import Trails
from trainspec_validate.telemetry.fold.column_fold import fold_table, room_for_some
from trainspec_validate.telemetry.fold.jobs import JobValues
from trainspec_validate.telemetry.kernels import fold as folding
from trainspec_validate.telemetry.kernels import jit, sequence
from trainspec_validate.telemetry.kernels.layout import OCCURRENCE, SERIES, SKIP, WRITER, Keys, Samples, State, Writers
from trainspec_validate.telemetry.view.event_log import EventLog, EventRow
from trainspec_validate.telemetry.view.run_view import Damage, Location
from trainspec_validate.telemetry.view.time_windows import Frame

_NAMES = SERIES.names or ()
_EMPTY = dict(zip(_NAMES, np.zeros(1, SERIES)[0].item(), strict=True))


class _Rows(dict[int, dict[str, Any]]):
    """Rows as dictionaries; those that are not there yet begin with zeros."""

    def __init__(self, rows: Any, num: int) -> None:
        found = rows[:num].tolist()
        super().__init__((number, dict(zip(_NAMES, row, strict=True))) for number, row in enumerate(found))
        self.room = len(rows)

    def __missing__(self, number: int) -> dict[str, Any]:
        found = self[number] = dict(_EMPTY)
        return found

    def __len__(self) -> int:
        return self.room


def _plain(arrays: Keys | Writers | Samples) -> Any:
    """The same with lists for arrays."""
    return type(arrays)(*(array.tolist() for array in arrays))


def fold_plainly(state: State, keys: Keys, writers: Writers, samples: Samples, index: int) -> int:
    """Fold on plain values; the arrays of the state hold the result."""
    rows = _Rows(state.rows, int(state.counts[0]))
    slots, counts = state.slots.tolist(), state.counts.tolist()
    arrays = (state.occurrences, state.windows, state.locks, state.ranks.tolist(), state.frame.tolist())
    lists: Any = State(*(rows, slots, counts, *arrays))  # type: ignore[arg-type]
    plain = (_plain(keys), _plain(writers), _plain(samples))
    found = folding.fold(lists, *plain, index)
    for number, row in rows.items():
        state.rows[number] = tuple(row.values())
    state.slots[:] = slots
    state.counts[:] = counts
    return int(found)


_BUFFER = 65_536
_MAX_SKIPS = 4_096
_LAG_BUCKETS = 96
_MOST_SERIES: Final = Limit("a run", 8_000_000, "series, each of a metric and a rank, device or host in one attempt")
"""Enough for 40 metrics of each of 200,000 accelerators."""


class Digest:
    """State of a stretch of the run; its size follows from the number of series, not of records."""

    def __init__(self) -> None:
        self.names = Names()
        self.rows: Any = np.zeros(1_024, SERIES)
        self.slots: Any = np.zeros(4_096, np.int32)
        self.counts: Any = np.zeros(2, np.int64)
        self.occurrences: Any = np.zeros(_BUFFER, OCCURRENCE)
        self.frame = Frame()
        self.trails = Trails()
        self.jobs = JobValues()
        self.pairs = Numbering(2)
        """Of a writer and a subject."""
        self.some = room_for_some()
        self.writers: Any = np.zeros(16, WRITER)
        self.skips: Any = np.zeros(_MAX_SKIPS, SKIP)
        self.skip_counts: Any = np.zeros(1, np.int64)
        self.lags: dict[int, Any] = {}
        self.events = EventLog()
        self.files: dict[int, FileFacts] = {}
        self.num_records = 0
        self.num_samples = 0

    @property
    def num_rows(self) -> int:
        """Series so far."""
        return int(self.counts[0])

    @property
    def is_unsorted(self) -> bool:
        """Whether a writer's records came in another order than they were written, or before the writer's head."""
        return self.names.has_late_heads or bool(self.writers["num_back"].any())

    def facts(self, file: int) -> FileFacts:
        """Facts of one file in addition to its values."""
        if file not in self.files:
            self.files[file] = FileFacts(file)
        return self.files[file]

    def add(self, batch: Batch) -> None:
        """Fold a batch that comes after all that were added."""
        batch = self.within_run(batch)
        if not batch.num_records:
            return
        self.num_records += batch.num_records
        self.frame.fit(int(batch.time_us.min()), int(batch.time_us.max()))
        self._follow(batch)
        self.events.extend(event_rows(batch))
        self._fold(batch)

    def within_run(self, batch: Batch) -> Batch:
        """The records whose time can be one of the run; the others are damage."""
        from trainspec_validate.telemetry.decode.batch import take  # noqa: PLC0415

        writers = self.names.writer_columns()
        if not batch.num_records or (
            batch.time_us.min() >= writers.low_us.max() and batch.time_us.max() <= writers.high_us.min()
        ):
            return batch
        low, high = writers.low_us[batch.writer], writers.high_us[batch.writer]
        outside = np.flatnonzero((batch.time_us < low) | (batch.time_us > high))
        if not len(outside):
            return batch
        for number in outside.tolist():
            facts = self.facts(int(batch.file[number]))
            facts.num_damaged += 1
            if len(facts.damage) < MAX_DAMAGE:
                facts.damage.append(_no_time(batch, number, self.names))
        inside = np.flatnonzero((batch.time_us >= low) & (batch.time_us <= high))
        return take(batch, inside)

    def _follow(self, batch: Batch) -> None:
        if len(self.names.writers) > len(self.writers):
            more = np.zeros(2 * len(self.names.writers) - len(self.writers), WRITER)
            self.writers = np.concatenate([self.writers, more])
        columns = (batch.file, batch.offset, batch.time_us, batch.seq, batch.writer)
        sequence.follow(self.writers, self.skips, self.skip_counts, columns)
        known = np.flatnonzero(batch.observed_us >= 0)
        if len(known):
            lag = (batch.observed_us[known] - batch.time_us[known]) / 1e6
            bucket = np.clip(np.floor(4 * np.log2(np.maximum(lag, 1e-3) / 1e-3)), 0, _LAG_BUCKETS - 1).astype(int)
            for writer in np.unique(batch.writer[known]).tolist():
                counts = np.bincount(bucket[batch.writer[known] == writer], minlength=_LAG_BUCKETS)
                self.lags[writer] = self.lags.get(writer, 0) + counts

    def _fold(self, batch: Batch) -> None:
        batch = apart(batch)
        since = self.num_rows
        self.num_samples += batch.num_samples
        bits = self.names.subject_bits()
        for file in np.unique(batch.file).tolist() if batch.num_samples else ():
            note_keys(self.facts(file), batch, file)
        self.jobs.take(batch, self.names, bits)
        samples = Samples(
            *(batch.file, batch.offset, batch.time_us, batch.step, batch.start_us, batch.writer, batch.subject),
            *(batch.sample_record, batch.sample_key, batch.sample_value, bits),
        )
        keys, writers = self.tables()
        index = 0
        while index < len(batch.sample_value):
            self.make_room()
            run = folding.fold if jit.is_compiled() else fold_plainly
            index = run(self.state(), keys, writers, samples, index)
            self.drain()
        if batch.table is not None:
            self.num_samples += fold_table(self, batch, batch.table, (keys, writers))
            self._put_in_order(since)
        self.check_series()

    def _put_in_order(self, since: int) -> None:
        """Series that are new, in the order of the records that they begin with, as if those had come one by one."""
        new = self.rows[since : self.num_rows]
        order = np.argsort(new["first_offset"], kind="stable")
        if (order[1:] < order[:-1]).any():
            new[:] = new[order]
            self.slots[:] = 0
            folding.enter(self.rows, self.slots, self.num_rows, 0)

    def state(self) -> State:
        """The arrays for the loops."""
        frame = self.frame
        arrays = (self.rows, self.slots, self.counts, self.occurrences)
        return State(*arrays, frame.windows, frame.locks, self.names.subject_ranks(), frame.numbers)

    def tables(self) -> tuple[Keys, Writers]:
        """Facts of keys and writers for the loops."""
        columns = self.names.key_columns()
        num = len(self.names.keys)
        window, lock = np.full(num, -1, np.int64), np.full(num, -1, np.int64)
        for key in range(num):
            if columns.scopes[key] != 1:
                window[key] = self.frame.row(key, lock=False)
            if columns.lock[key]:
                lock[key] = self.frame.row(key, lock=True)
        writers = self.names.writer_columns()
        rest = (writers.scopes, writers.cadence_us.reshape(-1), writers.report_steps, writers.start_us)
        return Keys(*columns, window, lock), Writers(writers.emitter, writers.attempt, *rest)

    def make_room(self, num: int = 1) -> None:
        """Make room for so many more series, and for some more where there is none."""
        self.check_series()
        if self.num_rows + num > len(self.rows):
            self.grow(max(num, 4_096, len(self.rows) // 8))

    def check_series(self) -> None:
        """Hold the number of series against its limit.

        Raises:
            OverLimitError: there are more than a run may have.
        """
        _MOST_SERIES.check(self.num_rows)

    def grow(self, room: int) -> None:
        """Make room for so many more series."""
        needed = self.num_rows + room
        if needed > len(self.rows):
            try:  # where it stands: beside millions of series there may be no room for as many again
                self.rows.resize(needed)
            except ValueError:  # somebody looks at it, or it is part of another array
                self.rows = np.concatenate([self.rows, np.zeros(needed - len(self.rows), SERIES)])
        if 2 * len(self.rows) >= len(self.slots):
            self.slots = np.zeros(1 << (2 * len(self.rows)).bit_length(), np.int32)
            folding.enter(self.rows, self.slots, self.num_rows, 0)

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs: the rows in use, and nothing that follows from them."""
        rows = self.rows[: max(1, self.num_rows)]
        return {**self.__dict__, "rows": rows, "slots": np.zeros(0, np.int32), "pairs": Numbering(2)}

    def drain(self) -> None:
        """Take the occurrences out of the buffer."""
        num = int(self.counts[1])
        if num:
            self.trails.take(self.occurrences[:num])
            self.counts[1] = 0


def event_rows(batch: Batch) -> Iterator[EventRow]:
    """The events of a batch."""
    for number, event in batch.events:
        place = (int(batch.file[number]), int(batch.offset[number]))
        yield EventRow(*place, int(batch.writer[number]), int(batch.subject[number]), event)


def _no_time(batch: Batch, number: int, names: Names) -> Damage:
    from datetime import UTC, datetime  # noqa: PLC0415

    head = names.heads[int(batch.writer[number])]
    time = int(batch.time_us[number])
    begun = datetime.fromtimestamp(head.time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if head else "unknown"
    location = Location(int(batch.file[number]), int(batch.offset[number]))
    message = f"time_us is {time}, which is no time of this run: its stream starts at {begun}"
    return Damage(
        "TS-TEL-016", location, message, "write microseconds since 1970-01-01 UTC, not seconds or milliseconds"
    )
