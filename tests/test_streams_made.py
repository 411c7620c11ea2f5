"""The made run keeps what a conformant stream owes, so that what a check says of it is about the check."""

from __future__ import annotations

import gzip
from collections import Counter
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from streams_made.emitter import Stream
from streams_made.run import Run, make_run
from streams_made.shape import FLOPS_PER_TOKEN, PEAK_FLOPS_PER_SECOND, Shape, ShapeError
from streams_made.write import (
    by_emitter,
    by_time,
    compressed,
    file_name,
    put,
    put_parquet,
    stamped_with_head,
    stream_bytes,
    together,
)

from trainspec_validate.documents.types.stream import Event, Head, Sample
from trainspec_validate.model.metrics import by_name, catalog
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.telemetry.formats import Losses

SHAPES = {
    "plain": Shape(),
    "faults": Shape(faults=True),
    "one node": Shape(num_nodes=1, devices_per_node=8, faults=True),
    "many ranks": Shape(num_nodes=8, devices_per_node=8, num_steps=60, checkpoint_interval_steps=40),
}
TOTAL = "{train.loss.name=total}"
DECODER = msgspec.json.Decoder(Head | Sample | Event)


@pytest.fixture(params=SHAPES)
def run(request: pytest.FixtureRequest) -> Run:
    return make_run(SHAPES[request.param])


def job(run: Run) -> Stream:
    return next(stream for stream in run.streams if stream.head.emitter == "job")


def job_samples(run: Run) -> list[Sample]:
    streams = [stream for stream in run.streams if stream.head.emitter == "job"]
    return [record for stream in streams for record in stream.records if isinstance(record, Sample)]


def values(samples: list[Sample], key: str) -> list[tuple[float, float]]:
    """Seconds and value."""
    return [(sample.time_us / 1e6, sample.m[key]) for sample in samples if key in sample.m]  # type: ignore[misc]


@pytest.mark.slow
def test_every_line_is_a_record(run: Run) -> None:
    for stream in run.streams:
        decoded = [DECODER.decode(line) for line in stream_bytes(stream).splitlines()]
        assert decoded == [stream.head, *stream.records]


def test_records_are_in_order_and_none_is_missing(run: Run) -> None:
    for stream in run.streams:
        assert [record.seq for record in stream.records] == list(range(len(stream.records)))
        assert all(a.time_us <= b.time_us for a, b in pairwise(stream.records))
        assert stream.head.time_us <= stream.records[0].time_us


def test_nothing_follows_the_end(run: Run) -> None:
    last = max((record for stream in run.streams for record in stream.records), key=lambda record: record.time_us)
    assert isinstance(last, Event)
    assert last.name == "train.run.end"


def test_every_required_metric_and_scope_is_there(run: Run) -> None:
    written = {key.split("{")[0] for stream in run.streams for record in stream.records for key in record.m}
    owed = {metric.name for metric in catalog().metrics.values() if metric.level in {"required", "conditional"}}
    unsupported = {name for stream in run.streams for name in stream.head.unsupported}
    missing = owed - written - unsupported
    assert missing == ({"train.recovery.duration"} if not run.shape.faults else set())


def test_every_name_is_in_the_catalog_with_its_attributes(run: Run) -> None:
    attributes = catalog().attributes
    for key in {key for stream in run.streams for record in stream.records for key in record.m}:
        name, _, inner = key.partition("{")
        metric = by_name(name)
        assert metric, key
        assert [part.split("=")[0] for part in inner.rstrip("}").split(",") if part] == sorted(
            attribute
            for attribute in metric.attributes
            if attributes[attribute].role == "series" and attribute != "hw.id"
        )


def test_every_event_has_its_attributes(run: Run) -> None:
    for stream in run.streams:
        for record in stream.records:
            if isinstance(record, Event):
                entry = catalog().events[record.name]
                assert set(entry.attributes) <= set(record.a) <= {*entry.attributes, *entry.optional_attributes}
                assert set(entry.values) == {key.split("{")[0] for key in record.m}


def test_intervals_are_closed(run: Run) -> None:
    every = [record for stream in run.streams for record in stream.records if isinstance(record, Event)]
    for entry in catalog().events.values():
        opened = Counter(event.id for event in every if event.name == entry.name and entry.closed_by)
        closed = Counter(event.id for event in every if event.name in entry.closed_by)
        assert opened == closed or entry.can_stay_open, entry.name


def test_time_by_category_adds_up(run: Run) -> None:
    start = run.shape.start_us / 1e6
    written = [sample for sample in job_samples(run) if "train.batch.size" in sample.m]
    for sample in written:
        times = [value for key, value in sample.m.items() if key.startswith("train.goodput.time")]
        assert len(times) == 9
        assert sum(times) == pytest.approx(sample.time_us / 1e6 - start, abs=1e-4)  # type: ignore[arg-type]


def test_rate_and_utilization_follow_from_the_counts(run: Run) -> None:
    shape = run.shape
    tokens = "train.token.count{train.token.kind=all}"
    for sample in job_samples(run):
        if "train.token.rate" in sample.m:
            rate, share = sample.m["train.token.rate"], sample.m["train.flops.utilization"]
            assert isinstance(rate, float)
            peak = shape.world_size * PEAK_FLOPS_PER_SECOND
            assert rate * FLOPS_PER_TOKEN / peak == pytest.approx(share, rel=1e-5)
            assert sample.m[tokens] == sample.m["train.step.count"] * shape.batch_tokens  # type: ignore[operator]
            assert 0.1 < share < 0.6  # type: ignore[operator]


