"""Samples a node: the readable values, at their intervals, into one stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainspec_record import values
from trainspec_record.catalog import METRICS
from trainspec_record.clock import Clock
from trainspec_record.guard import never_raises
from trainspec_record.identity import Identity
from trainspec_record.node import amd, clock_offset, host, nvml, ports, power, probe
from trainspec_record.node.source import Source, read_text, whole
from trainspec_record.pump import Pump
from trainspec_record.settings import head
from trainspec_record.stream import DROPPED, LAG, Stream

INTERVAL_SECONDS = 10.0
NO_DEVICES = "no accelerator can be read: neither NVML nor amdgpu answers"
OF_DEVICES = (
    *("hw.gpu.utilization", "train.accelerator.matrix.active", "hw.gpu.memory.usage", "hw.gpu.memory.limit"),
    *("hw.energy", "hw.errors"),
)
MOST_SECONDS = 10**12
SCOPES = ("device", "nic", "node", "pair")
_FALLS_NEVER = frozenset(name for name, metric in METRICS.items() if metric.instrument == "counter")


def sources_of(
    who: Identity, environment: Mapping[str, str], root: Path = Path("/"), *, may_start_programs: bool = False
) -> list[Source]:
    """All readers of this node, each with what it can give; programs are started only outside of training."""
    readers: list[Callable[[], Source]] = [
        lambda: host.host_source(root),
        lambda: ports.port_source(root, who.host),
        lambda: power.power_source(root),
        lambda: Source() if _hides_all(environment, "CUDA") else nvml.nvml_source(nvml.binding()),
        lambda: Source() if _hides_all(environment, "HIP", "ROCR") else amd.amd_source(root),
        lambda: clock_offset.clock_source(clock_offset.chrony_answer if may_start_programs else lambda: None),
        lambda: probe.probe_source(who.run, who.host, environment),
    ]
    return [never_raises(Source())(reader)() for reader in readers]


def _hides_all(environment: Mapping[str, str], *makers: str) -> bool:
    """Whether a program is given none of the devices, so that none is of its run."""
    return any(environment.get(f"{maker}_VISIBLE_DEVICES", "0").strip() in {"", "-1"} for maker in makers)


class Sampler:
    """Reads a node every few seconds, from a thread of its own: a driver that hangs holds up nothing else."""

    def __init__(
        self, who: Identity, clock: Clock, find_sources: Callable[[], list[Source]], root: Path = Path("/")
    ) -> None:
        self._who, self._clock, self._find_sources, self._root = who, clock, find_sources, root
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._sources: list[Source] = []
        self._steps = clock_offset.Steps()
        self._last: dict[tuple[str | None, str], float] = {}
        self._starts_us: dict[str | None, int] = {}
        self._began_us = clock.now_us()
        self.stream: Stream | None = None

    def open(self) -> Stream | None:
        """Find out what can be read, and open the stream; None where another program samples this node.

        Raises:
            OSError: the file cannot be made.
        """
        self._sources = self._find_sources()
        stream = Stream(self._who.folder, self._head(self._root), self._clock, self._who.redaction)
        try:
            stream.open()
        except FileExistsError:
            return None
        self.stream = stream
        return stream

    def _head(self, root: Path) -> dict[str, Any]:
        found = frozenset().union(*(source.scopes for source in self._sources))
        refused: dict[str, str] = {}
        declared: dict[str, Any] = {}
        extensions: dict[str, dict[str, str]] = {}
        for source in self._sources:
            refused |= source.unsupported
            declared |= source.declared
            extensions |= source.extension_metrics
        if "device" not in found:
            refused |= dict.fromkeys(OF_DEVICES, NO_DEVICES)
        scopes = (*(scope for scope in SCOPES if scope in found), "emitter")
        return {
            **head(self._who, f"node-{self._who.host}", self._began_us, scopes, started_us(root) or self._began_us),
            "host": self._who.host,
            "declared": declared,
            "unsupported": refused,
            "extension_metrics": extensions,
        }

    def start(self, pump: Pump) -> None:
        """Begin to sample into a stream that the pump writes."""
        self._thread = threading.Thread(target=self._loop, args=(pump,), name="trainspec-node", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Sample a last time, and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2.0)

    @never_raises(None)
    def _loop(self, pump: Pump) -> None:
        stream = never_raises(None)(self.open)()
        if stream is not None:
            pump.streams.append(stream)
            self.sample()
            while not self._stop.wait(INTERVAL_SECONDS):
                self.sample()
            self.sample()
        for source in self._sources:
            if source.close is not None:
                never_raises(None)(source.close)()

    @never_raises(None)
    def sample(self) -> None:
        """Everything that can be read, now."""
        stream = self.stream
        if stream is None:
            return
        for source in self._sources:
            if source.read is not None:
                never_raises(None)(self._sample)(stream, source)
        told = {DROPPED: 0, LAG: 0}
        stream.sample(self._clock.now_us(), told, start_us=self._began_us)
        self._tell_of_step(stream)

    def _sample(self, stream: Stream, source: Source) -> None:
        for reading in source.read() if source.read is not None else ():
            now_us = self._clock.now_us()
            stream.sample(
                now_us, reading.m, device=reading.device, start_us=self._start_us(reading.device, reading.m, now_us)
            )

    def _start_us(self, device: str | None, m: Mapping[str, Any], now_us: int) -> int | None:
        """When the counters of a subject began again; None where they count since the start of the head."""
        for key, value in m.items():
            if key.partition("{")[0] in _FALLS_NEVER:
                if value < self._last.get((device, key), value):
                    self._starts_us[device] = now_us
                self._last[device, key] = value
        return self._starts_us.get(device)

    def _tell_of_step(self, stream: Stream) -> None:
        jump = self._steps.since_before()
        if jump is not None:
            a = {"host.id": self._who.host, "train.clock.jump": jump}
            stream.event(self._clock.now_us(), "train.clock.stepped", a=values.attributes(a))


def started_us(root: Path) -> int | None:
    """When the host started, since when the kernel counts; None where it does not say."""
    for line in (read_text(root / "proc/stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "btime" and 0 <= (seconds := whole(value) or -1) < MOST_SECONDS:
            return seconds * 1_000_000
    return None


def start_sampler(
    who: Identity, pump: Pump, clock: Clock, environment: Mapping[str, str], *, may_start_programs: bool = False
) -> Sampler:
    """Sample this node into a stream of its own, unless another program does."""
    sampler = Sampler(who, clock, lambda: sources_of(who, environment, may_start_programs=may_start_programs))
    sampler.start(pump)
    return sampler
