"""Spark folds the same digest, in however many shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from split_makers import LAYOUTS, places, put, seen

from tests.spark_sessions import local_session
from tests.streams_made.run import make_run
from tests.streams_made.shape import Shape
from trainspec_validate.telemetry.fold.engine import Options, read_run
from trainspec_validate.telemetry.formats.source import SourceError

STREAMS = list(make_run(Shape(num_nodes=1, devices_per_node=2, num_steps=70, faults=True)).streams)


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    with local_session("ERROR"):
        yield


@pytest.mark.parametrize("shares", [1, 3, 7])
def test_any_number_of_shares_gives_the_same(shares: int, tmp_path: Path) -> None:
    files = put(LAYOUTS["one file by time"](STREAMS), tmp_path)
    wanted, found = read_run(files), read_run(files, Options(num_workers=shares, engine="spark"))
    assert seen(found) == seen(wanted)
    assert places(found) == places(wanted)


def test_files_whose_heads_stand_in_other_files(tmp_path: Path) -> None:
    ((_, text),) = LAYOUTS["one file by time"](STREAMS).items()
    lines = text.splitlines(keepends=True)
    heads, first, second = lines[: len(STREAMS)], lines[len(STREAMS) : 400], lines[400:]
    files = put({"a": b"".join(heads + second), "b": b"".join(first)}, tmp_path)
    assert seen(read_run(files, Options(num_workers=2, engine="spark"))) == seen(read_run(files))


def test_records_in_no_order_are_refused_with_a_way_out(tmp_path: Path) -> None:
    files = put(LAYOUTS["lines in any order"](STREAMS), tmp_path)
    with pytest.raises(SourceError, match="use the local engine"):
        read_run(files, Options(num_workers=2, engine="spark"))
