"""What happens to a recorder: kills, full disks, forks, threads, a queue that overflows. Training goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import trainspec_record
from trainspec_record import stream as stream_module
from trainspec_record.recording import Run

from .recorded import events, finish, records, start, values

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
