"""Patterns leave files out of searches, each run says how many, and a change request cannot add one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.report import FORMATS

ROOT = Path(__file__).resolve().parents[1]
BASE = ROOT / "spec" / "v1" / "base"
BAD = (ROOT / "examples" / "broken" / "duplex.yaml").read_text(encoding="utf-8")
SETTINGS = 'exclude = ["tests/**"]\n'
TOLD = "3 files excluded by exclude tests/** in trainspec.toml"


@pytest.fixture(autouse=True)
def _repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository with two documents, and three files of its tests that fail."""
    home = tmp_path / "repository"
    (home / ".git").mkdir(parents=True)
    (home / "tests" / "data").mkdir(parents=True)
    for name in ("cluster.yaml", "plan.yaml"):
        shutil.copy(BASE / name, home)
    (home / "tests" / "bad.yaml").write_text(BAD, encoding="utf-8")
    (home / "tests" / "data" / "log.jsonl").write_text('{"step": 1, "loss": 2.5}\n', encoding="utf-8")
    (home / "tests" / "data" / "model.bin").write_bytes(b"\0\1")
    (tmp_path / "main").mkdir()
    monkeypatch.chdir(home)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


def put(text: str, place: str = ".") -> None:
    Path(place, "trainspec.toml").write_text(text, encoding="utf-8")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["--fail-on", "error,unjudged", *arguments], prog_name=PROGRAM)


def test_without_a_pattern_the_files_fail_the_gate() -> None:
    assert invoke(".").exit_code == 1


def test_a_run_has_a_bounded_number_of_patterns() -> None:
    """Each file of a search is held against all of them."""
    for number, code in ((500, 0), (501, 2)):
        put(f"exclude = {json.dumps(['tests', *(f'*a*a*a*{n}' for n in range(1, number))])}\n")
        result = invoke(".")
        assert result.exit_code == code
    assert "exclude in trainspec.toml: 501 patterns, where a run has at most 500" in result.output


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "json"])
def test_every_format_says_how_many_were_excluded_and_by_what(name: str) -> None:
    put(SETTINGS)
    result = invoke(".", "--format", name)
    assert (result.exit_code, TOLD in result.stdout) == (0, True)


def test_json_names_the_files() -> None:
    put(SETTINGS)
    (found,) = json.loads(invoke(".", "--format", "json").stdout)["passed_over"]
    assert (found["words"], found["settings"], found["num_files"]) == (["tests/**"], "trainspec.toml", 3)
    assert found["paths"] == ["tests/bad.yaml", "tests/data/log.jsonl", "tests/data/model.bin"]


def test_quiet_settings_cannot_hide_what_they_exclude() -> None:
    put(SETTINGS + "quiet = true\n")
    assert TOLD in invoke(".").stdout
    put("quiet = true\n")
    assert not invoke(".", "--exclude", "tests").stdout, "the command line may be quiet"


@pytest.mark.parametrize(
    "pattern",
    [
        "tests",
        "tests/",
        "tests/**",
        "/tests",
        "**/tests",
        "t*s",
        "tests/data,tests/bad.yaml",
        "bad.yaml,data",
        "**/bad*,/tests/data",
    ],
)
def test_a_pattern_takes_a_file_or_a_directory(pattern: str) -> None:
    words = [word for one in pattern.split(",") for word in ("--exclude", one)]
    result = invoke(".", *words)
    assert (result.exit_code, "3 files excluded by --exclude" in result.stdout) == (0, True)


@pytest.mark.parametrize("pattern", ["data/*.yaml", "tests/*/bad.yaml", "/bad.yaml", "est", "TESTS"])
def test_a_pattern_takes_nothing_else(pattern: str) -> None:
    result = invoke(".", "--exclude", pattern)
    assert (result.exit_code, "excluded" in result.stdout) == (1, False)


def test_patterns_of_settings_are_of_their_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    put('exclude = "tests/data"\n')
    monkeypatch.chdir("tests")
    result = invoke("..", "--format", "concise")
    assert "2 files excluded by exclude ../tests/data in ../trainspec.toml" in result.stdout


@pytest.mark.parametrize("text", ['exclude = ["!tests"]', 'exclude = [""]', "exclude = 1", 'exclude = ["//"]'])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    put(text + "\n")
    result = invoke(".")
    assert (result.exit_code, "exclude" in result.stderr) == (2, True)


def test_a_file_that_is_named_is_judged() -> None:
    put(SETTINGS)
    assert invoke("tests/bad.yaml").exit_code == 1


