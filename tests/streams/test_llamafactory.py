"""`trainer_log.jsonl` of LLaMA-Factory: what a line gives, restarts, damage."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from reading import read_text

from trainspec_validate.pipeline.validation import validate

LOSS = "train.loss.mean{train.loss.name=total}"
EVALUATED = "train.evaluation.loss{train.evaluation.set=eval,train.loss.name=total}"


def report(step: int, seconds: int, **values: object) -> dict[str, object]:
    """A line as its program writes it."""
    elapsed = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    place = {"current_steps": step, "total_steps": 100, "epoch": step / 50, "percentage": step}
    return {**place, "elapsed_time": elapsed, "remaining_time": "1 day, 0:00:00", **values}


def text_of(*reports: dict[str, object]) -> str:
    return "".join(json.dumps(one) + "\n" for one in reports)


def losses(*steps: int, since: int = 0) -> list[dict[str, object]]:
    return [report(step, 10 * (step - since), loss=3 - step / 100, lr=1e-5) for step in steps]


@pytest.mark.parametrize("rate", ["lr", "learning_rate"])
def test_lines_are_records_with_their_step(rate: str) -> None:
    one = report(10, 24, loss=2.5, throughput=812.5, total_tokens=20480) | {rate: 1e-5}
    found = read_text(text_of(one, report(10, 30, eval_loss=2.75), report(20, 48, predict_loss=1.0)))
    assert [(sample.step, sample.m) for sample in found.samples] == [
        (10, {LOSS: 2.5, "train.learning_rate": 1e-5, "train.step.count": 10.0}),
        (10, {EVALUATED: 2.75}),
    ]
    assert found.losses.clock == "relative"
    assert [sample.time_us for sample in found.samples] == [24_000_000, 30_000_000]
    assert [what for reason, what in found.lost if reason == "meaning"][:2] == ["throughput", "total_tokens"]
    assert not found.refusals


def test_a_restart_begins_an_attempt() -> None:
    """The time since the start falls, also where the steps go on from the last one."""
    for again in (losses(20, 30, since=15), losses(25, 30, since=20), losses(30, 40, since=30)):
        assert [head.att for head in read_text(text_of(*losses(10, 20, 30), *again)).heads] == [0, 1]
    assert [head.att for head in read_text(text_of(*losses(10, 20, 30, 40))).heads] == [0]
    slow = report(40, 200, loss=2.0)
    assert [head.att for head in read_text(text_of(*losses(10, 20, 30), slow)).heads] == [0, 1]


def test_one_elapsed_time_that_falls_is_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """The time before it continues in the next line, as that of no program that was started again does."""
    reports = [report(step, 60 * step, loss=3 - step / 1000, lr=1e-5 * step) for step in range(10, 410, 10)]
    reports[29]["elapsed_time"] = "0:00:01"
    path = tmp_path / "trainer_log.jsonl"
    path.write_text(text_of(*reports))
    (found,) = validate([path]).findings
    assert found.requirement == "TS-TEL-016"
    assert "elapsed_time falls from 4:50:00 to 0:00:01 at step 300" in found.message
    read = read_text(text_of(*reports))
    assert [head.att for head in read.heads] == [0]
    assert [sample.time_us // 60_000_000 for sample in read.samples] == list(range(10, 410, 10))


def test_a_fall_that_a_restart_explains_begins_an_attempt() -> None:
    """The time before is too short, the pace is that of a start, or the next line counts from the fall."""
    first, short = losses(*range(10, 210, 10)), losses(10, 20, 30)
    slow_start = [report(40, 5, loss=2.0), report(50, 40, loss=2.0)]
    resumed = losses(210, 220, since=200)
    for reports in ([*short, *slow_start], [*first, *resumed], [*first, resumed[0]]):
        read = read_text(text_of(*reports))
        assert [head.att for head in read.heads] == [0, 1]
        assert not read.refusals
        assert len(read.samples) == len(reports)


def test_a_pause_is_found_by_the_time_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "trainer_log.jsonl"
    late = [report(step, 10 * step + 3 * 86_400, loss=2.0) for step in range(20, 40)]
    for one in late:
        one["elapsed_time"] = str(timedelta(seconds=10 * int(str(one["current_steps"])) + 3 * 86_400))
    path.write_text(text_of(*losses(*range(1, 20)), *late))
    (finding,) = [one for one in validate([str(path)]).findings if one.requirement == "TS-TEL-033"]
    assert "3 d" in finding.message
    path.write_text(text_of(*losses(*range(1, 40))))
    assert not validate([str(path)]).findings


def test_time_goes_on_after_a_restart() -> None:
    found = read_text(text_of(*losses(10, 20, 30), *losses(30, 40, since=20)), start_us=1_000_000_000)
    assert [sample.time_us // 1_000_000 for sample in found.samples] == [1100, 1200, 1300, 1400, 1500]
    assert [head.att for head in found.heads] == [0, 1]
    assert found.losses.clock == "utc"


@pytest.mark.parametrize("lead", [26, -26, 3])
def test_two_processes_that_write_one_file_are_no_restarts(lead: int) -> None:
    """Each writes every step with a time of its own, and falls behind or catches up as time goes by."""
    one = [(1000 * n + n % 7, report(10 * n, 1000 * n + n % 7, loss=3.0)) for n in range(1, 40)]
    two = [
        (1000 * n + 40 * n, report(10 * n, 1000 * n + 40 * n + lead, loss=3.001, eval_loss=2.0)) for n in range(1, 40)
    ]
    lines = [line for _, line in sorted([*one, *two], key=lambda each: each[0])]
    again = [line for line in losses(370, 380, 390, since=360) for _ in range(2)]
    found = read_text(text_of(*lines, *again))
    assert [head.att for head in found.heads] == [0, 1]
    assert [sample.step for sample in found.samples] == [*range(10, 400, 10), 370, 380, 390]
    assert ("incident", "processes") in found.lost


def test_a_log_of_a_prediction_is_no_training(tmp_path: Path) -> None:
    """Its lines count batches, and have neither a value nor an epoch."""
    names = ("current_steps", "total_steps", "percentage", "elapsed_time", "remaining_time")
    batches = [{name: report(step, step)[name] for name in names} for step in range(5, 100, 5)]
    path = tmp_path / "trainer_log.jsonl"
    path.write_text(text_of(*batches))
    result = validate([str(path)])
    assert not result.findings
    assert [one.reason for one in result.unjudged if "no log of a training" in one.reason]
    found = read_text(text_of(*losses(10, 20, 30), *batches))
    assert [sample.step for sample in found.samples] == [10, 20, 30]
    assert not found.refusals


@pytest.mark.parametrize("step", ["ten", None, -1, 1.5, True])
def test_a_step_that_is_none_is_refused(step: object) -> None:
    damaged = report(20, 48, loss=2.5) | {"current_steps": step}
    (refused,) = read_text(text_of(report(10, 24, loss=2.5), damaged)).refusals
    assert refused.message.startswith("current_steps is ")


def test_a_line_that_breaks_off_is_refused() -> None:
    text = text_of(*losses(10, 20, 30))
    found = read_text(text[:-30])
    assert len(found.refusals) == 1
    assert [sample.step for sample in found.samples] == [10, 20]


def test_a_log_that_ends_without_a_finite_loss_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trainer_log.jsonl"
    path.write_text(
        text_of(*losses(*range(1, 20)), *(report(step, 10 * step, loss=float("nan")) for step in (20, 21, 22)))
    )
    assert [finding.requirement for finding in validate([str(path)]).findings] == ["TS-TEL-088"]
