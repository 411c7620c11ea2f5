"""A Prometheus server scrapes the endpoint of the recorder, and the shipped alerts fire on planted faults alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integrations.prometheus_server import Prometheus, prometheus, until
from tests.record.launch_jobs import finish, start
from tests.streams.reading import read_text

RANKS = "for RANK in 0 1; do RANK=$RANK LOCAL_RANK=$RANK WORLD_SIZE=2 python3 train.py & done; wait"
TRAIN = """
import os, signal, time, trainspec_record
def has_fault(kind):
    return os.path.exists(f"fault-{kind}")
rank = os.environ["RANK"]
with trainspec_record.run() as run:
    for number in range(10**7):
        if has_fault("silent") and rank == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        while has_fault("hang"):
            time.sleep(0.1)
        if has_fault("end"):
            break
        with run.step(number):
            time.sleep(0.05)
            loss = float("nan") if has_fault("nan") else 2 + 1 / (number + 1)
            run.log(loss=loss, tokens=64, samples=2, learning_rate=1e-3, gradient_norm=1.0)
"""
ALERTS = {"nan": "TrainLossNotFinite", "silent": "TrainRanksSilent", "hang": "TrainStalled"}
EVERY = '{__name__=~"train_.+|system_.+|hw_.+",train_run_id="sound"}'


class Job:
    """Two ranks under the launcher, which a file in their directory gives a fault."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / f"of-{name}"
        self.folder.mkdir()
        (self.folder / "train.py").write_text(TRAIN)
        words = ("--run", name, "--metrics-address", "127.0.0.1:0", "--", "sh", "-c", RANKS)
        self.process = start(*words, cwd=self.folder)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", line)
        assert match, line
        self.port = int(match[1])

    def plant(self, fault: str) -> None:
        (self.folder / f"fault-{fault}").touch()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[dict[str, Job]]:
    """A job for each fault, and a sound one; nothing of them is left behind."""
    with ExitStack() as stack:
        found = {}
        for name in ("sound", *ALERTS):
            found[name] = job = Job(tmp_path, name)
            stack.callback(finish, job.process)
            stack.callback(os.killpg, job.process.pid, signal.SIGKILL)  # `sh` leaves its ranks to no one
        yield found


def ranks(server: Prometheus) -> dict[str, float]:
    values = server.values("train_run:ranks_reporting:count")
    return {dict(labels)["train_run_id"]: value for labels, value in values.items()}


@pytest.mark.long
def test_alerts_fire_on_planted_faults_alone(tmp_path: Path, jobs: dict[str, Job]) -> None:
    with prometheus(tmp_path, {name: job.port for name, job in jobs.items()}) as server:
        until(lambda: ranks(server) == dict.fromkeys(jobs, 2))
        until(lambda: len(server.values("train_run:step_rate:rate5m > 0")) == len(jobs))
        assert server.values("up == 1").keys() == server.values("up").keys()
        reads_back(server, tmp_path)
        until(lambda: server.firing("critical") == set())
        for name in ALERTS:
            jobs[name].plant(name)
        until(lambda: server.firing("critical") == {(alert, name) for name, alert in ALERTS.items()})
        assert ranks(server) == {"sound": 2, "nan": 2, "hang": 2, "silent": 1}
        dead = server.values('train_rank_step{train_run_id="silent",train_rank_id="1"}')
        assert dead == {}
        jobs["sound"].plant("end")
        until(lambda: 'job="sound"' not in str(server.values("up == 1")) and ranks(server).keys() == ALERTS.keys())
        until(lambda: server.firing("critical") == {(alert, name) for name, alert in ALERTS.items()})


def reads_back(server: Prometheus, folder: Path) -> None:
    """Hold what the server gives for the sound run against its own values, by the reader and by the program."""
    page = server.get("/federate", **{"match[]": EVERY}).decode()
    found = read_text(page)
    assert found.heads[0].run == "sound"
    assert {sample.rank for sample in found.samples} >= {0, 1, None}
    told = server.values('train_learning_rate_ratio{train_run_id="sound"}')
    (job,) = [sample for sample in found.samples if "train.learning_rate" in sample.m]
    assert [job.m["train.learning_rate"]] == list(told.values()) == [1e-3]
    path = folder / "answer.prom"
    path.write_text(page)
    program = Path(sys.executable).parent / "trainspec-validate"
    done = subprocess.run([program, path], capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    assert "TS-TEL-001" not in done.stdout
    assert "sound" in done.stdout, done.stdout
    answers_for_a_time(server, folder)


def answers_for_a_time(server: Prometheus, folder: Path) -> None:
    """Hold what is read of the answer to a range of time against the answer."""
    now = server.api("query", query="time()")["result"][0]
    page = server.get("/api/v1/query_range", query=EVERY, start=str(now - 5), end=str(now), step="1").decode()
    asked = {
        (round(float(at) * 1e6), float(value))
        for series in json.loads(page)["data"]["result"]
        if series["metric"]["__name__"] == "train_learning_rate_ratio"
        for at, value in series["values"]
    }
    found = read_text(page)
    assert found.heads[0].run == "sound"
    assert not found.refusals
    seen = {(one.time_us, one.m["train.learning_rate"]) for one in found.samples if "train.learning_rate" in one.m}
    assert seen == asked
    assert len(seen) > 1
    path = folder / "answer.json"
    path.write_text(page)
    program = Path(sys.executable).parent / "trainspec-validate"
    done = subprocess.run([program, path], capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    assert "TS-TEL-001" not in done.stdout
    assert "sound" in done.stdout, done.stdout
