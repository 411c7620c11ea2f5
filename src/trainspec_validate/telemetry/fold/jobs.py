"""Keeps every value of the series of the whole job: some in memory, the others in a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final

import numpy as np

from trainspec_validate.telemetry.decode.batch import WARMUP, Batch
from trainspec_validate.telemetry.decode.names import DEVICE, RANK, Names
from trainspec_validate.telemetry.view.run_view import JobSeries

MAX_VALUES = 2_000_000
"""Of one series."""
MOST_VALUES = 6_000_000
"""Of all series of a run."""
MOST_HELD = 400_000
"""Values that a process holds while it reads."""
_STEP_LEVELS: Final = 20
"""Beyond so many halvings by step, records are left out by their place: a step may be that of each record."""
_NUM_LEVELS: Final = 2 * _STEP_LEVELS + 1
JOB = np.dtype(
    [
        *[("key", np.int32), ("attempt", np.int32), ("writer", np.int32), ("file", np.int32), ("warmup", np.bool_)],
        *[("seq", np.int64), ("time_us", np.int64), ("step", np.int64), ("offset", np.int64)],
        *[("value", np.float64), ("weight", np.float64), ("low", np.float64), ("high", np.float64)],
    ]
)


class JobValues:
    """Values of job-scope series, by key, thinned by step where there are too many.

    How much is thinned follows from the number of values at each level, so that it is the same for any split of a run.
    """

    def __init__(self) -> None:
        self._new: list[Any] = []
        """Values that are not counted yet."""
        self._counted: list[Any] = []
        self._num_new = self._num_counted = 0
        self._file: Any = None
        """Counted values beyond those that are held."""
        self._num_at: Any = np.zeros((0, _NUM_LEVELS), np.int64)
        """Values that there were by key and level, with those that are left out."""

    @property
    def num_held(self) -> int:
        """Values in memory."""
        return self._num_new + self._num_counted

    def take(self, batch: Batch, names: Names, subject_bits: Any) -> None:
        """Keep the values of a batch that are of the job."""
        chosen = np.flatnonzero(names.key_columns().job[batch.sample_key] == 1)
        bits = subject_bits[batch.subject[batch.sample_record[chosen]]]
        chosen = chosen[bits & (RANK | DEVICE) == 0]
        if not len(chosen):
            return
        self.keep(
            batch, names, batch.sample_record[chosen], batch.sample_key[chosen], batch.sample_value[chosen], chosen
        )

    def keep(  # noqa: PLR0913, PLR0917
        self, batch: Batch, names: Names, record: Any, key: Any, value: Any, chosen: Any = ()
    ) -> None:
        """Keep values of records of a batch; `chosen` are their numbers among its samples where they are there."""
        found = np.zeros(len(record), JOB)
        found["key"], found["value"] = key, value
        for name in ("file", "seq", "time_us", "step", "offset", "writer"):
            found[name] = getattr(batch, name)[record]
        found["attempt"] = names.writer_columns().attempt[found["writer"]]
        found["warmup"] = batch.flags[record] & WARMUP != 0
        found["weight"], found["low"], found["high"] = 1.0, np.nan, np.nan
        if len(chosen) and (batch.weights or batch.intervals):
            _odd(found, chosen, batch)
        self.add(found)

    def add(self, found: Any) -> None:
        """Keep values."""
        self._new.append(found)
        self._num_new += len(found)
        if self.num_held > MOST_HELD:
            self._count()

    def merge(self, later: JobValues, parts: Iterable[Any], keys: Any) -> None:
        """Take over what a later stretch has counted; `parts` are its values, `keys` the numbers of its keys here."""
        self._count()
        later._count()
        self._make_room(int(keys.max(initial=-1)) + 1)
        np.add.at(self._num_at, keys[: len(later._num_at)], later._num_at[: len(keys)])
        self.take_back(parts)

    def take_back(self, parts: Iterable[Any]) -> None:
        """Keep values that are counted already."""
        for part in parts:
            self._keep(part)

    def move_to(self, file: BinaryIO) -> None:
        """Write the values that are left to a file, and hold them no more."""
        file.writelines(part.tobytes() for part in self.parts())
        self._counted, self._num_counted, self._file = [], 0, None

    def parts(self) -> Iterator[Any]:
        """The values that are left, some at a time."""
        self._count()
        least = self._least_levels()
        if self._file is not None:
            self._file.seek(0)
            yield from (_left(part, least) for part in parts_of(self._file))
        yield from (_left(part, least) for part in list(self._counted))

    def of(self, names: Names) -> dict[str, JobSeries]:
        """The series by the name of their key, each in order of attempt, then writing."""
        self._count()
        least = self._least_levels()
        left = _num_left(self._num_at, least)
        emitters = np.array([writer.emitter for writer in names.writers.items]).argsort(kind="stable").argsort()
        found = {}
        for keys in _together(left):
            is_wanted = np.zeros(len(left), bool)
            is_wanted[keys] = True
            values = np.concatenate([part[is_wanted[part["key"]]] for part in self.parts()])
            columns = ("offset", "file", "seq")
            order = np.lexsort((*(values[n] for n in columns), emitters[values["writer"]], values["attempt"]))
            values = values[order]
            for key in keys:
                thinned = 1 << min(int(least[key]), _STEP_LEVELS)
                found[str(names.keys.items[key])] = _series(names, key, values[values["key"] == key], thinned)
        return found

    def _count(self) -> None:
        """Count what is new, and keep what is left of it."""
        if not self._new:
            return
        values = np.concatenate(self._new)
        self._new, self._num_new = [], 0
        self._make_room(int(values["key"].max()) + 1)
        np.add.at(self._num_at, (values["key"], _levels(values)), 1)
        self._keep(values)

    def _keep(self, values: Any) -> None:
        values = _left(values, self._least_levels())
        self._counted.append(values)
        self._num_counted += len(values)
        if self._num_counted > MOST_HELD // 2:
            self._file = self._file or tempfile.TemporaryFile(prefix="trainspec-")  # noqa: SIM115 - closed with this
            self._file.seek(0, 2)
            for part in self._counted:
                self._file.write(part.tobytes())
            self._counted, self._num_counted = [], 0

    def _make_room(self, num_keys: int) -> None:
        if num_keys > len(self._num_at):
            more = np.zeros((num_keys - len(self._num_at), _NUM_LEVELS), np.int64)
            self._num_at = np.concatenate([self._num_at, more])

    def _least_levels(self) -> Any:
        """The level of each key below which its values are left out; none falls while values are added."""
        from_here = self._num_at[:, ::-1].cumsum(axis=1)[:, ::-1]
        most = MAX_VALUES
        while most > 1 and np.minimum(from_here[:, 0], most).sum() > MOST_VALUES:
            most //= 2
        return (from_here > most).sum(axis=1)

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs."""
        counted = list(self.parts())
        return {**self.__dict__, "_counted": counted, "_num_counted": sum(map(len, counted)), "_file": None}


