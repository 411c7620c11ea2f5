"""Damage of logs that a reader of them sees: a cut line, copied rows, a step that stands, losses by other names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import command


def output(path: Path, text: str, *options: str) -> tuple[int, str]:
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(command, [str(path), "--color", "never", *options])
    return done.exit_code, done.output


def llmc(num: int) -> str:
    return "".join(f"s:{step} trl:{5 - step / 100:.4f} lr:0.000100 norm:0.{step % 7 + 1}\n" for step in range(num))


@pytest.mark.parametrize(
    ("rest", "is_cut"),
    [("s:30 trl", True), ("s:30 trl:4.7", True), ("s:30 trl:4.7000 lr:0.0001 norm:0.2", False), ("done", False)],
)
def test_a_last_line_that_was_cut_is_left_out_and_stated(tmp_path: Path, rest: str, is_cut: bool) -> None:
    _, told = output(tmp_path / "main.log", llmc(30) + rest)
    assert ("the log ends within a line, which is left out" in told) is is_cut
    assert ("31 records" in told) is (rest.endswith("norm:0.2"))


def factory(first: int, last: int) -> str:
    return "".join(
        json.dumps(
            {"current_steps": step, "total_steps": 90, "loss": 3 - step / 100, "elapsed_time": f"0:00:{step:02}"}
        )
        + "\n"
        for step in range(first, last)
    )


def test_copied_rows_are_reported(tmp_path: Path) -> None:
    assert "TS-TEL-019" in output(tmp_path / "a.jsonl", factory(1, 40) + factory(20, 60))[1]
    assert "TS-TEL-019" not in output(tmp_path / "b.jsonl", factory(1, 60))[1]


def table(first: int, last: int, loss: float = 3.0) -> str:
    return "".join(f"0,{step},{loss - step / 100},0.001\n" for step in range(first, last))


def test_copied_rows_of_a_table_are_a_warning(tmp_path: Path) -> None:
    head = "epoch,step,train_loss,lr\n"
    code, told = output(tmp_path / "a.csv", head + table(0, 40) + table(20, 60))
    assert (code, "warning[TS-TEL-019] rows repeat an earlier part" in told) == (0, True)
    assert "TS-TEL-019" not in output(tmp_path / "b.csv", head + table(0, 40) + table(20, 60, 3.01))[1]
    same = "".join("0,,2.5,0.001\n" for _ in range(40))
    assert "TS-TEL-019" not in output(tmp_path / "c.csv", head + table(0, 10) + same)[1]


@pytest.mark.parametrize(("num", "is_reported"), [(8, False), (9, True)])
def test_a_step_that_stands_is_no_further_engine(tmp_path: Path, num: int, is_reported: bool) -> None:
    form = (
        "[2026-01-05 10:{:02}:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step={}, skipped=0, lr=[0.1], mom=[0]\n"
    )
    lines = [form.format(step, step) for step in range(1, 11)] + [form.format(10 + n, 11) for n in range(1, num + 1)]
    told = output(tmp_path / "d.log", "".join(lines))[1]
    assert ("step=11 is reported 9 times in a row, and no step is completed" in told) is is_reported


@pytest.mark.parametrize("name", ["mean_loss", "train/total_loss", "train_avg_loss"])
def test_a_loss_by_another_name_is_read_where_none_has_the_usual_one(tmp_path: Path, name: str) -> None:
    rows = "".join(f"0,{step},{3 - step / 100},{9.0}\n" for step in range(40))
    assert "values not read: data_loss" in output(tmp_path / "a.csv", f"epoch,step,{name},data_loss\n{rows}")[1]
    told = output(tmp_path / "b.csv", f"epoch,step,train_loss,{name}\n{rows}")[1]
    assert f"values not read: {name}" in told


def test_the_page_of_a_run_whose_start_is_not_stated_has_no_date(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(factory(1, 60), encoding="utf-8")
    done = CliRunner().invoke(toolbox, ["report", str(path), "-o", str(tmp_path / "r.html")], prog_name="trainspec")
    assert done.exit_code == 0, done.output
    assert "1970" not in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_an_answer_of_sacct_without_a_job_is_named(tmp_path: Path) -> None:
    text = json.dumps({"meta": {"Slurm": {"release": "23.02.8"}}, "jobs": [], "errors": []})
    code, told = output(tmp_path / "sacct.json", text)
    assert (code, "TS-DOC-004" in told) == (2, False)
    assert "is an answer of sacct or squeue with no job" in told
