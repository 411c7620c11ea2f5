"""The Parquet twin of a stream is held to the schema of records, whoever wrote it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from split_makers import seen

from tests.streams_made.run import make_run
from tests.streams_made.shape import Shape
from trainspec_validate.telemetry.fold.engine import read_run, run_file
from trainspec_validate.telemetry.formats import parquet as twin
from trainspec_validate.telemetry.view.run_view import RunView

pa = pytest.importorskip("pyarrow")
STREAM = make_run(Shape(num_nodes=1, devices_per_node=2, num_steps=40)).streams[1]
RECORDS = [STREAM.head, *STREAM.records]


def table(folder: Path) -> Any:
    import pyarrow.parquet as pq

    twin.write(RECORDS, folder / "sound.parquet")
    return pq.read_table(folder / "sound.parquet")


def read(rows: Any, folder: Path, **how: Any) -> RunView:
    import pyarrow.parquet as pq

    path = folder / "x.parquet"
    pq.write_table(rows, path, **how)
    return read_run([run_file(0, path, path.name)])


def changed(rows: Any, name: str, place: int, value: object) -> Any:
    """The table with another value in one row, which then counts without its text."""
    for column, new in ((name, value), ("json", None)):
        values = rows.column(column).to_pylist()
        values[place] = new
        kind = rows.schema.field(column).type
        rows = rows.set_column(rows.schema.get_field_index(column), column, pa.array(values, kind))
    return rows


WRONG = {
    "time_us": (-5, 2**53),
    "seq": (-1, 10**15),
    "att": (-2, 1_000_001),
    "rank": (10**8,),
    "step": (10**12,),
    "host": ("", "a\nb", "h" * 257),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_row_that_no_record_can_be(name: str, value: object, tmp_path: Path) -> None:
    view = read(changed(table(tmp_path), name, 7, value), tmp_path)
    assert [(damage.requirement, damage.location.offset) for damage in view.damage] == [("TS-TEL-001", 7)]
    assert view.num_records == len(RECORDS) - 2


@pytest.mark.parametrize("name", ["Bad Name", "x{", "x\n", "m" * 513])
def test_a_column_that_no_metric_can_be(name: str, tmp_path: Path) -> None:
    rows = table(tmp_path)
    view = read(rows.append_column(name, pa.array([1.0] * rows.num_rows)), tmp_path)
    assert ["has no name of a metric" in damage.message for damage in view.damage] == [True]
    assert name not in {info.text for info in view.keys}
    assert view.num_records == len(STREAM.records)


def test_texts_without_a_dictionary(tmp_path: Path) -> None:
    """As other programs write them back."""
    rows = table(tmp_path)
    wanted = seen(read(rows, tmp_path))
    for name in ("host", "device", "emitter"):
        plain = rows.column(name).cast(pa.string())
        rows = rows.set_column(rows.schema.get_field_index(name), name, plain)
    assert seen(read(rows, tmp_path, store_schema=True)) == wanted


def test_pieces_of_any_size_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(tmp_path)
    wanted = seen(read(rows, tmp_path))
    monkeypatch.setattr(twin, "CELLS_AT_ONCE", 200)
    assert seen(read(rows, tmp_path, row_group_size=50)) == wanted


def test_a_twin_that_is_damaged_behind_its_start(tmp_path: Path) -> None:
    rows = table(tmp_path)
    read(rows, tmp_path, row_group_size=20)
    path = tmp_path / "x.parquet"
    content = bytearray(path.read_bytes())
    middle = len(content) // 3
    content[middle : middle + 4_000] = bytes(4_000)
    path.write_bytes(content)
    view = read_run([run_file(0, path, path.name)])
    assert "no sound Parquet" in view.damage[-1].message


def test_a_file_of_another_format_that_ends_early_gives_what_it_has(tmp_path: Path) -> None:
    line = ':::MLLOG {"time_ms": %d, "event_type": "POINT_IN_TIME", "key": "x", "value": 1, "metadata": {}}\n'
    packed = gzip.compress("".join(line % (1_700_000_000_000 + number * number) for number in range(5_000)).encode())
    path = tmp_path / "x.log.gz"
    path.write_bytes(packed[: len(packed) // 2])
    view = read_run([run_file(0, path, path.name)])
    assert "end early" in view.damage[-1].message, view.damage[-3:]
