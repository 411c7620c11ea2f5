"""Turns the values of an emitter into numbered records in order of time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.documents.types.stream import Event, Head, Sample

from .shape import Shape

LAG = "train.telemetry.lag"
DROPPED = "train.telemetry.dropped"


@dataclass(frozen=True, slots=True)
class Stream:
    """What one emitter writes in one attempt."""

    head: Head
    records: tuple[Sample | Event, ...]

    @property
    def name(self) -> str:
        """Emitter and attempt."""
        return f"{self.head.emitter}.{self.head.att}"


def text_number(value: float, digits: int = 6) -> float:
    """A value with as many digits as a program would write."""
    return float(f"{value:.{digits}g}")


@dataclass(slots=True)
class Emitter:
    """Collects records of one emitter in one attempt; `finish` orders and numbers them."""

    shape: Shape
    name: str
    attempt: int
    begin: float
    """Start of the stream, in seconds since the start of the run."""
    source: random.Random
    head: dict[str, Any] = field(default_factory=dict)
    pending: list[tuple[float, type[Sample] | type[Event], dict[str, Any]]] = field(default_factory=list)
    last_slow: float = float("-inf")

    def time_us(self, seconds: float) -> int:
        """A moment of the run as a time stamp."""
        return self.shape.start_us + round(seconds * 1e6)

    def sample(self, seconds: float, values: dict[str, Any], step: int | None, **more: Any) -> None:
        """Values that hold at a moment."""
        self.pending.append((seconds, Sample, {"m": values, "step": step, **more}))

    def event(self, seconds: float, name: str, step: int | None = None, **more: Any) -> None:
        """Something that happens at a moment."""
        self.pending.append((seconds, Event, {"name": name, "step": step, **more}))

    def owes_slow(self, seconds: float) -> bool:
        """Whether the metrics that are owed every minute are due; asking counts as writing them."""
        due = seconds - self.last_slow >= self.shape.slow_interval_seconds
        if due:
            self.last_slow = seconds
        return due

    def finish(self) -> Stream:
        """The stream; what each record's lag was goes into it, and the largest of them into `train.telemetry.lag`."""
        self.pending.sort(key=lambda entry: entry[0])
        records: list[Sample | Event] = []
        largest = 0
        for number, (seconds, kind, fields) in enumerate(self.pending):
            time_us, lag_us = self.time_us(seconds), self.source.randrange(1_000, 20_000)
            largest = max(largest, lag_us)
            if LAG in fields.get("m", {}):
                fields["m"][LAG] = largest / 1e6
                largest = 0
            records.append(kind(time_us=time_us, seq=number, observed_us=time_us + lag_us, **fields))
        head = Head(
            apiVersion="trainspec/v1",
            kind="MetricStream",
            run=self.shape.run,
            att=self.attempt,
            emitter=self.name,
            time_us=self.time_us(self.begin),
            world_size=self.shape.world_size,
            **self.head,
        )
        return Stream(head, tuple(records))