def parts_of(file: BinaryIO) -> Iterator[Any]:
    """The values in a file, some at a time."""
    while content := file.read(MOST_HELD // 4 * JOB.itemsize):
        yield np.frombuffer(content, JOB)


def _levels(values: Any) -> Any:
    """How often the number of a value can be halved: its step, else its sequence number; then its place."""
    number = np.where(values["step"] >= 0, values["step"], values["seq"])
    levels = _halvings(number)
    beyond = np.flatnonzero(levels == _STEP_LEVELS)
    levels[beyond] += _halvings(values["offset"][beyond])
    return levels


def _halvings(numbers: Any) -> Any:
    """Times that each can be halved, up to a bound."""
    lowest = (numbers & -numbers) | ((numbers == 0) << np.int64(_STEP_LEVELS))
    return np.minimum(np.frexp(lowest.astype(np.float64))[1] - 1, _STEP_LEVELS)


def _left(values: Any, least: Any) -> Any:
    """Those of some values that are not left out."""
    return values[_levels(values) >= least[values["key"]]] if least.any() else values


def _num_left(num_at: Any, least: Any) -> Any:
    """Values of each key that are not left out."""
    return (num_at * (np.arange(_NUM_LEVELS) >= least[:, None])).sum(axis=1)


def _together(left: Any) -> Iterator[list[int]]:
    """Keys with values, so many at once as may have one series."""
    keys: list[int] = []
    num = 0
    for key in np.flatnonzero(left).tolist():
        if keys and num + int(left[key]) > MAX_VALUES:
            yield keys
            keys, num = [], 0
        keys.append(key)
        num += int(left[key])
    if keys:
        yield keys


def _series(names: Names, key: int, values: Any, thinned: int) -> JobSeries:
    has_interval = bool(np.isfinite(values["low"]).any())
    columns = ("time_us", "step", "attempt", "value", "weight", "warmup", "offset", "file")
    wanted = (*columns, "low", "high") if has_interval else columns
    found = {name: np.ascontiguousarray(values[name]) for name in wanted}
    return JobSeries(names.keys.items[key], **found, thinned=thinned)


def _odd(found: Any, chosen: Any, batch: Batch) -> None:
    place = {int(number): index for index, number in enumerate(chosen)}
    for number, weight in batch.weights.items():
        if number in place:
            found["weight"][place[number]] = weight
    for number, (low, high) in batch.intervals.items():
        if number in place:
            found["low"][place[number]], found["high"][place[number]] = low, high
