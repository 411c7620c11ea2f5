"""The command line of trainspec-validate: formats, streams, and the exit codes that its help promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trainspec_validate._version import SPECIFICATION_VERSION, __version__
from trainspec_validate.checking.suppress.baseline import digest_of
from trainspec_validate.cli import terminal
from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.model.requirements import load_index
from trainspec_validate.pipeline import validation
from trainspec_validate.report.outputs import Output, OutputError, outputs

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
FORM = ("--select", "TS-DOC")
GOOD = (BASE / "plan.yaml").read_text(encoding="utf-8")
BAD = GOOD.replace("  data: 4", "  dtaa: 4")


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory below a repository's top, and an environment without a CI in it."""
    (tmp_path / ".git").mkdir()
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    for name in (
        "GITHUB_ACTIONS",
        "GITLAB_CI",
        "NO_COLOR",
        "FORCE_COLOR",
        "TRAINSPEC_TODAY",
        "TRAINSPEC_DEBUG",
    ):
        monkeypatch.delenv(name, raising=False)


def write(name: str, text: str) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")
    return name


def invoke(*arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(command, [*arguments], prog_name=PROGRAM, **options)


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    environment = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "FORCE_COLOR"}}
    environment |= options.pop("environment", {})
    done: subprocess.CompletedProcess[bytes] = subprocess.run(
        [sys.executable, "-m", "trainspec_validate", *arguments],
        env=environment,
        timeout=600,
        check=False,
        **({"capture_output": True} | options),
    )
    return done


# --- exit codes ---------------------------------------------------------------------------------------------


def test_0_for_a_document_without_findings() -> None:
    result = invoke(write("plan.yaml", GOOD), *FORM)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("no findings: 1 document, ")


def test_1_for_findings() -> None:
    result = invoke(write("plan.yaml", BAD), *FORM)
    assert result.exit_code == 1
    assert "error[TS-DOC-005] unknown key 'dtaa' (did you mean 'data'?)" in result.stdout


@pytest.mark.parametrize(("threshold", "code"), [("error", 0), ("warning", 1), ("note", 1), ("never", 0)])
def test_threshold(threshold: str, code: int) -> None:
    idle = GOOD.replace("name: example-plan", "name: example-plan  # trainspec: ignore[text-form] no more")
    result = invoke(write("plan.yaml", idle), *FORM, "--fail-on", threshold)
    assert result.exit_code == code
    assert "warning[TS-DOC-016]" in result.stdout


def test_never_fails_on_errors_but_on_unreadable_input() -> None:
    assert invoke(write("plan.yaml", BAD), "--fail-on", "never").exit_code == 0
    assert invoke("absent.yaml", "--fail-on", "never").exit_code == 2
    write("trainspec.toml", 'fail-on = "never"\n')
    for arguments in (
        ("plan.yaml", "absent.yaml"),
        ("plan.yaml", "/dev/null"),
        ("absent.jsonl",),
        ("empty-directory",),
    ):
        Path("empty-directory").mkdir(exist_ok=True)
        assert invoke(*arguments).exit_code == 2, arguments
        assert invoke(*arguments, "--fail-on", "never", "--quiet").exit_code == 2, arguments
    assert invoke("plan.yaml").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["completion", "bash"], "no file is called completion; the command is `trainspec completion`"),
        (["import", "x.sh"], "no file is called import; the command is `trainspec import`"),
        (["absent.yaml"], "absent.yaml: no such file or directory; did you mean"),
        (["*.yml"], "no file matches the pattern"),
        (["--formt", "json"], "No such option"),
        (["--format", "sarfi"], "unknown format 'sarfi'; did you mean 'sarif'?"),
        (["--format", "json="], "write json=FILE"),
        (["--format", "auto=x"], "auto chooses the format of standard output"),
        (["--format", "json", "--format", "sarif"], "json and sarif cannot share standard output"),
        (["--format", "json=x", "--format", "junit=x"], "two formats would be written to x"),
        (["--format", "json=x", "--format", "junit=./x"], "two formats would be written to x"),
        (["--statistics", "--format", "json"], "cannot share standard output"),
        (["--fail-on", "eror"], "'eror' is not one of"),
        (["--select", "TS-DOC-0005"], "did you mean 'TS-DOC-005'?"),
        (["--ignore", "knwon-keys"], "did you mean 'known-keys'?"),
        (["--select", "what-is-this"], "`trainspec rules` lists them"),
        (["--stdin-filename", "x.yaml"], "add - as PATH"),
        (["--baseline", "absent.json"], "absent.json"),
        (["--waivers", "absent.yaml"], "absent.yaml"),
        (["--waivers", "plan.yaml"], "this is a TrainingPlan; a waiver file is of kind Waivers"),
        (["--config", "absent.toml"], "the settings cannot be read"),
        (["--write-baseline", "--prune-baseline"], "exclude each other"),
        (["--format", "json=absent/out.json"], "absent/out.json: the report cannot be written"),
        (["--color", "sometimes"], "is not one of"),
    ],
)
def test_2_for_wrong_use(arguments: list[str], words: str) -> None:
    write("plan.yaml", GOOD)
    write("absents.yaml", GOOD)
    paths = [] if any("ya?ml" in a or a.endswith((".yml", "absent.yaml")) for a in arguments) else ["plan.yaml"]
    result = invoke(*arguments, *paths)
    assert result.exit_code == 2
    assert words in result.stderr.replace("\n", " ")


