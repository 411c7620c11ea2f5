"""What happens to a recorder: kills, full disks, forks, threads, a queue that overflows. Training goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import trainspec_record
from trainspec_record import stream as stream_module
from trainspec_record.recording import Run

from .recorded import errors, events, finish, records, start, train, values

REPLAY = "train.goodput.time{train.time.category=replay}"

LOOP = """
    import os, sys, time, trainspec_record
    def train(run, first, last, seconds=0.001):
        for number in range(first, last):
            with run.step(number):
                time.sleep(seconds)
                run.log(loss=2.0 + number / 977, tokens=64, samples=2, learning_rate=1e-3, gradient_norm=1.0)
"""


def test_a_kill_leaves_a_file_that_can_be_read(folder: Path) -> None:
    process = start(LOOP + "    with trainspec_record.run() as run: train(run, 0, 10**6)", folder)
    while not (folder / "job.0.jsonl").exists() or len(values_so_far(folder)) < 50:
        assert process.poll() is None
    process.kill()
    process.communicate(timeout=600)
    assert len(values_so_far(folder)) >= 50
    finish(LOOP + "    with trainspec_record.run() as run: train(run, 0, 20)", folder)
    assert events(folder / "job.0.jsonl", "train.attempt.end")[0]["a"]["train.attempt.reason"] == "fault"
    assert values(folder / "job.1.jsonl", "train.step.repeated")[-1] == 20


def values_so_far(folder: Path) -> list[dict[str, object]]:
    """Whole lines of a file that may still be written."""
    lines = (folder / "job.0.jsonl").read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("interval", "num_repeated"), [(1, 2 + 4 + 3), (4, 2 + 2 + 3)])
def test_steps_are_counted_as_repeated_over_attempts_that_are_killed(
    folder: Path, interval: int, num_repeated: int
) -> None:
    for first, last in ((0, 6), (2, 4), (2, 8), (5, 12)):
        script = f"""
    run = trainspec_record.run(report_interval_steps={interval})
    with run.restore("step-{first}", {first}): pass
    train(run, {first}, {last})
    run.flush()
    {"os._exit(1)" if last < 12 else "run.end()"}
