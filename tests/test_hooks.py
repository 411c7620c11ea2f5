"""The pre-commit hook and the GitHub action, run as their hosts would run them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
BAD = (ROOT / "examples" / "broken" / "duplex.yaml").read_text(encoding="utf-8")
GOOD = BAD.replace("900e9", "450e9")
NOT_COPIED = shutil.ignore_patterns(".*_cache", ".venv*", ".git", ".hypothesis", "build", "site", "__pycache__", "dist")
UNREACHABLE = re.compile(r"No matching distribution|connection|resolution|timed out|unreachable", re.IGNORECASE)
HOSTILE = ["a; touch pwned", "$(touch pwned)", "`touch pwned`", "a && touch pwned", "| touch pwned", "--output=pwned"]


def environment(**more: str) -> dict[str, str]:
    """The environment of this process without what a code host or an earlier hook has set."""
    ours = ("GITHUB_", "GITLAB_", "TRAINSPEC_", "PRE_COMMIT", "GIT_", "FORCE_COLOR")
    return {k: v for k, v in os.environ.items() if not k.startswith(ours)} | more


# --- pre-commit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), (BAD, 1)])
def test_the_entry_of_the_hook(text: str, code: int, tmp_path: Path) -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    (tmp_path / "cluster.yaml").write_text(text, encoding="utf-8")
    program, *arguments = [*shlex.split(hook["entry"]), *hook.get("args", []), "cluster.yaml"]
    command = [str(BIN / program), *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("cluster.yaml:21:35: error[TS-CLU-010]" in done.stdout) is bool(code)


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *who, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit_all(folder: Path) -> str:
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-verify", "--message", "test")
    return git(folder, "rev-parse", "HEAD")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_pre_commit_runs_the_hook(tmp_path: Path) -> None:
    source, user = tmp_path / "source", tmp_path / "user"
    shutil.copytree(ROOT, source, ignore=NOT_COPIED)
    hook = {"repo": str(source), "rev": commit_all(source), "hooks": [{"id": "trainspec-validate"}]}
    user.mkdir()
    (user / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [hook]}), encoding="utf-8")
    (user / "cluster.yaml").write_text(GOOD, encoding="utf-8")
    (user / "values.yaml").write_text("not: ours\n", encoding="utf-8")
    commit_all(user)

    def pre_commit(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pre_commit", *arguments]
        home = environment(PRE_COMMIT_HOME=str(tmp_path / "home"), PIP_RETRIES="1")
        done = subprocess.run(command, cwd=user, env=home, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, output = pre_commit("install-hooks")
    if code and UNREACHABLE.search(output):
        pytest.skip("the package index cannot be reached")
    assert code == 0, output
    code, output = pre_commit("run", "--all-files", "--verbose")
    assert code == 0, output
    assert "no findings: 1 document" in output
    (user / "cluster.yaml").write_text(BAD, encoding="utf-8")
    git(user, "add", "cluster.yaml")
    code, output = pre_commit("run")
    assert code == 1, output
    assert "cluster.yaml:21:35: error[TS-CLU-010]" in output


# --- the action ---------------------------------------------------------------------------------------------

STAND_IN = """#!/bin/sh
# Stands in for python of the runner: `-m venv DIR` makes DIR, and the python in it notes what pip is asked for.
[ "$1 $2" = "-m venv" ] || exit 9
for folder; do :; done
mkdir -p "$folder/bin"
printf '#!/bin/sh\\nprintf "%%s\\\\n" "$*" >> "$RUNNER_TEMP/pip"\\n' > "$folder/bin/python"
chmod +x "$folder/bin/python"
ln -s "{tool}" "$folder/bin/trainspec-validate"
"""


@dataclass
class Job:
    """A job that uses the action: its steps are run in order, as far as they are scripts."""

    folder: Path
    python: str
    inputs: dict[str, str]
    stdout: str = ""
    codes: dict[str, int] = field(default_factory=dict)

    def run(self) -> int:
        action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        defaults = {name: entry["default"] for name, entry in action["inputs"].items()}
        facts = {f"inputs.{name}": value for name, value in (defaults | self.inputs).items()}
        facts |= {"github.action_path": str(ROOT), "steps.python.outputs.python-path": self.python}
        failed = False
        for step in action["runs"]["steps"]:
            if "run" not in step or (failed and step.get("if") != "always()"):
                continue
            self.codes[step["name"]] = code = self._step(step, facts | self._outputs())
            failed = failed or code != 0
        return next((code for code in self.codes.values() if code), 0)

    def _step(self, step: dict[str, Any], facts: dict[str, str]) -> int:
        given = {k: re.sub(r"\$\{\{ (.+?) \}\}", lambda m: facts.get(m[1], ""), v) for k, v in step["env"].items()}
        fixed = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_OUTPUT": str(self.folder / "outputs"),
            "RUNNER_TEMP": str(self.folder / "temp"),
        }
        script = self.folder / "step.sh"
        script.write_text(step["run"], encoding="utf-8")
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        where = {"cwd": self.workspace, "env": environment(**fixed, **given)}
        done = subprocess.run(command, **where, capture_output=True, text=True, check=False)  # type: ignore[call-overload]
        self.stdout += done.stdout
        return int(done.returncode)

    def _outputs(self) -> dict[str, str]:
        written = (self.folder / "outputs").read_text(encoding="utf-8").splitlines()
        return {f"steps.validate.outputs.{k}": v for k, v in (line.split("=", 1) for line in written)}

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def pip(self) -> list[str]:
        return (self.folder / "temp" / "pip").read_text(encoding="utf-8").splitlines()


def job(folder: Path, python: str | None = None, **inputs: str) -> Job:
    for name in ("workspace", "temp"):
        (folder / name).mkdir()
    (folder / "outputs").touch()
    (folder / "workspace" / "cluster.yaml").write_text(BAD, encoding="utf-8")
    (folder / "workspace" / "good.trainspec.yaml").write_text(GOOD, encoding="utf-8")
    stand_in = folder / "python"
    stand_in.write_text(STAND_IN.format(tool=BIN / "trainspec-validate"), encoding="utf-8")
    stand_in.chmod(0o755)
    return Job(folder, python or str(stand_in), {name.replace("_", "-"): value for name, value in inputs.items()})


def check_bad_job(done: Job) -> None:
    assert done.run() == 1
    assert done.codes == {"Install": 0, "Validate": 0, "Verdict": 1}
    lines = done.stdout.splitlines()
    assert lines[0].startswith("::error file=cluster.yaml,line=21,col=35,")
    assert lines[1].startswith("cluster.yaml:21:35: error[TS-CLU-010]")
    [run] = json.loads((done.workspace / "trainspec.sarif").read_text(encoding="utf-8"))["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["TS-CLU-010"]


def test_the_action_annotates_and_writes_sarif(tmp_path: Path) -> None:
    done = job(tmp_path, paths="cluster.yaml")
    check_bad_job(done)
    assert len(done.pip) == 3
    assert all("--require-hashes" in line for line in done.pip[:2])
    assert done.pip[2].endswith(str(ROOT))


@pytest.mark.slow
def test_the_action_installs_itself(tmp_path: Path) -> None:
    done = job(tmp_path, sys.executable, paths="cluster.yaml")
    probe = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(tmp_path / "probe"),
        "mdurl",
    ]
    if subprocess.run(probe, env=environment(PIP_RETRIES="1"), capture_output=True, check=False).returncode:
        pytest.skip("the package index cannot be reached")
    check_bad_job(done)


def test_the_action_passes_a_good_file(tmp_path: Path) -> None:
    done = job(tmp_path, paths="good.trainspec.yaml")
    assert done.run() == 0
    assert done.stdout.startswith("no findings: 1 document")


def test_the_action_fails_on_input_that_is_not_there(tmp_path: Path) -> None:
    assert job(tmp_path, paths="nothing.yaml").run() == 2


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", ["paths", "args", "fail_on", "version"])
def test_the_action_executes_no_input(name: str, text: str, tmp_path: Path) -> None:
    done = job(tmp_path, **{name: text})
    assert done.run() == 2
    assert not list(tmp_path.rglob("pwned"))
    assert ("Validate" in done.codes) is (name != "version")


def test_the_action_installs_a_release(tmp_path: Path) -> None:
    done = job(tmp_path, version="1.2.0rc1", paths="good.trainspec.yaml")
    assert done.run() == 0
    assert [line.split()[-1] for line in done.pip] == ["trainspec-validate==1.2.0rc1"]
