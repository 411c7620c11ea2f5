"""Lines of the pipeline engine of DeepSpeed: losses in logs with and without lines that have a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import read_text

from trainspec_validate import validate
from trainspec_validate.telemetry.formats import detect

LOSS = "train.loss.mean{train.loss.name=total}"
START = "[2024-05-31 12:05:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: version=0.14.0\n"
TIMER = (
    "[2024-05-31 12:00:{second:02},500] [INFO] [timer.py:260:stop] epoch=0/micro_step=8/global_step={step}, "
    "RunningAvgSamplesPerSec=25.0, CurrSamplesPerSec=25.5, MemAllocated=1.0GB, MaxMemAllocated=2.0GB\n"
)


def progress(step: int, skipped: int = 0, minute: int = 0) -> str:
    """The line with the time of a step, 2.5 s after the one before."""
    return (
        f"[2024-05-31 12:{minute:02}:{step:02},500] [INFO] [logging.py:96:log_dist] [Rank 0] "
        f"step={step}, skipped={skipped}, lr=[0.001], mom=[(0.9, 0.95)]\n"
    )


def report(step: int, loss: str = "2.5000", more: str = "", seconds: str = "0.500") -> str:
    """The line of the engine."""
    return f"steps: {step} loss: {loss} {more}iter time (s): {seconds} samples/sec: 16.000\n"


def test_a_loss_is_of_the_step_that_was_just_completed() -> None:
    text = "".join(progress(step, skipped=1) + report(step, f"{step}.5") for step in (2, 3, 4))
    found = read_text(text)
    assert found.values(LOSS) == [2.5, 3.5, 4.5]
    assert found.values("train.step.count") == [1.0, 2.0, 3.0]
    assert found.values("train.sample.rate") == [16.0] * 3
    # The first report is read before it is known that reports follow, so it is a record of its own.
    assert [sample.step for sample in found.samples] == [1, 1, 2, 3]
    assert {LOSS, "train.learning_rate", "train.step.count"} < set(found.samples[-1].m)
    assert [bool(sample.a) for sample in found.samples] == [False, True, False, False]
    assert not found.refusals


def test_lines_between_the_time_of_a_step_and_its_loss() -> None:
    text = "".join(
        progress(step) + TIMER.format(step=step, second=step) + "saving checkpoint to /save\n" + report(step)
        for step in range(1, 6)
    )
    found = read_text(text)
    assert found.values(LOSS) == [2.5] * 5
    # The timer says the samples per second of a step; the engine says the mean since its last report.
    assert found.values("train.sample.rate") == [25.5, 16.0, *[25.5] * 4]


def test_a_log_without_lines_that_have_a_time(tmp_path: Path) -> None:
    text = "".join(report(step, "nan" if step > 5 else "2.5") for step in range(1, 13))
    found = read_text(text)
    assert found.losses.clock == "none"
    assert [sample.step for sample in found.samples] == [*range(1, 13)]
    assert found.lost["time", "time"] == 12
    path = tmp_path / "train.log"
    path.write_text(text)
    assert "TS-TEL-088" in {finding.requirement for finding in validate([path]).findings}


def test_the_losses_of_a_model_have_names_of_their_own() -> None:
    found = read_text("".join(report(step, more="lm loss: 2.4600 moe loss: inf ") for step in (1, 2)))
    assert found.values(LOSS) == [2.5, 2.5]
    assert found.values("train.loss.mean{train.loss.name=lm}") == [2.46, 2.46]
    assert found.values("train.loss.mean{train.loss.name=moe}") == ["+Inf"] * 2


def test_milliseconds_that_are_called_seconds_are_left_out() -> None:
    text = "".join(progress(step) + report(step, seconds="900.000") for step in (1, 2, 3))
    found = read_text(text)
    assert found.values("train.step.duration") == [900.0]  # before it no time is known
    assert found.lost["unit", "iter time (s)"] == 2
    assert found.values(LOSS) == [2.5] * 3


@pytest.mark.parametrize(
    "line",
    [
        "steps: 4 loss: 2.5 iter time\n",
        report(9),
        report(4, more="loss of a very odd name that goes on and on and on and on and on and on: 2.5 "),
    ],
)
def test_reports_that_are_cut_or_of_no_step_leave_the_losses_not_judged(line: str, tmp_path: Path) -> None:
    text = "".join(progress(step) + report(step) for step in (1, 2, 3)) + progress(4) + line
    assert read_text(text).lost["unread", "reports"] == 1
    path = tmp_path / "train.log"
    path.write_text(text)
    assert "reports of a step and a loss that are not read" in str(validate([path]).unjudged)


def test_a_report_before_the_first_line_with_a_time() -> None:
    rest = "".join(progress(step) + report(step) for step in (2, 3))
    assert read_text(report(1) + rest).lost["time", "losses"] == 1
    assert read_text(report(1, "nan") + rest).lost["unread", "losses"] == 1
    assert read_text(report(1) + report(2) + rest).lost["time", "step"] == 2
    assert read_text(report(1)).values(LOSS) == [2.5]


def test_a_second_engine_and_a_restart() -> None:
    two = "".join(2 * (progress(step) + report(step)) for step in (1, 2))
    found = read_text(two)
    assert found.values(LOSS) == [2.5, 2.5]
    assert found.lost["meaning", "engine"] == 4
    text = "".join(progress(step) + report(step) for step in (1, 2))
    again = "".join(progress(step, minute=6) + report(step, "2.25") for step in (1, 2))
    found = read_text(text + START + again)
    assert found.values(LOSS) == [2.5, 2.5, 2.25, 2.25]
    assert [sample.att for sample in found.samples] == [0, 0, 0, 1, 1]


def test_losses_that_end_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(progress(step) + (report(step) if step < 10 else "") for step in range(1, 20)))
    assert "TS-TEL-023" in {finding.requirement for finding in validate([path]).findings}


def test_logs_of_programs_above_the_engine_have_their_own_format() -> None:
    iteration = " iteration        1/    2500 | consumed samples:  32 | elapsed time per iteration (ms): 4220.8 |\n"
    text = progress(1) + report(1) + iteration
    assert detect(text.encode()).name == "megatron-log"  # type: ignore[union-attr]
    assert detect(("worker-0: " + report(1)).encode()).name == "deepspeed-pipeline-log"  # type: ignore[union-attr]
    assert detect(b"steps: 5 loss: 2.5 lr: 0.1\n") is None
