"""Console logs that print a step as a line or a block of names and values: what each form gives."""

from __future__ import annotations

import pytest
from reading import read_text
from test_formats import STARTS

from trainspec_validate.telemetry.formats.line_forms import FORMS

LOSS, NORM, RATE = "train.loss.mean{train.loss.name=total}", "train.gradient.norm", "train.learning_rate"
VALIDATED = "train.evaluation.loss{train.evaluation.set=val,train.loss.name=total}"
EVALUATED = VALIDATED.replace("=val", "=eval")
TOKENS = "train.token.count{train.token.kind=all}"
BUILD = "step {:5d} | loss: 10.902707 | lr 1.6783e-06 | norm: 14.8630 | dt: 410.25ms | tok/sec: 1277966.93\n"
OLMO = """\
2025-12-11 00:27:01.586	host-02:0	olmo.train:979	INFO	[step={}/2,500,epoch=0]
    optim/total_grad_norm=59.18
    train/CrossEntropyLoss=10.64
    throughput/total_tokens=16,777,216
    throughput/device/tokens_per_second=47,831
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("build-nanogpt-log", [(1, {LOSS: 10.95501, RATE: 8.3916e-07, NORM: 15.3421})]),
        ("build-nanogpt-file", [(0, {VALIDATED: 10.9522}), (1, {LOSS: 10.95501})]),
        ("llmc-log", [(0, {VALIDATED: 11.0095}), (1, {LOSS: 11.0116, RATE: 1e-6, NORM: 14.96})]),
        ("llmc-console-log", [(1, {LOSS: 11.007906, NORM: 16.3235, RATE: 2.86e-6, "train.step.duration": 2.73472})]),
        ("olmo-log", [(1, {LOSS: 11.33})]),
        ("fairseq-log", [(2800, {LOSS: pytest.approx(6.4150771), RATE: 2.8e-5, NORM: 3.23})]),
        ("trainer-log", [(None, {LOSS: 2.0905, NORM: 1.95, RATE: 0.0005})]),
    ],
)
def test_the_values_of_a_report(name: str, expected: list[tuple[int | None, dict[str, float]]]) -> None:
    found = read_text(STARTS[name].decode())
    steps = "train.step.count"
    assert [(sample.step, {k: v for k, v in sample.m.items() if k != steps}) for sample in found.samples] == expected
    counted = [float(step) for step, values in expected if step is not None and LOSS in values]
    assert found.values(steps) == counted
    assert not found.refusals


def test_the_first_report_and_the_one_after_an_evaluation_have_no_time_of_a_step() -> None:
    lines = [
        "validation loss: 3.5\n",
        BUILD.format(0),
        BUILD.format(1),
        "HellaSwag accuracy: 1/4=0.25\n",
        BUILD.format(2),
    ]
    found = read_text("".join(lines))
    assert [sample.m.get("train.step.duration") for sample in found.samples] == [None, 410.25 / 1000, None]
    assert found.values("train.token.rate") == [1277966.93]
    assert read_text(BUILD.format(0) + BUILD.format(1)).samples[0].a == {"train.step.warmup": True}


def test_losses_of_fairseq_are_bits_where_their_power_of_2_is_printed() -> None:
    row = (
        '2021-03-08 12:31:36 | INFO | train_inner | {"epoch": 1, "loss": "16.5"%s, "num_updates": "7", "lr": "2e-05"}\n'
    )
    assert read_text(row % ', "ppl": "92681.9"').values(LOSS) == [pytest.approx(11.4369285)]
    without = read_text(row % "")
    assert without.values(LOSS) == []
    assert [sample.step for sample in without.samples] == [7]
    valid = "| epoch 001 | valid on 'valid' subset | valid_loss 8.1 | valid_ppl 118.06 | num_updates 600\n"
    assert len(read_text(row % "" + valid).samples) == 1


def test_a_block_has_its_time_and_ends_with_the_next_line() -> None:
    found = read_text(
        OLMO.format(5) + "2025-12-11 00:27:02.000	host-02:0	olmo.train:1	INFO	saved\n" + OLMO.format(6)
    )
    assert [sample.step for sample in found.samples] == [5, 6]
    assert found.samples[0].m == {LOSS: 10.64, NORM: 59.18, TOKENS: 16777216.0, "train.step.count": 5.0}
    assert found.samples[0].time_us == 1_765_412_821_586_000
    assert found.losses.clock == "local"
    assert read_text(OLMO.format(5), utc_offset_seconds=3600).samples[0].time_us == 1_765_409_221_586_000


def test_names_of_olmo_core() -> None:
    text = "2026-08-08 12:01:00 INFO [olmo_core.train:68] [step=100/2000,epoch=1,eta=5h11m]\n    train/CE loss=6.2341\n"
    found = read_text(
        text + "    throughput/total tokens=1.2B\n    optim/LR (group 0)=4e-4\n    optim/total grad norm=0.5\n"
    )
    assert found.samples[0].m == {LOSS: 6.2341, RATE: 0.0004, NORM: 0.5, "train.step.count": 100.0}


def test_reports_of_the_trainer_are_read_behind_a_progress_bar_and_as_texts() -> None:
    line = "  2%|5 | 10/500{'loss': '1.703', 'grad_norm': 'nan', 'learning_rate': '5e-06', 'epoch': '0.04'}\n"
    last = "{'eval_loss': 1.5, 'eval_runtime': 7.5, 'epoch': 1.0}\n{'train_runtime': 70.5, 'epoch': 1.0}\n"
    found = read_text(line + last)
    assert [sample.m for sample in found.samples] == [{LOSS: 1.703, NORM: "NaN", RATE: 5e-06}, {EVALUATED: 1.5}]
    assert found.lost["step", "step"] == 2


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.more is None and name != "trainer-log"])
def test_a_report_without_a_number_is_refused(name: str) -> None:
    form = FORMS[name]
    found = read_text(f"{form.example}\n{form.example.split(' ')[0]} {'x' * 3}\n{form.example}\n", name)
    assert len(found.samples) == 2
    assert not found.refusals
    assert read_text("s:5 trl:9.5\ns:6 trl:x\n").refusals[0].code == "value"


def test_a_restored_run_says_so() -> None:
    text = (
        "2025-12-11 00:26:01.586	host:0	train:352	INFO	Loading checkpoint from /ckpt/latest...\n"
        + OLMO.format(5)
    )
    assert read_text(text).heads[0].extensions["org.trainspec.import"]["restored"] is True
    assert "restored" not in read_text(OLMO.format(5)).heads[0].extensions["org.trainspec.import"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "".join(f"step {n:4d}/20 | loss 3.5 | norm 0.5 | lr 1e-04 | 400.25 ms\n" for n in range(15, 25)),
            "step 21 is beyond the 20 steps that the line states",
        ),
        (OLMO.format("2,501"), "step 2,501 is beyond the 2,500 steps that the line states"),
        (" iteration       21/      20 | lm loss: 2.5E+00 |\n", "step 21 is beyond the 20 steps that the line states"),
    ],
)
def test_a_step_beyond_the_number_of_steps_is_reported_once(text: str, message: str) -> None:
    assert [(each.requirement, each.message) for each in read_text(text).refusals] == [("TS-TEL-012", message)]


BAR = "  3%|###       | 3/100 [00:01<00:30,  3.05it/s]"
RETURNED = {
    "llmc-console-log": "step {0:4d}/100 | loss 2.{0:06d} (+nanz)| norm 1.5000 (+nanz)| lr 4.29e-06 | 410.25 ms",
    "build-nanogpt-log": "step {0:5d} | loss: 2.{0:06d} | lr 5.0350e-06 | norm: 4.5000 | dt: 410.25ms",
    "trainer-log": "{{'loss': 2.{0:04d}, 'grad_norm': 1.25, 'learning_rate': 0.0001, 'epoch': 0.{0:02d}}}",
    "llmc-log": "s:{0} trl:2.{0:04d} lr:0.000005 norm:8.45",
}


@pytest.mark.parametrize("name", RETURNED)
@pytest.mark.parametrize("end", ["\r", "\r\n"])
def test_reports_that_carriage_returns_end_are_read(name: str, end: str) -> None:
    found = read_text("".join(f"{RETURNED[name].format(step)}{end}" for step in range(1, 21)))
    assert len(found.values("train.loss.mean{train.loss.name=total}")) == 20


@pytest.mark.parametrize("name", list(RETURNED)[:3])
@pytest.mark.parametrize("end", ["\r", "\n"])
def test_reports_behind_a_progress_bar_are_read(name: str, end: str) -> None:
    found = read_text("".join(f"\r{BAR}\r{RETURNED[name].format(step)}{end}" for step in range(1, 21)))
    assert len(found.values("train.loss.mean{train.loss.name=total}")) == 20
    assert ("unread", "reports") not in found.lost


def test_blocks_of_composer() -> None:
    block = "{}:\n         Train {}: {}\n         Train loss/train/total: {}\n         Train lr-Adam/group0: 0.0000\n"
    text = block.format("[batch=1/100]", "throughput/tokens_per_sec", 20082.5, 10.5)
    text += block.format("0: [epoch=2][batch=3/5]", "time/batch", 7, 8.25).replace("\n  ", "\n0:  ")
    text += block.format("[epoch=2/ep][batch=4/5]", "l2_norm/grad/global", 1.5, "nan")
    found = read_text(text, "composer-log")
    assert [(sample.step, sample.m) for sample in found.samples] == [
        (1, {"train.token.rate": 20082.5, LOSS: 10.5, "train.step.count": 1.0}),
        (8, {LOSS: 8.25, "train.step.count": 8.0}),
        (None, {NORM: 1.5, LOSS: "NaN"}),
    ]
