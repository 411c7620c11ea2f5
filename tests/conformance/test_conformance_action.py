"""The composite action gives its inputs to the suite as arguments, and keeps the exit status."""

from __future__ import annotations

import inspect
import os
import re
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from steps import _STACK_VARIABLES, conform, settings
from trainspec_conformance.cli import command
from trainspec_conformance.processes import KEPT_VARIABLES, inherited

from tests.actions.job_run import ROOT, Job

FILE = ROOT / "conformance" / "action.yml"
TEXT = FILE.read_text(encoding="utf-8")
ACTION: dict[str, Any] = yaml.safe_load(TEXT)
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]


def run_step(folder: Path, status: int = 0, **inputs: str) -> Job:
    """Run the step with a stand-in for the suite."""
    given = {"stack": "stack.yaml", "report": "out", **inputs}
    job = Job(folder, FILE, given)
    job.install_stand_in(status)
    job.run("Settings", "Run", "Verdict")
    return job


STARTED = ["-I", "-m", "trainspec_conformance", "run", "--report=out"]


@pytest.mark.parametrize("status", [0, 1, 2])
def test_the_exit_status_is_kept(tmp_path: Path, status: int) -> None:
    job = run_step(tmp_path, status)
    assert job.arguments == [*STARTED, "--", "stack.yaml"]
    assert job.outputs == {"steps.run.outputs.exit-code": str(status), "steps.run.outputs.sarif": ""}
    assert job.codes == {"Settings": 0, "Run": 0, "Verdict": status}


@pytest.mark.parametrize(("status", "is_told"), [(0, True), (1, True), (2, False), (3, True)])
def test_a_report_that_was_there_before_is_not_uploaded(status: int, is_told: bool, tmp_path: Path) -> None:
    (tmp_path / "workspace" / "out").mkdir(parents=True)
    file = tmp_path / "workspace" / "out" / "report.sarif"
    file.touch()
    outputs = run_step(tmp_path, status).outputs
    assert outputs["steps.run.outputs.sarif"] == (str(file) if is_told else "")
    [upload] = [step for step in STEPS if step.get("name") == "Upload SARIF"]
    assert upload["if"] == "inputs.sarif == 'true' && steps.run.outputs.sarif != ''"


def test_an_input_sets_no_output(tmp_path: Path) -> None:
    (tmp_path / "workspace" / "out\nexit-code=0").mkdir(parents=True)
    (tmp_path / "workspace" / "out\nexit-code=0" / "report.sarif").touch()
    job = run_step(tmp_path, 1, report="out\nexit-code=0")
    assert job.codes == {"Settings": 0, "Run": 2, "Verdict": 2}
    assert job.outputs == {}


def test_inputs_become_arguments_and_nothing_else(tmp_path: Path) -> None:
    hostile = '$(touch bad); "x'
    job = run_step(
        tmp_path, stack=hostile, scenarios="null-run\nkill-rank\n", profile="core", gaps="a gap.yaml", args="--seed=1"
    )
    middle = ["--profile=core", "--scenario=null-run", "--scenario=kill-rank", "--gaps=a gap.yaml", "--seed=1"]
    assert job.arguments == [*STARTED, *middle, "--", hostile]
    assert not list(tmp_path.rglob("bad"))


def test_the_stack_gets_the_variables_of_the_job(tmp_path: Path) -> None:
    path = f"{tmp_path / 'workspace' / 'bin'}:relative:{os.environ['PATH']}"
    job = Job(tmp_path, FILE, {"stack": "stack.yaml", "report": "out"}, {"PATH": path, "SECRET": "x", "HOME": "here"})
    job.install_stand_in()
    program = job.temp / "trainspec-conformance" / "environment" / "bin" / "python"
    program.write_text(f"#!{shutil.which('env')} -S sh\nexport -p > {tmp_path}/seen\n", encoding="utf-8")
    assert job.run("Settings", "Run") == 0
    seen = (tmp_path / "seen").read_text(encoding="utf-8")
    assert f"PATH='{os.environ['PATH']}'" in seen.replace('"', "'")
    assert "SECRET" not in seen
    given = {"TRAINSPEC_STACK_PATH": path, "TRAINSPEC_STACK_HOME": "here", "PATH": "/bin", "SECRET": "x"}
    assert inherited(given) == {"PATH": path, "HOME": "here"}
    assert set(_STACK_VARIABLES) == KEPT_VARIABLES


def test_the_suite_knows_the_options() -> None:
    run = command.commands["run"]
    known = {name for one in run.params if isinstance(one, click.Option) for name in one.opts}
    written = set(re.findall(r"--[a-z-]+(?==)", inspect.getsource(conform) + inspect.getsource(settings)))
    assert {"--report", "--profile", "--gaps", "--scenario", "--settings-from"} == written <= known


def test_structure() -> None:
    assert ACTION["runs"]["using"] == "composite"
    assert all(entry["description"] for entry in ACTION["inputs"].values())
    assert set(re.findall(r"inputs\.([\w-]+)", TEXT)) == set(ACTION["inputs"])
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]) for step in STEPS if "uses" in step)
