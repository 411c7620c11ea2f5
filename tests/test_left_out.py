"""Requirements that settings or options leave out are counted in every format, with the settings file by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.model.requirements import load_index
from trainspec_validate.report import FORMATS

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
NUM_PAR = sum(r.area == "TS-PAR" and r.check not in {"manual", "runtime"} for r in load_index().by_id.values())
BY_FILE = f"{NUM_PAR} requirements left out by ignore TS-PAR in trainspec.toml"


@pytest.fixture(autouse=True)
def _documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cluster.yaml", "plan.yaml"):
        shutil.copy(BASE / name, tmp_path)
    monkeypatch.chdir(tmp_path)


def put(text: str) -> None:
    Path("trainspec.toml").write_text(text, encoding="utf-8")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, [".", *arguments], prog_name=PROGRAM)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "json"])
def test_every_format_says_what_settings_leave_out(name: str) -> None:
    put('ignore = ["PAR"]\n')
    assert BY_FILE in invoke("--format", name).stdout


def test_json_holds_what_was_left_out_and_by_what() -> None:
    put('ignore = ["PAR"]\n')
    report = json.loads(invoke("--format", "json", "--profile", "core").stdout)
    assert report["settings"] == "trainspec.toml"
    by_ignore, by_profile = report["left_out"]
    assert (by_ignore["option"], by_ignore["words"], by_ignore["settings"]) == ("ignore", ["TS-PAR"], "trainspec.toml")
    assert (by_profile["option"], by_profile["words"], by_profile["settings"]) == ("profile", ["core"], "")
    assert len(by_ignore["requirements"]) == NUM_PAR
    assert not set(by_ignore["requirements"]) & set(by_profile["requirements"])
    assert report["summary"]["left_out"] == NUM_PAR + len(by_profile["requirements"])


def test_a_command_line_over_the_settings_is_named_as_such() -> None:
    put('ignore = ["PAR"]\n')
    summary = invoke("--format", "concise", "--ignore", "TS-TOP-001").stdout.splitlines()[-1]
    assert summary.endswith("; 1 requirement left out by --ignore TS-TOP-001; settings of trainspec.toml")


def test_settings_that_leave_nothing_out_are_named_too() -> None:
    put('fail-on = "error"\n')
    assert invoke("--format", "concise").stdout.endswith("; settings of trainspec.toml\n")
    put('fail-on = "never"\n')
    assert invoke("--format", "concise").stdout.endswith("; nothing can fail: fail-on is never in trainspec.toml\n")


def test_settings_of_a_directory_above_are_named_from_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    put('profile = "core"\n')
    Path("below").mkdir()
    monkeypatch.chdir("below")
    result = CliRunner().invoke(command, ["..", "--format", "concise"], prog_name=PROGRAM)
    assert "left out by profile core in ../trainspec.toml" in result.stdout


def test_quiet_settings_cannot_hide_what_they_leave_out() -> None:
    put('ignore = ["PAR", "TS-CLU-037"]\nquiet = true\nfail-on = "never"\n')
    assert " in trainspec.toml" in invoke("--format", "concise").stdout


def test_what_was_left_out_on_purpose_is_not_unjudged() -> None:
    put('ignore = ["PAR", "TS-CLU-037"]\n')
    result = invoke("--format", "concise", "--fail-on", "note,unjudged")
    assert (result.exit_code, result.stdout.count("left out")) == (0, 1)


def test_nothing_is_said_where_nothing_was_left_out() -> None:
    result = invoke("--format", "json")
    report = json.loads(result.stdout)
    assert (report["settings"], report["left_out"], report["summary"]["left_out"]) == ("", [], 0)
    assert "left out" not in invoke("--format", "concise").stdout


@pytest.mark.parametrize("settings", [False, True])
def test_what_reports_an_unread_file_is_not_ignored(settings: bool) -> None:
    put('ignore = ["PAR", "readable"]\n' if settings else "")
    result = invoke(*([] if settings else ["--ignore", "PAR,readable"]))
    assert result.exit_code == 2
    assert "TS-DOC-001 cannot be ignored: it reports a file that was not read" in result.stderr


SILENCED = "silenced: TS-DOC-010 2 times in cluster.yaml and 1 more, by a comment: the scheduler needs it"


def silence_two() -> None:
    for name in ("cluster.yaml", "plan.yaml"):
        text = Path(name).read_text(encoding="utf-8").replace("metadata:\n  name: example-", "metadata:\n  name: an e-")
        ignore = "# trainspec: ignore-file[TS-DOC-010] the scheduler needs it\n"
        Path(name).write_text(ignore + text, encoding="utf-8")


@pytest.mark.parametrize("name", ["full", "concise", "github", "gitlab", "statistics"])
def test_every_format_says_what_was_silenced_by_what_and_how_often(name: str) -> None:
    silence_two()
    assert SILENCED in invoke("--format", name).stdout


def test_programs_get_every_finding_that_was_silenced() -> None:
    silence_two()
    assert invoke("--format", "junit").stdout.count('message="inline: the scheduler needs it"') == 2
    [run] = json.loads(invoke("--format", "sarif").stdout)["runs"]
    reasons = [one for result in run["results"] for one in result["suppressions"]]
    assert reasons == [{"kind": "inSource", "justification": "the scheduler needs it"}] * 2
    found = json.loads(invoke("--format", "json").stdout)["suppressed"]
    assert [(one["kind"], one["finding"]["path"]) for one in found] == [
        ("inline", "cluster.yaml"),
        ("inline", "plan.yaml"),
    ]


def test_quiet_settings_do_not_hide_what_was_silenced() -> None:
    silence_two()
    Path("plan.yaml").unlink()
    put("quiet = true\n")
    assert "silenced: TS-DOC-010 once in cluster.yaml" in invoke("--format", "concise").stdout
    Path("trainspec.toml").unlink()
    assert invoke("--format", "concise", "--quiet").stdout == ""
