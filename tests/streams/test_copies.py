"""A file that was appended to itself is read once and reported; one that holds another attempt is no copy."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import pytest

from trainspec_validate import validate
from trainspec_validate.documents.types.stream import Event, Head, Sample, encode_record
from trainspec_validate.telemetry.formats import FORMATS, Given, Losses, Refusal, SourceError, parquet, pieces, read
from trainspec_validate.telemetry.formats.copies import COPY, without_copies
from trainspec_validate.telemetry.formats.courses import MIXED
from trainspec_validate.telemetry.formats.row_copies import PASTED

EPOCH = 1_700_000_000


def entry(key: str, time_ms: int, value: object = None, **metadata: object) -> bytes:
    told = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return b":::MLLOG " + json.dumps({**told, "metadata": metadata}).encode() + b"\n"


def mlperf(start_ms: int) -> bytes:
    keys = ("submission_benchmark", "init_start", "init_stop", "run_start", "block_start", "block_stop", "run_stop")
    values = {"submission_benchmark": "gpt3"}
    lines = [entry(key, start_ms + 1000 * number, values.get(key)) for number, key in enumerate(keys)]
    return b"".join([entry("cache_clear", start_ms, True), entry("global_batch_size", start_ms, 64), *lines])


def iterations(first: int, milliseconds: float) -> bytes:
    line = (
        " iteration {:8}/     100 | consumed samples: {:8} | elapsed time per iteration (ms): {} | lm loss: 2.5E+00 |\n"
    )
    return b"".join(line.format(n, n * 64, milliseconds + n).encode() for n in range(first, first + 12))


FILES = {
    "lightning-csv": b"epoch,step,train_loss\n"
    + b"".join(f"0,{49 + n * 50},{2.5 - n / 10}\n".encode() for n in range(9)),
    "wandb-history": b"".join(
        json.dumps({"_step": n, "_timestamp": EPOCH + n, "loss": 2.5 - n / 10}).encode() + b"\n" for n in range(9)
    ),
    "maxtext-log": b"".join(f"completed step: {n}, seconds: 2.5, loss: {3.5 - n / 10}\n".encode() for n in range(12)),
    "prometheus": b"# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n"
    + b"".join(f'DCGM_FI_DEV_POWER_USAGE{{gpu="{n}",UUID="GPU-{n}"}} {300 + n}\n'.encode() for n in range(8)),
    "trainer-state": json.dumps(
        {"global_step": 5, "log_history": [{"loss": 2.5, "step": 1}, {"loss": 2.4, "step": 2}]}, indent=1
    ).encode()
    + b"\n",
    "mllog": mlperf(EPOCH * 1000),
    "megatron-log": iterations(1, 500.0),
}
"""Each as its program writes it."""


def items(name: str, content: bytes) -> tuple[list[Head | Sample | Event], list[Refusal]]:
    found = [one for _, one in read(pieces(BytesIO(content), FORMATS[name]), "job", FORMATS[name], Given())]
    records = [one for one in found if not isinstance(one, Refusal | Losses)]
    return records, [one for one in found if isinstance(one, Refusal)]


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("name", FILES)
def test_a_copy_is_left_out_and_reported(name: str, number: int) -> None:
    records, refused = items(name, FILES[name])
    assert records
    again, refused_again = items(name, FILES[name] * number)
    assert again == records
    assert [one for one in refused_again if one not in refused] == [COPY] * (number - 1)


def test_a_file_that_continues_after_its_copy_is_read_on() -> None:
    more = f'{{"_step": 9, "_timestamp": {EPOCH + 9}, "loss": 1.5}}\n'.encode()
    records, _ = items("wandb-history", FILES["wandb-history"] + more)
    again, refused = items("wandb-history", FILES["wandb-history"] * 2 + more)
    assert (again, refused) == (records, [COPY])


BANNER = b"*" * 40 + b"\nSetting OMP_NUM_THREADS\n" + b"*" * 40 + b"\n"
BOOT = b"".join(f"[    0.000000] BIOS-e820: range {n}\n".encode() for n in range(300))
NO_COPIES = {
    "another attempt with other times": ("megatron-log", iterations(1, 500.0) + iterations(1, 501.5)),
    "a title that each process prints": (
        "megatron-log",
        BANNER * 3 + iterations(1, 500.0) + BANNER + iterations(9, 1.0),
    ),
    "a line that two processes print": ("megatron-log", iterations(1, 500.0)[:130] * 2 + iterations(1, 500.0)),
    "another boot": (
        "kernel-log",
        BOOT + b"[    9.5] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.\n" + BOOT + b"[    9.7] up\n",
    ),
    "another run of the same header": ("lightning-csv", FILES["lightning-csv"] + b"epoch,step,train_loss\n0,49,2.25\n"),
}


@pytest.mark.parametrize("name", NO_COPIES)
def test_what_repeats_a_part_is_no_copy(name: str) -> None:
    kind, content = NO_COPIES[name]
    given = list(pieces(BytesIO(content), FORMATS[kind]))
    assert list(without_copies(given, FORMATS[kind].mark)) == given


def test_memory_and_time_stay_bounded() -> None:
    """One line again and again, which is the start of a copy at each place."""
    lines = [(number, b"step:1 x") for number in range(300_000)]
    assert len(list(without_copies(lines, b"never"))) == len(lines)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("lightning-csv", b",2.5\n", b",2.75\n"), ("maxtext-log", b": 2.5,", b": 2.25,")],
)
def test_the_stream_of_a_restart_is_valid(name: str, old: bytes, new: bytes, tmp_path: Path) -> None:
    """A job that begins again appends to its file: two attempts, each record with its own."""
    title = b"epoch,step,train_loss\n" if name == "lightning-csv" else b""
    records, refused = items(name, FILES[name] + FILES[name].removeprefix(title).replace(old, new))
    assert (sum(isinstance(one, Head) for one in records), refused) == (2, [])
    (tmp_path / "job.jsonl").write_bytes(b"".join(encode_record(one) + b"\n" for one in records))
    found = {finding.requirement for finding in validate([tmp_path]).findings}
    assert not found & {"TS-TEL-001", "TS-TEL-002", "TS-TEL-019"}


def test_another_run_in_a_log_of_mlperf_is_reported() -> None:
    _, alone = items("mllog", mlperf(EPOCH * 1000))
    _, refused = items("mllog", mlperf(EPOCH * 1000) + mlperf(EPOCH * 1000 + 60_000))
    assert [one.message for one in refused if one not in alone] == [
        "run_start after run_stop: the log holds another run"
    ]


def test_other_values_of_the_same_series_are_reported() -> None:
    _, refused = items("prometheus", FILES["prometheus"] + FILES["prometheus"].replace(b" 30", b" 40"))
    assert len(refused) == 8
    assert "300.0 above and 400.0 here, with the same labels and time" in refused[0].message


def test_equal_series_of_a_short_exposition_are_named() -> None:
    line = b'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-0"} 300\n'
    given = list(read(pieces(BytesIO(line * 2), FORMATS["prometheus"]), "job", FORMATS["prometheus"], Given()))
    losses = given[-1][1]
    assert isinstance(losses, Losses)
    assert any("each is read once" in loss.message for loss in losses.entries)


@pytest.mark.parametrize("number", [2, 3])
def test_parquet_that_another_was_appended_to_is_refused(number: int, tmp_path: Path) -> None:
    records, _ = items("wandb-history", FILES["wandb-history"])
    path = tmp_path / "job.parquet"
    parquet.write(records, path)
    alone = path.read_bytes()
    assert len(list(parquet.read(path))) == len(records) + 1
    path.write_bytes(alone * number)
    with pytest.raises(SourceError, match="another Parquet file was appended to it"):
        list(parquet.read(path))


BUILD = "step {:5d} | loss: {:.6f} | lr 6.0000e-04 | norm: 0.5000 | dt: {:.2f}ms | tok/sec: 1277966.93\n"
DEEP = (
    "[2024-05-31 12:{:02d}:{:02d},500] [INFO] [logging.py:96:log_dist] [Rank 0] step={}, skipped={}, "
    "lr=[0.001], mom=[0.9]\n"
)


def built(first: int, last: int, seconds: float = 0.0, loss: float = 3.0) -> str:
    return "".join(BUILD.format(n, loss - n / 1000, 400 + n / 8 + seconds) for n in range(first, last))


def deep(first: int, last: int) -> str:
    return "".join(DEEP.format(n // 60, n % 60, 10 * n, 2) for n in range(first, last))


def refusals_of(name: str, text: str) -> tuple[list[int | None], list[Refusal]]:
    records, refused = items(name, text.encode())
    return [record.step for record in records if isinstance(record, Sample)], refused


@pytest.mark.parametrize(
    ("name", "once", "part"),
    [
        ("build-nanogpt-log", built(0, 60), built(20, 40)),
        ("deepspeed-log", deep(1, 60), deep(20, 40)),
        ("megatron-log", iterations(1, 500.0).decode(), iterations(1, 500.0).decode().split("\n", 2)[2]),
    ],
)
def test_a_part_that_was_pasted_again_is_a_copy_and_no_restart(name: str, once: str, part: str) -> None:
    steps, refused = refusals_of(name, once + part)
    assert steps == refusals_of(name, once)[0]
    assert [(one.requirement, one.message) for one in refused] == [("TS-TEL-019", PASTED.message)]


@pytest.mark.parametrize("more", [0.0625, 30.0])
def test_steps_that_are_executed_again_have_other_times(more: float) -> None:
    records, refused = items("build-nanogpt-log", (built(0, 60) + built(20, 60, seconds=more)).encode())
    assert not refused
    assert [record.att for record in records if isinstance(record, Head)] == [0, 1]


def test_a_log_without_times_that_repeats_is_a_restart() -> None:
    """A program that computes the same again prints the same lines."""
    once = "".join(f"s:{n} trl:{9 - n / 100:.4f} lr:0.000100 norm:0.5\n" for n in range(60))
    again = "".join(once.splitlines(keepends=True)[20:])
    records, refused = items("llmc-log", (once + again).encode())
    assert not refused
    assert [record.att for record in records if isinstance(record, Head)] == [0, 1]


@pytest.mark.parametrize("apart", [1, 7, 40])
def test_lines_of_two_runs_that_are_mixed_are_reported(apart: int) -> None:
    one = built(apart, 300 + apart).splitlines(keepends=True)
    other = built(0, 300, seconds=3.0, loss=4.0).splitlines(keepends=True)
    text = "".join(a + b for a, b in zip(one, other, strict=True))
    records, refused = items("build-nanogpt-log", text.encode())
    assert [(each.requirement, each.message) for each in refused] == [("TS-TEL-031", MIXED.message)]
    assert len([record for record in records if isinstance(record, Head)]) < 10


def test_lines_of_megatron_of_two_runs_that_are_mixed_are_reported() -> None:
    one, other = iterations(5, 500.0).splitlines(), iterations(1, 700.0).splitlines()
    text = b"\n".join(line for both in zip(one, other, strict=True) for line in both)
    refused = items("megatron-log", text)[1]
    assert [each.message for each in refused if each.requirement == "TS-TEL-031"] == [MIXED.message]


def test_steps_that_each_come_twice_with_other_values_are_reported_once() -> None:
    lines = [built(n, n + 1) + built(n, n + 1, loss=4.0) for n in range(30)]
    refused = items("build-nanogpt-log", "".join(lines).encode())[1]
    assert [(each.requirement, each.message) for each in refused] == [
        ("TS-TEL-031", "steps up to 9 are each reported again with other values")
    ]


def test_restarts_of_one_run_are_not_mixed() -> None:
    starts = [0, 40, 90, 130, 180, 230, 270, 310, 350, 390]
    text = "".join(built(start, start + 70, seconds=number) for number, start in enumerate(starts))
    records, refused = items("build-nanogpt-log", text.encode())
    assert not refused
    assert len([record for record in records if isinstance(record, Head)]) == len(starts)
