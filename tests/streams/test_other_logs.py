"""Events of DLRover, lines of modded-nanogpt, mini-batch times of Alibaba."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reading import read_text

from trainspec_validate import validate

EVALUATED = "train.evaluation.loss{train.evaluation.set=validation,train.loss.name=total}"
LOSS = "train.loss.mean{train.loss.name=total}"


def happened(name: str, edge: str, seconds: float = 0.0, identifier: str = "ab12", **content: Any) -> str:
    return (
        f"[2025-04-21T23:31:{seconds:09.6f}] [426] [{identifier}] [Trainer] [#{name}] [{edge}] {json.dumps(content)}\n"
    )


def counters(step: int, samples: int) -> dict[str, int]:
    return {"global_step": step, "consumed_train_samples": samples, "consumed_train_tokens": samples * 8}


def test_steps_of_dlrover() -> None:
    found = read_text(
        happened("step", "BEGIN", **counters(7, 70))
        + happened("step", "END", 2.0, **counters(8, 80))
        + happened("step", "BEGIN", 3.0, **counters(8, 80))
        + happened("step", "END", 4.0, **counters(9, 5))
    )
    assert [(sample.step, sample.m["train.sample.count"]) for sample in found.samples] == [
        (7, 70.0),
        (8, 80.0),
        (9, 5.0),
    ]
    assert found.samples[0].m["train.token.count{train.token.kind=all}"] == 560.0
    assert found.samples[0].time_us == 1745278260_000000
    assert found.losses.clock == "local"
    assert found.heads[0].producer is not None
    assert found.heads[0].producer.name == "Trainer"


def test_the_zone_of_dlrover() -> None:
    found = read_text(happened("step", "END", 1.5, **counters(8, 80)), utc_offset_seconds=-3600)
    assert found.samples[0].time_us == 1745278260_000000 + 1_500_000 + 3600_000000
    assert found.losses.clock == "utc"


def test_logs_of_dlrover_have_the_names_of_megatron() -> None:
    logs = {"elapsed time per iteration (ms)": 2500.0, "grad norm": 0.5, "loss scale": 1.0, "step": 8}
    found = read_text(happened("log", "INSTANT", global_step=8, logs=logs))
    assert (found.samples[0].step, found.samples[0].m) == (8, {"train.step.duration": 2.5, "train.gradient.norm": 0.5})
    assert ("unknown-name", "loss scale") in found.lost
    assert ("value", "#log") in read_text(happened("log", "INSTANT", logs=[1])).lost


def test_intervals_of_dlrover() -> None:
    text = happened("save", "BEGIN", 1.0, global_step=5) + happened("save", "END", 3.5, global_step=5)
    for name in ("load_ckpt", "evaluate", "train"):
        text += happened(name, "BEGIN", 4.0, global_step=5) + happened(name, "END", 5.0, global_step=5)
    found = read_text(text + happened("rendezvous", "BEGIN", 6.0))
    assert [event.name for event in found.events] == [
        *("train.checkpoint.begin", "train.checkpoint.commit"),
        *("train.checkpoint.restore.begin", "train.checkpoint.restore.end"),
        *("train.evaluation.begin", "train.evaluation.end", "train.attempt.start", "train.attempt.end"),
    ]
    commit = found.events[1]
    assert (commit.id, commit.step) == ("save-ab12", 5)
    assert commit.m["train.checkpoint.duration{train.checkpoint.phase=total}"].sum == 2.5  # type: ignore[union-attr]
    assert found.lost["unknown-name", "#rendezvous"] == 1


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("hello", "value"),
        (happened("step", "END").replace("{}", "{"), "cut-off"),
        (happened("step", "END").replace("{}", '{"a": 1, "a": 2}'), "syntax"),
        (happened("step", "END").replace("{}", "[1]"), "time"),
        (happened("step", "END").replace("23:31:00", "23:99:00"), "time"),
        (happened("step", "END").replace("END", "MIDDLE"), "value"),
    ],
)
def test_lines_that_are_no_event_are_refused(line: str, code: str) -> None:
    assert [refusal.code for refusal in read_text(line, "dlrover-events").refusals] == [code]


NANOGPT = """step:0/20 val_loss:10.0 train_time:5ms step_avg:nanms
step:1/20 train_loss:9.0 train_time:100ms step_avg:nanms
step:2/20 train_loss:8.0 train_time:300ms step_avg:nanms
step:3/20 train_loss:nan train_time:50ms step_avg:nanms
step:5/20 train_loss:6.0 train_time:150ms step_avg:50.00ms
step:5/20 val_loss:6.5 train_time:151ms step_avg:50.00ms
"""


def test_lines_of_nanogpt() -> None:
    found = read_text("import torch\n" + NANOGPT)
    assert [sample.step for sample in found.samples] == [0, 1, 2, 3, 5, 5]
    assert found.values(LOSS) == [9.0, 8.0, "NaN", 6.0]
    assert found.values(EVALUATED) == [10.0, 6.5]
    assert found.values("train.step.duration") == [0.1, 0.2, 0.05, 0.05]
    assert [sample.a.get("train.step.warmup", False) for sample in found.samples] == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]
    assert found.losses.clock == "relative"
    assert found.lost["text", "text"] == 1


def test_lines_of_nanogpt_without_a_loss() -> None:
    found = read_text(
        "import torch\nstep:1/20 train_time:100ms step_avg:100.00ms\nstep:2/20 train_time:300ms step_avg:150.00ms\n"
        "step:2/20 val_loss:6.5 train_time:301ms step_avg:150.50ms\n"
    )
    assert [sample.step for sample in found.samples] == [1, 2, 2]
    assert found.values("train.step.count") == [1.0, 2.0]
    assert found.values("train.step.duration") == [0.1, 0.2]
    assert found.values(EVALUATED) == [6.5]
    assert found.values(LOSS) == []


def test_lines_of_nanogpt_with_times_in_seconds() -> None:
    found = read_text(
        "step:0/9 val_loss:10.8 train_time:0.000s step_avg:0.13ms\nstep:1/9 train_time:11.298s step_avg:11298.09ms\n"
        "step:3/9 train_time:11.698s step_avg:3899.00ms\nstep:4/9 train_time:12.1s step_avg:nans\n"
    )
    assert [sample.time_us for sample in found.samples] == [0, 11_298_000, 11_698_000, 12_100_000]
    assert found.values("train.step.duration") == [11.298, 0.2, 0.402]
    assert [refusal.message for refusal in found.refusals] == ["step_avg is nan"]
    assert not [name for reason, name in found.lost if reason == "unknown-name"]


@pytest.mark.parametrize(
    ("unit", "words"), [("min", "is in 'min'"), ("us", "is in 'us'"), ("", "has no unit")], ids=["min", "us", "none"]
)
def test_lines_of_nanogpt_whose_unit_is_not_known_are_left_out(unit: str, words: str) -> None:
    lines = (f"step:{n}/9 train_time:{n}.5{unit} step_avg:5.00ms\n" for n in range(1, 5))
    found = read_text("step:0/9 val_loss:10.8 train_time:0ms\n" + "".join(lines))
    assert [sample.step for sample in found.samples] == [0]
    (refusal,) = found.refusals
    assert refusal.message == f"train_time {words}; the first of 4 lines that are left out"


def test_findings_of_nanogpt_name_no_date_where_the_start_is_not_stated(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    lines = (f"step:{n}/9 train_time:{time}s step_avg:5.00ms\n" for time, n in enumerate((1, 2, 3, 2, 3, 4), 1))
    path.write_text("".join(lines), encoding="utf-8")
    messages = [each.message for each in validate(path).findings if "falls from" in each.message]
    assert messages
    assert not [message for message in messages if "1970" in message]


def speedrun(*steps: int, slower: float = 1.0) -> list[str]:
    """Lines of one run, with an evaluation at its start."""
    lines = [f"step:{step}/90 train_loss:3.0 train_time:{slower * 1000 * step:.0f}ms\n" for step in steps]
    return ["step:0/90 val_loss:10.8 train_time:0ms step_avg:nanms\n", *lines]


def test_lines_of_nanogpt_that_are_there_twice_are_read_once_and_reported(tmp_path: Path) -> None:
    """Also those of step 0, which make no second run."""
    lines = speedrun(*range(1, 6))
    found = read_text("".join(line * 2 for line in lines))
    assert len(found.samples) == len(lines)
    (refusal,) = found.refusals
    assert refusal.message == "the line repeats the one before; the first of 6 copies, which are left out"
    path = tmp_path / "log.txt"
    path.write_text("".join(line * 2 for line in lines), encoding="utf-8")
    assert [(each.requirement, each.span.line) for each in validate(path).findings if each.span] == [("TS-TEL-019", 2)]


def test_a_count_of_nanogpt_that_falls_to_0_while_the_clock_rises_is_no_other_run() -> None:
    times = range(1, 9)
    lines = (f"step:{0 if time % 3 == 0 else time}/9 train_time:{time}00ms step_avg:99.0ms\n" for time in times)
    found = read_text("step:0/9 val_loss:10.8 train_time:0ms step_avg:0.1ms\n" + "".join(lines))
    assert not found.refusals
    assert found.values("train.step.count") == [1, 2, 0, 4, 5, 0, 7, 8]


def test_several_runs_of_nanogpt_in_one_file_are_not_judged(tmp_path: Path) -> None:
    one, other = speedrun(*range(1, 60)), speedrun(*range(1, 60), slower=1.1)
    path = tmp_path / "log.txt"
    for text in ("".join([*one, *other]), "".join(line for pair in zip(one, other, strict=True) for line in pair)):
        path.write_text(text)
        result = validate([str(path)])
        assert not result.findings
        assert [each.reason for each in result.unjudged if "is about several runs" in each.reason]


def test_one_run_of_nanogpt_is_judged(tmp_path: Path) -> None:
    """Neither a line that is there twice nor a step that falls makes it several runs."""
    start, *lines = speedrun(*range(1, 60))
    for text in ("".join([start, start, *lines]), "".join([start, *lines, *lines[30:]])):
        assert not [refusal for refusal in read_text(text).refusals if refusal.is_unjudged]


def test_a_clock_that_is_set_back_goes_on() -> None:
    found = read_text(NANOGPT, start_us=1_000_000)
    assert [sample.time_us - 1_000_000 for sample in found.samples] == [
        5_000,
        100_000,
        300_000,
        350_000,
        450_000,
        451_000,
    ]
    assert not found.refusals, "the program sets its clock back once, and says by nan that no mean is known until then"
    assert (found.lost["meaning", "step_avg"], found.losses.clock) == (1, "utc")
    again = read_text(
        NANOGPT.replace("step:2/20 train_loss:8.0 train_time:300ms", "step:2/20 train_loss:8.0 train_time:90ms")
    )
    assert [refusal.message for refusal in again.refusals] == ["train_time falls from 90 to 50 ms at step 3"]


def test_a_mean_that_is_none_after_others_is_reported() -> None:
    late = NANOGPT.replace("train_time:151ms step_avg:50.00ms", "train_time:151ms step_avg:nanms")
    (refusal,) = read_text(late).refusals
    assert (refusal.code, refusal.message) == ("not-finite", "step_avg is nan; the first of 5 cases")


def test_a_clock_that_is_set_back_after_the_first_steps() -> None:
    lines = (f"step:{n}/9 train_loss:3.0 train_time:{time}ms step_avg:5.00ms\n" for n, time in ((1, 90), (2, 80)))
    (refused,) = read_text("".join(lines)).refusals
    assert (refused.message, refused.is_accepted) == ("train_time falls from 90 to 80 ms at step 2", False)


@pytest.mark.parametrize(
    "line",
    [
        "step:1/2",
        "step:x/2 train_loss:1 train_time:1ms",
        "step:1/2 train_loss:x train_time:1ms",
        "step:1/2 train_loss:1",
    ],
)
def test_lines_of_nanogpt_that_are_refused(line: str) -> None:
    assert len(read_text(line, "nanogpt-log").refusals) == 1


def test_what_stands_behind_a_line_is_told() -> None:
    found = read_text("step:1/2 train_loss:1.0 train_time:1ms step_avg:1.0ms lr:0.5\n")
    assert found.lost["unknown-name", "lr:0.5"] == 1


def rows(*values: tuple[int, int, int]) -> str:
    lines = [f"{number},{worker},25,{time},{norm}" for number, (worker, time, norm) in enumerate(values)]
    return "\n".join([",worker,gpu,time,batch_time_norm", *lines, ""])


def test_mini_batches_of_workers() -> None:
    found = read_text(rows((0, 1, 400), (1, 1, 200), (2, 1, 100), (0, 11, 300), (1, 11, 300), (2, 11, 600)))
    assert [(sample.rank, sample.step) for sample in found.samples] == [
        (0, 1),
        (1, 1),
        (2, 1),
        (0, 11),
        (1, 11),
        (2, 11),
    ]
    assert found.values("train.rank.slowdown") == [2.0, 1.0, 0.5, 1.0, 1.0, 2.0]
    assert found.values("alibaba.batch_time_norm")[0] == 400.0
    assert found.heads[0].extension_metrics["alibaba.batch_time_norm"].unit == "1"
    assert found.losses.clock == "none"
    assert ("unit", "batch_time_norm") in found.lost
    offsets = [offset for offset, item in found.items if item in found.samples]
    assert offsets == sorted(offsets)
    assert offsets[0] == 33


@pytest.mark.parametrize("row", ["0,a,25,1,5", "0,1,25,-1,5", "0,1,25,1,nan", "0,1", "0,1,25,999999999999999,5"])
def test_rows_that_are_refused(row: str) -> None:
    assert len(read_text(rows() + row).refusals) == 1


def test_workers_that_take_no_time_have_no_slowdown() -> None:
    assert read_text(rows((0, 1, 0), (1, 1, 0))).values("train.rank.slowdown") == []
