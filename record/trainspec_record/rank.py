"""Writes the stream of a rank: its steps, and heartbeats between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainspec_record.stream import DROPPED, LAG, Stream

HEARTBEAT_SECONDS = 10.0
SLOW_SECONDS = 30.0
PHASES = ("data_wait", "forward_backward", "communication_exposed", "optimizer")
"""Phases that a program can time; the rest of a step is `other`."""
GAUGES = {
    "allocator_reserved_bytes": "train.memory.allocator.reserved",
    "allocator_active_bytes": "train.memory.allocator.active",
    "slowdown": "train.rank.slowdown",
}
"""Words of `log` for values of the rank."""
COUNTED = {"allocator_retries": "train.memory.allocator.retries", "out_of_memory": "train.memory.oom"}
"""Words of `log` that count up, and the counters that they grow."""


class Rank:
    """Writes what happens to one rank. Times are microseconds since 1970, given by the caller, under its lock."""

    def __init__(self, stream: Stream, interval: int) -> None:
        self.stream = stream
        self.step = 0
        """The last step that this rank completed."""
        self._interval = interval
        self._phases_us: dict[str, int] = {}
        self._counters: dict[str, float] = {}
        self._is_warmup = True
        self._durations_us = 0
        self._num_durations = 0
        self._written_us = self._slow_us = 0

    def count(self, metric: str, growth: float) -> None:
        """A counter of the rank grows."""
        self._counters[metric] = self._counters.get(metric, 0) + growth

    def spend(self, phase: str, spent_us: int) -> None:
        """Time of the step that is under way goes into a phase of it."""
        for name, grown_us in ((phase, spent_us), ("other", -spent_us)):
            self._phases_us[name] = self._phases_us.get(name, 0) + grown_us

    def complete(self, now_us: int, duration_us: int, gauges: Mapping[str, Any]) -> None:
        """An optimizer step was completed in so many microseconds."""
        self.step += 1
        self._durations_us += duration_us
        self._num_durations += 1
        if self._phases_us:
            self._phases_us["other"] += duration_us
        if self.step % self._interval == 0:
            self._report(now_us, gauges)

    def _report(self, now_us: int, gauges: Mapping[str, Any]) -> None:
        m = self._values(now_us)
        m["train.step.duration"] = self._durations_us / self._num_durations / 1e6
        m.update(gauges)
        for phase, spent_us in self._phases_us.items():
            m[f"train.step.phase.time{{train.phase={phase}}}"] = max(0, spent_us) / 1e6
        self._durations_us = self._num_durations = 0
        self.stream.sample(now_us, m, step=self.step, a={"train.step.warmup": self._is_warmup})
        self._is_warmup = False

    def warm_up_again(self) -> None:
        """The next report is no sign of the pace."""
        self._is_warmup = True

    def tick(self, now_us: int, *, is_due: bool = False) -> None:
        """Called now and then, also while no step is completed."""
        if is_due or now_us - self._written_us >= HEARTBEAT_SECONDS * 1e6:
            self.stream.sample(now_us, self._values(now_us, is_due=is_due), step=self.step)

    def _values(self, now_us: int, *, is_due: bool = False) -> dict[str, Any]:
        self._written_us = now_us
        m: dict[str, Any] = {"train.rank.step": self.step, **self._counters}
        if "data_wait" in self._phases_us:
            m["train.data.wait.time"] = self._phases_us["data_wait"] / 1e6
        if is_due or now_us - self._slow_us >= SLOW_SECONDS * 1e6:
            self._slow_us = now_us
            m[DROPPED] = m[LAG] = 0
        return m
