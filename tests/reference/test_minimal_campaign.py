"""Gradient faults of a task by a campaign of lm-resiliency: each arrives at its step, once, and trains on.

Needs the package index: the package goes into a directory of the test. Without it the test says so and is skipped.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trainspec_conformance.launching import whole

from trainspec_validate.documents.types.conformance import Fault, Task, TestJob

PACKAGE = "lm-resiliency==0.2.0"
MINIMAL = Path(__file__).resolve().parents[2] / "reference" / "minimal"
FAULTS = (Fault(kind="nan-gradient", step=2), Fault(kind="inf-gradient", step=4, num_steps=2))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the package without what it requires, which is torch and numpy."""
    if sys.version_info >= (3, 13):
        pytest.skip(f"{PACKAGE} is for Python below 3.13")
    directory = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(directory), PACKAGE]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{PACKAGE} cannot be installed here: {done.stderr.strip()[-200:]}")
    return directory


def skipped_steps(directory: Path, faults: tuple[Fault, ...], attempt: int, installed: Path) -> Counter[int]:
    """How often each optimizer step was skipped by a rank that runs alone; all of the job were applied."""
    job = TestJob(num_ranks=1, num_steps=8, step_seconds=0, accumulation_steps=2, faults=faults, seed=5)
    places: dict[str, Any] = {
        name: str(directory / name.partition("_")[0]) for name in ("trace_directory", "stream_directory")
    }
    places["checkpoint_directory"] = str(directory / "checkpoints")
    task = Task(apiVersion="trainspec/v1", run="alone", attempt=0, resume=False, job=job, **places)
    (directory / "trace").mkdir()
    (directory / "task.json").write_bytes(msgspec.json.encode(whole(task)))
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "LOCAL_RANK": "0"}
    environment = {**os.environ, **place, "TRAINSPEC_RUN": places["stream_directory"], "OMP_NUM_THREADS": "1"}
    environment |= {"RANK": "0", "WORLD_SIZE": "1", "PYTHONPATH": str(installed)}
    command = [sys.executable, str(MINIMAL / "minimal_torch_campaign.py"), str(directory / "task.json"), str(attempt)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    lines = [line for path in (directory / "trace").iterdir() for line in path.read_text(encoding="utf-8").splitlines()]
    steps = [record for record in map(json.loads, lines) if record["k"] == "step"]
    assert max(record["step"] for record in steps) == job.num_steps
    return Counter(record["step"] for record in steps if record.get("skipped") == "non_finite")


@pytest.mark.long
def test_a_campaign_carries_out_the_faults_of_the_first_attempt(installed: Path, tmp_path: Path) -> None:
    for number, (faults, attempt) in enumerate([(FAULTS, 0), (FAULTS, 1), ((), 0)]):
        directory = tmp_path / str(number)
        directory.mkdir()
        expected = {2: 1, 4: 2} if faults and attempt == 0 else {}
        assert skipped_steps(directory, faults, attempt, installed) == expected


def test_without_the_package_the_program_says_what_to_install(tmp_path: Path) -> None:
    hidden = tmp_path / "lm_resiliency.py"
    hidden.write_text("raise ModuleNotFoundError\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(MINIMAL / "minimal_torch_campaign.py"), "task.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (2, "this stack needs lm-resiliency: pip install 'lm-resiliency>=0.2'\n")
