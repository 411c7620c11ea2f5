"""The settings of a project: where they are found, what they may hold, and that the command line wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli.settings import settings_of
from trainspec_validate.cli.settings_file import _NO_KEYS, ConfigError, load
from trainspec_validate.cli.validate import PROGRAM, command

GOOD = (Path(__file__).resolve().parents[1] / "spec" / "v1" / "base" / "plan.yaml").read_text(encoding="utf-8")
BAD = GOOD.replace("  data: 4", "  dtaa: 4")
KINDS: Any = {"fail-on": "text", "select": "list", "quiet": "flag", "baseline": "path", "format": "outputs"}


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    Path("plan.yaml").write_text(BAD, encoding="utf-8")


def write(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments], prog_name=PROGRAM)


def values(**options: Any) -> dict[str, Any] | None:
    settings = load(KINDS, **options)
    return None if settings is None else dict(settings.values)


def test_no_settings_no_effect() -> None:
    assert values() is None
    write("pyproject.toml", '[project]\nname = "x"\n')
    assert values() is None


def test_the_nearest_file_wins() -> None:
    write("pyproject.toml", '[tool.trainspec]\nfail-on = "warning"\n')
    assert values() == {"fail-on": "warning"}
    assert values(start=Path("deep/er").resolve()) == {"fail-on": "warning"}
    write("pyproject.toml", "[tool.other]\n")
    write("trainspec.toml", 'fail-on = "note"\n')
    assert values() == {"fail-on": "note"}
    write("deep/pyproject.toml", "[tool.other]\n")
    assert values(start=Path("deep/er").resolve()) == {"fail-on": "note"}
    write("deep/pyproject.toml", '[tool.trainspec]\nfail-on = "never"\n')
    assert values(start=Path("deep/er").resolve()) == {"fail-on": "never"}


@pytest.mark.parametrize("broken", ["", "]"])
def test_settings_in_both_files_of_a_directory_are_refused(broken: str) -> None:
    write("trainspec.toml", 'fail-on = "note"\n')
    write("pyproject.toml", f'[tool.trainspec]\nfail-on = "never"\n{broken}')
    with pytest.raises(ConfigError, match="next to it holds settings too"):
        values(start=Path("deep/er").resolve())


@pytest.mark.parametrize("name", ["trainspec.toml", "pyproject.toml"])
@pytest.mark.parametrize("is_repository", [True, False])
def test_settings_that_are_a_link_out_of_the_tree_are_refused(
    name: str, is_repository: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = "[tool.trainspec]\n" if name == "pyproject.toml" else ""
    Path("outside.toml").write_text(f'{table}token = "secret"\n', encoding="utf-8")
    tree = tmp_path / "deep" / "er"
    monkeypatch.chdir(tree)
    if is_repository:
        (tree / ".git").mkdir()
    else:
        (tmp_path / ".git").rmdir()
    for link in (Path("../../outside.toml"), tmp_path / "outside.toml"):
        Path(name).symlink_to(link)
        Path("plan.yaml").write_text(GOOD, encoding="utf-8")
        result = invoke("plan.yaml")
        assert (result.exit_code, "this is a link out of" in result.stderr) == (2, True), result.output
        assert "token" not in result.output
        Path(name).unlink()


def test_a_link_within_the_repository_is_read() -> None:
    write("shared.toml", 'fail-on = "note"\n')
    Path("deep/trainspec.toml").symlink_to("../shared.toml")
    assert values(start=Path("deep/er").resolve()) == {"fail-on": "note"}


def test_a_project_file_elsewhere_without_settings_is_passed_by(tmp_path: Path) -> None:
    write("outside.toml", '[project]\nname = "x"\n')
    Path("deep/er/.git").mkdir()
    Path("deep/er/pyproject.toml").symlink_to(tmp_path / "outside.toml")
    assert values(start=Path("deep/er").resolve()) is None


def test_the_top_of_a_repository_ends_the_search() -> None:
    write("trainspec.toml", 'fail-on = "note"\n')
    Path("deep/.git").mkdir()
    assert values(start=Path("deep/er").resolve()) is None


def test_paths_are_relative_to_their_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("trainspec.toml", 'baseline = "known.json"\nformat = ["full"]\n')
    monkeypatch.chdir("deep/er")
    assert values() == {"baseline": "../../known.json", "format": ["full"]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('fial-on = "error"', "unknown setting 'fial-on'; did you mean 'fail-on'?"),
        ("zzz = 1", "unknown setting 'zzz'; one of: fail-on, select, quiet, baseline, format"),
        ("fail-on = 3", 'fail-on is text, such as fail-on = "..."'),
        ('quiet = "yes"', "quiet is quiet = true or quiet = false"),
        ("select = [1]", "select is text or a list of texts"),
        ("format = true", 'such as format = "full"'),
        ('format = ["sarif=a.sarif"]', "said on the command line only"),
        ('baseline = "../known.json"', "leads out of the directory of this file"),
        ('baseline = "/etc/passwd"', "leads out of the directory of this file"),
        ('baseline = ".git/hooks/post-commit"', "leads into a directory of version control"),
        ('baseline = "a/.GIT/config"', "leads into a directory of version control"),
        ("baseline = []", "baseline is a path relative to this file"),
        ("fail-on = ", "this is not TOML in UTF-8"),
    ],
)
def test_wrong_settings_are_told(text: str, words: str) -> None:
    write("trainspec.toml", text)
    with pytest.raises(ConfigError) as caught:
        values()
    assert str(caught.value).endswith(words) or words in str(caught.value)
    assert "trainspec.toml" in str(caught.value)


def test_settings_that_are_no_table() -> None:
    write("pyproject.toml", '[tool]\ntrainspec = "strict"\n# [tool.trainspec]\n')
    with pytest.raises(ConfigError, match="not a table"):
        values()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[tool]\ntrainspec = "x"\n', 2),
        ('[project]\nname = "a"\n[tool]\nother = 1\n"trainspec" = ["x"]\n', 5),
        ("tool.trainspec = 1\n", 1),
        ("tool = {trainspec = true}\n", 1),
        ("\n[[tool.trainspec]]\nquiet = true\n", 2),
        ("[[ tool . 'trainspec' ]]\n", 1),
    ],
)
def test_settings_that_are_no_table_are_refused_with_their_line(text: str, line: int) -> None:
    write("pyproject.toml", text)
    told = invoke("plan.yaml")
    assert told.exit_code == 2
    assert f"pyproject.toml:{line}: tool.trainspec is not a table; write [tool.trainspec]" in told.stderr


@pytest.mark.parametrize(
    "text",
    [
        "[tool]\ntrainspec.fail-on = 'never'\n",
        "tool.trainspec.fail-on = 'never'\n",
        "[ tool . trainspec ]\nfail-on = 'never'\n",
        "[tool.'trainspec']\nfail-on = 'never'\n",
        "tool = {trainspec = {fail-on = 'never'}}\n",
    ],
)
def test_the_table_counts_however_it_is_written(text: str) -> None:
    write("pyproject.toml", text)
    assert values() == {"fail-on": "never"}


@pytest.mark.parametrize(
    "text", ["# [tool.trainspec]\n", '[project]\ndependencies = ["trainspec"]\n', 'a = "trainspec']
)
def test_a_mention_is_no_setting(text: str) -> None:
    write("trainspec.toml", 'fail-on = "note"\n')
    write("deep/pyproject.toml", text)
    assert values(start=Path("deep").resolve()) == {"fail-on": "note"}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["trainspec.toml", "pyproject.toml"])
def test_a_byte_order_mark_is_named(name: str, encoding: str) -> None:
    Path(name).write_text(("[tool.trainspec]\n" if name == "pyproject.toml" else "") + "quiet = true\n", encoding)
    told = invoke("plan.yaml")
    assert told.exit_code == 2
    assert "begins with a byte order mark" in told.stderr


def test_settings_in_what_is_no_toml_are_not_passed_by() -> None:
    write("pyproject.toml", "[project\n[tool]\ntrainspec = 1\n")
    with pytest.raises(ConfigError, match="not TOML"):
        values()


def test_settings_with_which_nothing_can_fail_are_told() -> None:
    write("trainspec.toml", 'fail-on = "never"\n')
    assert "nothing can fail: fail-on is never in trainspec.toml" in invoke("plan.yaml").stdout
    assert "nothing can fail" not in invoke("plan.yaml", "--fail-on", "error").stdout
    write("trainspec.toml", 'fail-on = ["never", "unjudged"]\n')
    assert "nothing can fail" not in invoke("plan.yaml").stdout


def test_the_command_line_wins() -> None:
    write("trainspec.toml", 'fail-on = "never"\nselect = ["TS-DOC"]\nformat = "json"\n')
    assert invoke("plan.yaml").exit_code == 0
    assert invoke("plan.yaml").stdout.startswith("{")
    result = invoke("plan.yaml", "--fail-on", "error", "--format", "concise")
    assert result.exit_code == 1
    assert result.stdout.startswith("plan.yaml:")


def test_another_file_is_named() -> None:
    write("trainspec.toml", 'fail-on = "error"\n')
    write("ci.toml", 'fail-on = "never"\n')
    write("deep/pyproject.toml", '[tool.trainspec]\nfail-on = "never"\n')
    assert invoke("plan.yaml", "--config", "ci.toml").exit_code == 0
    assert invoke("plan.yaml", "--config", "deep/pyproject.toml").exit_code == 0
    assert invoke("plan.yaml").exit_code == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('fail-on = "eror"', "fail-on: 'eror' is not one of 'error', 'warning', 'note', 'never'"),
        ('selct = "TS-DOC"', "unknown setting 'selct'; did you mean 'select'?"),
        ('config = "x.toml"', "unknown setting 'config'"),
        ("list-files = true", "unknown setting 'list-files'"),
        ("interval = nan", "interval is a number from 0.05 to 86400, such as interval = 4"),
        ("interval = inf", "interval is a number from 0.05 to 86400"),
        ("workers = 100000", "workers is a whole number from 1 to 1024, such as workers = 4"),
        ('workers = "many"', "workers is a whole number from 1 to 1024"),
        ("workers = 2.5", "workers is a whole number from 1 to 1024"),
        ("workers = true", "workers is a number, such as workers = 4"),
    ],
)
def test_2_for_wrong_settings(text: str, words: str) -> None:
    write("trainspec.toml", text)
    result = invoke("plan.yaml")
    assert result.exit_code == 2
    assert words in result.stderr
    assert "trainspec.toml" in result.stderr


@pytest.mark.parametrize("text", ["workers = 2", 'workers = "2"', "interval = 2.5", 'interval = "3"'])
def test_a_number_is_written_as_one_or_as_text(text: str) -> None:
    write("trainspec.toml", text)
    assert "trainspec.toml" not in invoke("none.yaml").stderr


def test_waivers_and_baseline_can_be_set() -> None:
    invoke("plan.yaml", "--write-baseline", "--baseline", "known.json")
    write("trainspec.toml", 'baseline = "known.json"\nquiet = true\nselect = "TS-DOC"\n')
    result = invoke("plan.yaml")
    silenced, summary = result.output.splitlines()  # quiet hides neither
    assert result.exit_code == 0
    assert "known.json" in silenced
    assert summary.endswith(" left out by select TS-DOC in trainspec.toml")
    write("trainspec.toml", 'baseline = "known.json"\nquiet = true\n')
    result = invoke("plan.yaml", "--select", "TS-DOC")
    silenced, summary = result.output.splitlines()
    assert result.exit_code == 0
    assert "known.json" in silenced
    assert summary.endswith("; settings of trainspec.toml")


def test_help_and_version_need_no_settings() -> None:
    write("trainspec.toml", "nonsense")
    assert invoke("--version").exit_code == 0
    assert invoke("--help").exit_code == 0


def test_what_can_be_set_is_decided() -> None:
    assert sorted(settings_of(command)) == [
        *(
            "baseline",
            "color",
            "dependents",
            "engine",
            "exclude",
            "fail-on",
            "format",
            "ignore",
            "interval",
            "no-progress",
        ),
        *("profile", "quiet", "rules", "rules-engine", "select", "statistics", "values", "waivers", "workers"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        'a = """\n' + '\\"""\n' * 50,
        'a = "' + '\\"' * 50,
        "a = '''" + "x'y\n" * 50,
        'a = "\\"\\',
    ],
)
def test_a_string_without_its_end_is_looked_through_once(text: str) -> None:
    """One match takes all of it: to look for an end from each later quote takes the square of the time."""
    assert [match[0] for match in _NO_KEYS.finditer(text)] == [text[4:]]


def test_an_escaped_line_end_is_no_part_of_a_string_of_one_line() -> None:
    """Else each of many such lines would be looked through to the end of the text."""
    assert [match[0] for match in _NO_KEYS.finditer('a = "b\\\nc = "d"\n')] == ['"b\\', '"d"']