def test_energy_is_the_integral_of_power(run: Run) -> None:
    agents = [stream for stream in run.streams if stream.head.emitter.startswith("node/")]
    for device in run.shape.devices(run.shape.hosts[0]):
        samples = [r for s in agents for r in s.records if isinstance(r, Sample) and r.device == device]
        power, energy = values(samples, "hw.power{hw.type=gpu}"), values(samples, "hw.energy{hw.type=gpu}")
        found = sum(b[1] * (b[0] - a[0]) for a, b in pairwise(power))
        assert found == pytest.approx(energy[-1][1] - energy[0][1], rel=1e-3)


def test_updates_executed_again_learn_the_same() -> None:
    run = make_run(SHAPES["faults"])
    first, second = (
        {sample.step: sample for sample in job_samples(run) if sample.m.get(f"train.loss.mean{TOTAL}") and when(sample)}
        for when in (
            lambda sample: sample.time_us < recovered(run),
            lambda sample: sample.time_us >= recovered(run),
        )
    )
    again = set(first) & set(second)
    assert len(again) == 7
    for key in (f"train.loss.mean{TOTAL}", "train.gradient.norm", "train.learning_rate"):
        assert [first[step].m[key] for step in again] == [second[step].m[key] for step in again]


def recovered(run: Run) -> int:
    """When the second attempt starts."""
    return next(stream.head.time_us for stream in run.streams if stream.head.att == 1)


def test_loss_falls_with_noise(run: Run) -> None:
    losses = [value for _, value in values(job_samples(run), f"train.loss.mean{TOTAL}")]
    assert losses[0] > 1.5 * losses[-1]
    assert len(set(losses)) > 0.9 * run.shape.num_steps
    assert any(b > a for a, b in pairwise(losses))


def test_equal_shapes_make_equal_runs() -> None:
    make_run.__globals__["_made"].cache_clear()
    first = by_emitter(make_run(Shape(num_steps=60)).streams)
    make_run.__globals__["_made"].cache_clear()
    assert by_emitter(make_run(Shape(num_steps=60)).streams) == first
    assert by_emitter(make_run(Shape(num_steps=60, seed=2)).streams) != first


@pytest.mark.parametrize("fields", [{"num_nodes": 0}, {"step_seconds": 50.0}, {"faults": True, "num_steps": 50}])
def test_figures_that_do_not_fit_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ShapeError):
        Shape(**fields)  # type: ignore[arg-type]


@pytest.mark.slow
def test_size_grows_with_ranks_and_steps() -> None:
    small, wide = make_run(Shape(num_steps=60)), make_run(Shape(num_steps=60, num_nodes=8))
    long = make_run(Shape(num_steps=120))
    assert len(small.streams) == 1 + 8 + 2
    assert len(wide.streams) == 1 + 32 + 8
    assert 1.8 * small.num_records < long.num_records < 2.2 * small.num_records


@pytest.mark.slow
def test_nothing_is_wrong_with_a_made_run(run: Run, tmp_path: Path) -> None:
    report = validate([put({**run.documents, **by_emitter(run.streams)}, tmp_path)])
    assert [f"{finding.requirement} {finding.message}" for finding in report.findings] == []


@pytest.mark.slow
def test_documents_hold(run: Run, tmp_path: Path) -> None:
    report = validate([put(run.documents, tmp_path)])
    assert [finding.message for finding in report.findings] == []


# --- files ------------------------------------------------------------------------------------------------


def decoded(files: dict[str, bytes]) -> list[Head | Sample | Event]:
    return [DECODER.decode(line) for text in files.values() for line in text.splitlines()]


def test_every_way_to_split_holds_every_record_once() -> None:
    run = make_run(SHAPES["faults"])
    wanted = Counter((stream.head.emitter, stream.head.att, r.seq) for stream in run.streams for r in stream.records)
    for files in (
        together(run.streams),
        together(run.streams, seed=3),
        by_time(run.streams, 5),
        by_time(run.streams, 5, 1),
    ):
        records = [record for record in decoded(files) if not isinstance(record, Head)]
        assert Counter((record.emitter, record.att, record.seq) for record in records) == wanted
        assert all(isinstance(DECODER.decode(text.split(b"\n", 1)[0]), Head) for text in files.values())


def test_a_shuffled_file_keeps_the_order_of_each_stream() -> None:
    run = make_run(SHAPES["plain"])
    ordered, shuffled = together(run.streams), together(run.streams, seed=3)
    assert ordered != shuffled
    assert sorted(ordered["run.jsonl"].splitlines()) == sorted(shuffled["run.jsonl"].splitlines())
    last: Counter[str | None] = Counter()
    for record in decoded(shuffled):
        if not isinstance(record, Head):
            assert record.seq == last[record.emitter]
            last[record.emitter] += 1


def test_parquet_holds_the_same_records(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from trainspec_validate.telemetry.formats import parquet

    streams = make_run(SHAPES["plain"]).streams
    put_parquet(streams, tmp_path)
    for stream in streams:
        path = tmp_path / file_name(stream).replace(".jsonl", ".parquet")
        assert [item for _, item in parquet.read(path) if not isinstance(item, Losses)] == stamped_with_head(stream)


def test_compressed_files_hold_the_same() -> None:
    files = by_emitter(make_run(SHAPES["plain"]).streams)
    packed = compressed(files, "gz")
    assert {name.removesuffix(".gz"): gzip.decompress(text) for name, text in packed.items()} == files
    zstandard = pytest.importorskip("zstandard")
    packed = compressed(files, "zst")
    unpack = zstandard.ZstdDecompressor().decompress
    assert {name.removesuffix(".zst"): unpack(text) for name, text in packed.items()} == files