def test_2_when_there_is_nothing_to_judge() -> None:
    write("other/values.yaml", "a: 1\n")
    result = invoke("other")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: nothing to judge: no TrainSpec document, no stream and no checkpoint in other\n"
    Path("empty").mkdir()
    assert invoke("empty").exit_code == 2


def test_an_unreadable_file_hinders_no_other() -> None:
    result = invoke(write("plan.yaml", BAD), "absent.yaml", "gone/*.yaml", *FORM)
    assert result.exit_code == 2
    assert "TS-DOC-005" in result.stdout
    assert [line.split(":")[1].strip() for line in result.stderr.splitlines()] == [
        "absent.yaml",
        "gone/*.yaml",
    ]


def test_3_for_a_mistake_of_ours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("seven")

    monkeypatch.setattr(validation, "read_document", broken)
    write("plan.yaml", GOOD)
    assert terminal.run(command, PROGRAM, ["plan.yaml"]) == 3
    told = capsys.readouterr().err
    assert "ZeroDivisionError: seven" in told
    assert "while reading plan.yaml" in told
    assert f"{__version__} (specification {SPECIFICATION_VERSION})" in told
    assert "report these lines" in told
    assert "Traceback" not in told
    monkeypatch.setenv("TRAINSPEC_DEBUG", "1")
    assert terminal.run(command, PROGRAM, ["plan.yaml"]) == 3
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("a.so: failed to map segment from shared object"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_too_little_memory_is_no_mistake_of_ours(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of the machine: NumPy says in an error of its own that it could not be loaded."""

    def broken(*_: object) -> None:
        raise ImportError("numpy could not be imported") from error

    monkeypatch.setattr(validation, "read_document", broken)
    monkeypatch.setattr("trainspec_validate.system.process.has_limit_of_memory", lambda: True)
    write("plan.yaml", GOOD)
    assert terminal.run(command, PROGRAM, ["plan.yaml"]) == 2
    told = capsys.readouterr().err
    assert "gives too little memory; raise the limit" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("name", ["plan.yaml", "run.jsonl"])
def test_memory_that_the_system_refuses_is_no_fault_of_a_file(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same words for documents, streams and checkpoints."""

    def broken(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("trainspec_validate.pipeline.detect.open_regular", broken)
    write(name, GOOD)
    assert terminal.run(command, PROGRAM, [name]) == 2
    told = capsys.readouterr().err
    assert "gives too little memory; raise the limit" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), BlockingIOError(11, "unavailable")])
