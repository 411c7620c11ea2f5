"""What a branch, a file or Git says reaches the log of a job as text: no runner takes a command out of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import log
import pytest

PROGRAMS = Path(log.__file__).parent
COMMANDS = re.compile(r"(?m)^\s*::(?!error title=TrainSpec::)|##\[|##vso\[|##teamcity\[", re.IGNORECASE)
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
HOSTILE = (
    "::set-env name=A::b",
    "a\n::stop-commands::x",
    "a\r::error::x",
    "x ##[error]y",
    "##vso[task.setvariable]",
    "##teamcity[x]",
    "a ::add-mask::b",
    "\x1b[2J\x1b]0;title\x07",
    "\u202egpj.exe",
    "a\x85::warning::b",
    "a\u2028::warning::b",
    "a\x0b::warning::b",
    "  ::group::x",
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("tell", [log.say, log.complain])
def test_no_text_is_obeyed(text: str, tell: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(tell)
    tell(text)
    told = capsys.readouterr().out
    assert told.endswith("\n")
    assert told.count("\n") == 1
    assert not COMMANDS.search(told)
    assert not OBEYED.search(told.removesuffix("\n"))
    shown = told.removeprefix("::error title=TrainSpec::")
    assert not re.search(r"::(set-env|stop-commands|error|add-mask|warning|group)", shown)


def test_lines_of_an_error_stay_lines_and_percent_signs_stay(capsys: pytest.CaptureFixture[str]) -> None:
    log.complain("100 %0A of\nit")
    assert capsys.readouterr().out == "::error title=TrainSpec::100 %250A of%0Ait\n"


def test_one_module_prints() -> None:
    for path in sorted(PROGRAMS.glob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        printing = [
            call for call in calls if ast.unparse(call.func) in {"print", "sys.stdout.write", "sys.stderr.write"}
        ]
        assert bool(printing) == (path.name == "log.py"), path.name
