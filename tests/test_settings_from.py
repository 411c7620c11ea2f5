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


@pytest.mark.parametrize("how", ["no-toml", "unknown-key", "link"])
def test_a_change_that_breaks_the_settings_is_no_success(how: str) -> None:
    in_main("trainspec.toml", 'ignore = ["TS-CLU-010"]\n')
    Path("trainspec.toml").write_text('ignore = ["TS-CLU-010"]\n', encoding="utf-8")
    assert invoke().exit_code == 0
    Path("trainspec.toml").unlink()
    HOSTILE[how](Path("trainspec.toml"))
    result = invoke()
    assert result.exit_code == 1
    assert "error: " in result.stderr
    assert "with these settings no later run can judge anything" in result.stderr


def test_settings_that_the_directory_cannot_mean_are_refused() -> None:
    in_main("trainspec.toml", "[")
    assert invoke().exit_code == 2
    assert invoke(tree="../nothing").exit_code == 2
    assert invoke(tree="cluster.yaml").exit_code == 2
    in_main("trainspec.toml", 'settings-from = "."\n')
    assert "unknown setting" in invoke().stderr


@pytest.mark.parametrize("tree", [".", "..", "../request"])
def test_the_directory_that_is_judged_is_no_state_before_the_change(tree: str) -> None:
    result = invoke(tree=tree)
    assert (result.exit_code, "a copy outside of this directory" in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("place", ["sub", "sub/deep", "link"])
@pytest.mark.parametrize("directory", [".", "sub"])
def test_a_directory_that_a_change_can_write_is_no_state_before_it(
    place: str, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("sub/deep").mkdir(parents=True)
    Path("../link").symlink_to("request/sub", target_is_directory=True)
    tree = Path("..", place).absolute() if place == "link" else Path(place).absolute()
    (tree / "trainspec.toml").write_text(NEVER, encoding="utf-8")
    monkeypatch.chdir(directory)
    result = invoke(tree=str(tree))
    assert result.exit_code == 2
    assert "names the state before the change: a copy " in result.stderr


def test_a_directory_that_is_judged_is_no_state_before_the_change(tmp_path: Path) -> None:
    (tmp_path / "data" / "s").mkdir(parents=True)
    result = CliRunner().invoke(command, ["../data", "--settings-from", "../data/s"], prog_name=PROGRAM)
    assert (result.exit_code, "../data/s is in ../data, which is judged" in result.stderr) == (2, True)


@pytest.mark.parametrize("name", ["trainspec.toml", "pyproject.toml"])
def test_settings_that_are_a_link_into_the_change_request_are_refused(name: str) -> None:
    text = NEVER if name == "trainspec.toml" else f"[tool.trainspec]\n{NEVER}"
    Path("own.toml").write_text(text, encoding="utf-8")
    Path("../main", name).symlink_to(Path("own.toml").absolute())
    result = invoke()
    assert (result.exit_code, "this is a link out of ../main" in result.stderr) == (2, True), result.stderr


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


# --- comments that silence ----------------------------------------------------------------------------------

KNOWN = BAD.replace("900e9", "900e9  # trainspec: ignore[TS-CLU-010] measured so")
WHOLE = "# trainspec: ignore-file[TS-CLU-010] measured so\n" + BAD
NEW = "the comment that ignores it is new against ../main and silences nothing before it is merged"


def request_and_main(request: str, main: str | None) -> Result:
    Path("cluster.yaml").write_text(request, encoding="utf-8")
    if main is not None:
        in_main("cluster.yaml", main)
    return invoke("--fail-on", "warning")


@pytest.mark.parametrize("text", [KNOWN, WHOLE])
def test_a_comment_that_the_target_has_too_counts(text: str) -> None:
    result = request_and_main("# a new line\n" + text, text)
    assert (result.exit_code, "1 suppressed (1 inline)" in result.stdout) == (0, True), result.output


@pytest.mark.parametrize(
    ("request_text", "main"),
    [
        (KNOWN, None),
        (WHOLE, None),
        (KNOWN, BAD),
        (WHOLE, BAD),
        (WHOLE, KNOWN),
        (KNOWN, KNOWN.replace("measured so", "for another reason")),
        (KNOWN, KNOWN.replace("TS-CLU-010", "TS-CLU-011")),
        (KNOWN.replace("900e9 ", "901e9 "), KNOWN),
        (KNOWN, "a: ["),
        (KNOWN, "- " * 100_000),
    ],
)
def test_a_comment_of_the_change_request_silences_nothing(request_text: str, main: str | None) -> None:
    result = request_and_main(request_text, main)
    assert result.exit_code == 1
    assert FOUND in result.stdout
    assert NEW in result.stdout


def test_one_comment_of_the_target_counts_once() -> None:
    """A change request cannot copy a comment that was accepted to another place."""
    line = next(line for line in KNOWN.splitlines(keepends=True) if "trainspec: ignore" in line)
    group = KNOWN[KNOWN.index("  - name: compute") :].split("\nfabrics:")[0]
    twice = KNOWN.replace(group, f"{group}\n{group.replace('name: compute', 'name: other', 1)}", 1)
    assert twice.count(line) == 2
    result = request_and_main(twice, KNOWN)
    assert (result.stdout.count(FOUND), result.stdout.count(NEW)) == (1, 1), result.stdout


def test_a_comment_of_the_target_counts_where_it_was() -> None:
    other = KNOWN.replace("name: compute", "name: other", 1)
    assert NEW in request_and_main(other, KNOWN).stdout


def test_a_comment_of_the_target_silences_what_was_below_its_line_alone() -> None:
    """Each key that is missing is shown at the key above it."""
    accepted = BAD.replace("900e9", "450e9").replace("      topology: switched\n", "")
    accepted = accepted.replace("scale_up:\n", "scale_up:  # trainspec: ignore[TS-DOC-006] not known\n", 1)
    result = request_and_main(f"# new\n{accepted.replace('# The data', '# That data')}", accepted)
    assert (result.exit_code, "1 suppressed (1 inline)" in result.stdout) == (0, True), result.stdout
    result = request_and_main(accepted.replace("      technology: nvlink\n", ""), accepted)
    assert result.exit_code == 1
    assert "error[TS-DOC-006] node_groups[0].scale_up lacks the keys 'technology' and 'topology'" in result.stdout
    assert NEW in result.stdout


@pytest.mark.parametrize("link", ["file", "directory"])
def test_a_link_in_the_copy_leads_nowhere_else(link: str, tmp_path: Path) -> None:
    (tmp_path / "request" / "sub").mkdir()
    Path("sub/cluster.yaml").write_text(KNOWN, encoding="utf-8")
    if link == "file":
        Path("../main/sub").mkdir()
        Path("../main/sub/cluster.yaml").symlink_to("../../request/sub/cluster.yaml")
    else:
        Path("../main/sub").symlink_to("../request/sub")
    result = CliRunner().invoke(command, ["sub/cluster.yaml", "--settings-from", "../main"], prog_name=PROGRAM)
    assert (result.exit_code, NEW in result.stdout) == (1, True)


def test_a_file_outside_of_the_working_directory_has_no_other_state(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(KNOWN, encoding="utf-8")
    in_main("cluster.yaml", KNOWN)
    result = CliRunner().invoke(command, ["../cluster.yaml", "--settings-from", "../main"], prog_name=PROGRAM)
    assert (result.exit_code, NEW in result.stdout) == (1, True)


def test_without_another_state_every_comment_counts() -> None:
    Path("cluster.yaml").write_text(KNOWN, encoding="utf-8")
    assert CliRunner().invoke(command, ["cluster.yaml"], prog_name=PROGRAM).exit_code == 0


# --- files that options name --------------------------------------------------------------------------------

WAIVERS = """apiVersion: trainspec/v1
kind: Waivers
waivers:
  - {requirement: TS-CLU-010, file: cluster.yaml, reason: accepted for now, owner: me, expires: 2099-01-01}
"""


def _baseline_text() -> str:
    CliRunner().invoke(command, ["cluster.yaml", "--baseline", "base.json", "--write-baseline"])
    return Path("base.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("option", ["--waivers", "--baseline", "--config"])
def test_a_file_that_an_option_names_is_the_one_of_the_target(option: str, absolute: bool) -> None:
    texts = {"--waivers": WAIVERS, "--baseline": _baseline_text(), "--config": NEVER}
    name = {"--waivers": "w.yaml", "--baseline": "base.json", "--config": "gate.toml"}[option]
    Path(name).write_text(texts[option], encoding="utf-8")
    value = str(Path(name).absolute()) if absolute else name
    for arguments in ((option, value), (f"{option}={value}",)):
        for words in (
            ["cluster.yaml", *arguments, "--settings-from=../main"],
            ["--settings-from", "../main", *arguments],
        ):
            result = CliRunner().invoke(command, [*words, "cluster.yaml"], prog_name=PROGRAM)
            assert (result.exit_code, FOUND in result.stdout) == (1, True), result.output
            assert f"Note: {option} {value} is not used: ../main has no such file\n" in result.stderr
    in_main(name, texts[option])
    assert invoke(option, value).exit_code == 0, "the target branch has it"
    Path(name).write_text(texts[option] + "\n", encoding="utf-8")
    assert NOTE.format(name) in invoke(option, value).stderr


def test_own_rules_of_the_change_request_are_not_run() -> None:
    Path("rules.py").write_text("raise SystemExit(7)\n", encoding="utf-8")
    result = invoke("--rules", "rules.py")
    assert (result.exit_code, "--rules rules.py is not used" in result.stderr) == (1, True), result.output


def test_a_link_does_not_bring_the_file_of_the_change_request_back(tmp_path: Path) -> None:
    Path("w.yaml").write_text(WAIVERS, encoding="utf-8")
    (tmp_path / "link.yaml").symlink_to(Path("w.yaml").absolute())
    result = invoke("--waivers", "../link.yaml")
    assert (result.exit_code, "is not used" in result.stderr) == (1, True)
    Path("../main/w.yaml").symlink_to(Path("w.yaml").absolute())
    result = invoke("--waivers", "w.yaml")
    assert (result.exit_code, "this is a link out of ../main" in result.stderr) == (2, True)


def test_a_file_of_the_repository_that_the_copy_cannot_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("w.yaml").write_text(WAIVERS, encoding="utf-8")
    Path("sub").mkdir()
    Path("cluster.yaml").rename("sub/cluster.yaml")
    monkeypatch.chdir("sub")
    result = invoke("--waivers", "../w.yaml", tree="../../main")
    assert (result.exit_code, "run from the top of the repository" in result.stderr) == (2, True), result.output


def test_a_file_of_the_pipeline_counts_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "ci.toml").write_text(NEVER, encoding="utf-8")
    assert invoke("--config", str(tmp_path / "ci.toml")).exit_code == 0


WAIVED = """apiVersion: trainspec/v1
kind: Waivers
waivers:
  - {requirement: TS-CLU-010, file: "legacy/*", reason: old, owner: a, expires: "2999-01-01"}
"""


@pytest.mark.parametrize(
    ("settings", "why"),
    [('exclude = ["legacy"]\n', "is excluded"), ('waivers = "w.yaml"\n', "a waiver silences TS-CLU-010 in it")],
)
def test_new_files_that_the_target_branch_silences_are_named(settings: str, why: str) -> None:
    in_main("trainspec.toml", settings)
    Path("trainspec.toml").write_text(settings, encoding="utf-8")
    for place in (Path("../main"), Path()):
        (place / "w.yaml").write_text(WAIVED, encoding="utf-8")
        (place / "legacy").mkdir()
        (place / "legacy" / "old.yaml").write_text(BAD, encoding="utf-8")
    arguments = [".", "--settings-from", "../main"]
    assert "is new" not in CliRunner().invoke(command, arguments, prog_name=PROGRAM).stderr
    Path("legacy", "new.yaml").write_text(BAD, encoding="utf-8")
    told = CliRunner().invoke(command, arguments, prog_name=PROGRAM).stderr
    assert told.count("is new") == 1
    assert f"Note: legacy/new.yaml is new against ../main, and {why}\n" in told


def test_waivers_of_settings_that_cannot_be_read_are_named_with_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text('[tool.trainspec]\nwaivers = "absent.yaml"\n')
    Path("a.yaml").write_text("apiVersion: trainspec/v1\nkind: ClusterProfile\n")
    result = CliRunner().invoke(command, ["a.yaml"])
    assert result.exit_code == 2
    assert "waivers in pyproject.toml: absent.yaml: the file cannot be read" in result.stderr
