"""Lines of DeepSpeed, MaxText and NeMo: what each gives, restarts, lines that are cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import read_text

from tests.streams_made.foreign_logs import DEEPSPEED, MAXTEXT, NEMO, deepspeed_lines
from trainspec_validate import validate
from trainspec_validate.pipeline.detect import detect as detect_file
from trainspec_validate.pipeline.files import File
from trainspec_validate.telemetry.fold.engine import run_file
from trainspec_validate.telemetry.formats import detect

LOSS = "train.loss.mean{train.loss.name=total}"
SKIPPED = "train.step.skipped{train.skip.reason=overflow}"


def test_lines_of_deepspeed() -> None:
    found = read_text("[2024-05-31 12:00:00,000] [INFO] [config.py:996:print]   amp\n" + DEEPSPEED)
    assert [(sample.step, sample.m) for sample in found.samples[:2]] == [
        (8, {"train.step.count": 8.0, SKIPPED: 2.0, "train.learning_rate": 0.001}),
        (8, {"train.sample.rate": 25.5}),
    ]
    assert found.values("train.step.count") == [8.0, 18.0, 28.0]
    assert found.samples[0].time_us == 1_717_156_810_500_000
    assert found.losses.clock == "local"
    assert found.lost["text", "text"] == 1
    assert not found.refusals


def test_samples_of_deepspeed_are_tokens_where_their_number_is_given() -> None:
    found = read_text(DEEPSPEED, quantities={"tokens_per_sample": 100}, utc_offset_seconds=3600)
    assert found.values("train.token.rate") == [2550.0] * 3
    assert found.losses.clock == "utc"
    assert found.samples[0].time_us == 1_717_153_210_500_000


def test_groups_of_parameters_that_differ_have_a_rate_each() -> None:
    found = read_text(DEEPSPEED.replace("lr=[0.001, 0.001]", "lr=[0.001, 0.002]"))
    assert found.values("train.learning_rate") == []
    assert found.values("train.learning_rate{train.parameter.group=1}") == [0.002] * 3
    assert read_text(DEEPSPEED.replace("lr=[0.001, 0.001]", "lr=[x]")).lost["value", "lr"] == 3


def test_the_timer_of_a_process_that_was_started_again_counts_on_its_own() -> None:
    first, timer = DEEPSPEED.splitlines()[:2]
    found = read_text(f"{first.replace('step=10', 'step=900')}\n{timer}\n")
    assert [sample.step for sample in found.samples] == [898, 898]
    late = timer.replace("12:00:10", "12:09:10")
    assert [sample.step for sample in read_text(f"{first}\n{late}\n").samples] == [8, None]


def test_restarts_begin_an_attempt() -> None:
    found = read_text(deepspeed_lines(10, 20) + deepspeed_lines(10, 20, minute=5))
    assert [sample.att for sample in found.samples] == [0] * 4 + [1] * 4
    steps = [*range(5), *range(2, 6)]
    again = read_text("".join(f"completed step: {step}, seconds: 2.5, loss: 3.5\n" for step in steps))
    assert [sample.att for sample in again.samples] == [0] * 5 + [1] * 4
    assert [bool(sample.a.get("train.step.warmup")) for sample in again.samples] == [True] * 3 + [False] * 2 + [
        *[True] * 3,
        False,
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (DEEPSPEED.splitlines()[0][:80], "value"),
        (DEEPSPEED.splitlines()[0].replace("skipped=2", "skipped=20"), "value"),
        (DEEPSPEED.splitlines()[0].replace("2024-05-31", "2024-05-41"), "time"),
        (DEEPSPEED.splitlines()[1][:120], "value"),
    ],
)
def test_lines_of_deepspeed_that_are_refused(line: str, code: str) -> None:
    assert [refusal.code for refusal in read_text(f"{DEEPSPEED}{line}\n").refusals] == [code]


def test_lines_of_maxtext() -> None:
    found = read_text("I0306 06:31:32.222628 1 max_logging.py:20] config\n" + MAXTEXT)
    assert [(sample.step, sample.m) for sample in found.samples[:2]] == [
        (1, {"train.step.duration": 44.5, LOSS: 12.25, "train.step.count": 1.0}),
        (2, {"train.step.duration": 0.5, LOSS: 12.25, "train.step.count": 2.0}),
    ]
    assert [bool(sample.a.get("train.step.warmup")) for sample in found.samples] == [True] * 3 + [False]
    assert found.losses.clock == "none"
    assert not found.refusals


def test_post_training_of_maxtext_counts_from_one() -> None:
    pair = "peft_trainer.py:474] Train step {0} training loss: 0.69\ncompleted step: {0}, seconds: 2.5, loss: 0.69\n"
    found = read_text("Restoring checkpoint from runs/sft/0/items.\n" + "".join(map(pair.format, (1, 2, 3))))
    assert [sample.step for sample in found.samples] == [1, 2, 3]
    assert ("step", "step") not in found.lost


def test_rates_of_a_device_are_those_of_the_job_where_its_size_is_given() -> None:
    known = {"num_accelerators": 8, "peak_flops_per_second": 400e12}
    found = read_text(MAXTEXT, quantities=known)
    assert found.values("train.token.rate") == [8000.0] * 4
    assert found.values("train.flops.utilization") == [0.25] * 4
    assert "train.token.rate" not in read_text(MAXTEXT).samples[0].m


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("I0601 22:14:54 metric_logger.py:181] completed step: 7, seconds: 2.5, loss: 3.5, lr: 3.0e-04", [3.5]),
        ("completed step: 7, seconds:  2.500, TFLOP/s: 9.5,  loss: nan", ["NaN"]),
        ("completed step: 7, seconds: 2.5, TFLOP/s/device: 9.5, main_model_loss: 3.5", []),
    ],
)
def test_other_releases_of_maxtext(line: str, values: list[object]) -> None:
    found = read_text(line + "\n")
    assert found.values(LOSS) == values
    assert found.values("train.step.duration") == [2.5]
    assert found.samples[0].step == 8


def test_a_line_of_maxtext_without_its_time_is_refused() -> None:
    assert [refusal.code for refusal in read_text(MAXTEXT + "completed step: 9, sec\n").refusals] == ["value"]


def test_lines_of_nemo() -> None:
    found = read_text("[NeMo I 2024-07-22 12:05:15 lr_scheduler:948] Scheduler\n" + NEMO)
    assert [(sample.step, sample.m) for sample in found.samples] == [
        (step, {LOSS: loss, "train.step.duration": 2.5, "train.step.count": float(step)})
        for step, loss in ((49, 7.5), (50, 7.25), (51, 7.125))
    ]
    assert found.lost["meaning", "consumed_samples"] == 3
    assert not found.refusals


def test_a_bar_on_one_line_is_read_once_for_each_step() -> None:
    found = read_text("\r".join(line for line in NEMO.splitlines() for _ in range(3)) + "\n")
    assert [sample.step for sample in found.samples] == [49, 50, 51]


@pytest.mark.parametrize("text", ["2e+3", "1.23e+4", "nan"])
def test_a_step_that_is_rounded_is_none(text: str) -> None:
    found = read_text(NEMO.replace("global_step=48.00", f"global_step={text}"))
    assert [sample.step for sample in found.samples] == [None, 50, 51]
    assert found.values(LOSS) == [7.5, 7.25, 7.125]


def test_lines_of_the_second_nemo() -> None:
    fields = "lr: 1.5e-07 | global_step: 0 | reduced_train_loss: 11.03 | train_step_timing in s: 15.2"
    found = read_text(f"Training epoch 0, iteration 0/99 | {fields}\n")
    assert [(sample.step, sample.m) for sample in found.samples] == [
        (1, {LOSS: 11.03, "train.step.duration": 15.2, "train.learning_rate": 1.5e-07, "train.step.count": 1.0})
    ]


def test_a_bar_of_nemo_that_is_cut_is_refused() -> None:
    found = read_text(NEMO + "Epoch 0: : 7%| 52/700 [00:10<00:00, v_num=, reduced_train_loss=\n")
    assert [refusal.code for refusal in found.refusals] == ["value"]


@pytest.mark.parametrize(
    "text",
    [
        'print(f"completed step: {step}, seconds: {seconds}")\n',
        'line = "completed step: 5, seconds: 1.23, loss: 12.345"\n',
        "lora = checkpoints/nemo2_sft--reduced_train_loss=0.0801-epoch=3\n",
        '"Regex": "reduced_train_loss=([0-9]+)"\n',
        "RunningAvgSamplesPerSec={}\n",
    ],
)
def test_programs_that_speak_of_such_lines_are_none(text: str) -> None:
    assert detect(text.encode()) is None


def titan(step: int, second: int, *, rank: str = "", tps: str = "10,050") -> str:
    """A line of torchtitan in the form that its console shows, with colors."""
    values = f"grad_norm: 26.5000  memory: 66.91GiB(37.51%)  \x1b[34mtps: {tps}  tflops: 314.71  mfu: 14.00%\x1b[39m"
    time = f"[titan] 2026-02-24 19:46:{second:02},508 - root - INFO -"
    return f"{rank}{time} \x1b[31mstep: {step:2}  \x1b[32mloss:  {9 - step / 10}  {values}\n"


def test_lines_of_torchtitan() -> None:
    text = "[titan] 2026-02-24 19:46:10,100 - root - INFO - Training starts at step 1\n" + titan(1, 12) + titan(10, 22)
    found = read_text(text, quantities={"num_accelerators": 8})
    assert found.samples[0].m == {LOSS: 8.9, "train.gradient.norm": 26.5, "train.step.count": 1.0}
    rates = {"train.token.rate": 80_400.0, "train.flops.utilization": 0.14}
    assert found.samples[1].m == {LOSS: 8.0, "train.gradient.norm": 26.5, "train.step.count": 10.0, **rates}
    assert [sample.time_us for sample in found.samples] == [1_771_962_372_508_000, 1_771_962_382_508_000]
    assert not found.refusals


@pytest.mark.parametrize("rank", ["", "[rank{}]:"])
def test_a_step_of_torchtitan_is_read_once_whoever_reports_it(rank: str) -> None:
    lines = [titan(step, step, rank=rank.format(n), tps=f"{n},000") for step in (1, 2, 3) for n in range(4)]
    assert read_text("".join(lines)).values("train.step.count") == [1.0, 2.0, 3.0]


def test_lines_of_other_ranks_are_counted_and_a_loss_that_is_not_finite_is_reported(tmp_path: Path) -> None:
    lines = [titan(step, step, rank=f"[rank{n}]:") for step in range(1, 13) for n in range(3)]
    text = "".join(line.replace("loss:  7.", "loss:  nan ") if "[rank2]" in line else line for line in lines)
    found = read_text(text)
    assert found.lost["rank", "rank 1"] == found.lost["rank", "rank 2"] == 12
    (refusal,) = found.refusals
    assert (refusal.requirement, refusal.message) == ("TS-TEL-055", "the loss of rank 2 is NaN at step 11")
    (tmp_path / "train.log").write_text(text)
    result = validate([str(tmp_path / "train.log")])
    assert "TS-TEL-055" in {finding.requirement for finding in result.findings}
    assert result.coverage[0].notes == (
        "values not read: throughput(tps), tflops",
        "lines of rank 1 left out (12)",
        "lines of rank 2 left out (12)",
    )


def test_a_step_of_torchtitan_with_another_loss_is_of_another_run() -> None:
    lines = [titan(n, n) + titan(n, n).replace("loss:  ", "loss:  1") for n in range(1, 13)]
    assert [refusal.requirement for refusal in read_text("".join(lines)).refusals] == ["TS-TEL-031"]


def test_steps_that_are_skipped_at_the_start_leave_the_interval_of_deepspeed(tmp_path: Path) -> None:
    lines = deepspeed_lines(*range(10, 60, 10))
    found = read_text(lines)
    assert {head.report_interval_steps for head in found.heads} == {10}
    (tmp_path / "train.log").write_text(lines)
    assert "TS-TEL-031" not in {finding.requirement for finding in validate([str(tmp_path / "train.log")]).findings}


def test_a_count_of_skipped_steps_that_falls_is_no_restart(tmp_path: Path) -> None:
    lines = deepspeed_lines(*range(10, 60, 10)).replace("step=30, skipped=2", "step=30, skipped=0")
    found = read_text(lines)
    assert found.values("train.step.count") == [float(step - 2) for step in range(10, 60, 10)]
    assert len(found.heads) == 1
    (tmp_path / "train.log").write_text(lines)
    requirements = {finding.requirement for finding in validate([str(tmp_path / "train.log")]).findings}
    assert "TS-TEL-024" in requirements
    assert "TS-TEL-031" not in requirements


def test_values_that_are_not_read_and_steps_from_0_are_named(tmp_path: Path) -> None:
    line = "completed step: {}, seconds: 2.5, loss: {}, moe_lb_loss: 0.1, total_weights: 7\n"
    (tmp_path / "train.log").write_text("".join(line.format(n, 3.5 - n / 10) for n in range(12)))
    (coverage,) = validate([str(tmp_path / "train.log")]).coverage
    assert coverage.notes == (
        "values not read: moe_lb_loss, total_weights",
        "the log counts steps from 0, so that its step 0 is step 1 here",
    )


def test_a_step_of_torchtitan_that_falls_begins_an_attempt() -> None:
    found = read_text("".join(titan(step, n) for n, step in enumerate((1, 2, 3, 2, 3, 4))))
    assert [sample.att for sample in found.samples] == [0, 0, 0, 1, 1, 1]


def test_an_engine_of_deepspeed_that_is_initialized_again_begins_an_attempt() -> None:
    start = "[2024-05-31 13:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: version=0.14.0\n"
    found = read_text(start * 2 + deepspeed_lines(10, 20) + start * 2 + deepspeed_lines(30, 40, minute=50))
    assert [sample.att for sample in found.samples] == [0] * 4 + [1] * 4


def test_a_second_engine_before_the_first_step_is_no_restart() -> None:
    """As the reference model of DPO, which is initialized after the model that is trained has printed step 0."""
    start = "[2024-05-31 11:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: version=0.14.0\n"
    zero = "[2024-05-31 11:00:10,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=0, skipped=0, lr=[1e-05]\n"
    found = read_text(start + zero + start + deepspeed_lines(10, 20))
    assert {sample.att for sample in found.samples} == {0}
    again = read_text(start + zero + start + deepspeed_lines(10, 20) + start + zero + start + deepspeed_lines(30))
    assert {sample.att for sample in again.samples} == {0, 1}
    launch = "[2024-05-31 11:30:00,000] [INFO] [launch.py:146:main] WORLD INFO DICT: {'localhost': [0]}\n"
    found = read_text(launch + start + zero + launch + start + zero + deepspeed_lines(10))
    assert [head.att for head in found.heads] == [0, 1]


def test_a_log_of_megatron_whose_engine_speaks_long_before_it(tmp_path: Path) -> None:
    """The lines of DeepSpeed say no loss, and those of the program that runs it do."""
    zero = "[2024-05-31 11:00:10,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=0, skipped=0, lr=[1e-05]\n"
    own = "".join(f" iteration {step:8}/ 1000 | lm loss: 7.9E+00 |\n" for step in range(1, 9))
    noise = "loading a shard\n" * 200_000
    for number, start in enumerate((zero + noise, noise + zero + noise)):
        path = tmp_path / f"{number}.out"
        path.write_text(start + own)
        assert detect_file(File(path, path.name)).format == "megatron-log"
        assert run_file(0, path, path.name).format == "megatron-log"
        path.write_text(start + deepspeed_lines(10, 20))
        assert detect_file(File(path, path.name)).format == "deepspeed-log"
        assert run_file(0, path, path.name).format == "deepspeed-log"


def test_two_engines_of_deepspeed_in_one_log() -> None:
    """An actor and a critic count the same steps; the first of them is read."""
    one = deepspeed_lines(10, 20, 30).splitlines(keepends=True)
    text = ""
    for place in range(0, len(one), 2):
        lines = "".join(one[place : place + 2])
        text += lines + lines.replace("skipped=2", "skipped=1")
    found = read_text(text)
    assert [sample.step for sample in found.samples] == [8, 8, 18, 18, 28, 28]
    assert {sample.att for sample in found.samples} == {0}
    assert found.lost["meaning", "engine"] == 3
