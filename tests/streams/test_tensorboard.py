"""Event files of TensorBoard: scalars by the names of programs, one record for a step, damage."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read_bytes

from tests.streams_made.foreign_logs import VERSION, event, event_file, field, frame, scalar, single, trainer_events
from trainspec_validate import validate
from trainspec_validate.pipeline.detect import search
from trainspec_validate.pipeline.files import File
from trainspec_validate.pipeline.streams import open_streams, runs
from trainspec_validate.system.crc32c import crc32c
from trainspec_validate.telemetry.formats import detect
from trainspec_validate.telemetry.formats.tensorboard import WireError, fields

LOSS = "train.loss.mean{train.loss.name=total}"
EVALUATED = "train.evaluation.loss{{train.evaluation.set={},train.loss.name=total}}"
START = 1.7e9


def rows(*given: tuple[int, dict[str, float]]) -> bytes:
    """An event for each value of some steps, ten seconds apart."""
    at = enumerate(given)
    return event_file(*(event(START + 10 * n, step, scalar(*each)) for n, (step, row) in at for each in row.items()))


def test_scalars_of_a_step_are_one_record() -> None:
    found = read_bytes(trainer_events(10, 20, 30))
    assert [(sample.step, sample.time_us) for sample in found.samples] == [
        (step, (1_700_000_000 + step) * 1_000_000) for step in (10, 20, 30)
    ]
    assert found.samples[0].m == {LOSS: 2.9, "train.learning_rate": 1e-4, "train.step.count": 10.0}
    assert found.losses.clock == "utc"
    assert found.lost["unknown-name", "train/epoch"] == 3


@pytest.mark.parametrize(("name", "data"), [("eval/runtime", "eval"), ("eval/code_runtime", "code")])
def test_the_seconds_of_an_evaluation_are_an_evaluation(name: str, data: str, tmp_path: Path) -> None:
    """Also in an event file of its own, as where it is the last of the run; it begins after the row before."""
    steps = [(step, {"train/epoch": 1.0, "train/loss": 3.0}) for step in range(1, 31)]
    late = [event(START + 4700 + 10 * step, step, scalar("train/loss", 2.0)) for step in range(31, 40)]
    values = {"eval/loss": 2.5, name: 4700.0, "train/epoch": 1.0}
    last = [event(START + 5000, 30, scalar(*each)) for each in values.items()]
    (tmp_path / "events.out.tfevents.1.a.0").write_bytes(rows(*steps) + b"".join(frame(each) for each in late))
    found = [one.requirement for one in validate([str(tmp_path)]).findings]
    assert "TS-TEL-033" in found, "a pause that nothing explains"
    (tmp_path / "events.out.tfevents.1.a.1").write_bytes(event_file(*last))
    assert not validate([str(tmp_path)]).findings
    (begin, end) = read_bytes(event_file(event(START, 30, scalar("train/loss", 2.0)), *last)).events
    assert (begin.name, end.name) == ("train.evaluation.begin", "train.evaluation.end")
    assert end.time_us - begin.time_us == 4_700_000_000
    assert begin.a["train.evaluation.set"] == data
    (begin, end) = read_bytes(event_file(event(START + 4000, 30, scalar("train/loss", 2.0)), *last)).events
    assert end.time_us - begin.time_us == 1_000_000_000


def test_an_evaluation_without_a_value_that_is_known() -> None:
    """It is one of a run whose steps are known, and makes no records by itself."""
    values = {"eval/accuracy": 0.5, "eval/runtime": 40.0, "train/epoch": 1.0}
    last = [event(START + 100, 30, scalar(*each)) for each in values.items()]
    assert not read_bytes(event_file(*last)).records
    assert len(read_bytes(event_file(event(START, 30, scalar("train/loss", 2.0)), *last)).events) == 2


def test_a_float_of_32_bits_is_the_shortest_number_that_it_stands_for() -> None:
    found = read_bytes(rows((1, {"train/epoch": 0.1, "train/loss": 0.0003, "train/grad_norm": 16777217.0})))
    assert found.values(LOSS) == [0.0003]
    assert found.values("train.gradient.norm") == [16777216.0]


@pytest.mark.parametrize(
    ("row", "step", "values"),
    [
        (
            {"train/epoch": 1, "train/loss": 2.5, "eval/loss": 3.5, "eval/code_loss": 4.5, "train/train_loss": 9},
            7,
            {LOSS: 2.5, EVALUATED.format("eval"): 3.5, EVALUATED.format("code"): 4.5, "train.step.count": 7.0},
        ),
        (
            {
                "epoch": 1,
                "train_loss": 2.5,
                "lr-AdamW": 0.5,
                "lr-Adam/pg1": 0.25,
                "train_loss_epoch": 9,
                "val_loss": 3.5,
            },
            8,
            {
                LOSS: 2.5,
                "train.learning_rate": 0.5,
                "train.learning_rate{train.parameter.group=Adam/pg1}": 0.25,
                EVALUATED.format("val"): 3.5,
                "train.step.count": 8.0,
            },
        ),
        (
            {"reduced_train_loss": 2.5, "global_step": 7, "consumed_samples": 64, "train_step_timing in s": 0.5},
            8,
            {LOSS: 2.5, "train.step.duration": 0.5, "train.step.count": 8.0},
        ),
        (
            {"lm loss": 2.5, "lm loss vs samples": 9, "grad-norm": 1.5, "batch-size": 64, "iteration-time": 0.5},
            7,
            {
                "train.loss.mean{train.loss.name=lm}": 2.5,
                "train.gradient.norm": 1.5,
                "train.batch.size": 64.0,
                "train.step.duration": 0.5,
                "train.step.count": 7.0,
            },
        ),
        (
            {"learning/loss": 2.5, "perf/step_time_seconds": 0.5, "learning/raw_grad_norm": 1.5},
            8,
            {LOSS: 2.5, "train.step.duration": 0.5, "train.gradient.norm": 1.5, "train.step.count": 8.0},
        ),
        (
            {"loss_metrics/global_avg_loss": 2.5, "time_metrics/end_to_end(s)": 0.5},
            7,
            {LOSS: 2.5, "train.step.duration": 0.5, "train.step.count": 7.0},
        ),
        (
            {"Train/Samples/train_loss": 2.5, "Train/Samples/elapsed_time_ms_step": 9},
            None,
            {LOSS: 2.5, "train.sample.count": 7.0},
        ),
        ({"train/lm_loss": 2.5}, 7, {"train.loss.mean{train.loss.name=lm}": 2.5, "train.step.count": 7.0}),
        ({"Loss/train": 2.5, "Loss/test": 3.5, "took": 9}, None, {LOSS: 2.5, EVALUATED.format("test"): 3.5}),
    ],
)
def test_names_of_programs(row: dict[str, float], step: int | None, values: dict[str, float]) -> None:
    found = read_bytes(rows((7, row)))
    assert [(sample.step, sample.m) for sample in found.samples] == [(step, values)]
    assert not found.refusals


def test_the_first_step_of_torchtitan_has_no_duration() -> None:
    row = {"loss_metrics/global_avg_loss": 2.5, "time_metrics/end_to_end(s)": 0.5}
    found = read_bytes(rows((1, row), (10, row)))
    assert found.values("train.step.duration") == [0.5]
    assert found.lost["meaning", "time_metrics/end_to_end(s)"] == 1


def test_memory_of_a_rank_is_no_value_of_the_job(tmp_path: Path) -> None:
    """torchtitan writes the memory of its first rank next to the loss of the job."""
    row = {"loss_metrics/global_avg_loss": 2.5, "memory/max_reserved(GiB)": 12.5, "memory/max_active(GiB)": 8.5}
    content = rows(*((step, row) for step in range(1, 9)))
    found = read_bytes(content)
    assert {name for sample in found.samples for name in sample.m} == {LOSS, "train.step.count"}
    assert found.lost["meaning", "train.memory.allocator.reserved"] == 8
    path = tmp_path / "events.out.tfevents.1700000000.host"
    path.write_bytes(content)
    assert not [finding for finding in validate(path).findings if finding.severity.value == "error"]


def test_a_program_that_shows_late_is_known_from_the_start() -> None:
    found = read_bytes(
        rows((0, {"hp": 1.0}), (49, {"train_loss": 2.5}), (49, {"epoch": 0.0}), (99, {"train_loss": 2.25}))
    )
    assert [(sample.step, sample.m[LOSS]) for sample in found.samples] == [(50, 2.5), (100, 2.25)]


@pytest.mark.parametrize("name", ["train/step", "global_step", "train/iteration"])
def test_the_step_of_the_program_is_that_of_its_series(name: str) -> None:
    """The axis is taken where it agrees with the series, and is the count of the logger where it does not."""
    found = read_bytes(rows((10, {"loss": 2.5, name: 10.0}), (20, {"loss": 2.25}), (30, {"loss": 2.0, name: 30.0})))
    assert [sample.step for sample in found.samples if LOSS in sample.m] == [10, 20, 30]
    found = read_bytes(rows(*((10 * n, {"loss": 2.5, name: n + 1.0}) for n in range(3))))
    assert [sample.step for sample in found.samples if LOSS in sample.m] == [1, 2, 3]


def test_steps_that_fall_begin_an_attempt() -> None:
    steps = [10, 20, 30, 20, 30]
    found = read_bytes(rows(*((step, {"train/loss": 2.5, "train/epoch": 1.0}) for step in steps)))
    assert [(sample.step, sample.att) for sample in found.samples] == list(zip(steps, [0, 0, 0, 1, 1], strict=True))
    assert not found.refusals


def test_an_evaluation_at_the_step_of_a_loss_is_a_record_of_its_time() -> None:
    found = read_bytes(rows((5, {"train/loss": 2.5, "train/epoch": 1.0}), (5, {"eval/loss": 3.5})))
    assert [(sample.step, sample.time_us // 1_000_000) for sample in found.samples] == [
        (5, 1_700_000_000),
        (5, 1_700_000_010),
    ]


def tensor(kind: int, content: bytes, shape: bytes = b"") -> bytes:
    return field(1, kind) + field(2, shape) + field(4, content)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (field(8, tensor(1, struct.pack("<f", 2.5))), [2.5]),
        (field(8, tensor(2, struct.pack("<d", 2.5))), [2.5]),
        (field(8, field(1, 1) + field(2, b"") + single(5, 2.5)), [2.5]),
        (field(8, field(1, 1) + field(2, b"") + field(5, struct.pack("<f", 2.5))), [2.5]),
        (field(8, tensor(1, struct.pack("<f", 2.5), field(2, field(1, 1)))), []),
        (field(8, tensor(1, b"ab")), []),
        (field(8, tensor(7, b"text")), []),
        (field(5, b"histogram"), []),
        (single(2, float("nan")), ["NaN"]),
        (single(2, float("-inf")), ["-Inf"]),
    ],
)
def test_what_a_value_holds(value: bytes, expected: list[object]) -> None:
    named = field(1, b"train/loss") + value
    found = read_bytes(event_file(event(START, 1, named), event(START, 1, scalar("train/epoch", 1.0))))
    assert found.values(LOSS) == expected
    assert not found.refusals


def test_a_file_that_is_cut_is_named() -> None:
    content = trainer_events(10, 20, 30)
    for end in range(200, len(content) - 1, 5):
        found = read_bytes(content[:end])
        whole = content[:end] in {content[:n] for n in ends_of(content)}
        assert [refusal.code for refusal in found.refusals] == ([] if whole else ["cut-off"])


def ends_of(content: bytes) -> list[int]:
    found, place = [], 0
    while place < len(content):
        place += 16 + struct.unpack_from("<Q", content, place)[0]
        found.append(place)
    return found


def test_content_that_is_changed_is_refused_and_the_next_is_read() -> None:
    ends = ends_of(content := trainer_events(10, 20, 30))
    changed = bytearray(content)
    changed[ends[0] + 12 + 12] ^= 1
    found = read_bytes(bytes(changed))
    assert [(refusal.code, "does not match its checksum" in refusal.message) for refusal in found.refusals] == [
        ("syntax", True)
    ]
    assert found.values("train.step.count") == [10.0, 20.0, 30.0]
    assert found.values(LOSS) == [2.8, 2.7]


def test_a_length_that_is_changed_ends_the_reading() -> None:
    ends = ends_of(content := trainer_events(10, 20, 30))
    changed = bytearray(content)
    changed[ends[3]] ^= 1
    found = read_bytes(bytes(changed))
    assert [refusal.code for refusal in found.refusals] == ["cut-off"]
    assert found.values("train.step.count") == [10.0]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"\x0f", "value"),
        (b"\x0a\x7f", "value"),
        (event(float("nan"), 1, scalar("train/loss", 1.0)), "time"),
        (event(-5.0, 1, scalar("train/loss", 1.0)), "time"),
        (field(1, START) + field(2, 2**64 - 1) + field(5, field(1, scalar("train/loss", 1.0))), "time"),
        (event(START, 1, field(1, b"\xff\xfe") + single(2, 1.0)), "value"),
    ],
)
def test_records_that_are_refused(content: bytes, code: str) -> None:
    found = read_bytes(event_file(content))
    assert [refusal.code for refusal in found.refusals] == [code]


def test_a_record_that_is_too_large_is_passed_over() -> None:
    large = frame(bytes(17 * 1024 * 1024))
    found = read_bytes(frame(VERSION) + large + trainer_events(10))
    assert [refusal.code for refusal in found.refusals] == ["size"]
    assert found.values("train.step.count") == [10.0]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(content: bytes) -> None:
    read_bytes(content, "tensorboard")
    read_bytes(frame(VERSION) + frame(content), "tensorboard")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_bytes_that_are_changed(data: st.DataObject) -> None:
    content = bytearray(trainer_events(10, 20))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    found = read_bytes(bytes(content), "tensorboard")
    assert found.refusals or content == trainer_events(10, 20)


@pytest.mark.parametrize("size", [0, 1, 3, 16_383, 16_384, 16_385, 40_000, 70_001])
def test_checksums_of_long_texts_are_those_of_short_ones(size: int) -> None:
    content = random.Random(size).randbytes(size)
    found = 0xFFFFFFFF
    for byte in content:
        found ^= byte
        for _ in range(8):
            found = (found >> 1) ^ (0x82F63B78 if found & 1 else 0)
    assert crc32c(content) == found ^ 0xFFFFFFFF


def test_other_records_are_no_event_file() -> None:
    assert detect(frame(b"an example")) is None
    assert detect(trainer_events(1)[:40]) is detect(trainer_events(1))


def test_numbers_without_an_end_are_no_message() -> None:
    with pytest.raises(WireError, match="no end"):
        list(fields(b"\x80" * 20))


def test_event_files_are_found_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    path = tmp_path / "runs" / "events.out.tfevents.1700000000.host.12.0"
    path.write_bytes(trainer_events(10))
    assert [file.path for file in search([str(tmp_path)]).files] == [path]


def place(directory: Path, start: int, process: str, *steps: int, tag: str = "train/loss") -> Path:
    """An event file that begins at a second and has a value each second."""
    name = f"events.out.tfevents.{1_700_000_000 + start}.{process}"
    values = (
        event(START + start + n, step, scalar("train/epoch", 1.0), scalar(tag, 2.5 - n / 8))
        for n, step in enumerate(steps)
    )
    path = directory / name
    path.write_bytes(event_file(*values))
    return path


def attempts(*paths: Path) -> list[list[tuple[str, int]]]:
    """The runs that files are, each with the starts and attempts of its files."""
    opened, failures = open_streams([File(path, path.as_posix()) for path in paths])
    assert not failures
    return [[(file.path.name.split(".")[3][-3:], file.given.attempt) for file in run] for run in runs(opened)]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([(0, "host.1.0", 10, 20), (100, "host.2.0", 20, 30)], [[("000", 0), ("100", 1)]]),
        ([(0, "host.1.0", 10, 20), (100, "host.1.1", 30, 40)], [[("000", 0), ("100", 0)]]),
        ([(0, "host.1.0", 10, 20), (100, "host.1.1", 10, 20)], [[("000", 0), ("100", 1)]]),
        ([(0, "host", 10, 20), (100, "host", 20, 30)], [[("000", 0), ("100", 1)]]),
        ([(0, "host", 10, 20), (100, "host", 30, 40)], [[("000", 0), ("100", 0)]]),
        ([(0, "host.1.0", 10, 20, 10, 20), (100, "host.2.0", 30)], [[("000", 0), ("100", 2)]]),
        ([(0, "host.1.0", 10, 20, 30), (1, "host.2.0", 10, 20)], [[("000", 0)], [("001", 0)]]),
    ],
)
def test_event_files_of_a_directory_are_the_attempts_of_a_run(
    tmp_path: Path, files: list[tuple[int, str, *tuple[int, ...]]], expected: object
) -> None:
    assert attempts(*(place(tmp_path, *each) for each in files)) == expected


def test_an_evaluation_that_another_program_writes_begins_no_attempt(tmp_path: Path) -> None:
    first = place(tmp_path, 0, "host.1.0", 10, 20)
    beside = place(tmp_path, 1, "host.1.1", 10, tag="eval/loss")
    later = place(tmp_path, 100, "host.2.0", 20, tag="eval/loss")
    assert attempts(first, beside, later) == [[("000", 0), ("001", 0), ("100", 0)]]


def test_directories_of_event_files_are_runs_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "logs").mkdir(parents=True)
        place(tmp_path / name / "logs", 0, "host.1.0", 10, 20, 30)
        place(tmp_path / name / "logs", 100, "host.2.0", 20, 30, 40)
    report = validate(tmp_path)
    assert [coverage.run for coverage in report.coverage] == ["logs", "logs"]
    assert not [finding for finding in report.findings if finding.severity.value == "error"]


def test_an_event_file_that_cannot_be_read_takes_no_other_with_it(tmp_path: Path) -> None:
    first = place(tmp_path, 0, "host.1.0", 10, 20)
    second = place(tmp_path, 100, "host.2.0", 20, 30)
    second.write_bytes(second.read_bytes()[:-7])
    third = place(tmp_path, 200, "host.3.0", 30, 40)
    assert attempts(first, second, third) == [[("000", 0), ("100", 1), ("200", 2)]]
