"""The rules of the guide give identical rows on DuckDB, Polars and Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rule_makers import all_rows, files_in, shown_in_guide, tables_of

from tests.spark_sessions import local_session
from tests.streams_made.run import make_run
from tests.streams_made.shape import Shape
from tests.streams_made.write import by_emitter, put
from trainspec_validate.telemetry.user_rules import read_rules
from trainspec_validate.telemetry.user_rules.model import Engine

Rows = dict[str, list[dict[str, Any]]]
ROUNDED = {"mean", "mean_of_three", "usual", "ratio", "seconds"}
"""Sums and quotients: engines differ in their last digit."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made run, and the rules of the guide with limits that it breaks."""
    folder = tmp_path_factory.mktemp("engines")
    put(by_emitter(make_run(Shape(faults=True)).streams), folder / "run")
    yaml = shown_in_guide("acme.yaml").replace("[ratio, 1.5]", "[ratio, 1.01]") + "    limit: 1000\n"
    (folder / "acme.yaml").write_text(yaml)
    (folder / "heat.yaml").write_text(shown_in_guide("heat.yaml").replace("[above, 15]", "[above, 0.5]"))
    (folder / "acme_rules.py").write_text(shown_in_guide("acme_rules.py"))
    return folder


def rows_on(engine: Engine, run: Path) -> Rows:
    rules = read_rules([str(run / name) for name in ("acme.yaml", "heat.yaml", "acme_rules.py")], engine)
    with tables_of(files_in(run / "run"), run / f"tables-{engine}", engine) as tables:
        return all_rows(rules, tables) | {"series": _series(tables.series)}


def _series(frame: Any) -> list[dict[str, Any]]:
    found = frame.sort("location", "series", "rank", "device").collect("pyarrow").to_native().to_pylist()
    return [dict(sorted(row.items())) for row in found]


def exact(rows: Rows) -> Rows:
    """The rows without what engines sum in another order."""
    return {rule: [{k: v for k, v in row.items() if k not in ROUNDED} for row in found] for rule, found in rows.items()}


def same(some: Rows, others: Rows) -> None:
    assert exact(some) == exact(others)
    for rule, found in some.items():
        for row, other in zip(found, others[rule], strict=True):
            rounded = {name: value for name, value in other.items() if name in ROUNDED}
            assert {name: row[name] for name in rounded} == pytest.approx(rounded, rel=1e-12)


@pytest.fixture(scope="module")
def on_duckdb(run: Path) -> Rows:
    return rows_on("duckdb", run)


@pytest.mark.slow
def test_every_rule_finds_something(on_duckdb: Rows) -> None:
    assert {rule: bool(found) for rule, found in on_duckdb.items()} == dict.fromkeys(
        ("ACME-001", "ACME-002", "ACME-101", "series"), True
    )


def test_polars_gives_the_rows_of_duckdb(run: Path, on_duckdb: Rows) -> None:
    same(rows_on("polars", run), on_duckdb)


@pytest.fixture
def spark() -> Iterator[None]:
    with local_session("ERROR", num_threads=1):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_spark_gives_the_rows_of_duckdb(run: Path, on_duckdb: Rows) -> None:
    same(rows_on("spark", run), on_duckdb)
