"""Of several outputs of one command all are written or none, and a standard stream by a name of a file is neutral."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainspec_validate.system import atomic
from trainspec_validate.system.atomic import write_all

ROOT = Path(__file__).resolve().parents[1]
BASE = ROOT / "spec" / "v1" / "base"
PLAN = (BASE / "plan.yaml").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A program of the package in a directory."""
    return subprocess.run([BIN / words[0], *words[1:]], cwd=place, capture_output=True, text=True, check=False)


def test_no_output_is_written_where_another_has_no_place(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN, encoding="utf-8")
    for last in ("gone/b.sarif", "folder"):
        (tmp_path / "folder").mkdir(exist_ok=True)
        told = run(tmp_path, "trainspec-validate", "plan.yaml", "--format", "json=a.json", "--format", f"sarif={last}")
        assert told.returncode == 2
        assert f"Error: {last}: the report cannot be written" in told.stderr
        assert not told.stdout
        assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "plan.yaml"]


def test_a_new_output_is_removed_where_another_fails(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN, encoding="utf-8")
    told = run(tmp_path, "trainspec-validate", "plan.yaml", "--format", "json=a.json", "--format", "sarif=/dev/full")
    assert (told.returncode, told.stderr) == (
        2,
        "Error: /dev/full: the report cannot be written: no space left on device\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]


def test_outputs_that_were_written_before_a_failure_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("old")
    real = atomic._put

    def put(new: Path, path: Path, *, overwrite: bool) -> None:
        if path.name == "b":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(new, path, overwrite=overwrite)

    monkeypatch.setattr(atomic, "_put", put)
    with pytest.raises(OSError, match=r"Input/output error \(written before: .*/a\)"):
        write_all({tmp_path / "b": b"2", tmp_path / "a": b"1", tmp_path / "c": b"3"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_accept_writes_both_outputs_or_none(tmp_path: Path) -> None:
    cluster = (BASE / "cluster.yaml").read_text(encoding="utf-8")
    (tmp_path / "cluster.yaml").write_text(cluster, encoding="utf-8")
    (tmp_path / "nodes" / "node-0").mkdir(parents=True)
    arguments = ["accept", "cluster.yaml", "--from", "nodes", "--output", "a.yaml", "--statement", "gone/b.json"]
    told = run(tmp_path, "trainspec", *arguments)
    assert (told.returncode, "gone/b.json: cannot be written" in told.stderr) == (2, True)
    assert not (tmp_path / "a.yaml").exists()


@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", "/dev/stderr"])
def test_a_standard_stream_by_its_name_gets_nothing_that_a_log_obeys(name: str, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from trainspec_validate.system.atomic import write_all\n"
        "try: write_all({Path(sys.argv[1]): sys.argv[2].encode()})\n"
        "except OSError as error: sys.exit(error.strerror[:14])"
    )
    for text in ("a\\\n::error::b", "\\\x1b[2J", "a ##[group]b"):
        told = subprocess.run([sys.executable, "-c", program, name, text], capture_output=True, text=True, check=False)
        assert (told.returncode, told.stdout, told.stderr) == (1, "", "the text holds\n")
    told = subprocess.run([sys.executable, "-c", program, name, "a: b"], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout + told.stderr) == (0, "a: b")


def test_a_report_for_standard_output_by_its_name_is_neutral(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        PLAN.replace("  data: 4", '  data: 4\n  "##[error]forged": 1'), encoding="utf-8"
    )
    told = run(tmp_path, "trainspec-validate", "plan.yaml", "--format", "concise=/dev/stdout")
    assert "forged" in told.stdout
    assert "##[error]" not in told.stdout


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (f"trainspec report {ROOT}/examples/broken/job.jsonl -o -", "<!DOCTYPE html>"),
        (f"trainspec thresholds {BASE}/cluster.yaml --to cvs -o -", "{"),
        (f"trainspec export {BASE}/plan.yaml --cluster {BASE}/cluster.yaml --to torchrun -o -", "#!"),
        (f"trainspec-validate {BASE}/plan.yaml --format json=-", "{"),
    ],
)
def test_a_dash_is_standard_output(words: str, start: str, tmp_path: Path) -> None:
    assert run(tmp_path, *words.split()).stdout.startswith(start)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "words", ["accept a --output -", "accept a --statement -", "plan a --output -", "plan a --plot -"]
)
def test_what_cannot_go_to_standard_output_says_so(words: str, tmp_path: Path) -> None:
    told = run(tmp_path, "trainspec", *words.split())
    assert (told.returncode, told.stdout) == (2, "")
    assert "this cannot go to standard output" in told.stderr
    assert not [*tmp_path.iterdir()]
