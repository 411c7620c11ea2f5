"""What tests of adapters share: programs in processes of their own, and what these recorded."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.record.recorded import SOURCE, records
from trainspec_record.identity import VARIABLE
from trainspec_validate.pipeline.validation import validate

PROGRAMS = Path(__file__).parent / "programs"
SECONDS = 600
LOSS = "train.loss.mean{train.loss.name=total}"
TOKENS = "train.token.count{train.token.kind=all}"
OF_NODES = {"TS-TEL-071"}
"""A warning that is true of these runs: they sample no node, and their machine has no accelerator."""


def need(*modules: str) -> None:
    """Skip a test whose framework is not installed, or fail where all of them have to be."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing and os.environ.get("TRAINSPEC_REQUIRE_STACKS") == "1":
        pytest.fail(f"{', '.join(missing)} is not installed: make stacks-test")
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed here; `make stacks-test` runs this test")


class Recorded(NamedTuple):
    """What a program recorded, what it says itself, and how it ended."""

    folder: Path
    truth: dict[str, Any]
    code: int
    output: str

    def file(self, emitter: str = "job", attempt: int = 0) -> list[dict[str, Any]]:
        """Records of a file of the run."""
        return records(self.folder / f"{emitter}.{attempt}.jsonl")

    def values(self, key: str, emitter: str = "job", attempt: int = 0) -> list[Any]:
        """Values of one series, in order."""
        return [record["m"][key] for record in self.file(emitter, attempt) if key in (record.get("m") or {})]

    def steps(self, key: str, attempt: int = 0) -> dict[int, Any]:
        """Values of one series of the job by the step that they belong to."""
        return {record["step"]: record["m"][key] for record in self.file("job", attempt) if key in record.get("m", {})}

    def events(self, name: str, attempt: int = 0) -> list[dict[str, Any]]:
        """Events of one name."""
        return [record for record in self.file("job", attempt) if record.get("name") == name]

    @property
    def findings(self) -> set[str]:
        """Requirements that the validator finds something about."""
        return {finding.requirement for finding in validate([self.folder]).findings}


def run(
    program: str, out: Path, *arguments: str, num_processes: int = 1, torchrun: bool = False, **more: str
) -> Recorded:
    """Run a program, under torchrun if it takes several processes; it writes what it knows to `truth.json`."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]
    launched = launcher if torchrun or num_processes > 1 else []
    process = subprocess.Popen(
        [sys.executable, *launched, str(PROGRAMS / program), str(out), *arguments],
        env={**environment(out), **more},
        cwd=out,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    finally:
        kill(process)
    truth = out / "truth.json"
    return Recorded(out / "r-1", json.loads(truth.read_text()) if truth.is_file() else {}, process.returncode, output)


def environment(out: Path) -> dict[str, str]:
    """What a program sees: nothing of a launcher of the tests, and no network."""
    kept = {key: value for key, value in os.environ.items() if key in {"HOME", "TMPDIR", "LANG"}}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    recorder = {VARIABLE: str(out / "r-1"), "TRAINSPEC_HOST": "node-1", "TRAINSPEC_NODE_SAMPLER": "none"}
    frameworks = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(out / "hf"), "DS_ACCELERATOR": "cpu"}
    return {**kept, **recorder, **frameworks, "PATH": path, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}


def kill(process: subprocess.Popen[str]) -> None:
    """End a program with all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait(600)


def clean(recorded: Recorded) -> None:
    """The program ended well, and the validator finds nothing but what is true of the machine."""
    assert recorded.code == 0, recorded.output
    assert recorded.findings <= OF_NODES, recorded.findings
