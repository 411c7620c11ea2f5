"""Keeps every value of the series of the whole job."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainspec_validate.telemetry.decode.batch import WARMUP, Batch
from trainspec_validate.telemetry.decode.names import DEVICE, RANK, Names
from trainspec_validate.telemetry.view.run_view import JobSeries

MAX_VALUES = 2_000_000
JOB = np.dtype(
    [
        *[("key", np.int32), ("attempt", np.int32), ("writer", np.int32), ("file", np.int32), ("warmup", np.bool_)],
        *[("seq", np.int64), ("time_us", np.int64), ("step", np.int64), ("offset", np.int64)],
        *[("value", np.float64), ("weight", np.float64), ("low", np.float64), ("high", np.float64)],
    ]
)


class JobValues:
    """Values of job-scope series, by key, thinned by step where there are too many."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.thinned: dict[int, int] = {}
        self._num = 0
        self._next_look = 2 * MAX_VALUES

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
        self.parts.append(found)
        self._num += len(found)
        if self._num > self._next_look:
            self.parts = [self._thin(np.concatenate(self.parts))]
            self._num = len(self.parts[0])
            self._next_look = self._num + 2 * MAX_VALUES

    def _thin(self, values: Any) -> Any:
        kept = np.ones(len(values), bool)
        place = np.where(values["step"] >= 0, values["step"], values["seq"])
        for key, count in zip(*np.unique(values["key"], return_counts=True), strict=True):
            mine = np.flatnonzero(values["key"] == key)
            every = self.thinned.get(int(key), 1)
            num = int(count)
            while num > MAX_VALUES and every < 1 << 40:
                every *= 2
                num = int(np.count_nonzero(place[mine] % every == 0))
            self.thinned[int(key)] = every
            kept[mine] = place[mine] % every == 0
        return values[kept]

    def of(self, names: Names) -> dict[str, JobSeries]:
        """The series by the name of their key, each in order of attempt, then writing."""
        if not self.parts:
            return {}
        values = self._thin(np.concatenate(self.parts))
        emitters = np.array([writer.emitter for writer in names.writers.items]).argsort(kind="stable").argsort()
        emitter = emitters[values["writer"]]
        order = np.lexsort((values["offset"], values["file"], values["seq"], emitter, values["attempt"]))
        values = values[order]
        found = {}
        for key in np.unique(values["key"]):
            mine = values[values["key"] == key]
            found[str(names.keys.items[key])] = _series(names, int(key), mine, self.thinned.get(int(key), 1))
        return found


def _series(names: Names, key: int, values: Any, thinned: int) -> JobSeries:
    has_interval = bool(np.isfinite(values["low"]).any())
    columns = {n: values[n] for n in ("time_us", "step", "attempt", "value", "weight", "warmup", "offset", "file")}
    ends = {"low": values["low"], "high": values["high"]} if has_interval else {}
    return JobSeries(names.keys.items[key], **columns, thinned=thinned, **ends)


def _odd(found: Any, chosen: Any, batch: Batch) -> None:
    place = {int(number): index for index, number in enumerate(chosen)}
    for number, weight in batch.weights.items():
        if number in place:
            found["weight"][place[number]] = weight
    for number, (low, high) in batch.intervals.items():
        if number in place:
            found["low"][place[number]], found["high"][place[number]] = low, high
