"""Rows of another run or chart in an exported file are refused with the true reason, and count for no run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import command

START = 1.7e9
HEADER = "_step,_timestamp,_runtime,loss\n"


def rows(start: float, num: int = 20) -> str:
    return "".join(f"{i},{start + 10 * i},{10 * i},{3 - 0.01 * i}\n" for i in range(1, num))


def objects(start: float) -> str:
    keys = HEADER.strip().split(",")
    return "".join(
        json.dumps(dict(zip(keys, map(float, row.split(",")), strict=True))) + "\n" for row in rows(start).split()
    )


def chart(run: str, *, header: bool = True) -> str:
    name = f"{run} - loss"
    head = f'"Step","{name}","{name}__MIN","{name}__MAX"\n' if header else ""
    return head + "".join(f"{i},{v},{v},{v}\n" for i, v in ((i, 3 - 0.01 * i) for i in range(20)))


def refused(tmp_path: Path, name: str, text: str) -> tuple[int, str]:
    """How many records an import makes, and what it says."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    made = tmp_path / "made.jsonl"
    told = CliRunner().invoke(toolbox, ["import", str(tmp_path / name), "-o", str(made), "--force"])
    return len(made.read_text(encoding="utf-8").splitlines()), told.output


@pytest.mark.parametrize(
    ("name", "own", "other", "words"),
    [
        ("a.csv", HEADER + rows(START), rows(START - 90_000), "of another run: its _step and its _timestamp fall"),
        ("a.jsonl", objects(START), objects(START - 90_000), "of another run: its _step and its _timestamp fall"),
        ("b.csv", HEADER + rows(START), "_step,lr,_timestamp,x\n1,2,3,4\n", "another export begins here"),
        ("c.csv", HEADER + rows(START), "_step,_timestamp\n1,2\n", "another export begins here"),
        ("d.csv", chart("a"), chart("b"), "another chart begins here"),
        ("e.csv", chart("a"), chart("b", header=False), "step 0 follows step 19"),
    ],
)
def test_rows_of_another_run_are_refused_with_their_reason(
    tmp_path: Path, name: str, own: str, other: str, words: str
) -> None:
    whole, _ = refused(tmp_path, name, own)
    number, told = refused(tmp_path, name, own + other)
    assert number == whole
    assert words in told
    judged = CliRunner().invoke(command, [str(tmp_path / name)]).output
    assert words in judged
    assert "no time of this run" not in judged


@pytest.mark.parametrize(("name", "text"), [("a.csv", HEADER + rows(START)), ("b.csv", chart("a"))])
def test_a_header_that_is_written_again_and_later_rows_are_read(tmp_path: Path, name: str, text: str) -> None:
    head = text.split("\n", 1)[0] + "\n"
    more = rows(START + 9_000) if name == "a.csv" else "20,1,1,1\n"
    whole, _ = refused(tmp_path, name, text)
    number, told = refused(tmp_path, name, text + head + more)
    assert number > whole
    assert "refused: " not in told


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_compressed_parquet_is_no_damage(tmp_path: Path, kind: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": [1]}), tmp_path / "plain")
    content = (tmp_path / "plain").read_bytes()
    packed = gzip.compress(content) if kind == "gzip" else pytest.importorskip("zstandard").compress(content)
    (tmp_path / "run.parquet.gz").write_bytes(packed)
    for program, words in ((command, []), (toolbox, ["import"])):
        told = CliRunner().invoke(program, [*words, str(tmp_path / "run.parquet.gz")])
        assert told.exit_code == 2
        assert f"this is Parquet compressed with {kind}, and only Parquet by itself is read" in told.output
        assert "no sound Parquet" not in told.output
