"""Makes large metric streams to measure with: ranks and node agents of one attempt, at any size.

Run with `python benchmarks/streams.py FOLDER --megabytes 1000 --ranks 1024 --files 16`. For each tick of ten seconds
every rank writes a record of eight metrics, and the agent of its node one of nine for each device, and for the host and
for itself.
Values, times and sequence numbers are those of a conformant run; there is no stream of the job. The same seed makes the
same bytes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from fleet import (
    DEVICES_PER_NODE,
    MEMORY_LIMIT_BYTES,
    OPERATIONS_PER_STEP,
    RECORDS_PER_AGENT_TICK,
    START_US,
    STEPS_PER_TICK,
    Columns,
    Fleet,
)
from number_lines import Blank, Lines

BLOCK_BYTES = 4_000_000
RANK_METRICS, DEVICE_METRICS, NODE_METRICS, AGENT_METRICS = 8, 9, 5, 2


@dataclass(frozen=True, slots=True)
class Size:
    """How much to make."""

    num_bytes: int
    num_ranks: int
    num_files: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        if self.num_ranks % DEVICES_PER_NODE or self.num_ranks < DEVICES_PER_NODE:
            raise ValueError(f"{self.num_ranks} ranks are not whole nodes of {DEVICES_PER_NODE}")

    @property
    def num_nodes(self) -> int:
        """Nodes of the job."""
        return self.num_ranks // DEVICES_PER_NODE

    @property
    def num_ticks(self) -> int:
        """Ticks that come nearest to the size, at least 2."""
        left = self.num_bytes - len(heads(range(self.num_ranks)))
        return max(2, round(left / bytes_per_tick(500, self.num_ranks)))

    @property
    def num_samples(self) -> int:
        """Values in all records."""
        per_node = DEVICES_PER_NODE * (RANK_METRICS + DEVICE_METRICS) + NODE_METRICS + AGENT_METRICS
        return per_node * self.num_nodes * self.num_ticks

    def shares(self) -> list[range]:
        """Ranks of each file; nodes stay together."""
        cuts = [self.num_nodes * number // self.num_files * DEVICES_PER_NODE for number in range(self.num_files + 1)]
        return [range(begin, end) for begin, end in pairwise(cuts) if begin < end]


@lru_cache(maxsize=4)
def heads(ranks: range) -> bytes:
    """A head for each rank, and for the agent of each node."""
    common = (
        f'{{"k":"head","apiVersion":"trainspec/v1","kind":"MetricStream","run":"r-big","att":0,"time_us":{START_US}'
    )
    cadence = '"cadence_seconds":{"C30":10.0,"C60":10.0}'
    lines = []
    for rank in ranks:
        node, local = divmod(rank, DEVICES_PER_NODE)
        place = f'"host":"h-{node:06}"'
        lines.append(
            f'{common},"emitter":"rank-{rank:06}","scopes":["rank","group"],"rank":{rank},{place},'
            f'"device":"GPU-{rank:08}",{cadence}}}\n'
        )
        if not local:
            declared = '"declared":{"train.power.reading":"average","train.clock.reference":"utc-ptp"}'
            scopes = '"scopes":["device","node","emitter"]'
            lines.append(f'{common},"emitter":"node/h-{node:06}",{scopes},{place},{cadence},{declared}}}\n')
    return "".join(lines).encode()


@dataclass(frozen=True, slots=True)
class Widths:
    """Digits of the numbers that grow with time and are the same for all in a tick."""

    tick: int
    step: int
    operations: int
    agent_seq: int

    @classmethod
    def at(cls, tick: int) -> Widths:
        """Those of a tick."""
        step = STEPS_PER_TICK * (tick + 1)
        numbers = (tick, step, step * OPERATIONS_PER_STEP, tick * RECORDS_PER_AGENT_TICK)
        return cls(*(len(str(number)) for number in numbers))


@dataclass(frozen=True, slots=True)
class Forms:
    """The lines of one tick, by who writes them."""

    rank: Lines
    device: Lines
    node: Lines
    agent: Lines


@lru_cache(maxsize=64)
def forms(widths: Widths) -> Forms:
    """The lines for numbers of these widths."""
    agent_start = [b'{"k":"m","time_us":', Blank("time", 16), b',"seq":', Blank("seq", widths.agent_seq)]
    agent_start += [b',"emitter":"node/h-', Blank("node", 6), b'","att":0,"step":', Blank("step", widths.step)]
    return Forms(
        rank_line(widths),
        device_line(agent_start),
        Lines([*agent_start, *node_values()]),
        Lines([*agent_start, *agent_values()]),
    )


def rank_line(widths: Widths) -> Lines:
    """The record of a rank."""
    return Lines(
        [
            *(b'{"k":"m","time_us":', Blank("time", 16), b',"seq":', Blank("seq", widths.tick)),
            *(b',"emitter":"rank-', Blank("rank", 6), b'","att":0,"step":', Blank("step", widths.step)),
            *(b',"m":{"train.rank.step":', Blank("step", widths.step)),
            *(b',"train.step.duration":', Blank("seconds", 1), b".", Blank("seconds_fraction", 5)),
            *(b',"train.data.wait.time":', Blank("tick", widths.tick), b".", Blank("wait_fraction", 4)),
            *(b',"train.collective.sequence{train.group.name=dp-', Blank("group", 1), b'}":'),
            Blank("operations", widths.operations),
            *(b',"train.memory.allocator.reserved":', Blank("reserved", 11)),
            *(b',"train.memory.allocator.active":', Blank("active", 11)),
            b',"train.memory.allocator.retries":0,"train.memory.oom":0}}\n',
        ]
    )


def device_line(start: list[bytes | Blank]) -> Lines:
    """The record of a device."""
    return Lines(
        [
            *start,
            *(b',"device":"GPU-', Blank("rank", 8), b'","m":{"hw.gpu.utilization":0.', Blank("busy", 4)),
            *(b',"train.accelerator.matrix.active":0.', Blank("matrix", 4)),
            *(b',"hw.gpu.memory.usage":', Blank("used", 11)),
            *(b',"hw.power{hw.type=gpu}":', Blank("watts", 3), b".", Blank("watts_fraction", 1)),
            *(b',"hw.energy{hw.type=gpu}":', Blank("joules", 10)),
            b',"hw.temperature{hw.sensor_location=core}":',
            *(Blank("degrees", 2), b".", Blank("degrees_fraction", 1)),
            *(b',"train.accelerator.clock.frequency":', Blank("hertz", 10)),
            b',"hw.errors{error.type=uncorrected,hw.type=gpu}":0,"hw.gpu.memory.limit":%d}}\n' % MEMORY_LIMIT_BYTES,
        ]
    )


def node_values() -> list[bytes | Blank]:
    """The values of a host."""
    return [
        *(b',"m":{"system.memory.utilization{system.memory.state=used}":0.', Blank("memory", 4)),
        *(b',"system.memory.utilization{system.memory.state=cached}":0.', Blank("cached", 4)),
        *(b',"train.host.memory.pressure":0.', Blank("pressure", 4)),
        *(b',"train.clock.offset":0.0000', Blank("offset", 2)),
        *(b',"train.clock.error":0.0000', Blank("error", 3), b"}}\n"),
    ]


def agent_values() -> list[bytes | Blank]:
    """Records of an agent about itself."""
    return [b',"m":{"train.telemetry.dropped":0,"train.telemetry.lag":0.0', Blank("lag", 2), b"}}\n"]


def bytes_per_tick(tick: int, num_ranks: int) -> int:
    """Bytes that so many ranks and their agents write in a tick."""
    form = forms(Widths.at(tick))
    return num_ranks * (len(form.rank) + len(form.device)) + num_ranks // DEVICES_PER_NODE * (
        len(form.node) + len(form.agent)
    )


def stretches(num_ticks: int, num_ranks: int) -> Iterator[tuple[int, int]]:
    """First tick and number of ticks that are written at once: equally wide numbers, and not too many bytes."""
    first = 0
    while first < num_ticks:
        limit = max(1, BLOCK_BYTES // bytes_per_tick(first, num_ranks))
        num = 1
        while num < limit and first + num < num_ticks and Widths.at(first + num) == Widths.at(first):
            num += 1
        yield first, num
        first += num


def blocks(ranks: range, num_ticks: int, seed: int) -> Iterator[memoryview]:
    """The lines of a file after its heads, in order of tick."""
    fleet = Fleet(ranks, seed)
    for first, num in stretches(num_ticks, len(ranks)):
        form = forms(Widths.at(first))
        nodes = fleet.node_columns(first, num)
        agents = nodes | {"seq": nodes["seq"] + 1, "time": nodes["time"] + 1000}
        parts: list[tuple[Lines, Columns]] = [
            (form.rank, fleet.rank_columns(first, num)),
            (form.device, fleet.device_columns(first, num)),
            (form.node, nodes),
            (form.agent, agents),
        ]
        out = np.empty((num, bytes_per_tick(first, len(ranks))), np.uint8)
        start = 0
        for lines, columns in parts:
            num_here = columns["time"].shape[1]
            end = start + num_here * len(lines)
            lines.fill(_rows(out[:, start:end], num_here, len(lines)), columns)
            start = end
        yield out.data.cast("B")


def _rows(view: Any, num: int, length: int) -> Any:
    """A view of lines in a stretch of each tick, without a copy."""
    strides = (view.strides[0], length, 1)
    return np.lib.stride_tricks.as_strided(view, (view.shape[0], num, length), strides)


def write_jsonl(folder: Path, size: Size) -> list[Path]:
    """Write the streams as JSON Lines, so many files of about equal size."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, ranks in enumerate(size.shares()):
        path = folder / f"part-{number:05}.jsonl"
        with path.open("wb", buffering=0) as file:
            file.write(heads(ranks))
            for block in blocks(ranks, size.num_ticks, size.seed):
                file.write(block)
        paths.append(path)
    return paths


def main(arguments: Sequence[str] | None = None) -> None:
    """Make streams and say how fast that was."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--files", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parquet", action="store_true", help="write Parquet with zstd instead of JSON Lines")
    given = parser.parse_args(arguments)
    size = Size(int(given.megabytes * 1e6), given.ranks, given.files, given.seed)
    begin = time.perf_counter()
    if given.parquet:
        from stream_tables import write_parquet  # noqa: PLC0415

        paths = write_parquet(given.folder, size)
    else:
        paths = write_jsonl(given.folder, size)
    seconds = time.perf_counter() - begin
    written, samples = sum(path.stat().st_size for path in paths), size.num_samples
    print(f"{len(paths)} files, {written / 1e6:.1f} MB, {samples / 1e6:.1f} M samples, {written / samples:.1f} B each")
    print(f"{seconds:.2f} s, {written / seconds / 1e6:.0f} MB/s")


if __name__ == "__main__":
    main()
