"""Large streams to measure with hold what they say: whole records, in order, as many as asked for."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from trainspec_validate.documents.types.stream import Event, Head, Sample
from trainspec_validate.model.metrics import by_name

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from streams import DEVICES_PER_NODE, Size, main, write_jsonl

DECODER = msgspec.json.Decoder(Head | Sample | Event)


def records(paths: list[Path]) -> list[Head | Sample | Event]:
    return [DECODER.decode(line) for path in paths for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize(
    "size", [Size(200_000, 8), Size(3_000_000, 64, 3), Size(1_000_000, 1024, 5)], ids=lambda size: size.num_ranks
)
def test_every_line_is_a_record_and_every_emitter_counts_up(size: Size, tmp_path: Path) -> None:
    found = records(write_jsonl(tmp_path, size))
    heads = {(head.emitter, head.att): head for head in found if isinstance(head, Head)}
    assert len(heads) == size.num_ranks + size.num_nodes
    next_seq: Counter[str] = Counter()
    times: dict[str, int] = {}
    for record in found:
        if isinstance(record, Sample):
            assert record.emitter
            assert (record.emitter, record.att) in heads
            assert record.seq == next_seq[record.emitter]
            assert record.time_us > times.get(record.emitter, 0) - 2_000
            next_seq[record.emitter] += 1
            times[record.emitter] = record.time_us
    assert sum(len(record.m) for record in found if isinstance(record, Sample)) == size.num_samples
    ticks = {next_seq[name] // (1 if name.startswith("rank") else DEVICES_PER_NODE + 2) for name in next_seq}
    assert ticks == {size.num_ticks}


def test_names_are_in_the_catalog(tmp_path: Path) -> None:
    keys = {key for record in records(write_jsonl(tmp_path, Size(50_000, 8))) for key in getattr(record, "m", ())}
    assert len(keys) > 20
    assert all(by_name(key.partition("{")[0]) for key in keys)


def test_sizes_are_near_what_was_asked(tmp_path: Path) -> None:
    for num_bytes, num_ranks, num_files in ((2_000_000, 64, 1), (20_000_000, 1024, 4)):
        paths = write_jsonl(tmp_path / str(num_ranks), Size(num_bytes, num_ranks, num_files))
        assert len(paths) == num_files
        assert sum(path.stat().st_size for path in paths) == pytest.approx(num_bytes, rel=0.1)


def test_the_same_seed_makes_the_same_bytes(tmp_path: Path) -> None:
    texts = [
        [path.read_bytes() for path in write_jsonl(tmp_path / str(number), Size(300_000, 16, 2, seed))]
        for number, seed in enumerate((1, 1, 2))
    ]
    assert texts[0] == texts[1] != texts[2]


def test_counters_never_fall(tmp_path: Path) -> None:
    last: dict[tuple[str | None, str], float] = {}
    for record in records(write_jsonl(tmp_path, Size(2_000_000, 8))):
        if isinstance(record, Sample):
            for key in ("hw.energy{hw.type=gpu}", "train.data.wait.time", "train.rank.step"):
                if key in record.m:
                    name = (record.device or record.emitter, key)
                    value = record.m[key]
                    assert isinstance(value, float)
                    assert value > last.get(name, -1)
                    last[name] = value
    assert len(last) == 3 * 8


def test_parquet_holds_the_same_records(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from stream_tables import write_parquet

    from trainspec_validate.telemetry.formats import parquet

    size = Size(1_000_000, 16, 2)
    wanted = records(write_jsonl(tmp_path / "lines", size))
    samples = {(record.emitter, record.seq): record for record in wanted if isinstance(record, Sample)}
    found = [item for path in write_parquet(tmp_path / "tables", size) for _, item in parquet.read(path)]
    assert [item for item in found if isinstance(item, Head)] == [item for item in wanted if isinstance(item, Head)]
    rows = [item for item in found if isinstance(item, Sample)]
    assert len(rows) == len(samples)
    for row in rows:
        record = samples[row.emitter, row.seq]
        assert (row.time_us, row.att, row.step) == (record.time_us, record.att, record.step)
        assert row.m == pytest.approx(record.m)


def test_ranks_are_whole_nodes() -> None:
    with pytest.raises(ValueError, match="whole nodes"):
        Size(1_000_000, 12)


def test_the_command_says_how_much_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path), "--megabytes", "1", "--ranks", "16", "--files", "2"])
    assert "2 files" in capsys.readouterr().out
