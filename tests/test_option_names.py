"""Names of files that look like options, settings that would never end, and a working directory that is gone."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
BAD = (ROOT / "examples" / "broken" / "duplex.yaml").read_text(encoding="utf-8")
PROGRAM = (sys.executable, "-I", "-m", "trainspec_validate")
NAMES = ["--waivers=w.trainspec.yaml", "--config=x.trainspec.yaml", "--format=json=d/plan.yaml", "-q.trainspec.yaml"]


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)


def filled(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    for each in ("cluster.yaml", name):
        (folder / each).write_text(BAD, encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_file_named_as_an_option_is_refused(name: str, tmp_path: Path) -> None:
    filled(tmp_path, name)
    done = run(tmp_path, *PROGRAM, "--dependents", name, "cluster.yaml")
    assert done.returncode == 2
    assert f"Error: {name}: a file has the name of an option; write ./{name}" in done.stderr
    assert not (tmp_path / "d" / "plan.yaml").exists()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("arguments", "code"), [(None, 1), (["--fail-on", "warning"], 2)])
def test_the_hook_takes_no_option_from_a_repository(
    arguments: list[str] | None, code: int, name: str, tmp_path: Path
) -> None:
    """pre-commit appends the arguments of a user, or else those of the hook, and then the names."""
    filled(tmp_path, name)
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    entry = shlex.split(hook["entry"].replace("python ", f"{shlex.quote(sys.executable)} ", 1))
    done = run(tmp_path, *entry, *(hook["args"] if arguments is None else arguments), name, "cluster.yaml")
    assert done.returncode == code, done.stdout + done.stderr
    if code == 1:
        assert "cluster.yaml:21:35: error[TS-CLU-010]" in done.stdout
        assert f"{name}:21:35: error[TS-CLU-010]" in done.stdout


def test_settings_cannot_follow(tmp_path: Path) -> None:
    filled(tmp_path, "other.yaml")
    (tmp_path / "trainspec.toml").write_text("follow = true\n")
    done = run(tmp_path, *PROGRAM, ".")
    assert done.returncode == 2
    assert "unknown setting 'follow'" in done.stderr


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    command = f"cd gone && rmdir ../gone && {shlex.join(PROGRAM)}"
    done = run(tmp_path, "sh", "-c", command)
    assert done.returncode == 2
    assert done.stderr == "Error: the working directory is not there any more; change to one that is\n"
