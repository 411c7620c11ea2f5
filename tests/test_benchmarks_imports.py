"""The benchmark of the importers counts what it reads, compares it with a table by hand, and tells what is wrong."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
CONFIG = '{"train_batch_size": 32, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
INDEX = "repository,commit,path,kind,file\nsome/one,abc,ds.json,x,a/ds.json\nsome/two,def,notes.txt,x,b/notes.txt\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("a/ds.json", CONFIG), ("b/notes.txt", "nothing to see"), ("INDEX.csv", INDEX)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def printed(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(BENCHMARKS / "imports.py"), str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, done.stdout


def test_files_are_counted(folder: Path, tmp_path: Path) -> None:
    table = tmp_path.parent / "by-repository.csv"
    code, text = printed(folder, "--table", str(table))
    assert code == 0
    lines = [line.split() for line in text.splitlines()]
    assert ["files", "2"] in lines
    assert ["repositories", "2"] in lines
    assert ["read", "1"] in lines
    assert ["refused", "1"] in lines
    assert ["crashed", "0"] in lines
    with table.open(encoding="utf-8", newline="") as rows:
        assert [tuple(row) for row in csv.reader(rows)][1:] == [
            ("some/one", "abc", "1", "1", "0", "0"),
            ("some/two", "def", "1", "0", "1", "0"),
        ]


def test_values_are_compared_with_those_by_hand(folder: Path) -> None:
    truths = [
        ("a/ds.json", "batch.global_sequences", "32"),
        ("a/ds.json", "parallelism.sharding", '"parameters"'),
        ("a/ds.json", "batch.micro_sequences", "open"),
        ("a/ds.json", "parallelism.tensor", "2"),
    ]
    with (folder / "TRUTH.csv").open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows([("file", "key", "value"), *truths])
    code, text = printed(folder)
    assert code == 1
    assert "parallelism.sharding is 'gradients', 'parameters' by hand" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["right", "2"] in lines
    assert ["left", "open", "1"] in lines
    assert ["wrong", "1"] in lines


PUBLISHED = BENCHMARKS / "published" / "values_checked_by_hand.csv"
FILES = os.environ.get("TRAINSPEC_IMPORT_FILES")
"""A folder of files that the table names, with their repositories and paths in its INDEX.csv."""
COLUMNS = ["repository", "commit", "path", "key", "in_file", "in_result", "verdict"]


def test_published_values_are_right_open_or_named() -> None:
    with PUBLISHED.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == COLUMNS
    assert len(rows) >= 1400
    assert len({row["repository"] for row in rows}) >= 90
    assert len({(row["repository"], row["path"]) for row in rows}) >= 200
    assert all(len(row["commit"]) == 40 for row in rows)
    assert {row["verdict"] for row in rows} == {"right", "open", "named"}
    for row in rows:
        assert (row["in_result"] == row["verdict"]) == (row["verdict"] != "right"), row
        assert len(row["in_file"]) < 60, row
    keys = [(row["repository"], row["path"], row["key"]) for row in rows]
    assert len(set(keys)) == len(keys)


@pytest.mark.skipif(FILES is None, reason="no public files; TRAINSPEC_IMPORT_FILES names a folder with an INDEX.csv")
def test_published_values_are_what_is_read_now() -> None:
    assert FILES is not None
    code, text = printed(Path(FILES), "--truth", str(PUBLISHED))
    lines = [line.split() for line in text.splitlines()]
    assert ["crashed", "0"] in lines
    assert ["wrong", "0"] in lines
    assert code == 0


@pytest.mark.parametrize(("result", "code"), [('"gradients"', 0), ('"none"', 1)])
def test_a_published_table_is_compared_with_what_is_read(folder: Path, result: str, code: int) -> None:
    with (folder / "values.csv").open("w", encoding="utf-8", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(COLUMNS)
        rows.writerow(("some/one", "abc", "ds.json", "parallelism.sharding", "2", result, "right"))
        rows.writerow(("some/one", "abc", "ds.json", "parallelism.pipeline", "absent", "open", "open"))
        rows.writerow(("some/one", "abc", "ds.json", "NCCL_DEBUG", "INFO", "named", "named"))
        rows.writerow(("not/here", "abc", "a.json", "batch", "2", "open", "open"))
    (folder / "values.csv").rename(folder.parent / "values.csv")
    done, told = printed(folder, "--truth", str(folder.parent / "values.csv"))
    assert done == code
    assert "values             2" in told
