"""The composite action gives its inputs to the suite as arguments, and keeps the exit status."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from trainspec_conformance.cli import command

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "conformance" / "action.yml").read_text(encoding="utf-8")
ACTION: dict[str, Any] = yaml.safe_load(TEXT)
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]


def script(name: str) -> str:
    return next(str(step["run"]) for step in STEPS if step.get("name") == name)


def run_step(folder: Path, status: int = 0, **inputs: str) -> tuple[list[str], str]:
    """Run the step with a stand-in for the suite; the arguments it got, and the outputs of the step."""
    tool = folder / "trainspec-conformance" / "bin" / "trainspec-conformance"
    tool.parent.mkdir(parents=True)
    tool.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > arguments\nexit {status}\n', encoding="utf-8")
    tool.chmod(0o755)
    fixed = {"RUNNER_TEMP": str(folder), "GITHUB_OUTPUT": str(folder / "outputs"), "PATH": os.environ["PATH"]}
    empty = dict.fromkeys(("SCENARIOS", "PROFILE", "GAPS", "ARGS"), "")
    given = {"STACK": "stack.yaml", "REPORT": "out", **empty, **inputs}
    line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script("Run")]
    subprocess.run(line, cwd=folder, env=fixed | given, check=True)
    arguments, outputs = ((folder / name).read_text(encoding="utf-8") for name in ("arguments", "outputs"))
    return arguments.splitlines(), outputs


@pytest.mark.parametrize("status", [0, 1, 2])
def test_the_exit_status_is_kept(tmp_path: Path, status: int) -> None:
    arguments, outputs = run_step(tmp_path, status)
    assert arguments == ["run", "--report=out", "--", "stack.yaml"]
    assert outputs == f"exit-code={status}\n"
    done = subprocess.run(["bash", "-c", script("Verdict")], env={"CODE": str(status)}, check=False)
    assert done.returncode == status


def test_inputs_become_arguments_and_nothing_else(tmp_path: Path) -> None:
    hostile = '$(touch bad); "x'
    arguments, _ = run_step(
        tmp_path, STACK=hostile, SCENARIOS="null-run\nkill-rank\n", PROFILE="core", GAPS="a gap.yaml", ARGS="--seed=1"
    )
    middle = ["--profile=core", "--gaps=a gap.yaml", "--scenario=null-run", "--scenario=kill-rank", "--seed=1"]
    assert arguments == ["run", "--report=out", *middle, "--", hostile]
    assert not (tmp_path / "bad").exists()


def test_the_suite_knows_the_options() -> None:
    run = command.commands["run"]
    known = {name for one in run.params if isinstance(one, click.Option) for name in one.opts}
    assert set(re.findall(r"--(?:report|profile|gaps|scenario)(?==)", script("Run"))) <= known


def test_structure() -> None:
    assert ACTION["runs"]["using"] == "composite"
    assert all(entry["description"] for entry in ACTION["inputs"].values())
    assert set(re.findall(r"inputs\.([\w-]+)", TEXT)) == set(ACTION["inputs"])
    assert all(step["shell"] == "bash" for step in STEPS if "run" in step)
    assert not [step["run"] for step in STEPS if "${{" in step.get("run", "")]
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]) for step in STEPS if "uses" in step)


def test_files_that_it_names_exist() -> None:
    named = re.findall(r"\$ACTION_PATH/\.\./([\w./-]+)", TEXT)
    assert named
    assert not [name for name in named if not (ROOT / name).is_file()]
