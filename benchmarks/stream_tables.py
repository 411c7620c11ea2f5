"""The only place that writes large metric streams as Parquet: a row for a record, a column for each key and metric."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fleet import START_US, Columns, Fleet
from streams import Size, heads, stretches

HEADS_KEY = b"trainspec.heads"
"""Key of the metadata of the file under which its heads stand, one in a line."""
ROWS_PER_GROUP = 500_000


def _common(columns: Columns) -> dict[str, Any]:
    num = columns["time"].size
    return {
        "time_us": columns["time"].ravel(),
        "seq": columns["seq"].ravel(),
        "att": np.zeros(num, np.int64),
        "step": columns["step"].ravel(),
    }


def _names(prefix: str, numbers: Any, width: int) -> pa.Array:
    """Names as indices into the different ones."""
    distinct, indices = np.unique(numbers.ravel(), return_inverse=True)
    texts = pa.array([f"{prefix}{number:0{width}}" for number in distinct.tolist()])
    return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), texts)


def _decimal(columns: Columns, name: str, digits: int) -> Any:
    return (columns[name] + columns[f"{name}_fraction"] / 10**digits).ravel()


def rank_table(columns: Columns) -> pa.Table:
    """What ranks write."""
    zeros = np.zeros(columns["time"].size)
    found = _common(columns) | {
        "emitter": _names("rank-", columns["rank"], 6),
        "train.step.warmup": np.zeros(columns["time"].size, bool),
        "train.rank.step": columns["step"].ravel().astype(float),
        "train.step.duration": _decimal(columns, "seconds", 5),
        "train.data.wait.time": (columns["tick"] + columns["wait_fraction"] / 1e4).ravel(),
        "train.memory.allocator.reserved": columns["reserved"].ravel().astype(float),
        "train.memory.allocator.active": columns["active"].ravel().astype(float),
        "train.memory.allocator.retries": zeros,
        "train.memory.oom": zeros,
    }
    operations, groups = columns["operations"].ravel().astype(float), columns["group"].ravel()
    for group in np.unique(groups).tolist():
        mine = pa.array(operations, mask=groups != group)
        found[f"train.collective.sequence{{train.group.name=dp-{group}}}"] = mine
    return pa.table(found)


def device_table(columns: Columns) -> pa.Table:
    """What agents write of devices."""
    found = _common(columns) | {
        "emitter": _names("node/h-", columns["node"], 6),
        "device": _names("GPU-", columns["rank"], 8),
        "hw.gpu.utilization": (columns["busy"] / 1e4).ravel(),
        "train.accelerator.matrix.active": (columns["matrix"] / 1e4).ravel(),
        "hw.gpu.memory.usage": columns["used"].ravel().astype(float),
        "hw.power{hw.type=gpu}": _decimal(columns, "watts", 1),
        "hw.energy{hw.type=gpu}": columns["joules"].ravel().astype(float),
        "hw.temperature{hw.sensor_location=core}": _decimal(columns, "degrees", 1),
        "train.accelerator.clock.frequency": columns["hertz"].ravel().astype(float),
        "hw.errors{error.type=uncorrected,hw.type=gpu}": np.zeros(columns["time"].size),
    }
    return pa.table(found)


def node_table(columns: Columns) -> pa.Table:
    """What agents write of their hosts."""
    found = _common(columns) | {
        "emitter": _names("node/h-", columns["node"], 6),
        "system.memory.utilization{system.memory.state=used}": (columns["memory"] / 1e4).ravel(),
        "system.memory.utilization{system.memory.state=cached}": (columns["cached"] / 1e4).ravel(),
        "train.host.memory.pressure": (columns["pressure"] / 1e4).ravel(),
        "train.clock.offset": (columns["offset"] / 1e6).ravel(),
        "train.clock.error": (columns["error"] / 1e7).ravel(),
    }
    return pa.table(found)


def agent_table(columns: Columns) -> pa.Table:
    """What agents write of themselves."""
    common = _common(columns)
    found = common | {
        "time_us": common["time_us"] + 1000,
        "seq": common["seq"] + 1,
        "start_us": np.full(columns["time"].size, START_US),
        "emitter": _names("node/h-", columns["node"], 6),
        "train.telemetry.dropped": np.zeros(columns["time"].size),
        "train.telemetry.lag": (columns["lag"] / 1e3).ravel(),
    }
    return pa.table(found)


def tables(ranks: range, size: Size) -> Iterator[pa.Table]:
    """The rows of a file, some ticks at a time."""
    fleet = Fleet(ranks, size.seed)
    for first, num in stretches(size.num_ticks, len(ranks)):
        nodes = fleet.node_columns(first, num)
        parts = [
            rank_table(fleet.rank_columns(first, num)),
            device_table(fleet.device_columns(first, num)),
            node_table(nodes),
            agent_table(nodes),
        ]
        yield pa.concat_tables(parts, promote_options="permissive").sort_by("time_us")


def write_parquet(folder: Path, size: Size) -> list[Path]:
    """Write the streams as Parquet with zstd; as many records as JSON Lines of that size would hold."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, ranks in enumerate(size.shares()):
        path = folder / f"part-{number:05}.parquet"
        found = tables(ranks, size)
        first = next(found)
        schema = first.schema.with_metadata({HEADS_KEY: heads(ranks)})
        with pq.ParquetWriter(path, schema, compression="zstd", compression_level=3) as writer:
            writer.write_table(first.cast(schema), ROWS_PER_GROUP)
            for table in found:
                writer.write_table(table.cast(schema), ROWS_PER_GROUP)
        paths.append(path)
    return paths
