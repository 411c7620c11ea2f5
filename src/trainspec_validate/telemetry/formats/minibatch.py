"""Reads the mini-batch times of the Alibaba PAI trace: one row for each worker and iteration."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from statistics import median

from trainspec_validate.documents.types.stream import ExtensionMetric, Head, MetricValue
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.transcript import Transcript

_COLUMNS = ["worker", "gpu", "time", "batch_time_norm"]
_RAW = "alibaba.batch_time_norm"
_MAX_WORKERS = 100_000
_SECOND_US = 1_000_000


class Reader:
    """Reads the rows of one job; rows of one iteration are adjacent."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._start_us = transcript.given.start_us or 0
        self._columns: list[str] = []
        self._iteration = -1
        self._rows: list[tuple[int, int, float]] = []

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The records of an iteration, once its last row was read."""
        if not self._columns:
            try:
                self._columns = next(csv.reader([text]), [])
            except csv.Error as error:
                yield offset, Refusal(f"the line is no row of CSV: {error}", f"begin with {','.join(_COLUMNS)}")
                return
            yield offset, self._head()
            return
        row = dict(zip(self._columns, text.split(","), strict=False))
        worker, iteration = fit.rank(row.get("worker")), fit.step(row.get("time"))
        value = fit.number(row.get("batch_time_norm"))
        if worker is None or iteration is None or not isinstance(value, float):
            yield offset, Refusal("the row has no worker, time and batch_time_norm", "whole numbers from 0", "value")
            return
        if iteration != self._iteration or len(self._rows) >= _MAX_WORKERS:
            yield from self._iteration_records()
            self._iteration, self._rows = iteration, []
        self._rows.append((offset, worker, value))

    def _head(self) -> Head:
        transcript = self._transcript
        transcript.lose("time", "time", "the column time counts iterations; each counts as a second", 0)
        message = "batch_time_norm is without unit; only its ratio to the median of the workers is a metric"
        transcript.lose("unit", "batch_time_norm", message, 0)
        if "gpu" in self._columns:
            transcript.lose("unknown-name", "gpu", "the share of an accelerator has no name in the catalog", 0)
        raw = ExtensionMetric(unit="1", instrument="gauge", description="Mini-batch time scaled to 0 to 1000.")
        return transcript.head(self._start_us, ("rank",), extension_metrics={_RAW: raw})

    def _iteration_records(self) -> Iterator[Found]:
        middle = median(value for _, _, value in self._rows) if self._rows else 0.0
        for offset, worker, value in self._rows:
            values: dict[str, MetricValue] = {_RAW: value, "train.rank.step": float(self._iteration)}
            if middle > 0:
                values["train.rank.slowdown"] = value / middle
            time_us = fit.time_us(self._start_us + self._iteration * _SECOND_US)
            if time_us is None:
                yield offset, Refusal("the iteration is beyond what a record holds", "", "time")
                continue
            yield offset, self._transcript.sample(time_us, values, step=self._iteration, rank=worker)

    def end(self) -> Iterator[Found]:
        """The last iteration."""
        yield from self._iteration_records()
