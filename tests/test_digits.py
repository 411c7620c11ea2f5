"""Numbers of untrusted texts have the digits 0 to 9: Python takes those of all scripts, and no other program does."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import command
from trainspec_validate.telemetry.formats.printed_numbers import parse

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted([*(ROOT / "src" / "trainspec_validate").rglob("*.py"), *(ROOT / "record").rglob("*.py")])
FULL_WIDTH = {ord(str(digit)): 0xFF10 + digit for digit in range(10)}
ARABIC_INDIC = {ord(str(digit)): 0x660 + digit for digit in range(10)}
SCRIPTS = pytest.mark.parametrize("digits", [FULL_WIDTH, ARABIC_INDIC], ids=["full-width", "arabic-indic"])
_OF_ALL_SCRIPTS = re.compile(r"(?<!\\)(?:\\\\)*\\[dD]")


def _odd_patterns(path: Path) -> list[int]:
    """The lines with a pattern of `str` that has a digit of any script; docstrings are no patterns."""
    text = path.read_text(encoding="utf-8")
    if not _OF_ALL_SCRIPTS.search(text):
        return []
    return [
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if tokenize.tok_name[token.type] in {"STRING", "FSTRING_MIDDLE"}
        and not re.match(r"(?i)(?:b|rb|br)['\"]", token.string)
        and _OF_ALL_SCRIPTS.search(token.string)
    ]


def test_patterns_of_text_name_the_digits() -> None:
    r"""In patterns of `str`, `\d` is a digit of any script; in patterns of `bytes` it is one of 0 to 9."""
    assert len(SOURCES) > 500
    found = {path.name: lines for path in SOURCES if (lines := _odd_patterns(path))}
    assert not found, "write [0-9]"


def test_one_module_asks_whether_a_text_is_digits() -> None:
    asking = [
        path.name
        for path in SOURCES
        if "record" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in {"isdigit", "isdecimal", "isnumeric"}
    ]
    assert asking == ["digits.py"], "use system.digits.is_digits"


@SCRIPTS
def test_a_printed_number_has_plain_digits(digits: dict[int, int]) -> None:
    assert parse("2.5") == 2.5
    assert parse("2.5".translate(digits)) is None
    assert parse("tensor(2.5)".translate(digits)) is None


LINE = (
    " [2026-05-01 10:00:{:02}] iteration {:8}/    1000 | consumed samples: {:12} |"
    " elapsed time per iteration (ms): 1000.0 |"
    " learning rate: 1.000E-04 | global batch size:    64 | lm loss: {} | loss scale: 1.0 | grad norm: 1.000 |"
    " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


@SCRIPTS
def test_a_loss_in_other_digits_is_not_read(digits: dict[int, int], tmp_path: Path) -> None:
    """It is none of the run, so that the course of the loss is not judged as if it were whole."""
    losses = [f"{3 - n / 100:.6E}" for n in range(1, 13)]
    path = tmp_path / "train.log"
    texts = {}
    for name, last in (("plain", losses[-1]), ("other", losses[-1].translate(digits))):
        lines = [LINE.format(n, n, 64 * n, loss) for n, loss in enumerate([*losses[:-1], last], 1)]
        path.write_text("".join(lines), encoding="utf-8")
        texts[name] = CliRunner().invoke(command, [str(path), "--format", "concise"]).output
    assert "not judged: has" not in texts["plain"]
    assert "not judged: has" in texts["other"], texts["other"]


@SCRIPTS
def test_ranks_in_other_digits_are_not_counted(digits: dict[int, int], tmp_path: Path) -> None:
    path = tmp_path / "job.sbatch"
    for nodes, is_known in (("4", True), ("4".translate(digits), False)):
        path.write_text(
            f"#!/bin/bash\n#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node=8\n"
            "srun python pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16\n",
            encoding="utf-8",
        )
        output = CliRunner().invoke(toolbox, ["import", str(path)]).output
        assert ("num_accelerators: 32" in output) is is_known, output