"""
        finish(LOOP + script, folder, code=last < 12)
    ends = [end for number in (2, 3) for end in events(folder / f"job.{number}.jsonl", "train.recovery.end")]
    assert ends[-1]["m"]["train.step.repeated"] == num_repeated
    assert values(folder / "job.3.jsonl", "train.step.repeated")[-1] == num_repeated
    replay = [values(folder / f"job.{number}.jsonl", REPLAY)[0] for number in (1, 2, 3)]
    assert 0 == replay[0] < replay[1] < replay[2]
    assert not [error for error in errors(folder) if "TS-REC-008" in error or "TS-REC-021" in error]


@pytest.mark.parametrize("rest", [b'{"k":"m","time_us":17', b"\xff\xfe", b'{"k":"m"}\n[1,2'])
def test_half_a_line_is_cut_off_by_the_next_attempt(folder: Path, rest: bytes) -> None:
    finish(LOOP + "    run = trainspec_record.run(); train(run, 0, 5); run.flush(); os._exit(1)", folder, code=1)
    for name in ("job.0.jsonl", "rank-000000.0.jsonl"):
        with (folder / name).open("ab") as file:
            file.write(rest.rpartition(b"\n")[2])
    finish(LOOP + "    with trainspec_record.run() as run: train(run, 0, 8)", folder)
    assert {"job.0.jsonl", "job.1.jsonl"} <= {path.name for path in folder.iterdir()}
    for path in folder.iterdir():
        assert records(path)[0]["k"] == "head", path.name


def test_termination_writes_what_waits_and_ends_the_process_as_before(folder: Path) -> None:
    script = LOOP + "    run = trainspec_record.run(); train(run, 0, 30)\n    os.kill(os.getpid(), 15); time.sleep(60)"
    finish(script, folder, code=-signal.SIGTERM)
    assert values(folder / "job.0.jsonl", "train.step.count")[-1] == 30


def test_termination_within_a_call_does_not_wait_for_itself(folder: Path) -> None:
    ending = "    with run.lock: os.kill(os.getpid(), 15); time.sleep(60)"
    script = f"{LOOP}    run = trainspec_record.run(); train(run, 0, 30)\n{ending}"
    finish(script, folder, code=-signal.SIGTERM)
    assert values(folder / "job.0.jsonl", "train.step.count")[-1] == 30


def test_a_handler_of_the_script_stays_the_only_one(folder: Path) -> None:
    script = """
        import os, signal, sys, trainspec_record
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        with trainspec_record.run() as run:
            os.kill(os.getpid(), 15)
    """
    finish(script, folder, code=7)
    (end,) = events(folder / "job.0.jsonl", "train.attempt.end")
    assert end["a"]["train.attempt.reason"] == "fault"


def test_the_end_of_the_interpreter_writes_what_waits(folder: Path) -> None:
    finish(LOOP + "    run = trainspec_record.run(); train(run, 0, 30)", folder)
    assert values(folder / "job.0.jsonl", "train.step.count")[-1] == 30


def test_a_full_disk_is_survived_and_counted(folder: Path) -> None:
    script = (
        LOOP
        + """
    import resource
    with trainspec_record.run() as run:
        train(run, 0, 20)
        run.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        train(run, 20, 300)
        run.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        train(run, 300, 320)
    print("trained")
    """
    )
    told = finish(script, folder)
    assert "job.0.jsonl cannot be written" in told
    dropped = values(folder / "job.0.jsonl", "train.telemetry.dropped")[-1]
    counts = values(folder / "job.0.jsonl", "train.step.count")
    assert counts[-1] == 320
    assert dropped == 321 - len(counts) > 0
    (gap,) = events(folder / "job.0.jsonl", "train.telemetry.gap")
    assert gap["a"]["train.gap.start"] < gap["a"]["train.gap.end"]
    assert gap["m"]["train.telemetry.dropped"] == dropped


@pytest.mark.parametrize("where", ["file/r-1", "/proc/nowhere/r-1"])
def test_a_folder_that_cannot_be_made_records_nothing(folder: Path, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    told = finish(LOOP + "    with trainspec_record.run() as run: train(run, 0, 3)", tmp_path / where)
    assert "recorded nothing" in told


def test_a_forked_child_is_silent(folder: Path) -> None:
    with trainspec_record.run() as run:
        with run.step(0):
            pass
        child = os.fork()
        if child == 0:
            with run.step(1):
                run.log(loss=1.0)
            run.end("fault")
            os._exit(0 if not run.is_active else 1)
        assert os.waitpid(child, 0)[1] == 0
        with run.step(1):
            pass
    assert values(folder / "job.0.jsonl", "train.step.count") == [0, 1, 2]
    assert not events(folder / "job.0.jsonl", "train.fault.detected")


def test_a_fork_while_others_record_does_not_hang(folder: Path) -> None:
    script = (
        LOOP
        + """
    import threading
    with trainspec_record.run() as run:
        for _ in range(3):
            threading.Thread(target=lambda: [run.log({"train.gradient.norm": 1.0}) for _ in range(3000)]).start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                run.log(loss=1.0); run.flush(); train(run, 0, 2)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    """
    )
    finish(script, folder)
    records(folder / "job.0.jsonl")


def test_threads_lose_nothing(folder: Path) -> None:
    script = """
        import threading, trainspec_record
        with trainspec_record.run() as run:
            def work(number):
                for each in range(500):
                    run.log({"train.memory.allocator.active": number * 500 + each})
            group = [threading.Thread(target=work, args=(number,)) for number in range(8)]
            for each in group: each.start()
            for each in group: each.join()
    """
    finish(script, folder)
    found = values(folder / "rank-000000.0.jsonl", "train.memory.allocator.active")
    assert sorted(found) == list(range(4000))


def test_a_queue_that_overflows_drops_and_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "MAX_QUEUED", 10)
    with trainspec_record.run() as run:
        assert isinstance(run, Run)
        run.flush()
        with monkeypatch.context() as stuck:
            stuck.setattr(stream_module.Stream, "drain", lambda stream: None)
            for number in range(100):
                run.log({"train.gradient.norm": number})
    norms = values(folder / "job.0.jsonl", "train.gradient.norm")
    dropped = values(folder / "job.0.jsonl", "train.telemetry.dropped")[-1]
    assert len(norms) + dropped == 100
    assert len(norms) == 10


def test_two_writers_never_share_a_file(folder: Path) -> None:
    processes = [start(LOOP + "    with trainspec_record.run() as run: train(run, 0, 20)", folder) for _ in range(4)]
    for process in processes:
        process.communicate(timeout=600)
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    paths = sorted(folder.glob("*.jsonl"))
    assert "job.0.jsonl" in {path.name for path in paths}
    for path in paths:
        heads = [record for record in records(path) if record["k"] == "head"]
        assert len(heads) == 1, path.name


def test_a_second_run_in_a_process_is_silent(folder: Path) -> None:
    with trainspec_record.run(), trainspec_record.run() as second:
        assert not second.is_active
    assert {path.name for path in folder.iterdir()} == {"job.0.jsonl", "rank-000000.0.jsonl"}


def test_nothing_is_loaded_where_nothing_is_recorded(tmp_path: Path) -> None:
    script = (
        "import sys, trainspec_record; r = trainspec_record.run(); print(*(m for m in sys.modules if 'trainspec' in m))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(Path(trainspec_record.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == {"trainspec_record", "trainspec_record.silent"}


DAMAGE: dict[str, Callable[[Path, Path], object]] = {
    "a pipe": lambda path, _: (path.unlink(), os.mkfifo(path)),
    "a directory": lambda path, _: (path.unlink(), path.mkdir()),
    "a link": lambda path, other: (path.unlink(), path.symlink_to(other)),
    "a link to itself": lambda path, _: (path.unlink(), path.symlink_to(path.name)),
}
LINES = (
    *('{"k":"m","time_us":1e400,"seq":9,"m":{}}', '{"k":"m","time_us":[],"seq":9}', '{"k":"m","time_us":1,"seq":{}}'),
    *('{"k":"m","time_us":1,"seq":9,"m":[7]}', '{"k":"m","time_us":1,"seq":9,"m":{"train.step.count":[]}}'),
    *('{"k":"m","time_us":1,"seq":9,"m":{"train.step.count":1e400}}', '{"k":"e","time_us":1,"seq":9,"a":7}'),
    '{"k":"e","time_us":1,"seq":9,"name":"train.attempt.end","a":{"train.attempt.reason":[]}}',
    '{"k":"m","time_us":1,"seq":9,"m":{"train.goodput.time{train.goodput.category=odd}":-1}}',
    '{"k":"m","time_us":99999999999999999999,"seq":99999999999999999999}',
)


def _train_and_fail(num_steps: int) -> None:
    with suppress(RuntimeError):
        train(0, num_steps, error=RuntimeError)


@pytest.mark.parametrize("name", ["job.1.jsonl", "rank-000000.1.jsonl"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_no_file_of_an_earlier_attempt_is_passed_over(
    folder: Path, kind: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    _train_and_fail(4)
    _train_and_fail(6)
    other = folder.parent / "other"
    other.write_bytes(b'{"k":"head"}\nhalf a line')
    DAMAGE[kind](folder / name, other)
    _train_and_fail(8)
    assert other.read_bytes() == b'{"k":"head"}\nhalf a line'
    assert values(folder / "job.2.jsonl", "train.step.repeated")[-1] == (4 if name.startswith("job") else 10)
    assert {"job.1.jsonl of an earlier attempt is not read" in text for text in caplog.messages} >= {
        name.startswith("job")
    }


@pytest.mark.parametrize("line", LINES)
def test_a_record_that_makes_no_sense_hides_no_other(folder: Path, line: str, caplog: pytest.LogCaptureFixture) -> None:
    _train_and_fail(6)
    with (folder / "job.0.jsonl").open("a") as file:
        file.write(f"{line}\n")
    _train_and_fail(8)
    assert values(folder / "job.1.jsonl", "train.step.repeated")[-1] == 6
    assert not [text for text in caplog.messages if "recorded nothing" in text]


def test_the_head_of_an_earlier_attempt_may_state_no_time(folder: Path) -> None:
    _train_and_fail(6)
    head, _, rest = (folder / "job.0.jsonl").read_text().partition("\n")
    odd = {**json.loads(head), "time_us": [], "counters_start_us": "x"}
    (folder / "job.0.jsonl").write_text(f"{json.dumps(odd)}\n{rest}")
    _train_and_fail(8)
    assert records(folder / "job.1.jsonl")[0]["counters_start_us"] > 0


def test_an_attempt_of_a_number_that_no_record_holds_is_none(folder: Path) -> None:
    folder.mkdir()
    (folder / f"job.{10**30}.jsonl").touch()
    _train_and_fail(2)
    assert values(folder / "job.0.jsonl", "train.step.count")[-1] == 2


def test_a_counter_that_no_record_can_hold_is_not_taken_over(folder: Path) -> None:
    _train_and_fail(6)
    with (folder / "job.0.jsonl").open("a") as file:
        file.write('{"k":"m","time_us":1,"seq":9,"m":{"train.step.count":6,"train.token.count{x\\u0001}":5}}\n')
    train(6, 8)
    assert values(folder / "job.1.jsonl", "train.step.count")[-1] == 8


def test_a_number_beyond_a_double_is_an_infinite_one(folder: Path) -> None:
    with trainspec_record.run() as run, run.step(0):
        run.log(loss=-(10**400))
    assert '"-Inf"' in "".join(path.read_text() for path in folder.rglob("*.jsonl"))


def test_a_warning_is_nothing_that_a_build_obeys(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with trainspec_record.run() as run:
        run.log({"##[error]name": 1.0})
        run.event("##vso[task.x]name", {})
        run.log({"x\n::error::name" + "x" * 100_000: 1.0})
    assert len(caplog.messages) == 3
    for line in caplog.messages:
        assert not line.startswith("::")
        assert "##[" not in line
        assert "##vso[" not in line
        assert "\n" not in line
        assert len(line) < 10_000
