"""The log of Megatron-LM: names with units, lines with and without times, and lines that are cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import read_text

from trainspec_validate.pipeline.validation import validate

LOSS = "train.loss.mean{train.loss.name=lm}"


def line(step: int, *fields: str, before: str = " ") -> str:
    return f"{before}iteration {step:8d}/  100000 | " + " | ".join(fields) + " |\n"


def test_a_line() -> None:
    found = read_text(
        line(
            10,
            "consumed samples:         640",
            "consumed tokens:      1310720",
            "elapsed time per iteration (ms): 2500.0",
            "learning rate: 1.500E-04",
            "global batch size:    64",
            "lm loss: 5.5E+00",
            "grad norm: nan",
            "number of skipped iterations:   0",
            "samples per second: 25.6",
        )
    )
    (sample,) = found.samples
    assert sample.step == 10
    assert sample.m == {
        "train.sample.count": 640.0,
        "train.token.count{train.token.kind=all}": 1310720.0,
        "train.step.duration": 2.5,
        "train.learning_rate": 0.00015,
        "train.batch.size": 64.0,
        LOSS: 5.5,
        "train.gradient.norm": "NaN",
        "train.step.skipped{train.skip.reason=overflow}": 0.0,
        "train.token.rate": 25.6 * 2048,
        "train.step.count": 10.0,
    }


@pytest.mark.parametrize("field", ["(ms): 2500.0", "(s): 2.5", "(us): 2500000"])
def test_a_unit_in_the_name_is_converted(field: str) -> None:
    found = read_text(line(1, f"elapsed time per iteration {field}"))
    assert found.values("train.step.duration") == [2.5]


def test_a_unit_of_another_kind_is_not_converted() -> None:
    found = read_text(line(1, "elapsed time per iteration (W): 2.5", "elapsed time per iteration (fortnight): 1"))
    assert not found.values("train.step.duration")
    assert [what for reason, what in found.lost if reason == "unknown-name"] == [
        "elapsed time per iteration (W)",
        "elapsed time per iteration (fortnight)",
    ]


def test_what_the_job_must_tell() -> None:
    text = line(1, "throughput per GPU (TFLOP/s/GPU): 400.0", "TFLOPs: 100.0")
    assert read_text(text).lost["quantity", "throughput per GPU (TFLOP/s/GPU)"] == 1
    found = read_text(text, quantities={"peak_flops_per_second": 8e14})
    assert found.values("train.flops.utilization") == [0.5]


def test_skips_of_one_interval_are_added_up() -> None:
    found = read_text(
        "".join(line(step, f"number of skipped iterations: {n}") for step, n in ((10, 2), (20, 0), (30, 3)))
    )
    assert found.values("train.step.skipped{train.skip.reason=overflow}") == [2.0, 2.0, 5.0]
    assert found.lost["meaning", "number of skipped iterations"] == 3


@pytest.mark.parametrize(("steps", "interval"), [((10, 20), 10), ((10, 11), 1), ((10, 10), 1), ((10, 5), 1), ((7,), 1)])
def test_the_head_has_the_interval_of_reports(steps: tuple[int, ...], interval: int) -> None:
    found = read_text("".join(line(step, "lm loss: 1.0") for step in steps))
    assert found.heads[0].report_interval_steps == interval
    assert [sample.step for sample in found.samples] == list(steps)


def test_times_have_no_zone() -> None:
    text = line(1, "lm loss: 1.0", before=" [2025-01-01 08:00:00] ") + line(
        2, "lm loss: 1.0", before=" [2025-01-01 08:00:02.5] "
    )
    found = read_text(text)
    assert [sample.time_us for sample in found.samples] == [1735718400_000000, 1735718402_500000]
    assert found.losses.clock == "local"
    assert ("time", "time") in found.lost
    found = read_text(text, utc_offset_seconds=8 * 3600)
    assert [sample.time_us for sample in found.samples] == [1735689600_000000, 1735689602_500000]
    assert found.losses.clock == "utc"
    assert ("time", "time") not in found.lost
    assert found.heads[0].extensions["org.trainspec.import"]["clock"] == "utc"


def test_lines_without_times() -> None:
    found = read_text(line(5, "lm loss: 1.0") + line(6, "lm loss: 1.0"), start_us=7_000_000)
    assert [sample.time_us for sample in found.samples] == [8_000_000, 9_000_000]
    assert found.losses.clock == "none"
    found = read_text(line(5, "lm loss: 1.0", before="[2025-01-01 08:00:00] ") + line(6, "lm loss: 1.0"))
    assert [refusal.code for refusal in found.refusals] == ["time"]
    assert len(found.samples) == 1


@pytest.mark.parametrize("before", ["", " ", "[default7]: ", "0: ", "(worker 3) [rank7] "])
def test_what_stands_before(before: str) -> None:
    text = f"using 8 GPUs\n{before}iteration       1/  10 | lm loss: 2.0 |\ndone\n"
    found = read_text(text, "megatron-log")
    assert found.values(LOSS) == [2.0]
    assert found.lost["text", "text"] == 2


def test_a_line_that_is_cut_off_gives_what_it_has() -> None:
    found = read_text(" iteration 5/ 10 | consumed samples: 64 | learning rate:")
    assert found.values("train.sample.count") == [64.0]
    assert [(r.code, r.message) for r in found.refusals] == [("cut-off", "the line is cut off after 'learning rate:'")]


def test_a_fall_of_the_iteration_is_told() -> None:
    found = read_text("".join(line(step, "lm loss: 1.0") for step in (10, 20, 15)))
    assert found.lost["step", "iteration"] == 1


def test_a_trailing_blank_in_a_name_is_told() -> None:
    found = read_text(" iteration 5/ 10 | lm loss : 2.0 | lm  loss: 3.0 | mystery |\n")
    assert found.values(LOSS) == [2.0]
    assert ("unknown-name", "lm  loss") in found.lost
    assert ("text", "mystery") in found.lost


@pytest.mark.parametrize("value", ["x", "1_000", "0x10", "1" * 500, "--"])
def test_values_that_are_no_number(value: str) -> None:
    found = read_text(line(5, f"lm loss: {value}"))
    assert not found.values(LOSS)
    assert found.lost["value", "lm loss"] == 1


# --- a program that starts again in the same log

LOADED = "  successfully loaded checkpoint from /run/checkpoints [ t 1/4, p 1/2 ] at iteration {}\n"
STARTS = {
    "loaded": LOADED.format(20),
    "older release": " loading checkpoint from /run/checkpoints at iteration 20\n",
    "world size": "using world size: 16, data-parallel size: 2, tensor-model-parallel size: 4\n",
    "all": "using world size: 16, data-parallel size: 2\n"
    + LOADED.format(20)
    + "[before the start of training step]\n",
}


def lines(first: int, last: int) -> str:
    return "".join(
        line(step, f"consumed samples: {64 * step}", f"lm loss: {5 - step / 100:.6E}")
        for step in range(first, last + 1)
    )


@pytest.mark.parametrize("start", STARTS)
def test_a_restart_that_the_log_shows_begins_an_attempt(start: str, tmp_path: Path) -> None:
    text = STARTS[start] + lines(1, 30) + STARTS[start] + lines(21, 40)
    found = read_text(text)
    assert [head.att for head in found.heads] == [0, 1]
    assert [sample.step for sample in found.samples if sample.att == 1] == list(range(21, 41))
    (tmp_path / "train.log").write_text(text)
    assert {finding.requirement for finding in validate([str(tmp_path / "train.log")]).findings} == set()


def test_a_restart_from_the_last_iteration_begins_an_attempt() -> None:
    found = read_text(lines(1, 20) + LOADED.format(20) + lines(21, 30))
    assert [head.att for head in found.heads] == [0, 1]
    assert [head.att for head in read_text(line(20) + LOADED.format(20) + lines(21, 30)).heads] == [0, 1]


@pytest.mark.parametrize(
    "shown", ["", "saving checkpoint at iteration 20 to /run\n", LOADED.format(25), LOADED.format(90)]
)
def test_iterations_that_fall_without_a_restart_are_no_attempt(shown: str, tmp_path: Path) -> None:
    text = LOADED.format(0) + lines(1, 30) + shown + lines(21, 40)
    assert [head.att for head in read_text(text).heads] == [0]
    (tmp_path / "train.log").write_text(text)
    assert "TS-TEL-024" in {finding.requirement for finding in validate([str(tmp_path / "train.log")]).findings}


def test_a_start_before_the_first_line_or_without_a_fall_is_no_restart() -> None:
    assert [head.att for head in read_text(STARTS["all"] + lines(1, 30)).heads] == [0]
    assert [head.att for head in read_text(lines(1, 2) + STARTS["world size"] + lines(3, 30)).heads] == [0]


def test_hyphens_in_names_of_megatron_deepspeed_are_blanks() -> None:
    found = read_text(line(1, "lm-loss: 1.25E+01", "grad_norm: 2.5") + line(2, "lm-loss: 1.15E+01", "grad_norm: 2.5"))
    assert found.values("train.loss.mean{train.loss.name=lm}") == [12.5, 11.5]
    assert found.values("train.gradient.norm") == [2.5, 2.5]


def reports(interval: int, second: float, *, first: float = 100.0, alone: float = 2.0) -> str:
    """A job whose first two reports have times of their own, and the others that of an iteration alone."""
    lines = []
    for number, step in enumerate([1, *range(max(2, interval), 40 * interval, interval)]):
        minutes, seconds = divmod(alone * step, 60)
        before = f" [2026-01-05 {10 + int(minutes) // 60:02}:{int(minutes) % 60:02}:{seconds:06.3f}] "
        told = {0: first, 1: second}.get(number, alone)
        lines.append(line(step, f"elapsed time per iteration (s): {told:.3f}", before=before))
    return "".join(lines)


@pytest.mark.parametrize("interval", [1, 10])
def test_a_second_report_that_is_a_mean_with_the_first_iteration_is_a_warning(interval: int) -> None:
    num = max(2, interval)
    found = read_text(reports(interval, (100.0 + 2.0 * (num - 1)) / num))
    assert [(one.requirement, one.is_accepted) for one in found.refusals] == [("TS-TEL-037", True)]
    assert "is a mean with the first iteration, of 100 s; by the clock it is 2 s" in found.refusals[0].message
    assert [sample.m.get("train.step.duration") for sample in found.samples[:3]] == [100.0, None, 2.0]


@pytest.mark.parametrize("second", [2.0, 30.0])
def test_a_second_report_of_its_own_iterations_is_kept(second: float) -> None:
    found = read_text(reports(10, second))
    assert not found.refusals
    assert found.values("train.step.duration")[:3] == [100.0, second, 2.0]


def test_a_mean_that_the_attempt_outweighs_is_left_out_alone() -> None:
    found = read_text(reports(10, (5.0 + 2.0 * 9) / 10, first=5.0))
    assert not found.refusals
    assert found.values("train.step.duration")[:3] == [5.0, 2.0, 2.0]


def test_a_mean_in_an_attempt_of_few_reports_is_left_out_alone() -> None:
    text = reports(1, 51.0)
    lines = text.splitlines(keepends=True)
    assert not read_text("".join(lines[:3])).refusals
    assert read_text("".join(lines[:8])).refusals


def evaluation(step: int, value: str, about: str = "", before: str = " ") -> str:
    return f"{before}validation loss at iteration {step}{about} | lm loss value: {value} | lm loss PPL: 1.0E+01 | \n"


EVALUATED = "train.evaluation.loss{{train.evaluation.set={},train.loss.name=lm}}"


def test_losses_of_evaluations() -> None:
    steps = [line(step, f"lm loss: {step}.5E+00") for step in range(10, 60, 10)]
    text = evaluation(0, "9.5E+00") + "".join(
        (
            steps[0],
            evaluation(10, "5.5E+00"),
            evaluation(10, "5.5E+00", before="[default7]:").replace("validation", "valid"),
            *steps[1:4],
        )
    )
    text += evaluation(40, "NAN") + steps[4] + evaluation(50, "4.5E+00", " on validation set")
    text += evaluation(50, "4.25E+00", " on test set", "[default7]:") + evaluation(50, "3.5E+00", " [hplt]")
    text += " validation loss at the end of training for test data | lm loss value: 4.25E+00 | \n"
    found = read_text(text)
    assert found.values(EVALUATED.format("validation")) == [5.5, "NaN", 4.5]
    assert found.values(EVALUATED.format("test")) == [4.25, 4.25]
    assert found.values(EVALUATED.format("hplt")) == [3.5]
    assert [sample.step for sample in found.samples] == [10, 10, 20, 30, 40, 40, 50, 50, 50, 50, 50]
    assert found.lost["meaning", "evaluation"] == 1
    assert ("unread", "reports") not in found.lost


def test_an_evaluation_before_a_restart_is_of_the_attempt_before() -> None:
    steps = [line(step, "lm loss: 2.5E+00") for step in (10, 20, 30)]
    start = "  successfully loaded checkpoint from /save at iteration 20\n"
    found = read_text("".join([*steps, evaluation(30, "2.5E+00"), start, steps[2], line(40, "lm loss: 2.5E+00")]))
    assert [(sample.step, sample.att or 0) for sample in found.samples] == [
        (10, 0),
        (20, 0),
        (30, 0),
        (30, 0),
        (30, 1),
        (40, 1),
    ]


def test_an_evaluation_of_gpt_neox() -> None:
    text = " validation results at iteration 20 | lm_loss value: 6.5E+00 | lm_loss_ppl value: 6.6E+02 | \n"
    found = read_text(line(10, "lm loss: 2.5E+00") + line(20, "lm loss: 2.5E+00") + text)
    assert found.values(EVALUATED.format("validation")) == [6.5]


@pytest.mark.parametrize(
    "said",
    [
        "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n",
        "  restart_count=1\n",
        "[rank_monitor] restarting the training processes of this node\n",
        "resuming from the checkpoint of iteration 20\n",
    ],
)
def test_a_restart_that_is_announced_begins_an_attempt(tmp_path: Path, said: str) -> None:
    step = "[2026-01-31 12:{:02d}:{:02d}] "

    def lines(first: int, last: int, after: int) -> str:
        return "".join(
            line(
                n,
                "elapsed time per iteration (ms): 2000.0",
                f"lm loss: {9 - n / 99 - after / 9e3:.6E}",
                before=step.format(*divmod(2 * n + after, 60)),
            )
            for n in range(first, last)
        )

    before, again = lines(1, 31, 0), lines(21, 61, 120)
    path = tmp_path / "a.log"
    path.write_text(before + said + again)
    assert [each.att for each in read_text(path.read_text()).heads] == [0, 1]
    assert "TS-TEL-024" not in {finding.requirement for finding in validate([str(path)]).findings}
    path.write_text(before + again)
    assert [each.att for each in read_text(path.read_text()).heads] == [0]
