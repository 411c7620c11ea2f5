"""The time that a coverage gives: that of the records, or none where their source states no times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainspec_validate.cli.validate import command

STEPS = [{"epoch": step / 10, "learning_rate": 1e-5, "loss": 2.0 - step / 100, "step": step} for step in range(1, 8)]
STATE = {"epoch": 0.7, "global_step": 7, "log_history": STEPS, "max_steps": 7}


def covered(path: Path, text: str, *words: str) -> str:
    """What the program prints of a stream."""
    path.write_text(text)
    return CliRunner().invoke(command, [*words, str(path)]).output


@pytest.mark.parametrize(
    ("form", "said"), [("concise", "; no times, 7 records;"), ("full", "  time: not stated in 1 ")]
)
def test_a_source_without_times_gets_none(tmp_path: Path, form: str, said: str) -> None:
    printed = covered(tmp_path / "trainer_state.json", json.dumps(STATE), "--format", form)
    assert said in printed
    assert "1970" not in printed


def test_the_json_report_has_no_time_of_it_either(tmp_path: Path) -> None:
    (coverage,) = json.loads(covered(tmp_path / "trainer_state.json", json.dumps(STATE), "--format", "json"))[
        "coverage"
    ]
    assert (coverage["first_time_us"], coverage["last_time_us"], coverage["covered_seconds"]) == (-1, -1, 0)


def test_times_that_a_log_states_stay(tmp_path: Path) -> None:
    lines = [f"step:{step}/30 train_loss:2.0 train_time:{step * 1000}ms step_avg:1000.0ms\n" for step in range(1, 31)]
    assert "; 29 s, " in covered(tmp_path / "steps.txt", "".join(lines), "--format", "concise")
