"""Writes the streams of the node agents of a made run: devices, links, interfaces, host, probes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from .emitter import DROPPED, LAG, Emitter, Stream, text_number
from .ranks import histogram
from .shape import MEMORY_BYTES, Shape
from .timeline import CATEGORIES, Attempt, Timeline

PROBE_BOUNDS = (2e-6, 3e-6, 4e-6, 5e-6, 6e-6, 8e-6, 1.2e-5, 2e-5, 5e-5)
PROBE_SECONDS = 4e-6
LINKS = ("0", "1")
LINK_BYTES_PER_SECOND = 9e9
PORT_BYTES_PER_SECOND = 6e9
IDLE_WATTS = 95.0
DRIVER_START_US = 3_600_000_000
"""Microseconds that the driver was loaded before the run."""
_TRAINS = {"productive": 1.0, "replay": 1.0, "evaluation": 0.7}


def by_category(idle: float, training: float, **other: float) -> dict[str, float]:
    """A level for each category of time."""
    return {name: other.get(name, training * _TRAINS[name] if name in _TRAINS else idle) for name in CATEGORIES}


WATTS = by_category(IDLE_WATTS, 640.0, evaluation=520.0, data_wait=300.0, checkpoint_save=240.0, fault_wait=240.0)
BUSY = by_category(0.01, 0.985, evaluation=0.96, data_wait=0.4, checkpoint_save=0.3, fault_wait=0.97)
MATRIX = by_category(0.0005, 0.47, fault_wait=0.001)
ACTIVE = by_category(0.0, 1.0)


@dataclass(slots=True)
class Counters:
    """Counters of one device or port, which outlive attempts."""

    last: float = 0.0
    joules: float = 0.0
    values: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, growth: float) -> int:
        """Count up and say where the counter stands."""
        self.values[name] = self.values.get(name, 0.0) + growth
        return int(self.values[name])


def node_streams(shape: Shape, timeline: Timeline) -> list[Stream]:
    """One stream for each node and attempt."""
    counters: dict[str, Counters] = {}
    return [
        _NodeWriter(shape, timeline, attempt, number, counters).write()
        for attempt in timeline.attempts
        for number in range(shape.num_nodes)
    ]


class _NodeWriter:
    """Writes one node in one attempt."""

    def __init__(
        self, shape: Shape, timeline: Timeline, attempt: Attempt, number: int, counters: dict[str, Counters]
    ) -> None:
        self.shape, self.timeline, self.attempt, self.counters = shape, timeline, attempt, counters
        hosts = shape.hosts_of(attempt.number)
        self.host, self.target = hosts[number], hosts[(number + 1) % len(hosts)]
        self.source = random.Random(f"{shape.seed}/node/{self.host}/{attempt.number}")
        self.offset = random.Random(f"{shape.seed}/clock/{self.host}").gauss(0, 1e-5)
        self.out = Emitter(shape, f"node/{self.host}", attempt.number, attempt.formed, self.source)
        self.end = attempt.end
        fault = timeline.fault
        if fault and not attempt.number and shape.num_nodes > 1 and number == shape.num_nodes - 1:
            self.end = fault.at
        self.out.head = self._head()

    def _head(self) -> dict[str, Any]:
        declared: dict[str, Any] = {"train.power.reading": "average", "train.clock.reference": "utc-ptp"}
        probes: dict[str, Any] = {
            "train.probe.size": 64,
            "train.probe.transport": "rdma-write",
            "train.probe.plan": "ring: each node probes the next one once a second",
        }
        head: dict[str, Any] = {
            "scopes": ("device", "link", "nic", "node", "pair", "emitter"),
            "host": self.host,
            "cadence_seconds": {
                "C30": self.shape.device_interval_seconds,
                "C60": self.shape.device_interval_seconds,
                "C300": 60.0,
            },
            "counters_start_us": self.shape.start_us - DRIVER_START_US,
            "declared": {**declared, **probes},
        }
        if self.shape.num_nodes == 1:
            head["scopes"] = ("device", "link", "nic", "node", "emitter")
            head["declared"] = declared
            head["unsupported"] = {"train.network.latency": "the job has one node"}
        return head

    def write(self) -> Stream:
        interval = self.shape.device_interval_seconds
        before, number = self.attempt.formed, 0
        while True:
            seconds = self.attempt.formed + 0.5 + number * interval + self.source.uniform(0, 0.05)
            if seconds >= self.end - 0.01:
                return self.out.finish()
            self._tick(seconds, before, with_limit=number % max(1, int(50 // interval)) == 0)
            before, number = seconds, number + 1

    def _tick(self, seconds: float, before: float, with_limit: bool) -> None:
        step = max((s.number for s in self.attempt.steps if s.end <= seconds), default=self.attempt.restored_step)
        for place, device in enumerate(self.shape.devices(self.host)):
            self._device(seconds + 1e-4 * place, before, device, step, with_limit)
        activity = self.timeline.mean(before, seconds, ACTIVE)
        for place, port in enumerate(self.shape.ports(self.host)):
            self._port(seconds + 0.01 + 1e-4 * place, port, step, activity * (seconds - before))
        self._host(seconds + 0.02, step)

    def _device(self, seconds: float, before: float, device: str, step: int, with_limit: bool) -> None:
        counters = self.counters.setdefault(device, Counters())
        source, mean = self.source, self.timeline.mean
        begin = counters.last or before
        watts = mean(begin, seconds, WATTS) * source.uniform(0.99, 1.01)
        counters.joules = counters.joules or IDLE_WATTS * DRIVER_START_US / 1e6
        counters.joules += watts * (seconds - begin)
        counters.last = seconds
        busy = mean(before, seconds, BUSY) * source.uniform(0.99, 1.0)
        matrix = mean(before, seconds, MATRIX) * source.uniform(0.97, 1.03)
        moved = mean(before, seconds, ACTIVE) * (seconds - before) * LINK_BYTES_PER_SECOND
        values: dict[str, Any] = {
            "hw.gpu.utilization": text_number(busy, 4),
            "train.accelerator.compute.active": text_number(busy * source.uniform(0.85, 0.9), 4),
            "train.accelerator.matrix.active": text_number(matrix, 4),
            "train.accelerator.memory.bandwidth.utilization": text_number(matrix * source.uniform(0.9, 1.0), 4),
            "hw.gpu.memory.usage": 60_500_000_000 + 2_097_152 * source.randrange(500),
            "hw.power{hw.type=gpu}": text_number(watts),
            "hw.energy{hw.type=gpu}": round(counters.joules, 3),
            "hw.temperature{hw.sensor_location=core}": round(32 + watts / 22 + source.gauss(0, 0.5), 1),
            "hw.temperature{hw.sensor_location=memory}": round(38 + watts / 20 + source.gauss(0, 0.5), 1),
            "train.accelerator.clock.frequency": 1_755_000_000 - 15_000_000 * source.randrange(8),
            "train.accelerator.throttle.time{train.throttle.reason=power}": round(
                counters.add("throttled", 1e6 * 0.01 * (seconds - before) * matrix) / 1e6, 6
            ),
            "train.accelerator.throttle.time{train.throttle.reason=thermal}": 0.0,
            "hw.errors{error.type=corrected,hw.type=gpu}": counters.add("corrected", source.random() < 0.01),
            "hw.errors{error.type=uncorrected,hw.type=gpu}": 0,
            **self._links(counters, moved),
        }
        if with_limit:
            values["hw.gpu.memory.limit"] = MEMORY_BYTES
        self.out.sample(seconds, values, step, device=device)

    def _links(self, counters: Counters, moved: float) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for link in LINKS:
            for direction in ("receive", "transmit"):
                key = f"train.accelerator.link.io{{network.io.direction={direction},train.link.id={link}}}"
                values[key] = counters.add(f"{link}/{direction}", moved * self.source.uniform(0.98, 1.02))
            for kind in ("crc", "replay"):
                values[f"train.accelerator.link.errors{{error.type={kind},train.link.id={link}}}"] = 0
        return values

    def _port(self, seconds: float, port: str, step: int, active_seconds: float) -> None:
        counters = self.counters.setdefault(port, Counters())
        moved = PORT_BYTES_PER_SECOND * active_seconds
        values: dict[str, Any] = {
            f"hw.network.io{{network.io.direction={direction}}}": counters.add(
                direction, moved * self.source.uniform(0.98, 1.02)
            )
            for direction in ("receive", "transmit")
        }
        values["train.network.retransmits"] = counters.add("retransmits", self.source.random() < 0.05)
        values["train.network.wait.time"] = round(counters.add("wait", 2e3 * active_seconds) / 1e6, 6)
        values["hw.errors{error.type=symbol,hw.type=network}"] = 0
        values["hw.errors{error.type=link_down,hw.type=network}"] = 0
        self.out.sample(seconds, values, step, device=port)

    def _host(self, seconds: float, step: int) -> None:
        source = self.source
        shares = {"used": source.uniform(0.3, 0.32), "cached": source.uniform(0.4, 0.42), "buffers": 0.01}
        shares["buffers"] += source.uniform(0, 0.002)
        shares = {name: round(share, 5) for name, share in shares.items()}
        shares["free"] = round(1 - sum(shares.values()), 5)
        values: dict[str, Any] = {
            **{f"system.memory.utilization{{system.memory.state={name}}}": share for name, share in shares.items()},
            "train.host.memory.pressure": round(source.uniform(0, 0.002), 6),
            "train.clock.offset": text_number(self.offset + source.gauss(0, 2e-6), 4),
            "train.clock.error": text_number(source.uniform(2e-5, 3e-5), 4),
        }
        self.out.sample(seconds, values, step)
        started = self.out.time_us(self.attempt.formed)
        self.out.sample(seconds + 1e-3, {DROPPED: 0, LAG: 0.0}, step, start_us=started)
        if self.shape.num_nodes > 1:
            key = f"train.network.latency{{train.network.source={self.host},train.network.target={self.target}}}"
            num = round(self.shape.device_interval_seconds)
            self.out.sample(seconds + 2e-3, {key: histogram(source, PROBE_SECONDS, num, PROBE_BOUNDS)}, step)
