"""Writes the streams of the ranks of a made run: a record per step, and heartbeats between."""

from __future__ import annotations

import random
from typing import Any

from trainspec_validate.documents.types.stream import HistogramValue

from .emitter import DROPPED, LAG, Emitter, Stream, text_number
from .incidents import lost_ranks
from .shape import Shape
from .timeline import Attempt, Step, Timeline

OPERATIONS_PER_STEP = {"tp": 128, "dp": 12}
OPERATIONS_PER_EVALUATION = {"tp": 640, "dp": 1}
PHASES = {"communication_exposed": 0.09, "optimizer": 0.03, "other": 0.01}
"""Shares of a step beside its wait for data; the rest is forward and backward."""
SIZE_CLASS = {"tp": 67_108_864, "dp": 268_435_456}
OPERATION = {"tp": "all-reduce", "dp": "reduce-scatter"}
BOUNDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
HEARTBEAT_SECONDS = 10.0


def rank_streams(shape: Shape, timeline: Timeline) -> list[Stream]:
    """One stream for each rank and attempt."""
    return [
        _RankWriter(shape, timeline, attempt, rank).write()
        for attempt in timeline.attempts
        for rank in range(shape.world_size)
    ]


def histogram(source: random.Random, typical: float, num: int, bounds: tuple[float, ...]) -> HistogramValue:
    """A histogram of so many log-normal values; a few are drawn and stand for all."""
    drawn = [text_number(typical * source.lognormvariate(0, 0.25), 5) for _ in range(8)]
    counts = [0] * (len(bounds) + 1)
    total = 0.0
    for number in range(num):
        value = drawn[number % len(drawn)]
        counts[sum(bound < value for bound in bounds)] += 1
        total += value
    used = drawn[:num]
    return HistogramValue(
        count=num, sum=text_number(total, 9), min=min(used), max=max(used), bounds=bounds, counts=tuple(counts)
    )


class _RankWriter:
    """Writes one rank in one attempt."""

    def __init__(self, shape: Shape, timeline: Timeline, attempt: Attempt, rank: int) -> None:
        self.shape, self.timeline, self.attempt, self.rank = shape, timeline, attempt, rank
        self.source = random.Random(f"{shape.seed}/rank/{rank}/{attempt.number}")
        node, local = divmod(rank, shape.devices_per_node)
        host = shape.hosts_of(attempt.number)[node]
        self.groups = {"tp": f"tp-{node}", "dp": f"dp-{local}"}
        self.out = Emitter(shape, f"rank-{rank:06}", attempt.number, attempt.formed, self.source)
        self.out.head = {
            "scopes": ("rank", "group", "emitter"),
            "rank": rank,
            "host": host,
            "device": shape.devices(host)[local],
            "cadence_seconds": {"C30": HEARTBEAT_SECONDS, "C60": 60.0},
            "counters_start_us": self.out.time_us(attempt.formed),
            "declared": {
                "train.parallel.data.rank": node,
                "train.parallel.tensor.rank": local,
                "train.collective.clock": "device",
            },
        }
        self.end = attempt.end
        fault = timeline.fault
        if fault and not attempt.number and rank in lost_ranks(shape):
            self.end = fault.at
        self.step = attempt.restored_step
        self.num_operations = dict.fromkeys(OPERATION, 0)
        self.phases = dict.fromkeys(("data_wait", "forward_backward", *PHASES), 0.0)
        self.last = attempt.formed

    def write(self) -> Stream:
        self._record(self.attempt.formed + 0.01, {})
        for step in self.attempt.steps:
            self._beat_until(step.end)
            self._evaluations_before(step)
            self._step(step)
        self._beat_until(self.end)
        if self.attempt is self.timeline.attempts[-1]:
            self._record(self.end - 0.002, self._slow_values(self.attempt.steps[-1].duration))
        return self.out.finish()

    def _beat_until(self, moment: float) -> None:
        while moment - self.last > HEARTBEAT_SECONDS:
            self._record(self.last + HEARTBEAT_SECONDS - 0.005, {})

    def _evaluations_before(self, step: Step) -> None:
        for evaluation in self.attempt.evaluations:
            if evaluation.step == step.number - 1:
                for kind, num in OPERATIONS_PER_EVALUATION.items():
                    self.num_operations[kind] += num

    def _record(self, seconds: float, more: dict[str, Any], **attributes: Any) -> None:
        values: dict[str, Any] = {
            "train.rank.step": self.step,
            "train.data.wait.time": round(self.phases["data_wait"], 6),
            **{
                f"train.collective.sequence{{train.group.name={name}}}": self.num_operations[kind]
                for kind, name in self.groups.items()
            },
            "train.memory.allocator.retries": 0,
            "train.memory.oom": 0,
            **more,
        }
        self.last = seconds
        self.out.sample(seconds, values, self.step, **attributes)

    def _step(self, step: Step) -> None:
        self.step = step.number
        for kind, num in OPERATIONS_PER_STEP.items():
            self.num_operations[kind] += num
        self.phases["data_wait"] += step.data_wait
        rest = step.duration - step.data_wait
        for name, share in PHASES.items():
            part = step.duration * share * self.source.uniform(0.95, 1.05)
            self.phases[name] += part
            rest -= part
        self.phases["forward_backward"] += rest
        reserved = 58_000_000_000 + 2_097_152 * self.source.randrange(500)
        more = {
            "train.step.duration": text_number(step.duration, 7),
            **{f"train.step.phase.time{{train.phase={name}}}": round(time, 6) for name, time in self.phases.items()},
            "train.memory.allocator.reserved": reserved,
            "train.memory.allocator.active": reserved - 2_097_152 * self.source.randrange(500, 900),
        }
        seconds = step.end + self.source.uniform(0, 0.002)
        if self.out.owes_slow(seconds):
            more.update(self._slow_values(step.duration))
        self._record(seconds, more, a={"train.step.warmup": step.is_warmup})

    def _slow_values(self, seconds: float) -> dict[str, Any]:
        values: dict[str, Any] = {
            "train.rank.slowdown": text_number(1 + max(-0.03, self.source.gauss(0, 0.008)), 5),
            DROPPED: 0,
            LAG: 0.0,
        }
        for kind, name in self.groups.items():
            attributes = f"train.collective.operation={OPERATION[kind]},train.collective.size_class={SIZE_CLASS[kind]}"
            typical = 0.09 * self.shape.step_seconds / OPERATIONS_PER_STEP[kind] / 2
            num = round(OPERATIONS_PER_STEP[kind] * self.shape.slow_interval_seconds / seconds)
            found = histogram(self.source, typical, max(1, num), BOUNDS)
            values[f"train.collective.duration{{{attributes},train.group.name={name}}}"] = found
        return values
