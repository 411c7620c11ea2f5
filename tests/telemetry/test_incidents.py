"""What streams and logs state of faults, ends and repeated steps is part of the answer, whatever the findings."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from telemetry_makers import Stream, view

from trainspec_validate.cli.validate import command
from trainspec_validate.telemetry.covered import MOST, incidents

SCHEMA = Path(__file__).parents[2] / "schemas" / "v1" / "report.schema.json"
REPORT_SCHEMA = json.loads(SCHEMA.read_text(encoding="utf-8"))
ITERATION = "iter {}: loss 3.5, time 250.00ms, mfu 20.00%\n"


def counted(att: int, *steps: int) -> Stream:
    stream = Stream(att=att)
    for step in steps:
        stream.sample(100 * att + step, {"train.step.count": step}, step=step)
    return stream


def test_a_run_without_an_incident_states_none() -> None:
    done = counted(0, 1, 2).event(9, "attempt.end", {"train.attempt.reason": "completed"})
    assert incidents(view(done.event(9, "run.end", {"train.run.status": "completed"}))) == ()
    assert incidents(view(counted(0, 1, 2), counted(1, 3, 4))) == ()
    assert incidents(view(counted(0, 0), counted(1, 0, 1))) == ()


def test_faults_ends_and_repeated_updates_are_stated() -> None:
    fault = {"train.fault.class": "device", "train.fault.domain": "infrastructure", "train.reason": "fell off the bus"}
    first = counted(0, 1, 2, 3, 4)
    for number in range(2):
        first.event(5 + number, "fault.detected", {**fault, "train.fault.id": f"f{number}"})
    first.event(8, "attempt.end", {"train.attempt.reason": "fault"})
    second = counted(1, 3, 4).event(110, "run.end", {"train.run.status": "cancelled"})
    assert incidents(view(first, second)) == (
        "fault: device, fell off the bus (2 times)",
        "attempt 0 ended by fault",
        "the run ended as cancelled",
        "attempt 1 begins with step 3 after step 4",
    )


def test_many_are_counted() -> None:
    stream = Stream()
    for number in range(MOST + 5):
        stream.event(number, "rank.lost", {"train.rank.ids": [number], "train.reason": f"reason {number}"})
    found = incidents(view(stream))
    assert (len(found), found[-1]) == (MOST + 1, "5 more")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***", "TIME LIMIT"),
        ("slurmstepd: error: *** STEP 17.0 ON n[1-4] CANCELLED AT 2024-05-01T10:00:00 DUE TO NODE FAILURE ***", "NODE"),
        ("srun: error: n1: task 3: Killed", "task 3: Killed"),
        ("srun: error: n1: tasks 0-7: Exited with exit code 1", "exit code 1"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=17.0.", "oom_kill event"),
        ("[2024-05-01 10:00:00,000] [ERROR] [launch.py:321:x] ['python'] exits with return code = -9", "code = -9"),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "ChildFailedError"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "CUDA out of memory"),
        ("RuntimeError: CUDA error: device-side assert triggered", "device-side assert"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("[rank0]: KeyboardInterrupt", "KeyboardInterrupt (attempt reason: operator)"),
        ("slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2024-05-01T10:00:00 DUE TO PREEMPTION ***", "preempted)"),
        ("W1130 12:13:49.388000 124326 x/api.py:723] Received 15 death signal, shutting down workers", "15 death"),
        ("WARNING:torch.distributed.elastic.server.api:Received 1 death signal, shutting down workers", "1 death"),
        ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 9 got signal: 15", "got signal: 15"),
        ("ERROR:torch.x.api:failed (exitcode: -9) local_rank: 1 (pid: 14447) of binary: /bin/python", "exitcode: -9"),
        ("  traceback : Signal 6 (SIGABRT) received by PID 2385923", "SIGABRT"),
        (
            "[rank0]:[E321 NCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(S=1)",
            "WorkNCCL(S=1) (fault class: hang)",
        ),
        (
            "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: W(S",
            "Rank 1",
        ),
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory",
            "EXHAUSTED",
        ),
        ("Killed", "Killed (fault class: process)"),
        ("Segmentation fault (core dumped)", "Segmentation fault (core dumped)"),
        ("./run.sh: line 12: 12345 Killed                  python train.py", "line 12: 12345 Killed"),
        ("Fatal Python error: Segmentation fault", "Fatal Python error"),
    ],
)
def test_a_log_in_which_the_program_was_ended_says_so(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(ITERATION.format(n) for n in range(20)) + line + "\n", encoding="utf-8")
    found = CliRunner().invoke(command, [str(path), "--format", "json"])
    (coverage,) = json.loads(found.stdout)["coverage"]
    (stated,) = coverage["incidents"]
    assert stated.startswith("the log says: ")
    assert said in stated
    text = CliRunner().invoke(command, [str(path), "--format", "full"]).output
    assert stated in text
    assert "the streams state 1 incident" in text
    jsonschema.validate(json.loads(found.stdout), REPORT_SCHEMA)


@pytest.mark.parametrize(
    "line",
    [
        "exits with return code = 0",
        "srun: error: n1: task 3: Exited with exit code 0",
        "except KeyboardInterrupt:  # the user stops it",
        "handle_sigterm: no signal Received yet",
        "step 5: rror rate 0.1, exit soon",
        "max_oom_kills 0",
        "> W1130 12:13:49 api.py:723] Received 15 death signal, shutting down workers",
        "# Segmentation fault: see the page on errors",
        "    'Watchdog caught collective operation timeout',",
        "Watchdog caught collective operation timeout is what NCCL prints",
        '"torch.OutOfMemoryError: CUDA out of memory"',
        "Killed the last worker of the pool",
        "the text says that Segmentation fault",
        "process exited (exitcode: 0) local_rank: 0",
    ],
)
def test_other_lines_state_nothing(line: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(line + "\n" + "".join(ITERATION.format(n) for n in range(20)), encoding="utf-8")
    found = json.loads(CliRunner().invoke(command, [str(path), "--format", "json"]).stdout)
    assert [coverage["incidents"] for coverage in found["coverage"]] == [[]]


def test_words_of_a_log_are_neutral(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    line = "exits with return code = -9 \x1b[31m ::error::x\n" + "srun: error: \x1b[2J::warning::y Killed\n"
    path.write_text("".join(ITERATION.format(n) for n in range(20)) + line, encoding="utf-8")
    text = CliRunner().invoke(command, [str(path), "--format", "github"]).output
    assert "\x1b" not in text
    assert not [each for each in text.splitlines() if each.startswith(("::error::", "::warning::y"))]


def test_the_last_lines_of_a_cut_file_count_too(tmp_path: Path) -> None:
    text = "".join(ITERATION.format(n) for n in range(5_000)) + "exits with return code = -9\n"
    packed = gzip.compress(text.encode() + bytes(random.Random(0).randbytes(50_000).hex(), "ascii"))
    path = tmp_path / "train.log.gz"
    path.write_bytes(packed[: len(packed) - 9_000])
    (coverage,) = json.loads(CliRunner().invoke(command, [str(path), "--format", "json"]).stdout)["coverage"]
    assert coverage["incidents"] == ["the log says: exits with return code = -9 (fault class: process)"]
