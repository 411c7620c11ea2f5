"""Spark folds the same digest, in however many shares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from split_makers import LAYOUTS, places, put, seen

from tests.spark_sessions import local_session
from tests.streams_made.run import make_run
from tests.streams_made.shape import Shape
from trainspec_validate.system.boundary import TogetherUnreadableError, UnreadableError
from trainspec_validate.telemetry.fold.engine import Options, read_run

STREAMS = list(make_run(Shape(num_nodes=1, devices_per_node=2, num_steps=70, faults=True)).streams)


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    with local_session("ERROR"):
        yield


@pytest.mark.slow
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
    with pytest.raises(TogetherUnreadableError, match="not in order"):
        read_run(files, Options(num_workers=2, engine="spark"))


@pytest.mark.slow
def test_a_relative_path_is_of_the_directory_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = put(LAYOUTS["one file by time"](STREAMS), tmp_path)
    wanted = read_run(files)
    monkeypatch.chdir(tmp_path)  # after the workers were started
    relative = [replace(file, path=file.path.relative_to(tmp_path)) for file in files]
    assert seen(read_run(relative, Options(num_workers=3, engine="spark"))) == seen(wanted)


def test_what_a_worker_cannot_read_names_the_file(tmp_path: Path) -> None:
    files = put(LAYOUTS["one file by time"](STREAMS), tmp_path)
    files[0].path.unlink()
    with pytest.raises(UnreadableError, match=f"{files[0].name}: .*no such file"):
        read_run(files, Options(num_workers=1, engine="spark"))


def test_without_spark_the_run_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    files = put(LAYOUTS["one file by time"](STREAMS), tmp_path)
    with pytest.raises(TogetherUnreadableError, match="Spark is not installed"):
        read_run(files, Options(engine="spark"))