def test_changed_files_that_are_excluded_are_passed_over() -> None:
    put(SETTINGS)
    result = invoke("tests/bad.yaml", "tests/data/log.jsonl", "plan.yaml", "--dependents")
    assert result.exit_code == 0, result.stdout
    assert result.stderr.splitlines()[:2] == [
        "passed over: tests/bad.yaml: is excluded",
        "passed over: tests/data/log.jsonl: is excluded",
    ]


def test_documents_of_excluded_directories_belong_to_none() -> None:
    shutil.copy("cluster.yaml", "tests/data/cluster.yaml")
    plan = Path("plan.yaml").read_text(encoding="utf-8")
    Path("tests/data/plan.yaml").write_text(plan.replace("num_accelerators: ", "num_accelerators: 9"), encoding="utf-8")
    assert invoke("cluster.yaml", "--dependents").exit_code == 1
    put(SETTINGS)
    assert invoke("cluster.yaml", "--dependents").exit_code == 0


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_excluded_dependents_are_counted_with_their_pattern(quiet: list[str]) -> None:
    shutil.copy("plan.yaml", "tests/plan.yaml")
    put(SETTINGS)
    result = invoke("cluster.yaml", "--dependents", *quiet)
    assert "2 files excluded by exclude tests/** in trainspec.toml" in result.stdout
    listed = invoke("cluster.yaml", "--dependents", "--list-files")
    assert "left out: 2 files excluded by exclude tests/** in trainspec.toml" in listed.stderr
    found = json.loads(invoke("cluster.yaml", "--dependents", "--format", "json").stdout)["passed_over"]
    assert [(entry["words"], entry["num_files"]) for entry in found] == [(["tests/**"], 2)]


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_where_all_changed_files_are_excluded_the_pattern_is_named(quiet: list[str]) -> None:
    put(SETTINGS)
    result = invoke("tests/bad.yaml", "--dependents", *quiet)
    assert result.exit_code == 0
    assert "nothing to judge: 1 file excluded by exclude tests/** in trainspec.toml" in result.stderr


def test_where_everything_is_excluded_nothing_passes() -> None:
    result = invoke(".", "--exclude", "*")
    assert result.exit_code == 2
    assert "files excluded by --exclude *" in result.stderr


def test_a_change_request_cannot_exclude() -> None:
    put(SETTINGS)
    result = invoke(".", "--settings-from", "../main")
    assert result.exit_code == 1
    assert "trainspec.toml differs between the working directory and ../main" in result.stderr
    changed = invoke("tests/bad.yaml", "--dependents", "--settings-from", "../main")
    assert changed.exit_code == 1


def test_the_target_branch_can_exclude(monkeypatch: pytest.MonkeyPatch) -> None:
    put(SETTINGS, "../main")
    result = invoke(".", "--settings-from", "../main")
    assert (result.exit_code, "3 files excluded by exclude tests/** in ../main/trainspec.toml" in result.stdout) == (
        0,
        True,
    )
    Path("../main/tests").mkdir()
    monkeypatch.chdir("tests")
    above = invoke("..", "--settings-from", "../../main")
    assert "3 files excluded by exclude ../tests/**" in above.stdout


def test_excluded_checkpoints_are_not_judged() -> None:
    step = Path("tests/step-1")
    step.mkdir()
    (step / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    assert "TS-CKP" in invoke(".").stdout
    put(SETTINGS)
    result = invoke(".")
    assert "TS-CKP" not in result.stdout
    assert "excluded by exclude tests/**" in result.stdout


def test_listing_says_what_is_excluded() -> None:
    put(SETTINGS)
    result = invoke(".", "--list-files")
    assert result.stdout.split() == ["cluster.yaml", "plan.yaml"]
    assert result.stderr == f"left out: {TOLD}\n"


@pytest.mark.parametrize(
    ("words", "place", "is_idle"),
    [
        *(("test/**", ".", True), ("*.yml", ".", True), (".venv", ".", True)),
        *(("tests/**", ".", False), ("tests", ".", False), ("tests/data/**", ".", False), ("data", "tests", False)),
        *(("test/**", "tests", False), ("test/**", "plan.yaml", False), (".git/**", ".", False)),
    ],
)
def test_a_pattern_that_fits_nothing_is_named(words: str, place: str, is_idle: bool) -> None:
    """Only where the place of the pattern was searched; a pattern that another one covers fits something."""
    put(f'exclude = ["tests/bad.yaml", "{words}"]\n')
    told = f"Note: exclude in trainspec.toml: {words} fits no file"
    assert (told in invoke(place).stderr) == is_idle
