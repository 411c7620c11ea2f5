"""`--settings-from` takes what decides about a change request from a copy of its target branch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.checking.suppress.common import home_of, is_below
from trainspec_validate.cli.validate import PROGRAM, command

ROOT = Path(__file__).resolve().parents[1]
BAD = (ROOT / "examples" / "broken" / "duplex.yaml").read_text(encoding="utf-8")
NEVER = 'fail-on = "never"\n'
FOUND = "error[TS-CLU-010]"
NOTE = "Note: {} differs between the working directory and ../main; this run uses ../main\n"


@pytest.fixture(autouse=True)
def _trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change request in the working directory, and its target branch next to it."""
    (tmp_path / "request" / ".git").mkdir(parents=True)
    (tmp_path / "request" / "cluster.yaml").write_text(BAD, encoding="utf-8")
    (tmp_path / "main" / "ci").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "request")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


def invoke(*arguments: str, tree: str = "../main") -> Result:
    return CliRunner().invoke(command, ["cluster.yaml", "--settings-from", tree, *arguments], prog_name=PROGRAM)


def in_main(name: str, text: str) -> None:
    Path("../main", name).write_text(text, encoding="utf-8")


def test_settings_of_the_working_directory_do_not_count() -> None:
    Path("trainspec.toml").write_text(NEVER, encoding="utf-8")
    result = invoke()
    assert (result.exit_code, FOUND in result.stdout) == (1, True)
    assert (
        result.stderr
        == "Note: trainspec.toml differs between the working directory and ../main; this run uses ../main\n"
    )


def test_the_parents_of_the_directory_are_not_searched() -> None:
    Path("../trainspec.toml").write_text(NEVER, encoding="utf-8")
    result = invoke()
    assert (result.exit_code, result.stderr) == (1, "")


@pytest.mark.parametrize("absolute", [False, True])
def test_settings_of_the_directory_count(absolute: bool, tmp_path: Path) -> None:
    in_main("trainspec.toml", NEVER)
    Path("trainspec.toml").write_text(NEVER, encoding="utf-8")
    result = invoke(tree=str(tmp_path / "main") if absolute else "../main")
    assert (result.exit_code, result.stderr) == (0, "")
    assert invoke("--fail-on", "error").exit_code == 1, "the command line wins"


def test_a_project_file_may_change_elsewhere() -> None:
    in_main("pyproject.toml", f"[project]\nversion = '1'\n[tool.trainspec]\n{NEVER}")
    Path("pyproject.toml").write_text(f"[project]\nversion = '2'\n[tool.trainspec]\n{NEVER}", encoding="utf-8")
    assert (invoke().exit_code, invoke().stderr) == (0, "")
    Path("pyproject.toml").write_text("[tool.trainspec]\n", encoding="utf-8")
    assert "Note: pyproject.toml differs" in invoke().stderr


@pytest.mark.parametrize("order", [("--config", "--settings-from"), ("--settings-from", "--config")])
def test_a_file_that_is_named_counts_in_either_order(order: tuple[str, str]) -> None:
    in_main("ci/gate.toml", NEVER)
    in_main("trainspec.toml", 'fail-on = "error"\n')
    values = {"--config": "../main/ci/gate.toml", "--settings-from": "../main"}
    arguments = ["cluster.yaml", *(word for option in order for word in (option, values[option]))]
    result = CliRunner().invoke(command, arguments, prog_name=PROGRAM)
    assert result.exit_code == 0
    assert result.stderr == NOTE.format("ci/gate.toml")


HOSTILE = {
    "no-toml": lambda path: path.write_text("[[[", encoding="utf-8"),
    "deep": lambda path: path.write_text("a = " + "[" * 100_000, encoding="utf-8"),
    "not-utf-8": lambda path: path.write_bytes(b"\xff\xfe"),
    "unknown-key": lambda path: path.write_text("x = 1\n", encoding="utf-8"),
    "link": lambda path: path.symlink_to("/etc/hostname"),
    "directory": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
}


@pytest.mark.parametrize("name", ["trainspec.toml", "pyproject.toml", "waivers.yaml"])
@pytest.mark.parametrize("how", HOSTILE)
def test_no_settings_of_a_change_request_change_the_verdict(how: str, name: str) -> None:
    in_main("trainspec.toml", 'waivers = "waivers.yaml"\n')
    in_main("waivers.yaml", "apiVersion: trainspec/v1\nkind: Waivers\nwaivers: []\n")
    HOSTILE[how](Path(name))
    result = invoke()
    assert (result.exit_code, FOUND in result.stdout) == (1, True), result.output


def test_settings_that_the_directory_cannot_mean_are_refused() -> None:
    in_main("trainspec.toml", "[")
    assert invoke().exit_code == 2
    assert invoke(tree="../nothing").exit_code == 2
    assert invoke(tree="cluster.yaml").exit_code == 2
    in_main("trainspec.toml", 'settings-from = "."\n')
    assert "unknown setting" in invoke().stderr


@pytest.mark.parametrize("option", ["--write-baseline", "--prune-baseline"])
def test_a_baseline_of_another_branch_is_not_written(option: str) -> None:
    result = invoke(option)
    assert (result.exit_code, "record findings without it" in result.stderr) == (2, True)
    assert list(Path("../main").rglob("*.json")) == []


def test_names_in_a_copy_are_those_of_the_working_directory(tmp_path: Path) -> None:
    here = os.fspath(tmp_path / "request")
    for tree in ("../main", os.fspath(tmp_path / "main")):
        assert home_of("../main/waivers.yaml", tree) == here
        assert home_of(os.fspath(tmp_path / "main" / "a" / "b" / "waivers.yaml"), tree) == f"{here}/a/b"
        assert home_of("waivers.yaml", tree) == here
        assert home_of("../other/waivers.yaml", tree) == os.fspath(tmp_path / "other")
        assert not is_below("../main-2/waivers.yaml", tree)
    assert home_of("../main/waivers.yaml", None) == os.fspath(tmp_path / "main")
