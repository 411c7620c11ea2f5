"""Whatever lies in a directory: what can be read is judged, and what cannot is told."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from stream_texts import text_of
from telemetry_makers import Stream, micros

from tests.streams_made.run import make_run
from tests.streams_made.shape import Shape
from tests.streams_made.write import by_emitter, together
from trainspec_validate.documents.types.stream import encode_record
from trainspec_validate.model.finding import Report
from trainspec_validate.pipeline.validation import PartialInputError, validate
from trainspec_validate.system.boundary import InputError
from trainspec_validate.telemetry.decode.run_file import RunFile
from trainspec_validate.telemetry.fold.engine import read_run, run_file
from trainspec_validate.telemetry.kernels import fold, pairs
from trainspec_validate.telemetry.view.run_view import Trouble

SMALL = make_run(Shape(num_nodes=1, devices_per_node=2, num_steps=40))
HEAD = encode_record(SMALL.streams[0].head) + b"\n"


def files_of(*texts: bytes, folder: Path) -> list[RunFile]:
    paths = [folder / f"{number}.jsonl" for number, _ in enumerate(texts)]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text)
    return [run_file(number, path, path.name) for number, path in enumerate(paths)]


def put(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_bytes(text)
    return folder


def partial(paths: list[Path]) -> tuple[Report, str]:
    """The report on what could be read, and what is said of the rest."""
    with pytest.raises(PartialInputError) as caught:
        validate(paths)
    return caught.value.report, str(caught.value)


def test_bits_of_the_loops_are_the_troubles_of_the_view() -> None:
    known = {**vars(fold), **vars(pairs)}
    bits = {name: known[name] for name in Trouble.__members__ if name in known}
    assert bits == {name: 1 << Trouble[name] for name in bits}
    assert set(Trouble.__members__) - set(bits) == {"BURST", "SECOND_WRITER"}


# --- directories


def test_several_runs_in_one_directory(tmp_path: Path) -> None:
    for run in ("one", "two"):
        put(tmp_path / run, by_emitter(make_run(Shape(num_nodes=1, devices_per_node=2, num_steps=40, run=run)).streams))
    report = validate([tmp_path])
    assert [coverage.run for coverage in report.coverage] == ["one", "two"]
    assert {coverage.num_ranks_seen for coverage in report.coverage} == {2}


def test_a_directory_without_streams(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(InputError, match="no stream"):
        validate([tmp_path])


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    folder = put(tmp_path, {**by_emitter(SMALL.streams), "late.jsonl": b""})
    report, complaint = partial([folder])
    assert "late.jsonl" in complaint
    assert report.coverage[0].num_ranks_seen == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_an_unreadable_file_is_told(tmp_path: Path) -> None:
    folder = put(tmp_path, {**by_emitter(SMALL.streams), "secret.jsonl": HEAD})
    (folder / "secret.jsonl").chmod(0)
    report, complaint = partial([folder])
    assert "secret.jsonl: permission denied" in complaint
    assert report.coverage[0].num_ranks_seen == 2


def test_parquet_of_another_layout_is_told(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    folder = put(tmp_path, by_emitter(SMALL.streams))
    pyarrow.parquet.write_table(arrow.table({"x": [1, 2]}), folder / "other.parquet")
    report, complaint = partial([folder, folder / "other.parquet"])
    assert "other.parquet" in complaint
    assert report.coverage[0].num_ranks_seen == 2


def test_a_file_that_is_no_stream_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\x00\x01" * 500)
    with pytest.raises(InputError, match=r"x\.jsonl"):
        validate([path])


# --- files that are not whole


def test_records_without_any_head(tmp_path: Path) -> None:
    sample = b'{"k":"m","time_us":1767225600000000,"seq":0,"emitter":"x","att":3,"run":"r","m":{"hw.power":1}}\n'
    view = read_run(files_of(sample, folder=tmp_path))
    assert (view.heads, view.num_records) == ((), 1)
    assert [(span.emitter, span.attempt) for span in view.emitters] == [("x", 3)]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_truncated_compressed_file_gives_what_it_has(suffix: str, tmp_path: Path) -> None:
    text = together(make_run(Shape()).streams)["run.jsonl"]
    packed = gzip.compress(text) if suffix == "gz" else pytest.importorskip("zstandard").compress(text)
    path = tmp_path / f"x.jsonl.{suffix}"
    path.write_bytes(packed[: len(packed) * 9 // 10])
    view = read_run([run_file(0, path, path.name)])
    assert [damage.message[:20] for damage in view.damage] == ["the file ends early:"]
    assert text.count(b"\n") // 2 < view.num_records < text.count(b"\n")
    report = validate([path])
    told = {finding.requirement: finding for finding in report.findings}
    assert told["TS-TEL-001"].span is not None
    assert told["TS-TEL-001"].span.line == 1
    assert "ends early" in told["TS-TEL-001"].message


def test_a_head_that_is_longer_than_the_first_look(tmp_path: Path) -> None:
    stream = Stream(declared={f"a{number}": "x" * 3_900 for number in range(60)}).sample(1, {"train.step.count": 1})
    (file,) = files_of(text_of(stream).encode(), folder=tmp_path)
    assert file.head is not None
    assert file.num_bytes > 200_000


def test_times_that_are_none_of_the_run(tmp_path: Path) -> None:
    """They are damage and stretch nothing: one time in nanoseconds would make windows of years."""
    stream = Stream().every([1, 2, 3], {"train.step.duration": 1.0}, step=1)
    for moment in (0, micros(1) // 1_000, micros(1) * 1_000, micros(500 * 86_400)):
        stream.sample(4, {"train.step.duration": 1.0}, step=1)
        stream.lines[-1]["time_us"] = moment
    view = read_run(files_of(text_of(stream).encode(), folder=tmp_path))
    assert [damage.requirement for damage in view.damage] == ["TS-TEL-016"] * 4
    assert (view.first_time_us, view.last_time_us) == (micros(1), micros(3))
    assert {windows.width_us for windows in view.windows.values()} <= {10_000_000}
