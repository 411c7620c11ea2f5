"""Runs the steps of a composite action as the runner of GitHub Actions does; for the tests of both actions.

The runner looks a shell up on PATH unless its name is a path, starts it in the workspace unless the step says where,
and gives it the variables of the job, its own and those of the step. Steps that use other actions are left out.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import job
import steps
import yaml
from click.testing import CliRunner

from trainspec_validate.cli.settings import PROGRAM
from trainspec_validate.cli.validate import command

ROOT = Path(__file__).resolve().parents[2]
BUILT_IN = {"bash": "bash --noprofile --norc -e -o pipefail {0}"}
"""https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax#exit-codes-and-error-action-preference"""
OURS = ("GITHUB_", "GITLAB_", "RUNNER_", "TRAINSPEC_", "PRE_COMMIT", "GIT_", "FORCE_COLOR", "PYTHON")
REPOSITORY = "owner/models"


def environment(**more: str) -> dict[str, str]:
    """The environment of this process without what a code host or an earlier hook has set."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS)} | more


@dataclass
class Job:
    """A job that uses an action; `action` is the path of its file."""

    folder: Path
    action: Path = ROOT / "action.yml"
    inputs: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    """What the workflow sets in `env`."""
    event: str = "push"
    payload: dict[str, Any] = field(default_factory=dict)
    python: str = sys.executable
    server_url: str = ""
    """Another server than the one below `folder`."""
    log: str = ""
    codes: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for directory in (self.workspace, self.temp):
            directory.mkdir(parents=True, exist_ok=True)

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def temp(self) -> Path:
        return self.folder / "temp"

    @property
    def server(self) -> Path:
        """What stands for GitHub: repositories are below it."""
        return self.folder / "server"

    def install_this(self) -> None:
        """Put the environment of these tests in place of what the step Install makes."""
        for name in ("trainspec", "trainspec-conformance"):
            (self.temp / name).mkdir()
            (self.temp / name / "environment").symlink_to(sys.prefix)

    def install_stand_in(self, status: int = 0) -> None:
        """Put a program in place of the interpreter of the environment: it notes its arguments and ends."""
        for name in ("trainspec", "trainspec-conformance"):
            program = self.temp / name / "environment" / "bin" / "python"
            program.parent.mkdir(parents=True)
            note = self.folder / "arguments"
            program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{note}"\nexit {status}\n', encoding="utf-8")
            program.chmod(0o755)

    @property
    def arguments(self) -> list[str]:
        """What the stand-in was started with."""
        return (self.folder / "arguments").read_text(encoding="utf-8").split("\n")[:-1]

    def run(self, *names: str) -> int:
        """Run the scripts, or those of some names; gives the exit code that the job sees."""
        action = yaml.safe_load(self.action.read_text(encoding="utf-8"))
        defaults = {name: entry.get("default", "") for name, entry in action["inputs"].items()}
        failed = False
        for step in action["runs"]["steps"]:
            wanted = "run" in step and (not names or step["name"] in names)
            if wanted and (not failed or step.get("if") == "always()"):
                self.codes[step["name"]] = self._run(step, defaults | self.inputs)
                failed = failed or self.codes[step["name"]] != 0
        return next((code for code in self.codes.values() if code), 0)

    def validate_here(self) -> int:
        """Do the step Validate in this process, the validator included; gives the exit code of the validator."""
        action = yaml.safe_load(self.action.read_text(encoding="utf-8"))
        step = next(step for step in action["runs"]["steps"] if step.get("name") == "Validate")
        defaults = {name: entry.get("default", "") for name, entry in action["inputs"].items()}
        output = self._output_of(step)
        with patch.object(steps, "_run", self._validator):
            steps.validate(
                job.Job.of(self._variables(step, defaults | self.inputs, output), "trainspec"), steps.VALIDATOR
            )
        self._take_outputs(step, output)
        self.codes["Validate"] = 0
        return int(self.outputs["steps.validate.outputs.exit-code"])

    def _validator(
        self, of_action: job.Job, _: steps.Program, arguments: list[str], environment: dict[str, str]
    ) -> int:
        with patch.dict(os.environ, environment, clear=True), chdir(of_action.workspace):
            done = CliRunner().invoke(command, arguments, prog_name=PROGRAM)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        self.log += done.output
        return done.exit_code

    def _output_of(self, step: dict[str, Any]) -> Path:
        output = self.folder / f"output-of-{step['name']}"
        output.touch()
        return output

    def _take_outputs(self, step: dict[str, Any], output: Path) -> None:
        for line in output.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            self.outputs[f"steps.{step.get('id')}.outputs.{name}"] = value

    def _expand(self, text: str, inputs: dict[str, str]) -> str:
        facts = {f"inputs.{name}": value for name, value in inputs.items()} | self.outputs
        facts |= {
            "github.action_path": str(self.action.parent),
            "github.token": "token-of-the-job",
            "runner.temp": str(self.temp),
            "steps.python.outputs.python-path": self.python,
        }

        while "${{" in text:  # the default of an input may hold an expression
            text = re.sub(r"\$\{\{ (.+?) \}\}", lambda match: facts.get(match[1], ""), text)
        return text

    def _variables(self, step: dict[str, Any], inputs: dict[str, str], output: Path) -> dict[str, str]:
        variables = environment() | self.variables | self._of_runner(output)
        return variables | {name: self._expand(value, inputs) for name, value in step.get("env", {}).items()}

    def _run(self, step: dict[str, Any], inputs: dict[str, str]) -> int:
        output = self._output_of(step)
        script = self.temp / "step.sh"
        script.write_text(step["run"], encoding="utf-8")
        variables = self._variables(step, inputs, output)
        shell, *arguments = shlex.split(BUILT_IN.get(step["shell"], step["shell"]).format(script))
        program = shell if "/" in shell else shutil.which(shell, path=variables["PATH"])
        assert program
        place = self.workspace / self._expand(step.get("working-directory", ""), inputs)
        program = str(Path(self.workspace, program))  # of a relative entry in PATH
        done = subprocess.run(
            [program, *arguments],
            cwd=place,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )
        self.log += done.stdout
        self._take_outputs(step, output)
        return done.returncode

    def _of_runner(self, output: Path) -> dict[str, str]:
        event = self.folder / "event.json"
        event.write_text(json.dumps(self.payload), encoding="utf-8")
        return {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(self.action.parent),
            "GITHUB_ENV": str(self.folder / "environment-of-later-steps"),
            "GITHUB_EVENT_NAME": self.event,
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_PATH": str(self.folder / "path-of-later-steps"),
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_SERVER_URL": self.server_url or self.server.as_uri(),
            "GITHUB_WORKSPACE": str(self.workspace),
            "RUNNER_TEMP": str(self.temp),
        }


def pull_request(branch: str = "main") -> dict[str, Any]:
    """What an event says of a pull request to a branch."""
    return {"pull_request": {"number": 7, "base": {"ref": branch, "sha": "0" * 40}, "head": {"ref": "change"}}}
