"""A type checker knows the models, and the public functions, without a plugin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from trainspec_validate import Report, judge_run, plan, validate
from trainspec_validate.models import Batch, ClusterProfile, Metadata, Start, TrainingPlan, Waivers

batch = Batch(global_sequences=8, micro_sequences=1, accumulation_steps=8, ramp=[])
batch.micro_sequences = 2
found = plan(ClusterProfile.load("cluster.yaml"), "llama3-8b", num_ranks=8)
training: TrainingPlan = TrainingPlan.from_record(found.jobs[0].plan)
training.metadata = Metadata(name="a", labels={"team": "b"})
report: Report = training.check({"kind": "ClusterProfile"}, "policy.yaml")
policy = found.jobs[0].policy
assert policy is not None  # a plan that offloads has none
validate([training, policy, b"".decode()])
judge_run("run", training)
Waivers(waivers=[]), Start(num_ranks=2)
"""
WRONG = """
from trainspec_validate.models import Batch, Start

Batch(global_sequences="8", micro_sequences=1, accumulation_steps=8)
Batch(global_sequences=8, micro_sequences=1)
Batch(global_sequences=8, micro_sequences=1, accumulation_steps=8, extra=1)
Start(act="start")
Start().num_rank = 3
"""


@pytest.mark.slow
def test_mypy_knows_the_models(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    files = [str(tmp_path / name) for name in ("right.py", "wrong.py")]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.partition("wrong.py:")[2].partition(":")[0] for line in errors] == ["4", "5", "6", "7", "8"], (
        done.stdout
    )