def test_too_few_threads_or_processes_are_no_mistake_of_ours(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit such as `ulimit -u`, also without a limit of memory."""

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(validation, "_run_rules", broken)
    monkeypatch.setattr("trainspec_validate.system.process.has_limit_of_memory", lambda: False)
    write("plan.yaml", GOOD)
    assert terminal.run(command, PROGRAM, ["plan.yaml"]) == 2
    told = capsys.readouterr().err
    assert "gives too few threads or processes; raise the limit" in told
    assert told.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no ulimit")
def test_a_limit_of_memory_decides_whose_mistake_it_is() -> None:
    """A `MemoryError` below `ulimit -v` is of the machine; without a limit something asked for too much."""
    words = "import sys; from trainspec_validate.system.process import lacks_memory; print(lacks_memory(MemoryError()))"
    said = [
        subprocess.check_output(["sh", "-c", f'{limit}exec "$0" -c "$1"', sys.executable, words], text=True)
        for limit in ("ulimit -v 4000000; ", "")
    ]
    assert said == ["True\n", "False\n"]


def test_the_early_end_of_a_file_is_no_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise EOFError("the file ended")

    monkeypatch.setattr(validation, "_run_rules", broken)
    assert terminal.run(command, PROGRAM, [write("plan.yaml", GOOD)]) == 3
    assert "EOFError: the file ended" in capsys.readouterr().err


def test_a_failing_rule_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from trainspec_validate.documents.types import TrainingPlan
    from trainspec_validate.rules import Rule

    def function(plan: TrainingPlan) -> None:
        raise RuntimeError(plan.metadata.name)

    rule = Rule("TS-DOC-018", "broken", function, (("plan", TrainingPlan),))  # type: ignore[arg-type]
    monkeypatch.setattr(validation, "rules_of", lambda _: [rule])
    write("plan.yaml", GOOD)
    assert terminal.run(command, PROGRAM, ["plan.yaml"]) == 3
    assert "while judging plan.yaml by TS-DOC-018" in capsys.readouterr().err


def test_130_for_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(validation, "read_document", interrupted)
    assert terminal.run(command, PROGRAM, [write("plan.yaml", GOOD)]) == 130


@pytest.mark.parametrize(
    ("arguments", "code"), [(["good.yaml"], 0), (["bad.yaml"], 1), (["none.yaml"], 2), (["--nonsense"], 2)]
)
def test_codes_of_a_real_process(arguments: list[str], code: int) -> None:
    write("good.yaml", GOOD)
    write("bad.yaml", BAD)
    assert process(*arguments, *FORM).returncode == code


# --- what is written, and where -----------------------------------------------------------------------------


def test_automatic_formats() -> None:
    def chosen(**facts: Any) -> list[str]:
        return [o.format for o in outputs([], facts.get("environment", {}), terminal=facts.get("terminal", False))]

    assert chosen() == ["concise"]
    assert chosen(terminal=True) == ["full"]
    assert chosen(environment={"GITHUB_ACTIONS": "true"}) == ["github", "concise"]
    assert chosen(environment={"GITLAB_CI": "1"}, terminal=True) == ["concise"]
    files = outputs(["sarif=a", "auto"], {}, terminal=True)
    assert files == [Output("sarif", "a"), Output("full")]
    assert outputs(["sarif=a"], {}, terminal=False) == [Output("sarif", "a"), Output("concise")]
    assert outputs(["github", "concise"], {}, terminal=False) == [Output("github"), Output("concise")]
    with pytest.raises(OutputError):
        outputs(["github", "json", "concise"], {}, terminal=False)


def test_github_annotates_and_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    lines = invoke(write("plan.yaml", BAD), *FORM).stdout.splitlines()
    assert lines[0].startswith("::error file=plan.yaml,line=")
    assert lines[1].startswith("::notice title=settings::")
    assert lines[2].startswith("plan.yaml:")


def test_one_run_writes_several_reports() -> None:
    write("plan.yaml", BAD)
    result = invoke("plan.yaml", *FORM, "--format", "full", "--format", "sarif=a.sarif", "--format", "json=b.json")
    assert result.exit_code == 1
    assert "= help: did you mean 'data'?" in result.stdout
    assert json.loads(Path("a.sarif").read_text())["version"] == "2.1.0"
    assert json.loads(Path("b.json").read_text())["summary"]["findings"]["error"] == 1


def test_statistics_replace_the_findings() -> None:
    stdout = invoke(write("plan.yaml", BAD), *FORM, "--statistics").stdout
    assert stdout.splitlines()[0].split() == ["requirement", "name", "verdict", "count"]
    assert stdout.splitlines()[1].split() == ["TS-DOC-005", "known-keys", "fail", "1"]


def test_quiet() -> None:
    assert invoke(write("plan.yaml", GOOD), *FORM, "-q").stdout == ""
    assert "TS-DOC-005" in invoke(write("plan.yaml", BAD), *FORM, "-q").stdout
    assert json.loads(invoke(write("plan.yaml", GOOD), *FORM, "-q", "--format", "json").stdout)


def test_colour_is_the_readers_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    write("plan.yaml", BAD)
    assert "\x1b[" not in invoke("plan.yaml").stdout
    assert "\x1b[" in invoke("plan.yaml", "--color", "always", color=True).stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in invoke("plan.yaml", color=True).stdout
    assert "\x1b]8" not in invoke("plan.yaml", color=True).stdout, "links are for terminals only"
    monkeypatch.setenv("FORCE_COLOR", "0")
    assert "\x1b[" not in invoke("plan.yaml", color=True).stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in invoke("plan.yaml", color=True).stdout
    assert "\x1b[" in invoke("plan.yaml", "--color", "always", color=True).stdout
    assert "\x1b[" not in invoke("plan.yaml", "--color", "never", color=True).stdout


def test_files_have_no_colour() -> None:
    invoke(write("plan.yaml", BAD), "--color", "always", "--format", "full=out.txt")
    assert "\x1b" not in Path("out.txt").read_text()


def test_output_is_utf8_whatever_the_locale() -> None:
    text = BAD.replace("  dtaa: 4", "  dätä: 4")
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = process(write("plan.yaml", text), *FORM, environment=environment)
    assert done.returncode == 1
    assert "unknown key 'dätä'" in done.stdout.decode("utf-8")
    assert done.stderr == b""


def test_a_reader_that_goes_away_is_no_mistake() -> None:
    write("plan.yaml", BAD)
    reader, writer = os.pipe()
    os.close(reader)
    done = process("plan.yaml", *FORM, capture_output=False, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told() -> None:
    write("plan.yaml", BAD)
    with Path("/dev/full").open("wb") as full:
        done = process("plan.yaml", *FORM, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert b"standard output cannot be written: no space left on device" in done.stderr


@pytest.mark.slow
def test_no_colour_in_a_real_pipe() -> None:
    write("plan.yaml", BAD)
    assert b"\x1b" not in process("plan.yaml").stdout
    assert b"\x1b" in process("plan.yaml", environment={"FORCE_COLOR": "1"}).stdout
    assert b"\x1b" not in process("plan.yaml", environment={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout


# --- input ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_standard_input() -> None:
    done = process("-", *FORM, input=BAD.encode())
    assert done.returncode == 1
    assert done.stdout.startswith(b"<stdin>:")
    named = process("-", "--stdin-filename", "runs/plan.yaml", *FORM, input=BAD.encode())
    assert named.stdout.startswith(b"runs/plan.yaml:")
    as_json = process("-", *FORM, input=b'{"apiVersion": "trainspec/v1", "kind": "TrainingPlan"}')
    assert b"<stdin>:1:" in as_json.stdout
    assert b"TS-DOC-006" in as_json.stdout


def test_empty_standard_input_is_no_pass() -> None:
    done = process("-", input=b"")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"standard input is empty; pipe a document or a stream into it" in done.stderr
    named = process("-", "--stdin-filename", "runs/plan.yaml", input=b"")
    assert (named.returncode, b"TS-DOC-001" in named.stdout) == (1, True)


def test_the_working_directory_is_the_default() -> None:
    write("deep/plan.yaml", BAD)
    result = invoke(*FORM)
    assert result.exit_code == 1
    assert result.stdout.startswith("deep/plan.yaml:")


def test_quoted_patterns_and_listing() -> None:
    write("a/plan.yaml", GOOD)
    write("b/c/run.yaml", GOOD)
    write("b/values.yaml", "a: 1\n")
    write("b/run.txt", GOOD)
    assert invoke("**/*.yaml", "--list-files").stdout.split() == ["a/plan.yaml", "b/c/run.yaml"]
    assert invoke("b", "--list-files").stdout.split() == ["b/c/run.yaml"]
    assert invoke("b/values.yaml", "--list-files").stdout.split() == ["b/values.yaml"]
    assert invoke("-", "--stdin-filename", "x.yaml", "--list-files").stdout.split() == ["x.yaml"]
    result = invoke("a", "gone", "--list-files")
    assert (result.exit_code, result.stdout) == (2, "a/plan.yaml\n")


def test_selection_by_id_name_chapter_and_commas() -> None:
    write("plan.yaml", BAD)
    for words in (["TS-DOC-005"], ["ts-doc-005"], ["known-keys"], ["TS-DOC"], ["TS-DOC-009,known_keys"]):
        result = invoke("plan.yaml", *[part for word in words for part in ("--select", word)])
        assert "TS-DOC-005" in result.stdout, words
    assert "TS-DOC-005" not in invoke("plan.yaml", "--ignore", "known-keys").stdout.replace("--ignore TS-DOC-005", "")


def test_a_former_name_is_selected_with_a_note() -> None:
    write("plan.yaml", BAD)
    note = "Note: axis-order is now called dimension-order (TS-PAR-006)\n"
    for option in ("--select", "--ignore"):
        result = invoke("plan.yaml", option, "TS-DOC-009,axis-order", "--format", "json")
        assert result.stderr == note
        assert ("TS-PAR-006" in {one["requirement"] for one in json.loads(result.stdout)["outcomes"]}) == (
            option == "--select"
        )


def test_what_keeps_a_file_from_being_judged_is_always_told() -> None:
    result = invoke(write("plan.yaml", BAD), "--select", "TS-DOC-013")
    assert result.exit_code == 1
    assert "TS-DOC-005" in result.stdout
    result = invoke(write("plan.yaml", "a: [\n"), "--profile", "core", "--select", "TS-DOC-013")
    assert "TS-DOC-001" in result.stdout


def test_profile_is_taken() -> None:
    outcomes = json.loads(invoke(write("plan.yaml", GOOD), "--profile", "core", "--format", "json").stdout)["outcomes"]
    assert {load_index().by_id[outcome["requirement"]].profile for outcome in outcomes} == {"core"}


# --- help ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_promises_the_exit_codes(flag: str) -> None:
    result = invoke(flag)
    assert result.exit_code == 0
    for code in (
        terminal.OK,
        terminal.FINDINGS,
        terminal.WRONG_USE,
        terminal.OUR_FAULT,
        terminal.INTERRUPTED,
    ):
        assert f"  {code} " in result.stdout
    assert "--today" not in result.stdout


def test_help_names_every_format() -> None:
    from trainspec_validate.report import FORMATS

    stdout = " ".join(invoke("-h").stdout.split())
    assert not [name for name in FORMATS if name not in stdout]


def test_version_names_both_versions() -> None:
    assert invoke("--version").stdout == f"{PROGRAM} {__version__} (specification {SPECIFICATION_VERSION})\n"


def test_formats_are_completed() -> None:
    from click.shell_completion import ShellComplete

    found = ShellComplete(command, {}, PROGRAM, "_X").get_completions(["--format"], "s")
    assert [item.value for item in found] == ["sarif", "statistics"]


# --- progress -----------------------------------------------------------------------------------------------


class Screen:
    """A terminal that remembers what was written to it."""

    encoding = "utf-8"

    def __init__(self, *, is_terminal: bool) -> None:
        self.written: list[str] = []
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        self.written.append(text)
        return len(text)

    def flush(self) -> None:
        """Everything is written at once."""


@pytest.mark.parametrize(
    ("wanted", "is_terminal", "seconds", "shown"),
    [(True, True, 2.0, True), (True, True, 0.5, False), (True, False, 2.0, False), (False, True, 2.0, False)],
)
def test_progress_shows_for_long_work_at_a_terminal(
    wanted: bool, is_terminal: bool, seconds: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen, now = Screen(is_terminal=is_terminal), [0.0]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    bar = terminal.Bar(wanted=wanted)
    bar(0, 10)
    now[0] = seconds
    bar(1, 10)
    bar.close()
    assert ("reading" in "".join(screen.written)) is shown


def test_progress_counts_every_file() -> None:
    seen: list[tuple[int, int]] = []
    paths = [write(f"{number}/plan.yaml", GOOD) for number in range(3)]
    validation.validate(paths, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_progress_counts_every_run() -> None:
    seen: list[tuple[int, int]] = []
    head = '{"k":"head","apiVersion":"trainspec/v1","kind":"MetricStream","run":"%s","att":0,"emitter":"job",%s\n'
    rest = '"time_us":1767225600000000,"scopes":["job"]}'
    paths = [write(f"{name}.jsonl", head % (name, rest)) for name in "abc"]
    validation.validate(paths, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3), (0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("formats", "wanted"),
    [
        ((), True),
        (("full",), True),
        (("json=report.json",), True),
        (("json",), False),
    ],
)
def test_progress_never_shows_next_to_formats_of_machines(
    formats: tuple[str, ...], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars: list[bool] = []
    bar = terminal.Bar
    monkeypatch.setattr(terminal, "Bar", lambda *, wanted: bars.append(wanted) or bar(wanted=wanted))
    write("plan.yaml", GOOD)
    invoke("plan.yaml", *(word for name in formats for word in ("--format", name)))
    assert bars == [wanted]


# --- baselines and waivers ----------------------------------------------------------------------------------


def test_baseline_from_writing_to_pruning() -> None:
    write("plan.yaml", BAD)
    result = invoke("plan.yaml", "--write-baseline", *FORM)
    assert (result.exit_code, result.stderr) == (0, "trainspec-baseline.json: 1 finding recorded\n")
    assert "1 suppressed (1 baseline)" in result.stdout
    used = ("--baseline", "trainspec-baseline.json", *FORM)
    assert invoke("plan.yaml", *used).exit_code == 0
    write("plan.yaml", GOOD)
    assert invoke("plan.yaml", *used, "--fail-on", "warning").exit_code == 1
    result = invoke("plan.yaml", "--prune-baseline", *FORM, "--fail-on", "warning", "-q")
    assert (result.exit_code, result.output) == (0, "")
    assert json.loads(Path("trainspec-baseline.json").read_text())["findings"] == []


OPEN = GOOD.replace("cluster: {name: example-cluster}", "cluster: {name: absent}")


def test_a_baseline_takes_what_is_not_judged_today_and_no_more() -> None:
    path, gate = write("plan.yaml", OPEN), ("--fail-on", "unjudged")
    assert invoke(path, *gate).exit_code == 1
    assert invoke(path, *gate, "--write-baseline", "--select", "PAR").exit_code == 0
    used = (path, *gate, "--baseline", "trainspec-baseline.json")
    assert invoke(*used, "--select", "PAR").exit_code == 0
    result = invoke(*used)  # other chapters are open too, and were not recorded
    assert result.exit_code == 1
    recorded, new = sorted(
        line for line in result.stdout.splitlines() if "cluster 'absent'" in line and ": TS-" in line
    )
    assert ("recorded in trainspec-baseline.json" in recorded) != ("recorded in trainspec-baseline.json" in new)
    entries = json.loads(invoke(*used, "--select", "PAR", "--format", "json").stdout)["unjudged"]
    assert {entry["recorded"] for entry in entries} == {"trainspec-baseline.json"}


def test_a_baseline_takes_what_is_not_judged_only_where_that_fails() -> None:
    invoke(write("plan.yaml", OPEN), "--write-baseline")
    assert "unjudged" not in json.loads(Path("trainspec-baseline.json").read_text())


def test_a_file_of_which_nothing_was_judged_is_recorded_with_the_reason() -> None:
    write("plan.yaml", GOOD)
    write("notes.yaml", "")
    gate = (".", "--fail-on", "unjudged", "--baseline", "trainspec-baseline.json")
    assert invoke(".", "--fail-on", "unjudged", "--write-baseline", *FORM).exit_code == 0
    assert json.loads(Path("trainspec-baseline.json").read_text())["unjudged"] == [
        {"file": "notes.yaml", "reason": "is empty", "digest": digest_of("notes.yaml")}
    ]
    result = invoke(*gate, *FORM)
    assert (result.exit_code, "notes.yaml: not judged: is empty" in result.stdout) == (0, True), result.output
    write("notes.yaml", GOOD.replace("metadata:", "metadata:\0"))
    assert invoke(*gate, *FORM).exit_code == 1
    Path("notes.yaml").unlink()
    assert "notes.yaml is judged now, or is there no more" in invoke(*gate, *FORM).stdout


def test_an_entry_of_what_is_judged_again_is_idle() -> None:
    path = write("plan.yaml", OPEN)
    gate = ("--fail-on", "unjudged", "--baseline", "trainspec-baseline.json", "--select", "TS-PAR-002,TS-DOC-016")
    Path("trainspec-baseline.json").write_text(
        json.dumps({"format_version": "1", "findings": [], "unjudged": [{"file": path, "requirement": "TS-PAR-002"}]})
    )
    assert "recorded in trainspec-baseline.json: TS-PAR-002" in invoke(path, *gate).stdout
    assert "warning[TS-DOC-016]" not in invoke(path, *gate).stdout
    Path(path).unlink()
    other = write("other.yaml", GOOD)
    result = invoke(other, *gate)
    assert "warning[TS-DOC-016]" in result.stdout
    assert "TS-PAR-002 is judged now, or nothing is left to judge, in plan.yaml" in result.stdout
    invoke(other, "--prune-baseline", "--baseline", "trainspec-baseline.json")
    assert "unjudged" not in json.loads(Path("trainspec-baseline.json").read_text())


@pytest.mark.parametrize("entry", [{"file": "plan.yaml"}, {"file": 1, "requirement": "TS-PAR-002"}, "TS-PAR-002"])
def test_a_baseline_with_a_broken_entry_of_what_is_open_is_refused(entry: object) -> None:
    Path("trainspec-baseline.json").write_text(json.dumps({"format_version": "1", "findings": [], "unjudged": [entry]}))
    result = invoke(write("plan.yaml", GOOD), "--baseline", "trainspec-baseline.json")
    assert result.exit_code == 2
    assert "write it with --write-baseline" in result.stderr


def test_no_baseline_is_written_from_half_a_run() -> None:
    result = invoke(write("plan.yaml", BAD), "absent.yaml", "--write-baseline", *FORM)
    assert result.exit_code == 2
    assert not Path("trainspec-baseline.json").exists()


def test_a_baseline_that_cannot_be_written_is_told() -> None:
    result = invoke(write("plan.yaml", BAD), "--write-baseline", "--baseline", "absent/b.json", *FORM)
    assert result.exit_code == 2
    assert "absent/b.json: the baseline cannot be written: no such file or directory" in result.stderr
    assert not result.stdout


@pytest.mark.parametrize(("today", "code"), [("2026-03-31", 0), ("2026-04-01", 1)])
def test_waivers_end(today: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write("plan.yaml", GOOD.replace("name: example-plan", "name: example plan"))
    entry = "{requirement: text-form, file: plan.yaml, reason: old, owner: me, expires: 2026-03-31}"
    write("waivers.yaml", f"apiVersion: trainspec/v1\nkind: Waivers\nwaivers: [{entry}]\n")
    arguments = ("plan.yaml", "--waivers", "waivers.yaml", *FORM)
    assert invoke(*arguments, "--today", today).exit_code == code
    monkeypatch.setenv("TRAINSPEC_TODAY", today)
    assert invoke(*arguments).exit_code == code
