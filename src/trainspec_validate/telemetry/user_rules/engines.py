"""Opens the tables on an engine: DuckDB, Polars or Spark, behind the lazy tables of Narwhals."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainspec_validate.telemetry.formats.source import SourceError
from trainspec_validate.telemetry.user_rules.model import Engine, Tables
from trainspec_validate.telemetry.user_rules.tables import SERIES_KEYS, Written, attribute_columns

if TYPE_CHECKING:
    import narwhals as nw

_MEMORY = "2GB"
"""What DuckDB holds before it writes to the directory of the tables."""


@contextmanager
def opened(written: Written, engine: Engine) -> Iterator[Tables]:
    """The tables on an engine.

    Raises:
        SourceError: the engine is not installed.
    """
    try:
        import narwhals as nw  # noqa: PLC0415 - an extra

        read, close = _READERS[engine](written.directory)
    except ImportError as error:
        extras = "user-rules,spark" if engine == "spark" else "user-rules"
        raise SourceError(f"{engine} needs {error.name}", f"pip install 'trainspec-validate[{extras}]'") from None
    try:
        samples: nw.LazyFrame[Any] = nw.from_native(read("samples")).lazy()
        events: nw.LazyFrame[Any] = nw.from_native(read("events")).lazy()
        series = _series(samples)
        yield Tables(samples, events, series, frozenset(written.metrics), frozenset(written.events))
    finally:
        close()


def _series(samples: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """What there is of each series."""
    import narwhals as nw  # noqa: PLC0415

    value = nw.col("value")
    return samples.group_by(*SERIES_KEYS).agg(
        *(nw.col(name).max() for name in attribute_columns().values()),
        nw.len().alias("num_values"),
        nw.col("time_us").min().alias("first_time_us"),
        nw.col("time_us").max().alias("last_time_us"),
        nw.col("step").min().alias("first_step"),
        nw.col("step").max().alias("last_step"),
        value.min().alias("minimum"),
        value.max().alias("maximum"),
        value.mean().alias("mean"),
        nw.col("location").min(),
    )


Reader = Callable[[str], Any]


def _duckdb(directory: Path) -> tuple[Reader, Callable[[], None]]:
    import duckdb  # noqa: PLC0415 - an extra, and slow to load

    settings: Mapping[str, str] = {
        "memory_limit": _MEMORY,
        "temp_directory": str(directory / "spill"),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    connection = duckdb.connect(":memory:", config=dict(settings))
    return (lambda name: connection.read_parquet(_file(directory, name)), connection.close)


def _polars(directory: Path) -> tuple[Reader, Callable[[], None]]:
    import polars as pl  # noqa: PLC0415 - an extra, and slow to load

    return (lambda name: pl.scan_parquet(_file(directory, name)), lambda: None)


def _spark(directory: Path) -> tuple[Reader, Callable[[], None]]:
    """The session of this process, or a local one; executors on other machines must see the temporary directory."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, and slow to load

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # a local session would take any python3
    session = SparkSession.getActiveSession() or SparkSession.builder.appName("trainspec-validate").getOrCreate()
    return (lambda name: session.read.parquet(_file(directory, name)), lambda: None)


def _file(directory: Path, name: str) -> str:
    return str(directory / f"{name}.parquet")


_READERS: Mapping[str, Callable[[Path], tuple[Reader, Callable[[], None]]]] = {
    "duckdb": _duckdb,
    "polars": _polars,
    "spark": _spark,
}
