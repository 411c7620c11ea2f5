"""Writes large metric streams as Parquet, in the layout of the twin that the validator reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fleet import DEVICES_PER_NODE, MEMORY_LIMIT_BYTES, Columns, Fleet
from streams import Size, heads, stretches

from trainspec_validate.telemetry.formats.parquet import MARK, ROWS_OF_A_GROUP, VERSION

RANK_KEYS = (
    "train.rank.step",
    "train.step.duration",
    "train.data.wait.time",
    *(f"train.collective.sequence{{train.group.name=dp-{group}}}" for group in range(DEVICES_PER_NODE)),
    "train.memory.allocator.reserved",
    "train.memory.allocator.active",
    "train.memory.allocator.retries",
    "train.memory.oom",
)
DEVICE_KEYS = (
    "hw.gpu.utilization",
    "train.accelerator.matrix.active",
    "hw.gpu.memory.usage",
    "hw.power{hw.type=gpu}",
    "hw.energy{hw.type=gpu}",
    "hw.temperature{hw.sensor_location=core}",
    "train.accelerator.clock.frequency",
    "hw.errors{error.type=uncorrected,hw.type=gpu}",
    "hw.gpu.memory.limit",
)
NODE_KEYS = (
    "system.memory.utilization{system.memory.state=used}",
    "system.memory.utilization{system.memory.state=cached}",
    "train.host.memory.pressure",
    "train.clock.offset",
    "train.clock.error",
)
AGENT_KEYS = ("train.telemetry.dropped", "train.telemetry.lag")
_WORDS = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in ("time_us", "seq", "att", "step", "rank")),
        *(pa.field(name, _WORDS) for name in ("host", "device", "emitter")),
        *(pa.field(key, pa.float64()) for key in (*RANK_KEYS, *DEVICE_KEYS, *NODE_KEYS, *AGENT_KEYS)),
        pa.field("json", pa.string()),
    ],
    metadata={MARK: VERSION},
)


class Rows:
    """Rows of one kind of record; columns that it does not have are empty."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.num = columns["time"].size
        self.filled: dict[str, Any] = {name: self.whole(column) for name, column in _SAME.items()}
        self.filled["att"] = np.zeros(self.num, np.int64)

    def whole(self, name: str) -> Any:
        """A column as it is."""
        return self.columns[name].ravel()

    def decimal(self, name: str, digits: int) -> Any:
        """A column with its fraction."""
        return (self.columns[name] + self.columns[f"{name}_fraction"] / 10**digits).ravel()

    def name(self, column: str, prefix: str, name: str, width: int) -> None:
        """Fill a column with names that hold a number."""
        distinct, indices = np.unique(self.whole(name), return_inverse=True)
        texts = pa.array([f"{prefix}{number:0{width}}" for number in distinct.tolist()])
        self.filled[column] = pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), texts)

    def values(self, keys: Sequence[str], columns: Sequence[Any]) -> None:
        """Fill the columns of metrics."""
        for key, column in zip(keys, columns, strict=True):
            self.filled[key] = column if isinstance(column, pa.Array) else column.astype(float)

    def table(self) -> pa.Table:
        """The rows."""
        found = [self.filled.get(field.name, pa.nulls(self.num, field.type)) for field in SCHEMA]
        return pa.table([pa.array(column) for column in found], names=SCHEMA.names)


_SAME = {"time_us": "time", "seq": "seq", "step": "step"}


def rank_rows(columns: Columns) -> Rows:
    """Records of ranks."""
    rows = Rows(columns)
    rows.filled["rank"] = rows.whole("rank")
    rows.name("emitter", "rank-", "rank", 6)
    rows.name("device", "GPU-", "rank", 8)
    operations, group = rows.whole("operations").astype(float), rows.whole("group")
    zeros = np.zeros(rows.num)
    rows.values(
        RANK_KEYS,
        [
            *(rows.whole("step"), rows.decimal("seconds", 5), rows.whole("tick") + rows.whole("wait_fraction") / 1e4),
            *(pa.array(operations, mask=group != number) for number in range(DEVICES_PER_NODE)),
            *(rows.whole("reserved"), rows.whole("active"), zeros, zeros),
        ],
    )
    return rows


