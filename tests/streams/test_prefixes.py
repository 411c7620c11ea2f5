"""What launchers, containers and loggers write before each line is taken off, and one process of several is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.streams.reading import read_bytes, read_text
from trainspec_validate.cli.validate import command
from trainspec_validate.telemetry.formats import FORMATS, detect
from trainspec_validate.telemetry.formats.prefixes import prefix_for

LOSS = "train.loss.mean{train.loss.name=total}"
STEPS = range(1, 31)
LOGS = {
    "nanogpt-iterations-log": [
        "starting",
        *(f"iter {n}: loss {4 - n / 20:.4f}, time 250.00ms, mfu 30.00%" for n in STEPS),
    ],
    "megatron-log": [
        "using world size: 8, data-parallel size: 1",
        *(
            f" iteration {n:8d}/     100 | elapsed time per iteration (ms): 1000.0 | lm loss: {9 - n / 9:.6E} |"
            for n in STEPS
        ),
    ],
    "trainer-log": [
        f"{{'loss': {4 - n / 20:.4f}, 'grad_norm': 1.5, 'learning_rate': 0.0001, 'epoch': {n / 30:.2f}}}" for n in STEPS
    ],
    "composer-log": [
        line
        for n in STEPS
        for line in (f"[batch={n}/100]:", f"\t Train loss/train/total: {9 - n / 9:.4f}", "\t Train time/total: 1.5")
    ],
    "deepspeed-log": [
        f"[2024-05-31 12:00:{n:02d},500] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped=0, lr=[0.001]"
        for n in STEPS
    ],
    "torchtitan-log": [
        f"[titan] 2025-06-04 08:51:{n:02d},074 - root - INFO - step: {n:2d}  loss: {12 - n / 9:.4f}  tps: 375"
        for n in STEPS
    ],
    "json-rows": [json.dumps({"step": n, "loss": 3 - n / 50, "lr": 1e-5}) for n in STEPS],
    "llmc-console-log": [
        f"step {n:4d}/21479 | loss {9 - n / 9:.6f} (+nanz)| norm 1.3235 (+nanz)| lr 2.86e-06 | 2734.72 ms |"
        for n in STEPS
    ],
    "nanogpt-log": [
        f"step:{n}/6200 train_loss:{9 - n / 9:.4f} train_time:{285 * n}ms step_avg:285.00ms" for n in STEPS
    ],
}


def at(number: int) -> str:
    return f"2024-05-01T12:{number // 60:02d}:{number % 60:02d}"


Before = Callable[[int, str], str]
PREFIXES: dict[str, Before] = {
    "docker": lambda n, line: f"{at(n)}.123456789Z {line}",
    "container runtime": lambda n, line: f"{at(n)}.123456789Z stdout F {line}",
    "objects": lambda n, line: json.dumps({"log": f"{line}\n", "stream": "stdout", "time": f"{at(n)}.5Z"}),
    "pods": lambda _, line: f"[pod/train-worker-0-x7k2p/pytorch] {line}",
    "pods with times": lambda n, line: f"[pod/train-worker-0-x7k2p/pytorch] {at(n)}.123456789Z {line}",
    "stern": lambda _, line: f"train-worker-0-x7k2p pytorch {line}",
    "mpirun": lambda _, line: f"[1,0]<stdout>:{line}",
    "srun": lambda _, line: f" 0: {line}",
    "torchrun": lambda _, line: f"[default0]:{line}",
    "rank": lambda _, line: f"[rank0]: {line}",
    "ray": lambda _, line: f"\x1b[36m(RayTrainWorker pid=1234, ip=10.0.0.1)\x1b[0m {line}",
    "syslog": lambda n, line: f"May  1 12:{n // 60:02d}:{n % 60:02d} node-03 train[4711]: {line}",
    "journal": lambda n, line: f"{at(n)}+0200 node-03 train[4711]: {line}",
    "time in brackets": lambda n, line: f"[{at(n).replace('T', ' ')}] {line}",
    "logger": lambda n, line: f"{at(n).replace('T', ' ')},{n:03d} - INFO - __main__ - {line}",
    "time of day": lambda n, line: f"{at(n)[11:]} {line}",
    "compose": lambda _, line: f"trainer-1  | {line}",
    "process manager": lambda _, line: f"0|run-5b  | {line}",
    "cloud": lambda _, line: f"(head, rank=0, pid=1234) {line}",
    "colors": lambda _, line: f"\x1b[32m{line}\x1b[0m",
}


def prefixed(lines: list[str], before: Before) -> str:
    return "".join(f"{before(number, line)}\n" for number, line in enumerate(lines))


@pytest.mark.parametrize("before", PREFIXES.values(), ids=list(PREFIXES))
@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_read_as_if_its_lines_had_no_prefix(name: str, before: Before) -> None:
    plain = read_text("".join(f"{line}\n" for line in LOGS[name]))
    text = prefixed(LOGS[name], before)
    found = read_text(text)
    assert detect(text.encode()) is FORMATS[name]
    assert [(each.m, each.step) for each in found.samples] == [(each.m, each.step) for each in plain.samples]
    assert len(found.samples) >= len(STEPS)
    assert not found.refusals


def test_a_record_keeps_its_place_in_the_file() -> None:
    text = prefixed(LOGS["nanogpt-iterations-log"], PREFIXES["container runtime"])
    places = [offset for offset, item in read_text(text).items if getattr(item, "m", None)]
    assert places[0] == text.index("\n") + 1
    assert all(text[place - 1] == "\n" for place in places)


@pytest.mark.parametrize("kind", ["docker", "objects", "pods with times", "journal", "time in brackets"])
def test_the_time_of_a_prefix_is_that_of_lines_that_lack_their_own(kind: str) -> None:
    found = read_text(prefixed(LOGS["megatron-log"], PREFIXES[kind]))
    times = [each.time_us for each in found.samples]
    assert {later - before for before, later in pairwise(times)} == {1_000_000}
    assert found.losses.clock == ("local" if kind == "time in brackets" else "utc")


def test_the_time_of_the_program_is_taken_before_that_of_a_prefix() -> None:
    lines = [f" [2024-01-01 00:{n:02d}:00]{line}" for n, line in enumerate(LOGS["megatron-log"][1:])]
    times = [each.time_us for each in read_text(prefixed(lines, PREFIXES["docker"])).samples]
    assert {later - before for before, later in pairwise(times)} == {60_000_000}


RANKS: dict[str, Before] = {
    "mpirun": lambda rank, line: f"[1,{rank}]<stdout>:{line}",
    "srun": lambda rank, line: f"{rank}: {line}",
    "torchrun": lambda rank, line: f"[default{rank}]:{line}",
    "rank": lambda rank, line: f"[rank{rank}]: {line}",
}


@pytest.mark.parametrize("before", RANKS.values(), ids=list(RANKS))
@pytest.mark.parametrize("name", [name for name in LOGS if name not in {"deepspeed-log", "torchtitan-log"}])
@pytest.mark.parametrize("is_burst", [False, True])
def test_of_several_ranks_one_is_read(name: str, before: Before, is_burst: bool) -> None:
    plain = read_text("".join(f"{line}\n" for line in LOGS[name]))
    pairs = [(rank, line.replace("0001", f"000{rank + 1}")) for line in LOGS[name] for rank in range(3)]
    pairs = sorted(pairs, key=lambda pair: pair[0]) if is_burst else pairs
    found = read_text("".join(f"{before(rank, line)}\n" for rank, line in pairs))
    assert [each.step for each in found.samples] == [each.step for each in plain.samples]
    assert len(found.heads) == 1
    assert not found.refusals
    assert {what for reason, what in found.lost if reason == "rank"} == {"rank 1", "rank 2"}


def test_a_loss_of_another_rank_that_is_not_finite_is_reported_once() -> None:
    lines = [
        (rank, f"iter {n}: loss {'nan' if rank and n > 20 else 2.5}, time 250.00ms") for n in STEPS for rank in (0, 1)
    ]
    found = read_text("".join(f"[rank{rank}]: {line}\n" for rank, line in lines))
    assert [each.message for each in found.refusals] == ["the loss of rank 1 is NaN at step 21"]
    assert found.refusals[0].requirement == "TS-TEL-055"
    assert set(found.values(LOSS)) == {2.5}


def test_entries_of_mlperf_are_of_all_processes() -> None:
    entry = '[1,{}]<stdout>::::MLLOG {{"key": "{}", "value": {}, "time_ms": {}, "metadata": {{}}}}\n'
    keys = ("submission_benchmark", "global_batch_size", "init_start", "init_stop", "run_start", "run_stop")
    text = "".join(
        entry.format(n % 3, key, 8 if "size" in key else '"a"', n) for n, key in enumerate(keys, 1_700_000_000_000)
    )
    found = read_text(text)
    assert [each.name for each in found.events] == [
        each.name for each in read_text(text.replace("[1,1]", "[1,0]").replace("[1,2]", "[1,0]")).events
    ]
    assert not any(reason == "rank" for reason, _ in found.lost)
    objects = "".join(f"{PREFIXES['objects'](n, line)}\n" for n, line in enumerate(text.splitlines()))
    assert [each.name for each in read_text(objects).events] == [each.name for each in found.events]


def test_another_process_that_continues_after_a_restart_is_read() -> None:
    row = "[pod/train-{}/pytorch] iter {}: loss {}, time 250.00ms\n"
    found = read_text(
        "".join(row.format("aa1bb", n, 2.5 - n / 99) for n in range(100, 160))
        + "".join(row.format("cc2dd", n, 2.6 - n / 99) for n in range(150, 200))
    )
    assert [each.step for each in found.samples] == [*range(101, 161), *range(151, 201)]
    assert [each.att for each in found.heads] == [0, 1]


def test_another_process_is_read_where_the_first_one_is_silent() -> None:
    row = "[rank{}]: iter {}: loss 2.5, time 250.00ms\n"
    both = "".join(row.format(rank, n) for n in range(50) for rank in (0, 1))
    steps = [each.step for each in read_text(both + "".join(row.format(1, n) for n in range(50, 250))).samples]
    assert steps[:50] == [*range(1, 51)]
    assert steps[-1] == 250


def test_parts_of_a_line_are_joined() -> None:
    lines = [f"{at(n)}.5Z stdout F iter {n}: loss 2.5, time 250.00ms\n" for n in range(9)]
    cut = f"{at(9)}.5Z stdout P iter 9: lo\n{at(9)}.6Z stdout F ss 2.25, time 250.00ms\n"
    found = read_text("".join(lines) + cut)
    assert found.values(LOSS)[-1] == 2.25
    objects = [
        json.dumps({"log": text, "stream": "stdout", "time": f"{at(9)}Z"})
        for text in ("iter 9: lo", "ss 2.25, time 9ms\n")
    ]
    text = prefixed([f"iter {n}: loss 2.5, time 250.00ms" for n in range(9)], PREFIXES["objects"]) + "\n".join(objects)
    assert read_text(text).values(LOSS)[-1] == 2.25


@pytest.mark.parametrize("name", LOGS)
def test_a_log_without_a_prefix_has_none(name: str) -> None:
    text = "".join(f"{line}\n" for line in LOGS[name])
    found = read_text(text)
    assert ("meaning", "prefix") not in found.lost or name == "torchtitan-log"
    assert len(found.samples) >= len(STEPS)


def test_a_number_that_counts_is_no_prefix() -> None:
    text = b"".join(b"Epoch %d: %d of\n" % (n, n * n % 7) for n in range(40))
    assert prefix_for(text, None, has_times=False) is None
    ranks = b"".join(b"rank%d: %d of\n" % (n % 4, n * n % 7) for n in range(40))
    found = prefix_for(ranks, None, has_times=False)
    assert found is not None
    assert found.take(b"rank7: KeyError: 'lr'").text == b"KeyError: 'lr'"


def test_the_name_of_an_exception_is_no_part_of_a_prefix() -> None:
    text = b"".join(b"[rank%d]: INFO: step done %d\n" % (n % 4, n) for n in range(40))
    found = prefix_for(text, None, has_times=False)
    assert found is not None
    assert found.take(b"[rank1]: ValueError: bad").text == b"ValueError: bad"


CRASH = [
    "loading torch",
    *(f"epoch 1 step {n} loss 2.5" for n in range(9)),
    "Traceback (most recent call last):",
    '  File "/srv/train.py", line 9, in <module>',
    "    main()",
    "ValueError: bad shape",
]


@pytest.mark.parametrize("before", PREFIXES.values(), ids=list(PREFIXES))
def test_the_end_of_a_program_behind_a_prefix_is_found_at_its_line(tmp_path: Path, before: Before) -> None:
    (tmp_path / "a.log").write_text(prefixed(CRASH, before), encoding="utf-8")
    done = CliRunner().invoke(command, [str(tmp_path / "a.log"), "--color", "never", "--format", "concise"])
    (found,) = [line for line in done.output.splitlines() if "error[" in line]
    assert "a.log:14:1: error[TS-TEL-048] the log ends with: ValueError: bad shape" in found
    assert done.exit_code == 1


@pytest.mark.parametrize("level", ["WARNING", "WARN", "DEBUG"])
def test_a_traceback_that_a_program_logs_as_a_warning_is_no_end(tmp_path: Path, level: str) -> None:
    lines = [f"[2024-05-01 12:00:0{n % 10},500] torch.compiler: [{level}] {line}\n" for n, line in enumerate(CRASH * 3)]
    (tmp_path / "a.log").write_text("".join(lines), encoding="utf-8")
    done = CliRunner().invoke(command, [str(tmp_path / "a.log"), "--color", "never"])
    assert (done.exit_code, "TS-TEL-048" in done.output) == (2, False)


@pytest.mark.parametrize(
    "line",
    [
        b"{" * 50_000,
        b'{"log":' + b"[" * 50_000,
        b"[" * 9_000,
        b"(1" * 9_000,
        b"a-" * 9_000,
        b"1:" * 9_000,
        b"\x1b[" * 9_000,
    ],
)
def test_hostile_lines_are_read_in_bounded_time(line: bytes) -> None:
    read_bytes((line + b"\n") * 20, "trainer-log")
