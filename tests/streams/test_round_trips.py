"""What is written as OTLP or Parquet comes back as it was, whatever a stream holds."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from any_records import metric_keys, numbers, streams
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import examples
from trainspec_validate.documents.types.stream import Event, Head, Sample, encode_record
from trainspec_validate.telemetry.formats import FORMATS, Losses, Record, Refusal, detect, parquet, read, records
from trainspec_validate.telemetry.formats.otlp.write import write as write_otlp
from trainspec_validate.telemetry.formats.prometheus.write import Snapshot

HEAD = Head(apiVersion="trainspec/v1", kind="MetricStream", run="r", att=0, emitter="e", time_us=5, scopes=("job",))


def lines(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    return [(number, piece) for number, piece in enumerate(pieces)]


def read_back(pieces: list[bytes], name: str) -> list[object]:
    return [entry for _, entry in read(lines(pieces), "file", FORMATS[name])]


@examples(150)
@given(streams)
def test_otlp_gives_every_record_back(stream: list[Record]) -> None:
    written = list(write_otlp(stream))
    *found, losses = read_back(written, "otlp")
    assert found == stream
    assert isinstance(losses, Losses)
    assert losses.sequenced
    assert not losses.entries
    assert (losses.num_records, losses.num_refusals) == (len(stream), 0)


@examples(100)
@given(streams)
def test_lines_of_otlp_are_recognised_and_hold_one_signal(stream: list[Record]) -> None:
    written = list(write_otlp(stream))
    found = detect(b"\n".join(written))
    assert found is FORMATS["otlp"]
    for line in written:
        assert b"\n" not in line
        assert len(json.loads(line)) == 1


@examples(100)
@given(streams)
def test_a_file_of_one_signal_has_all_of_its_records(stream: list[Record]) -> None:
    metrics = {line.split(b":", 1)[0] for line in write_otlp(stream, "metrics")}
    logs = {line.split(b":", 1)[0] for line in write_otlp(stream, "logs")}
    assert metrics <= {b'{"resourceMetrics"'}
    assert logs == {b'{"resourceLogs"'}
    for signal in ("metrics", "logs"):
        *found, _ = read_back(list(write_otlp(stream, signal)), "otlp")
        kept = [record for record in found if not isinstance(record, Head)]
        assert all(record in stream for record in kept)
    both = [*write_otlp(stream, "metrics"), *write_otlp(stream, "logs")]
    found = [r for r in records(read(lines(both), "file", FORMATS["otlp"])) if not isinstance(r, Head)]
    wanted = [r for r in stream if not isinstance(r, Head)]
    assert sorted(map(encode_record, found)) == sorted(map(encode_record, wanted))


@examples(150)
@given(stream=streams, columns=st.none() | st.lists(metric_keys, unique=True, max_size=4))
def test_parquet_gives_every_record_back(
    tmp_path_factory: pytest.TempPathFactory, stream: list[Record], columns: list[str] | None
) -> None:
    path = tmp_path_factory.mktemp("twin") / "stream.parquet"
    wanted = [key for key in columns if key not in RESERVED] if columns is not None else None
    assert parquet.write(stream, path, wanted) == len(stream)
    *found, losses = [entry for _, entry in parquet.read(path)]
    assert found == stream
    assert losses == Losses((), len(stream), 0, "utc", sequenced=True)


RESERVED = {"time_us", "seq", "att", "step", "rank", "host", "device", "emitter", "json"}


@examples(100)
@given(streams)
def test_json_lines_give_every_record_back(stream: list[Record]) -> None:
    *found, _ = read_back([encode_record(record) for record in stream], "metric-stream")
    assert found == stream


@pytest.mark.parametrize(("cells", "rows"), [(60, [6, 6, 6, 2]), (8, [1] * 20)])
def test_parquet_groups_are_smaller_with_many_columns(
    cells: int, rows: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet, "CELLS_AT_ONCE", cells)  # of ten columns
    stream = [Sample(time_us=n, seq=n, m={"train.step.count": float(n)}, step=n) for n in range(20)]
    assert parquet.write(stream, tmp_path / "f") == 20
    metadata = pq.ParquetFile(tmp_path / "f").metadata
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == rows
    assert list(records(parquet.read(tmp_path / "f"))) == stream


def test_a_large_group_of_rows_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = [Sample(time_us=n, seq=n, m={"train.step.count": float(n)}, emitter=f"rank-{n % 7}") for n in range(100)]
    parquet.write(stream, tmp_path / "f")
    (whole,) = parquet.row_batches(tmp_path / "f")
    monkeypatch.setattr(parquet, "CELLS_AT_ONCE", 300)
    pieces = list(parquet.row_batches(tmp_path / "f"))
    assert [row for row, _ in pieces] == [0, 30, 60, 90]
    assert [row for _, batch in pieces for row in batch.to_pylist()] == whole[1].to_pylist()


def test_parquet_has_a_column_for_each_key_and_groups_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet, "ROWS_OF_A_GROUP", 4)
    rows = [Sample(time_us=n, seq=n, m={"train.step.count": float(n)}, step=n) for n in range(10)]
    late = Sample(time_us=99, seq=10, m={"train.loss.mean": 2.0})
    parquet.write([HEAD, *rows, late], tmp_path / "f")
    file = pq.ParquetFile(tmp_path / "f")
    assert file.metadata.num_row_groups == 3
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    table = pq.read_table(tmp_path / "f").to_pydict()
    assert table["train.step.count"] == [None, *map(float, range(10)), None]
    assert [text is None for text in table["json"]] == [False, *[True] * 10, False]
    assert table["seq"] == [None, *range(11)]
    assert list(records(parquet.read(tmp_path / "f"))) == [HEAD, *rows, late]
    parquet.write([HEAD, *rows, late], tmp_path / "g", parquet.keys_of([*rows, late]))
    assert pq.read_table(tmp_path / "g").to_pydict()["train.loss.mean"][-1] == 2.0


@example({"train.accelerator.link.io": 0.0}, 9_007_199_255_000)
@given(st.dictionaries(metric_keys, numbers, min_size=1, max_size=3), st.integers(0, 10**15))
def test_prometheus_writes_lines_that_are_read(values: dict[str, float], time_us: int) -> None:
    snapshot = Snapshot()
    snapshot.take([HEAD, Sample(time_us=time_us, seq=0, m=values)])
    written = [line.encode() for line in snapshot.lines()]
    found = read_back([line.rstrip(b"\n") for line in written], "prometheus")
    assert not [entry for entry in found if isinstance(entry, Refusal)]


def test_prometheus_gives_the_last_values_of_the_catalog_back() -> None:
    first = Sample(time_us=1_000_000, seq=0, m={"train.step.count": 1.0, "hw.energy{hw.type=gpu}": 5.0}, device="GPU-a")
    last = msgspec.structs.replace(first, time_us=2_000_000, m={"train.step.count": 2.0})
    loss = Sample(time_us=2_000_000, seq=2, m={"train.loss.mean{train.loss.name=total}": "NaN"})
    snapshot = Snapshot()
    snapshot.take([HEAD, first, last, loss, Event(time_us=3, seq=3, name="train.run.end")])
    text = "".join(snapshot.lines())
    assert "# TYPE hw_energy_joules_total counter\n" in text
    found = [r for r in read_back([line.encode() for line in text.splitlines()], "prometheus") if isinstance(r, Sample)]
    got = {key: (value, r.device) for r in found for key, value in r.m.items()}
    assert got == {
        "hw.energy{hw.type=gpu}": (5.0, "GPU-a"),
        "train.step.count": (2.0, "GPU-a"),
        "train.loss.mean{train.loss.name=total}": ("NaN", None),
    }
    told = {loss.what: loss.num for loss in snapshot.tally.losses()}
    assert told == {"earlier values": 1, "events": 1}
