"""A footer of Parquet with more records than a library should make objects of is refused before it makes any."""

from __future__ import annotations

import io
import random
import resource
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fuzz.parquet_footers import MAGIC, fields, made, many, rewritten, text, zigzag
from trainspec_validate.system.budget import Limit, OverLimitError
from trainspec_validate.telemetry.formats import parquet, thrift
from trainspec_validate.telemetry.formats.footer import row_groups
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


@pytest.fixture(scope="module")
def unsound() -> list[bytes]:
    """Footers with other numbers or made up; to make them takes six times as long as to read them."""
    sound, found = written(5, 10), []
    for seed in range(2000):
        dice = random.Random(seed)
        found.append(footer_of(made(dice) if seed % 2 else rewritten(sound, dice)) or b"\0")
    return found


@pytest.mark.slow
def test_no_footer_makes_the_walk_fail_otherwise(unsound: list[bytes]) -> None:
    for footer in unsound:
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
    with pytest.raises(Exception, match="at most 100 records"), parquet._opened(path):
        pass


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"column_encoding": {"text": "DELTA_BYTE_ARRAY"}}])
def test_row_groups_are_what_the_library_says(options: dict[str, Any]) -> None:
    table = pa.table({"a": [1.0, None, 3.5] * 10, "text": ["x", "y", None] * 10, "n": pa.array(range(30))})
    buffer = io.BytesIO()
    if options.get("column_encoding"):
        options = {**options, "use_dictionary": False}
    pq.write_table(table, buffer, row_group_size=7, **options)
    metadata = pq.ParquetFile(buffer).metadata
    found = row_groups(footer_of(buffer.getvalue()))
    assert [group.num_rows for group in found] == [7, 7, 7, 7, 2]
    for number, group in enumerate(found):
        wanted = metadata.row_group(number)
        assert group.num_columns == wanted.num_columns == 3
        for column in range(3):
            part, theirs = group.column(column), wanted.column(column)
            assert part.num_values == theirs.num_values
            assert part.total_uncompressed_size == theirs.total_uncompressed_size
            assert part.total_compressed_size == theirs.total_compressed_size
            assert part.data_page_offset == theirs.data_page_offset
            assert part.has_dictionary_page == theirs.has_dictionary_page
            assert not part.has_dictionary_page or part.dictionary_page_offset == theirs.dictionary_page_offset
            assert part.has_deltas == any(each.startswith("DELTA") for each in theirs.encodings)


@pytest.mark.slow
def test_no_footer_makes_its_reader_fail_otherwise(unsound: list[bytes]) -> None:
    for footer in unsound:
        try:
            for group in row_groups(footer):
                for number in range(group.num_columns):
                    group.column(number)
        except (ValueError, OverLimitError) as error:
            assert str(error)  # noqa: PT017 - most are refused, some are sound


def test_a_column_that_contradicts_the_schema_ends_no_process(tmp_path: Path) -> None:
    """The histogram of the levels of a column has another length than the schema asks for."""
    columns = {name: pa.nulls(3, pa.int64()) for name in ("att", "step", "rank")}
    columns |= {name: pa.array([0, 1, 2]) for name in ("time_us", "seq")}
    columns |= {name: pa.nulls(3, pa.string()) for name in ("host", "device", "emitter", "json")}
    columns["train.loss.mean"] = pa.array([1.0, None, 2.0])
    path = tmp_path / "run.parquet"
    table = pa.table(columns).replace_schema_metadata({b"trainspec.stream": b"1"})
    pq.write_table(table, path)
    content = path.read_bytes()
    footer = footer_of(content)
    optional = bytes([0x25, 0x02])  # the next field but one, a number, and 1: the column may lack values
    place = footer.index(b"train.loss.mean") - 4
    assert footer[place : place + 2] == optional
    changed = footer[: place + 1] + b"\x00" + footer[place + 2 :]
    path.write_bytes(content[: -8 - len(footer)] + whole(changed)[len(MAGIC) :])
    code = "import sys; from trainspec_validate.cli.validate import main; main()"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in {1, 2}, done.stderr
    assert "histogram size mismatch" in done.stdout + done.stderr
