"""No name, key or value moves a cursor, hides, or is a command to a build system, in whatever is printed of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import click
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from trainspec_conformance.cli import command as suite

from tests.examples import examples
from tests.trees import torch_bytes
from trainspec_record import printing
from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands import tables
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.model.finding import DocumentSummary, Finding, Report, Severity, Span
from trainspec_validate.report import FORMATS, render
from trainspec_validate.system.neutral import COMMANDS, Notation, hazard, neutral, printable

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
PLAN = (ROOT / "spec" / "v1" / "base" / "plan.yaml").read_text(encoding="utf-8")
TOKENS = (
    *("::error::x", "::stop-commands::x", "  ::warning file=a::x", "::add-mask::x", "::x::", ":", "::", "#", "##"),
    *("##[error]x", "##[group]", "##vso[task.setvariable variable=a]b", "##VSO[x", "##teamcity[x text='x']", "###[x"),
    *("\n", "\r", "\t", " ", "\x1b[2J", "\x1b[8m", "\x9b2J", "\x1b]8;;http://x\x1b\\", "\x07", "\x00", "\x85"),
    *("\u202e", "\u2066", "\u200f", "\u061c", "\u2028", "\ufeff", "\ud800", "[", "]", "\\", '"', "'", "%0A"),
    *("&", "<", "a", "\xe4"),
)
HOSTILE = st.lists(st.sampled_from(TOKENS) | st.text(max_size=3), max_size=8).map("".join)
START = re.compile(r"\s*::(?!: )")
ANYWHERE = re.compile(rf"##(\[|vso\[|teamcity\[)|::({'|'.join(COMMANDS)})(::| )", re.IGNORECASE)
"""Written anew here: `::` at the start of a line as the runner of GitHub reads it, the others anywhere."""


def obeyed(text: str, *, own: str = "") -> list[str]:
    """The lines that a terminal or a build system would obey; of our own commands, what follows them."""
    lines = [re.sub(own, "", line) if own else line for line in text.split("\n")]
    return [line for line in lines if not line.isprintable() or START.match(line) or ANYWHERE.search(line)]


OWN = {"github": r"^::(error|warning|notice) (?=file=)"}


# --- the functions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("::error::x", r"\x3a:error::x"),
        (" \t::x", " \t\\x3a:x"),
        ("\u3000::x", r"\u3000::x"),
        ("a ::error::x", r"a \x3a:error::x"),
        ("a\n::x", "a\n\\x3a:x"),
        ("##[error]", r"\x23#[error]"),
        ("a ###[x ##Vso[y ##teamcity[z", r"a #\x23#[x \x23#Vso[y \x23#teamcity[z"),
        ("\x1b[2J\x9b\u202e\ud800\r", r"\x1b[2J\x9b\u202e\ud800" + r"\r"),
        ("tests/a.py::test_b, ::1, std::vector<x>", "tests/a.py::test_b, ::1, std::vector<x>"),
        ("  ::: plan.yaml:3:1: related", "  ::: plan.yaml:3:1: related"),
        ("## a heading ä\n\tb", "## a heading ä\n\tb"),
    ],
)
def test_what_is_written_in_place(text: str, expected: str) -> None:
    assert neutral(text) == expected
    assert printing.neutral(text) == expected


@given(HOSTILE)
@example("#\x1b[0m#[x")
def test_nothing_is_obeyed(text: str) -> None:
    written = neutral(text)
    assert not [line for line in obeyed(written.replace("\t", " ")) if line]
    assert neutral(written) == written
    assert printing.neutral(text) == written
    assert obeyed(printable(text)) == [] or not ANYWHERE.search(neutral(printable(text)))


@given(HOSTILE)
def test_colour_hides_no_command(text: str) -> None:
    written = neutral(f"\x1b[1m{printable(text)}\x1b[0m", color=True)
    assert not obeyed(re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;;[^\x1b]*\x1b\\", "", written))


@given(st.lists(HOSTILE, max_size=3))
def test_values_of_json_stay(values: list[str]) -> None:
    text = json.dumps(values, ensure_ascii=False, indent=1)
    written = neutral(text, "json")
    assert json.loads(written) == values
    assert not obeyed(written)


@given(HOSTILE)
def test_values_of_xml_stay(text: str) -> None:
    value = "".join(char for char in text if char >= " " and not 0xD800 <= ord(char) <= 0xDFFF)
    root = ET.Element("a", b=value)
    root.text = f"-{value}"
    written = neutral(ET.tostring(root, encoding="unicode"), "markup")
    assert not obeyed(written)
    assert (ET.fromstring(written).get("b"), ET.fromstring(written).text) == (value, f"-{value}")


@given(HOSTILE)
def test_a_text_without_a_hazard_stays_as_it_is(text: str) -> None:
    assert hazard(text) or neutral(text) == text or not text.replace("\n", "").replace("\t", "").isprintable()


# --- the formats ---------------------------------------------------------------------------------------------

FINDING = st.builds(
    Finding,
    requirement=st.just("TS-PAR-001"),
    name=HOSTILE,
    severity=st.sampled_from(Severity),
    message=HOSTILE,
    path=HOSTILE,
    pointer=st.lists(HOSTILE, max_size=2).map(tuple),
    span=st.none() | st.just(Span(1, 1, 1, 3)),
    help=HOSTILE,
    url=st.just(""),
)
REPORT = st.builds(
    lambda findings, text: Report(
        findings=tuple(findings),
        documents=tuple(DocumentSummary(one.path, "TrainingPlan", text, text) for one in findings),
        outcomes=(),
        specification_version="1",
        tool_version="1",
    ),
    st.lists(FINDING, min_size=1, max_size=3),
    HOSTILE,
)


@pytest.mark.parametrize("name", FORMATS)
@given(report=REPORT)
def test_no_format_is_obeyed(name: str, report: Report) -> None:
    assert not obeyed(render(report, name), own=OWN.get(name, ""))


@given(REPORT)
def test_annotations_keep_the_names_of_files_that_are_safe(report: Report) -> None:
    for line in render(report, "github").splitlines():
        assert re.fullmatch(r"::(error|warning|notice) file=[^:,]*(,\w+=[^:,]*)*::.*", line)


# --- the programs --------------------------------------------------------------------------------------------

NAME = st.lists(st.sampled_from([token for token in TOKENS if token not in {"\x00", "\ud800"}]), max_size=5).map(
    lambda parts: "".join(parts).replace("/", "-")[:60]
)


def run(program: click.Command, name: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a program."""
    with CliRunner().isolation() as (out, err, _):
        code = terminal.run(program, name, arguments)
        return code, out.getvalue().decode(), err.getvalue().decode()


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names with control characters")
@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAME, key=HOSTILE, value=HOSTILE)
@example(name="::error::x", key="##[error]x", value="::stop-commands::x")
@example(name="a\n::error::x", key="##vso[x", value="\u202e##teamcity[x")
def test_no_name_key_or_value_is_obeyed(
    name: str, key: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / os.urandom(4).hex()
    place.mkdir()
    monkeypatch.chdir(place)
    entry = f"{json.dumps(key)}: {json.dumps(value)}\n"
    Path(f"{name}.yaml").write_text(PLAN + entry, encoding="utf-8")
    Path(f"{name}.trainspec.yaml").write_text(f"apiVersion: {json.dumps(value)}\nkind: {json.dumps(key)}\n", "utf-8")
    for form in FORMATS:
        code, out, err = run(command, PROGRAM, ".", "--format", form)
        assert code in {1, 2}
        assert not obeyed(out, own=OWN.get(form, "")), form
        assert not obeyed(err), form
    for arguments in ((".", "--list-files"), (f"{name}.absent",), ("--format", name), (".", "--select", name)):
        _, out, err = run(command, PROGRAM, *arguments, "--fail-on", "never")
        assert not obeyed(out + err), arguments
    Path("trainspec.toml").write_text(f"{json.dumps(key)} = 1\n", "utf-8", errors="replace")
    _, out, err = run(command, PROGRAM, ".")
    assert not obeyed(out + err)


WORDS = ("::error::x", "##[error]x", "a\n::error::x", "\x1b[2J", "\u202e")


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "{}"),
        ("schema", "{}"),
        ("catalog", "{}"),
        ("metrics", "{}"),
        ("plan", "{}", "--model", "llama3-8b"),
        ("topology", "{}"),
        ("report", "{}"),
        ("import", "{}"),
        ("export", "{}", "--to", "{}"),
        ("init", "{}"),
        ("checkpoint", "seal", "{}"),
        ("{}",),
        ("--{}",),
    ],
)
def test_no_argument_is_obeyed(
    arguments: tuple[str, ...], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(toolbox, "trainspec", *(argument.format(word) for argument in arguments))
    assert (code, out) == (terminal.WRONG_USE, "")
    assert not obeyed(err)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    "arguments",
    [
        ("trainspec-record", "{}"),
        ("trainspec-record", "--{}"),
        ("trainspec-record", "launch", "--plan", "{}", "--", "true"),
        ("trainspec-record", "launch", "--dry-run", "--run", "{}", "--", "{}"),
        ("trainspec-conformance", "run", "{}", "--report", "out"),
    ],
)
def test_no_argument_of_a_program_is_obeyed(arguments: tuple[str, ...], word: str, tmp_path: Path) -> None:
    program, *rest = (argument.format(word) for argument in arguments)
    done = subprocess.run([BIN / program, *rest], capture_output=True, check=False, cwd=tmp_path)
    assert "Traceback" not in done.stderr.decode()
    assert not obeyed((done.stdout + done.stderr).decode())


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("arguments", [("{}",), ("run", "{}", "--report", "out"), ("verify", "."), ("init", "{}")])
def test_no_argument_of_the_suite_is_obeyed(
    arguments: tuple[str, ...], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, out, err = run(suite, "trainspec-conformance", *(argument.format(word) for argument in arguments))
    assert "Traceback" not in err
    assert not obeyed(out + err)


def test_a_document_for_another_program_is_printed_as_it_is_or_not_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.emit_document("name: ä # ## a\n\tb: std::c\n")
    assert capsys.readouterr().out == "name: ä # ## a\n\tb: std::c\n"
    for text in ("a: '##[error]'\n", "::error::\n", "a\x1b[2J", "\u202ea"):
        with pytest.raises(terminal.Failure, match="write it to a file with --output"):
            terminal.emit_document(text)
    assert capsys.readouterr().out == ""


NOTATIONS: tuple[Notation, ...] = ("text", "json", "markup")


@pytest.mark.parametrize("notation", NOTATIONS)
def test_what_is_emitted_is_neutral(notation: Notation, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.emit("::error::\n##[x\x1b[2J\n", notation)
    terminal.tell("::error::\n##[x\x1b[2J")
    terminal.say("a\n##[x")
    out, err = capsys.readouterr()
    assert not obeyed(out)
    assert not obeyed(err)
    assert out.count("\n") == 3
    assert err.count("\n") == 1


# --- outside text begins no line -----------------------------------------------------------------------------

FORGED = "x\nError: forged"


def forged(*arguments: str, program: click.Command = toolbox) -> str:
    """What a command says of something whose name or words hold a line of their own."""
    told = CliRunner().invoke(program, arguments)
    assert told.exit_code in {1, 2}, told.output
    assert "forged" in told.output
    assert not [line for line in told.output.split("\n") if line.startswith("Error: forged")]
    return told.output


def test_a_failure_has_the_lines_that_it_is_given() -> None:
    assert terminal.Failure("one\nError: two", "three").message == "one\\nError: two\nthree"
    assert terminal.Failure.of(ValueError("one\ntwo", "three")).lines == ("one\\ntwo", "three")
    assert terminal.Failure.of(ValueError()).lines == ("",)


@pytest.mark.parametrize(
    "words",
    [
        ("import", FORGED),
        ("export", FORGED, "--to", "slurm"),
        ("explain", FORGED),
        ("accept", FORGED, "--from", FORGED),
        ("checkpoint", "seal", FORGED),
        ("checkpoint", "newest-good", FORGED),
        ("topology", FORGED),
        ("report", FORGED),
        (FORGED,),
        (f"--{FORGED}",),
    ],
)
def test_no_argument_begins_a_line(words: tuple[str, ...]) -> None:
    forged(*words)
    if words[-1] == FORGED:
        forged(FORGED, program=command)


def test_no_name_of_a_checkpoint_begins_a_line(tmp_path: Path) -> None:
    (tmp_path / "step-10").mkdir()
    (tmp_path / "step-10" / FORGED).symlink_to("elsewhere")
    (tmp_path / "step-10" / "model.pt").write_bytes(torch_bytes("a=F32[4]"))
    forged("checkpoint", "seal", str(tmp_path / "step-10"))
    forged("checkpoint", "newest-good", str(tmp_path))
    forged(str(tmp_path), program=command)


def test_no_rule_of_a_user_begins_a_line(tmp_path: Path) -> None:
    rule = json.dumps({"apiVersion": "trainspec/v1", "kind": "UserRules", "rules": [{"id": FORGED}], FORGED: 1})
    (tmp_path / "rules.yaml").write_text(rule, encoding="utf-8")
    (tmp_path / "plan.yaml").write_text(PLAN, encoding="utf-8")
    forged("--rules", str(tmp_path / "rules.yaml"), str(tmp_path / "plan.yaml"), program=command)


def test_no_name_of_a_column_begins_a_line(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"_step": [1, 2], FORGED: [1.0, 2.0]}), tmp_path / "run.parquet")
    (tmp_path / "run.csv").write_text(f'"Step","{FORGED}"\n1,2\n', encoding="utf-8")
    for name in ("run.parquet", "run.csv"):
        told = CliRunner().invoke(toolbox, ["import", str(tmp_path / name)])
        assert not [line for line in told.output.split("\n") if line.startswith("Error: forged")]
        told = CliRunner().invoke(command, [str(tmp_path / name)])
        assert not [line for line in told.output.split("\n") if line.startswith("Error: forged")]


def test_no_cell_of_a_table_begins_a_line() -> None:
    assert tables.plain(("a",), [(FORGED,)]) == "a\nx\\nError: forged\n"
