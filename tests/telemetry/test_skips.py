"""Steps that are skipped one after another are found in logs, with or without times, however they are counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from trainspec_validate.cli.validate import command

LINE = (
    " iteration {:>8}/      62 | consumed samples: {:>12} | elapsed time per iteration (ms): 1000.0 | "
    "learning rate: 1.000E-04 | global batch size:    16 | lm loss: 2.5E+00 | loss scale: 1.0 | grad norm: 1.000 | "
    "number of skipped iterations: {:>3} | number of nan iterations:   0 |"
)


def output(path: Path, num_skipped: int) -> str:
    lines = [LINE.format(step, 16 * step, int(step > 62 - num_skipped)) for step in range(1, 63)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return CliRunner().invoke(command, [str(path), "--format", "concise", "--select", "TS-TEL-033"]).output


@pytest.mark.parametrize("num_skipped", [32, 40])
def test_a_log_whose_last_steps_are_all_skipped_is_an_error(tmp_path: Path, num_skipped: int) -> None:
    message = f"error[TS-TEL-033] {num_skipped} steps in a row are skipped, up to step 62"
    assert message in output(tmp_path / "log.txt", num_skipped)


def test_steps_that_are_skipped_are_found_in_a_log_with_times(tmp_path: Path) -> None:
    lines = [f" [2026-01-31 12:{step:02}:00]{LINE.format(step, 16 * step, 1)}" for step in range(1, 40)]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    told = CliRunner().invoke(command, [str(tmp_path), "--format", "concise", "--select", "TS-TEL-033"]).output
    assert "error[TS-TEL-033] 38 steps in a row are skipped, up to step 39" in told


def test_a_scale_of_the_loss_that_settles_is_no_error(tmp_path: Path) -> None:
    assert "nothing judged" in output(tmp_path / "log.txt", 31)


DEEPSPEED = (
    "[2026-01-31 12:{:02}:{:02},387] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped={n}, lr=[1e-05], "
    "mom=[0.9]"
)


def test_a_log_without_any_applied_step_names_none(tmp_path: Path) -> None:
    lines = [DEEPSPEED.format(n // 60, n % 60, n=n) for n in range(10, 630, 10)]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    told = CliRunner().invoke(command, [str(tmp_path), "--format", "concise", "--select", "TS-TEL-033"]).output
    assert "steps in a row are skipped, and none is applied" in told
