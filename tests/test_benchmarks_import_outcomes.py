"""The benchmark that counts what an import makes of other people's files writes its table and checks it."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
FILES = {
    "run.sh": "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128\n",
    "eval.sh": "torchrun generate.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128\n",
    "notes.txt": "nothing of interest\n",
}


def test_outcomes_are_written_and_checked(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for name, text in FILES.items():
        (tmp_path / "files" / name).write_text(text)
    rows = [f"a/b,c0ffee,{name},{name}" for name in FILES]
    (tmp_path / "INDEX.csv").write_text("\n".join(["repository,commit,path,file", *rows, ""]))
    table = tmp_path / "table.csv"
    program = [sys.executable, str(BENCHMARKS / "import_outcomes.py"), str(tmp_path), str(table)]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == "read 1, refused 2\n"
    with table.open(encoding="utf-8", newline="") as lines:
        found = {(row["outcome"], row["format"], row["files"]) for row in csv.DictReader(lines)}
    assert found == {
        ("read", "megatron-arguments", "1"),
        ("refused", "trains-nothing", "1"),
        ("refused", "unknown", "1"),
    }
    assert subprocess.run([*program, "--check"], capture_output=True, check=False).returncode == 0
    table.write_text(table.read_text().replace("c0ffee", "coffee"))
    assert subprocess.run([*program, "--check"], capture_output=True, check=False).returncode == 1