def device_rows(columns: Columns) -> Rows:
    """Records of agents about devices."""
    rows = Rows(columns)
    rows.name("emitter", "node/h-", "node", 6)
    rows.name("host", "h-", "node", 6)
    rows.name("device", "GPU-", "rank", 8)
    rows.values(
        DEVICE_KEYS,
        [
            *(rows.whole("busy") / 1e4, rows.whole("matrix") / 1e4, rows.whole("used"), rows.decimal("watts", 1)),
            *(rows.whole("joules"), rows.decimal("degrees", 1), rows.whole("hertz"), np.zeros(rows.num)),
            np.full(rows.num, MEMORY_LIMIT_BYTES),
        ],
    )
    return rows


def node_rows(columns: Columns) -> Rows:
    """Records of agents about their hosts."""
    rows = Rows(columns)
    rows.name("emitter", "node/h-", "node", 6)
    rows.name("host", "h-", "node", 6)
    shares = (rows.whole(name) / 1e4 for name in ("memory", "cached", "pressure"))
    rows.values(NODE_KEYS, [*shares, rows.whole("offset") / 1e6, rows.whole("error") / 1e7])
    return rows


def agent_rows(columns: Columns) -> Rows:
    """Records of agents about themselves."""
    rows = Rows(columns | {"time": columns["time"] + 1000, "seq": columns["seq"] + 1})
    rows.name("emitter", "node/h-", "node", 6)
    rows.name("host", "h-", "node", 6)
    rows.values(AGENT_KEYS, [np.zeros(rows.num), rows.whole("lag") / 1e3])
    return rows


def head_table(ranks: range) -> pa.Table:
    """A row for each head."""
    texts = heads(ranks).decode().splitlines()
    empty = [pa.nulls(len(texts), field.type) for field in SCHEMA][:-1]
    return pa.table([*empty, pa.array(texts)], names=SCHEMA.names)


def tables(ranks: range, size: Size) -> Iterator[pa.Table]:
    """The rows of a file, some ticks at a time."""
    yield head_table(ranks)
    fleet = Fleet(ranks, size.seed)
    for first, num in stretches(size.num_ticks, len(ranks)):
        nodes = fleet.node_columns(first, num)
        parts = [
            rank_rows(fleet.rank_columns(first, num)).table(),
            device_rows(fleet.device_columns(first, num)).table(),
            node_rows(nodes).table(),
            agent_rows(nodes).table(),
        ]
        yield pa.concat_tables(parts).unify_dictionaries().sort_by([("seq", "ascending"), ("time_us", "ascending")])


def groups(ranks: range, size: Size) -> Iterator[pa.Table]:
    """The rows of a file in groups as large as those that the validator writes."""
    parts: list[pa.Table] = []
    num = 0
    for table in tables(ranks, size):
        parts.append(table.cast(SCHEMA))
        num += table.num_rows
        if num >= ROWS_OF_A_GROUP:
            whole = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
            cut = num - num % ROWS_OF_A_GROUP
            yield whole.slice(0, cut)
            parts, num = [whole.slice(cut)], num - cut
    yield pa.concat_tables(parts).unify_dictionaries()


def write_parquet(folder: Path, size: Size) -> list[Path]:
    """Write the streams as Parquet with zstd; as many records as JSON Lines of that size would hold."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, ranks in enumerate(size.shares()):
        path = folder / f"part-{number:05}.parquet"
        with pq.ParquetWriter(path, SCHEMA, compression="zstd", compression_level=3) as writer:
            for table in groups(ranks, size):
                writer.write_table(table, ROWS_OF_A_GROUP)
        paths.append(path)
    return paths
