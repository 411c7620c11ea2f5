"""Memory for a stream in Parquet follows from its series and events, not from what its pages unpack to."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate.telemetry.decode.arrow import arrow_batches
from trainspec_validate.telemetry.decode.names import Names
from trainspec_validate.telemetry.decode.rows import FileFacts
from trainspec_validate.telemetry.decode.run_file import RunFile, Stretch
from trainspec_validate.telemetry.fold import large
from trainspec_validate.telemetry.fold.engine import run_file
from trainspec_validate.telemetry.formats import pages, parquet
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.source import SourceError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TIME = 1_772_000_000_000_000
MEBIBYTES = 1_000
PROGRAM = """
import re, sys
from pathlib import Path
from trainspec_validate.cli.validate import main
try:
    main()
finally:
    print(re.search("VmHWM:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1], file=sys.stderr)
"""


def _event(text: str) -> str:
    event = {"k": "e", "time_us": TIME, "seq": 0, "name": "train.x", "id": "x", "a": {"train.x": [text] * 9}}
    return json.dumps(event)


def _write(path: Path, num: int, texts: dict[str, str], **options: Any) -> None:
    """Rows that are all equal, with the same texts in each."""
    columns: dict[str, Any] = {name: pa.nulls(num, pa.int64()) for name in ("att", "step", "rank")}
    columns |= {name: pa.repeat(pa.scalar(value, pa.int64()), num) for name, value in (("time_us", TIME), ("seq", 0))}
    for name in ("host", "device", "emitter", "json"):
        text = texts.get(name)
        columns[name] = pa.nulls(num, pa.string()) if text is None else pa.repeat(pa.scalar(text), num)
    table = pa.table(columns).replace_schema_metadata({b"trainspec.stream": b"1"})
    pq.write_table(table, path, compression="zstd", **options)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the peak of a process from Linux")
@pytest.mark.parametrize(
    ("num", "texts", "options", "told"),
    [
        pytest.param(150_000, {"json": _event("y" * 200)}, {}, "times its size", id="equal-events"),
        pytest.param(
            *(25_000, {"json": "y" * 8_000}, {"use_dictionary": False, "data_page_size": 1 << 30}),
            *("bytes of unpacked pages of texts at once",),
            id="one-page",
        ),
    ],
)
def test_a_small_file_of_many_texts_is_refused(
    num: int, texts: dict[str, str], options: dict[str, Any], told: str, tmp_path: Path
) -> None:
    """The limit is named, and the process stays small."""
    _write(tmp_path / "s.parquet", num, texts, **options, write_batch_size=num)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "s.parquet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    *words, peak = done.stderr.strip().splitlines()
    assert told in " ".join(words)
    assert int(peak) < MEBIBYTES * 1024


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_texts_in_other_encodings_are_read(encoding: str, tmp_path: Path) -> None:
    """Some writers encode texts as what they differ in from the one before."""
    texts = {"json": _event("y"), "host": "host-1"}
    _write(tmp_path / "plain.parquet", 2_000, texts)
    options: dict[str, Any] = {"use_dictionary": False, "column_encoding": dict.fromkeys(texts, encoding)}
    _write(tmp_path / "other.parquet", 2_000, texts, **options)
    found = list(parquet.read(tmp_path / "other.parquet"))
    assert found == list(parquet.read(tmp_path / "plain.parquet"))
    assert len(found) == 2_001


@pytest.mark.slow
@pytest.mark.parametrize("name", ["json", "host"])
def test_texts_that_repeat_the_one_before_come_a_few_at_once(name: str, tmp_path: Path) -> None:
    """No header of a page tells how long they are."""
    options: dict[str, Any] = {"use_dictionary": False, "column_encoding": {name: "DELTA_BYTE_ARRAY"}}
    _write(tmp_path / "s.parquet", 3_000, {name: "y" * 500_000}, **options)
    sizes: list[int] = []
    with pytest.raises(SourceError, match="times its size"):
        sizes.extend(batch.nbytes for _, batch in parquet.row_batches(tmp_path / "s.parquet"))
    assert sizes
    assert max(sizes) < 80_000_000


def _numbers(path: Path, num: int, num_groups: int) -> RunFile:
    _write(path, num, {"emitter": "e"}, row_group_size=num // num_groups)
    return replace(run_file(0, path, path.name), least_text_bytes=10**12)


def test_processes_share_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _numbers(tmp_path / "run.parquet", 64_000, 64)
    group = pq.ParquetFile(file.path).metadata.row_group(0)
    each = parquet._held_bytes(group) + pages.unpacked_bytes(group, {5, 6, 7, 8})
    assert each >= group.total_byte_size + 8 * 9 * 1_000
    for num in (1, 3, 16):
        monkeypatch.setattr(parquet, "_MOST_TOGETHER_BYTES", num * each)
        assert large._num_processes([file], 64) == num
        assert len(list(large.split([file], large._num_processes([file, file], 64)))) == num
    monkeypatch.setattr(parquet, "_MOST_TOGETHER_BYTES", each // 2)
    assert large._num_processes([file], 64) == 1
    assert large._num_processes([replace(file, format=large.NATIVE)], 64) == 64


def test_pages_are_held_against_the_footer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _numbers(tmp_path / "run.parquet", 64_000, 2)
    assert sum(batch.num_rows for _, batch in parquet.row_batches(file.path)) == 64_000
    read = pages._page
    monkeypatch.setattr(pages, "_page", lambda header: replace(read(header), unpacked_bytes=10_000_000))
    with pytest.raises(SourceError, match="more than its footer says of the whole column"):
        list(parquet.row_batches(file.path))


def _columns(path: Path, names: list[str], cells: dict[str, Any], text: str | None) -> None:
    """One row, with the columns of a stream and others, of which two may have one name."""
    fixed: dict[str, Any] = {name: pa.nulls(1, pa.int64()) for name in ("att", "step", "rank")}
    fixed |= {"time_us": pa.array([TIME]), "seq": pa.array([0])}
    fixed |= {name: pa.nulls(1, pa.string()) for name in ("host", "device", "emitter")}
    fixed["json"] = pa.array([text], pa.string())
    fixed |= {name: pa.array([cell]) for name, cell in cells.items() if name in fixed}
    arrays = [*fixed.values(), *(pa.array([cells[name]], pa.float64()) for name in names)]
    table = pa.Table.from_arrays(arrays, names=[*fixed, *names], metadata={b"trainspec.stream": b"1"})
    pq.write_table(table, path)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    _columns(tmp_path / "s.parquet", ["train.loss.mean", "train.loss.mean"], {"train.loss.mean": 2.5}, None)
    with pytest.raises(SourceError, match=r"two columns are named train\.loss\.mean"):
        run_file(0, tmp_path / "s.parquet", "s.parquet")


@pytest.mark.parametrize(
    ("cells", "wrong"),
    [
        ({"train.loss.mean": 2.5, "train.step.duration": None}, ""),
        ({"train.loss.mean": 3.5, "train.step.duration": None}, "train.loss.mean"),
        ({"train.loss.mean": None, "train.step.duration": -1.0}, "train.step.duration"),
        ({"train.loss.mean": float("nan"), "train.step.duration": None}, "train.loss.mean"),
        ({"train.loss.mean": None, "train.step.duration": None, "time_us": -1}, "time_us"),
    ],
)
def test_columns_that_contradict_the_record_of_their_row_are_damage(
    cells: dict[str, Any], wrong: str, tmp_path: Path
) -> None:
    text = json.dumps({"k": "m", "time_us": TIME, "seq": 0, "m": {"train.loss.mean": 2.5}})
    path = tmp_path / "s.parquet"
    _columns(path, ["train.loss.mean", "train.step.duration"], cells, text)
    read = [item.message for _, item in parquet.read(path) if isinstance(item, Refusal)]
    stretch, facts = Stretch(run_file(0, path, "s.parquet"), 0, 1), FileFacts(0)
    list(arrow_batches(stretch, Names(), facts))
    assert [damage.message for damage in facts.damage] == read
    assert read == ([f"`json` and the column {wrong!r} differ"] if wrong else [])
