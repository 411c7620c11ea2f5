"""A footer of Parquet with more records than a library should make objects of is refused before it makes any."""

from __future__ import annotations

import io
import random
import resource
import struct
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fuzz.parquet_footers import MAGIC, fields, made, many, rewritten, text, zigzag
from trainspec_validate.system.budget import Limit, OverLimitError
from trainspec_validate.telemetry.formats import parquet, thrift
from trainspec_validate.telemetry.formats.thrift import check_records

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


def written(num_columns: int, rows_of_a_group: int) -> bytes:
    buffer = io.BytesIO()
    table = pa.table({f"metric {number}": [1.0, None, 3.5] * 10 for number in range(num_columns)})
    pq.write_table(table, buffer, row_group_size=rows_of_a_group)
    return buffer.getvalue()


def footer_of(content: bytes) -> bytes:
    (length,) = struct.unpack("<I", content[-8:-4])
    return content[-8 - length : -8]


def of_chunks(num_groups: int, num_chunks: int) -> bytes:
    """A footer of column chunks of three bytes each."""
    chunk = fields((2, _I64, zigzag(4)))
    group = fields((1, _LIST, many(_STRUCT, [chunk] * num_chunks)), (2, _I64, zigzag(1)), (3, _I64, zigzag(1)))
    schema = many(_STRUCT, [fields((4, _BINARY, text(b"s")), (5, _I32, zigzag(0)))])
    return fields(
        *(
            (1, _I32, zigzag(1)),
            (2, _LIST, schema),
            (3, _I64, zigzag(1)),
            (4, _LIST, many(_STRUCT, [group] * num_groups)),
        )
    )


def whole(footer: bytes) -> bytes:
    return MAGIC + footer + struct.pack("<I", len(footer)) + MAGIC


@pytest.mark.parametrize(("num_columns", "rows_of_a_group"), [(1, 30), (40, 3)])
def test_every_byte_of_a_real_footer_is_walked(num_columns: int, rows_of_a_group: int) -> None:
    footer = footer_of(written(num_columns, rows_of_a_group))
    check_records(footer)
    with pytest.raises(ValueError, match="ends within a record"):
        check_records(footer[:-1])


def test_lists_count_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    footer = of_chunks(3, 50)  # and the groups, and one entry of the schema
    monkeypatch.setattr(thrift, "RECORDS", Limit("a footer of a test", 154, "records"))
    check_records(footer)
    monkeypatch.setattr(thrift, "RECORDS", Limit("a footer of a test", 153, "records"))
    with pytest.raises(OverLimitError, match="at most 153 records"):
        check_records(footer)


def test_no_footer_makes_the_walk_fail_otherwise() -> None:
    sound = written(5, 10)
    for seed in range(2000):
        dice = random.Random(seed)
        footer = footer_of(made(dice) if seed % 2 else rewritten(sound, dice)) or b"\0"
        try:
            check_records(footer)
        except (ValueError, OverLimitError) as error:
            assert str(error)  # noqa: PT017 - most are refused, some are sound


def test_nesting_is_bounded() -> None:
    with pytest.raises(OverLimitError, match="levels of nesting"):
        check_records(b"\x1c" * 5000)


@pytest.mark.long
def test_a_footer_of_many_records_takes_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    path.write_bytes(whole(of_chunks(50, 90_000)))
    code = "import sys; from trainspec_validate.cli.validate import main; main()"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "at most 2,400,000 records" in done.stderr
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2 << 20


def test_the_reader_asks_before_the_library_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.parquet"
    path.write_bytes(whole(of_chunks(3, 50)))
    few = Limit("a footer of a test", 100, "records")
    monkeypatch.setattr(thrift, "RECORDS", few)
    monkeypatch.setattr(parquet, "RECORDS", few)
    with pytest.raises(Exception, match="at most 100 records"), parquet._opened(path):
        pass
