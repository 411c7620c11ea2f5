"""The four programs show versions, help and refusals in one style, and shells complete each of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainspec_validate._version import SPECIFICATION_VERSION, __version__

PROGRAMS = ("trainspec", "trainspec-validate", "trainspec-record", "trainspec-conformance")
BIN = Path(sys.executable).parent


def run(program: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN / program, *arguments], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_says_its_versions(program: str) -> None:
    result = run(program, "--version")
    assert result.returncode == 0
    assert result.stdout == f"{program} {__version__} (specification {SPECIFICATION_VERSION})\n"


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_has_one_style(program: str, option: str) -> None:
    result = run(program, option)
    assert result.returncode == 0
    assert result.stdout.startswith(f"Usage: {program} [OPTIONS]")
    for part in ("\nOptions:\n", "Show this message and exit.", "Show the versions of the tool", "Examples:\n"):
        assert part in result.stdout
    described = re.findall(r"^  --?\w[^ ]*(?: [A-Z]\S*)?  +(\S.*)", result.stdout, re.MULTILINE)
    assert described
    assert all(words[0].isupper() or not words[0].isalpha() for words in described[-2:])


@pytest.mark.parametrize("program", PROGRAMS)
def test_wrong_use_is_refused_in_one_style(program: str) -> None:
    result = run(program, "--no-such-option")
    assert result.returncode == 2
    assert result.stdout == ""
    assert re.search(
        rf"^Usage: {program} .*\n(?:.*\n)?Try '{program} (?:-h|--help)' for help\.\n\nError: ", result.stderr
    )


@pytest.mark.parametrize(
    ("word", "program"),
    [("validate", "trainspec-validate"), ("record", "trainspec-record"), ("conformance", "trainspec-conformance")],
)
def test_the_toolbox_names_the_program_that_was_meant(word: str, program: str) -> None:
    result = run("trainspec", word, "cluster.yaml")
    assert result.returncode == 2
    assert result.stderr.rstrip().endswith(f"by {program}")


def test_a_word_that_is_near_nothing_gets_a_whole_sentence() -> None:
    assert run("trainspec", "frobnicate").stderr.endswith(
        "Error: no command 'frobnicate'; `trainspec --help` lists the commands\n"
    )


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("trainspec expl", "explain"),
        ("trainspec-validate --fail", "--fail-on"),
        ("trainspec-conformance ver", "verify"),
        ("trainspec-record la", "launch"),
        ("trainspec-record --ex", "--exported"),
    ],
)
def test_bash_completes_every_program(typed: str, expected: str, tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(run("trainspec", "completion", "bash").stdout, encoding="utf-8")
    program, word = typed.split()
    lines = [
        f"source {script}",
        f"COMP_WORDS=({typed}); COMP_CWORD=1; COMP_LINE={typed!r}; COMP_POINT={len(typed)}",
        f"spec=$(complete -p {program})",
        'if [[ $spec == *" -F "* ]]; then function=${spec##* -F }',
        f'${{function%% *}} {program}; printf "%s\\n" "${{COMPREPLY[@]}}"',
        f"else words=${{spec#*\\'}}; compgen -W \"${{words%\\'*}}\" -- {word}; fi",
    ]
    path = {"PATH": f"{BIN}:/usr/bin:/bin"}
    result = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=False, env=path)
    assert expected in result.stdout.split(), result.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_for_every_program(shell: str) -> None:
    text = run("trainspec", "completion", shell).stdout
    assert all(re.search(rf"\b{program}\b", text) for program in PROGRAMS)


def test_the_readme_names_every_command() -> None:
    readme = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(trainspec[a-z-]*)` \| (.*) \|$", readme, re.MULTILINE))
    assert set(rows) == set(PROGRAMS)
    for program in PROGRAMS:
        section = run(program, "--help").stdout.partition("\nCommands:\n")[2].partition("\n\n")[0]
        commands = re.findall(r"^  (\w+)  ", section, re.MULTILINE)
        assert [name for name in commands if f"`{name}`" not in rows[program]] == [], program
