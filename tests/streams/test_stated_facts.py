"""A log states no more than it holds: no time of 1970, no end it has not reached, no pass where nothing is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainspec_validate.cli.validate import command


def output(path: Path, text: str, *options: str) -> tuple[int, str]:
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(command, [str(path), "--color", "never", *options])
    return done.exit_code, done.output


def factory(num: int, total: int, loss: float = 2.5) -> str:
    lines = (
        {"current_steps": step, "total_steps": total, "loss": loss, "elapsed_time": f"0:0{step // 60}:{step % 60:02}"}
        for step in range(1, num + 1)
    )
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def test_a_log_that_ends_before_its_last_step_says_so(tmp_path: Path) -> None:
    assert "the run states: the log ends at step 20 of 5,100" in output(tmp_path / "a.jsonl", factory(20, 5_100))[1]
    assert "the log ends" not in output(tmp_path / "b.jsonl", factory(20, 20))[1]


@pytest.mark.parametrize(("last", "is_stated"), [(19, True), (20, False)])
def test_a_console_log_that_ends_before_its_last_step_says_so(tmp_path: Path, last: int, is_stated: bool) -> None:
    form = "step {}/20 | loss 2.5 (+nanz)| norm 1.0 (+nanz)| lr 1.00e-04 | 100.00 ms\n"
    text = "".join(form.format(step) for step in range(1, last + 1))
    assert ("the log ends at step 19 of 20" in output(tmp_path / "main.log", text)[1]) is is_stated


def test_times_from_a_start_that_is_not_stated_are_no_moments(tmp_path: Path) -> None:
    text = output(tmp_path / "a.jsonl", factory(100, 100), "--format", "full")[1]
    assert "time: 99 s in 1 attempt" in text
    assert "= seen: 100 times" in text
    assert "1970" not in text


def test_rows_without_times_have_findings_without_moments(tmp_path: Path) -> None:
    rows = "".join(f"0,{step},{90.0 if step == 20 else 2.5 - step / 100}\n" for step in range(60))
    text = output(tmp_path / "metrics.csv", f"epoch,step,train_loss\n{rows}", "--format", "full")[1]
    assert "TS-TEL-055" in text
    assert "1970" not in text


def test_a_table_of_which_no_value_is_read_is_no_pass(tmp_path: Path) -> None:
    rows = "".join(f"{step},{1 / (step + 1)},{step}\n" for step in range(30))
    path, text = tmp_path / "metrics.csv", f"epoch,boundary_loss,step\n{rows}"
    code, words = output(path, text)
    assert (code, words.splitlines()[-1].partition(":")[0]) == (0, "no metric read")
    assert "0 readable metrics (not read: boundary_loss, epoch)" in words
    assert output(path, text, "--fail-on", "unjudged")[0] == 1


@pytest.mark.parametrize(
    ("place", "more", "is_stated"),
    [
        ("run", {}, True),
        ("checkpoint-20", {}, False),
        ("run", {"stateful_callbacks": {"TrainerControl": {"args": {"should_training_stop": True}}}}, False),
        ("run", {"max_steps": 20}, False),
    ],
    ids=["ended", "checkpoint", "stopped", "whole"],
)
def test_a_state_of_the_trainer_that_ends_before_its_last_step_says_so(
    tmp_path: Path, place: str, more: dict[str, object], is_stated: bool
) -> None:
    entries = [{"loss": 2.5 - step / 100, "step": step, "epoch": step / 40} for step in range(1, 21)]
    state = {"global_step": 20, "max_steps": 40, "is_world_process_zero": True, "log_history": entries} | more
    (tmp_path / place).mkdir()
    told = output(tmp_path / place / "trainer_state.json", json.dumps(state))[1]
    assert ("the log ends at step 20 of 40" in told) is is_stated


@pytest.mark.parametrize(
    ("last", "is_stated"),
    [("epoch 0, iteration 2/19", True), ("epoch 0, iteration 19/19", False), ("epoch 1, iteration 0/19", False)],
)
def test_a_log_of_nemo_that_ends_within_its_first_epoch(last: str, is_stated: bool, tmp_path: Path) -> None:
    row = "Training {} | lr: 1.6e-06 | global_step: {} | reduced_train_loss: {}\n"
    steps = 3 if last.endswith("2/19") else 20 if last.endswith("19/19") else 21
    rows = [row.format(f"epoch 0, iteration {step}/19", step, 11.5 - step / 100) for step in range(steps - 1)]
    told = output(tmp_path / "main.log", "".join([*rows, row.format(last, steps - 1, 11.0)]))[1]
    assert ("the log ends at step 3 of 20" in told) is is_stated
    assert ("the log ends at" in told) is is_stated


def test_names_that_are_cut_are_marked(tmp_path: Path) -> None:
    names = ["prometheus_tsdb_compaction_chunk_range_seconds_count", "a" * 100]
    told = output(tmp_path / "page.prom", "".join(f"# TYPE {name} gauge\n{name} 1\n" for name in names))[1]
    assert f"not read: {names[0]}, {'a' * 60}...)" in told


def test_a_run_without_a_metric_does_not_speak_for_another(tmp_path: Path) -> None:
    told = output(tmp_path / "a.csv", "epoch,step,own_score\n0,1,2.5\n0,2,2.25\n")[1]
    assert told.splitlines()[-1].startswith("no metric read: 1 document")
    (tmp_path / "b.csv").write_text("epoch,step,train_loss\n0,1,2.5\n0,2,2.25\n", encoding="utf-8")
    last = CliRunner().invoke(command, [str(tmp_path), "--color", "never"]).output.splitlines()[-1]
    assert last.startswith("no findings: 2 documents")
    assert "incomplete: no completed step, 0 readable metrics" in last
