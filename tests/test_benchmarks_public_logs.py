"""The records of public logs: what the benchmark finds in a clone, and the page that is made of the records."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import public_log_page  # noqa: E402

BENCHMARK = ROOT / "benchmarks" / "public_logs.py"
RECORDS = ROOT / "benchmarks" / "published"
START_MS = 1_700_000_000_000
PLACE = "Some/results/machine/bert/result_{}.txt"


def line(key: str, time_ms: int, value: str = "null", **metadata: object) -> str:
    about = ", ".join(f'"{name}": "{each}"' for name, each in metadata.items())
    return f':::MLLOG {{"key": "{key}", "value": {value}, "time_ms": {START_MS + time_ms}, "metadata": {{{about}}}}}\n'


def log(*, is_closed: bool) -> str:
    """A log of a run whose evaluation begins, or only ends."""
    start = line("submission_benchmark", 0, '"bert"') + line("global_batch_size", 1, "8") + line("run_start", 2)
    evaluated = (line("eval_start", 3) if is_closed else "") + line("eval_stop", 50_000)
    block = line("block_start", 50_001) + line("block_stop", 55_000)
    end = line("eval_accuracy", 60_000, "0.73") + line("run_stop", 70_000, status="success")
    return start + evaluated + block + end


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "training_results_v9.9"
    for number, is_closed in enumerate((True, False)):
        path = folder / PLACE.format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(log(is_closed=is_closed), encoding="utf-8")
    (folder / "Some" / "results" / "README.txt").write_text("no log", encoding="utf-8")
    about = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "-A"], [*about, "commit", "-q", "-m", "logs"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True, timeout=600)
    return folder


def run(clone: Path, records: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARK), str(clone), "--records", str(records), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.slow
def test_the_logs_of_a_clone_are_judged_and_recorded(clone: Path, tmp_path: Path) -> None:
    assert run(clone, tmp_path).returncode == 0
    (about,) = rows(tmp_path / "public_log_rounds.csv")
    assert {name: about[name] for name in ("round", "logs", "absent", "with_error")} == {
        "round": "v9.9", "logs": "2", "absent": "0", "with_error": "1",
    }  # fmt: skip
    assert rows(tmp_path / "public_logs.csv") == [
        {
            "round": "v9.9",
            "path": PLACE.format(1),
            "line": "4",
            "requirement": "TS-TEL-043",
            "message": "eval_stop closes nothing: no eval is open",
        }
    ]
    assert run(clone, tmp_path, "--check").returncode == 0


def test_records_that_differ_are_told(clone: Path, tmp_path: Path) -> None:
    assert run(clone, tmp_path).returncode == 0
    table = tmp_path / "public_logs.csv"
    table.write_text(table.read_text(encoding="utf-8").replace(",4,", ",5,"), encoding="utf-8")
    found = run(clone, tmp_path, "--check")
    assert found.returncode == 1
    assert f"- v9.9 {PLACE.format(1)} 5 TS-TEL-043 eval_stop closes nothing: no eval is open" in found.stdout
    assert f"+ v9.9 {PLACE.format(1)} 4 TS-TEL-043 eval_stop closes nothing: no eval is open" in found.stdout


def test_the_records_agree_with_one_another() -> None:
    logs = rows(RECORDS / "public_logs.csv")
    for about in rows(RECORDS / "public_log_rounds.csv"):
        paths = {row["path"] for row in logs if row["round"] == about["round"]}
        assert len(paths) == int(about["with_error"]), about["round"]
        assert len(about["commit"]) == 40
        assert int(about["logs"]) > 1_000
    classes = rows(RECORDS / "public_log_classes.csv")
    assert {row["verdict"] for row in classes} <= {"true", "false", "undecided"}
    assert len({row["class"] for row in classes}) == len(classes)


def test_the_page_names_each_log_with_its_line() -> None:
    text = public_log_page.page(ROOT)
    first: dict[tuple[str, str], int] = {}
    for row in rows(RECORDS / "public_logs.csv"):
        log = (row["round"], row["path"])
        first[log] = min(int(row["line"]), first.get(log, int(row["line"])))
    for (round_name, path), number in first.items():
        place = rf"training_results_{re.escape(round_name)}/blob/[0-9a-f]{{40}}/{re.escape(path)}#L{number}\)"
        assert re.search(place, text), path


def test_an_error_that_nobody_has_read_stops_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks" / "published"
    folder.mkdir(parents=True)
    for name in ("public_logs.csv", "public_log_rounds.csv", "public_log_classes.csv"):
        shutil.copy(RECORDS / name, folder / name)
    with (folder / "public_logs.csv").open("a", encoding="utf-8") as out:
        out.write(f"v4.0,{PLACE.format(1)},5,TS-TEL-999,something else\n")
    with pytest.raises(ValueError, match="no class of public_log_classes"):
        public_log_page.page(tmp_path)
