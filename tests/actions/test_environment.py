"""Which variables of a job reach the programs that an action starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from job import ActionError, Job


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("workspace", "temp", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "workspace")
    return tmp_path


def trusted(folder: Path, **variables: str) -> dict[str, str]:
    of_runner = {"GITHUB_WORKSPACE": str(folder / "workspace"), "RUNNER_TEMP": str(folder / "temp")}
    return Job.of(of_runner | variables, "trainspec").trusted


@pytest.mark.parametrize(
    "name",
    [
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONWARNINGS", "VIRTUAL_ENV", "BASH_ENV"),
        *("LD_PRELOAD", "LD_AUDIT", "OPENSSL_CONF", "GIT_DIR", "GIT_CONFIG_GLOBAL", "GIT_SSH_COMMAND", "GITHUB_TOKEN"),
        *("PIP_REQUIREMENT", "PIP_EDITABLE", "PIP_TARGET", "PIP_PYTHON", "PIP_USER", "NUMBA_CACHE_DIR", "ANYTHING"),
    ],
)
def test_what_is_not_listed_stays_out(name: str, folder: Path) -> None:
    assert trusted(folder, **{name: "/anywhere"}) == {}


@pytest.mark.parametrize("name", ["HOME", "XDG_CONFIG_HOME", "PIP_CONFIG_FILE", "PIP_CACHE_DIR", "TMPDIR"])
@pytest.mark.parametrize("value", ["", ".", "pip.conf", "{0}/workspace", "{0}/outside/../workspace/x", "{0}/link/x"])
def test_a_place_in_the_workspace_stays_out(
    name: str, value: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trusted(folder, **{name: value.format(folder)}) == {}
    told = f"{name} is not used: it is relative or names the workspace\n"
    assert capsys.readouterr().out == (told if value else "")
    place = {name: f"{folder}/workspace-of-another"}
    assert trusted(folder, **place) == place


@pytest.mark.parametrize("name", ["PATH", "LD_LIBRARY_PATH"])
def test_lists_lose_what_is_relative_or_of_the_workspace(name: str, folder: Path) -> None:
    entries = ["", ".", "bin", f"{folder}/workspace/bin", "/usr/bin", f"{folder}/link", f"{folder}/outside", "~/bin"]
    assert trusted(folder, **{name: ":".join(entries)}) == {name: f"/usr/bin:{folder}/outside"}


@pytest.mark.parametrize("value", ["{0}/workspace", "https://a.example {0}/workspace/x", "file://{0}/link/simple"])
def test_an_index_in_the_workspace_stays_out(value: str, folder: Path) -> None:
    assert trusted(folder, PIP_FIND_LINKS=value.format(folder)) == {}
    elsewhere = {"PIP_INDEX_URL": "https://user:secret@a.example/simple", "PIP_FIND_LINKS": f"{folder}/outside"}
    assert trusted(folder, **elsewhere) == elsewhere


def test_a_workspace_with_a_space_in_its_name_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    (folder / "workspace").mkdir(parents=True)
    assert trusted(folder, PIP_FIND_LINKS=f"/c {folder}/workspace/wheels") == {}


@pytest.mark.parametrize("temp", ["", "relative", "{0}/workspace/temp", "{0}/link/temp"])
def test_a_temporary_directory_in_the_workspace_is_refused(temp: str, folder: Path) -> None:
    with pytest.raises(ActionError, match="RUNNER_TEMP"):
        trusted(folder, RUNNER_TEMP=temp.format(folder))


@pytest.mark.parametrize("arguments", [(), ("no-such-step",), ("validate", "more")])
def test_a_step_is_named(arguments: tuple[str, ...]) -> None:
    program = Path(__file__).parents[2] / "integrations" / "github"
    command = [sys.executable, "-I", "-B", str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "")
    assert "name one step" in done.stdout
    assert "install-validator" in done.stdout
