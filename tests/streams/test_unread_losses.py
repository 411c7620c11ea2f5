"""Losses that are not finite in any spelling are read as such; losses that cannot be read leave a log not judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from reading import read_text

from trainspec_validate.cli.validate import command

PRINTED = {
    "build-nanogpt-log": "step {n:5d} | loss: {loss} | lr 5.0350e-06 | norm: {norm} | dt: 410.25ms",
    "llmc-log": "s:{n} trl:{loss} lr:0.000005 norm:{norm}",
    "llmc-console-log": "step {n:4d}/50 | loss {loss} (+nanz)| norm {norm} (+nanz)| lr 4.29e-06 | 410.25 ms",
    "trainer-log": "{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': 0.0001, 'epoch': {n}.5}}",
    "torchtitan-log": "[titan] 2026-01-31 13:{n:02}:00,123 - root - INFO - step: {n}  loss: {loss}  grad_norm: {norm}",
    "maxtext-log": "completed step: {n}, seconds: 2.5, loss: {loss}, lr: 1e-4",
    "fairseq-log": "| epoch 001: {n} / 1891 loss={loss}, ppl=1886.05, num_updates={n}, lr=8.90889e-05, gnorm={norm}",
    "megatron-log": " [2026-01-31 12:{n:02}:00] iteration {n:8}/      50 | lm loss: {loss} | grad norm: {norm} | "
    "number of skipped iterations:   0 |",
    "nemo-log": "Epoch 0:   1%|1| {n}/500 [00:10<10:00, v_num=ab, reduced_train_loss={loss}, global_step={n}.0]",
    "nanogpt-iterations-log": "iter {n}: loss {loss}, time 250.00ms, mfu 30.00%",
    "lightning-csv": "0,{n},{loss},{norm}",
}
STARTS = {"lightning-csv": "epoch,step,train_loss,lr-Adam\n"}
SPELLED = ["-nan", "NAN", "nan(ind)", "-nan(ind)", "1.#QNAN", "-1.#IND", "tensor(nan)", "np.float64(nan)"]
UNREAD = ["********", "None", "N/A", "1e400", "tensor([nan])"]


def lines(name: str, loss: object, num: int = 4, norm: object = 0.5) -> str:
    """Four reports with a loss, and `num` with another one."""
    found = [
        PRINTED[name].format(n=n, loss=2.9 - n / 50 if n < 5 else loss, norm=0.5 + n / 50 if n < 5 else norm)
        for n in range(1, 5 + num)
    ]
    return STARTS.get(name, "") + "".join(f"{line}\n" for line in found)


def output(path: Path, text: str) -> tuple[int, str]:
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(command, [str(path), "--color", "never", "--format", "concise", "--fail-on", "warning"])
    return done.exit_code, done.output


@pytest.mark.parametrize("spelled", SPELLED)
@pytest.mark.parametrize("name", PRINTED)
def test_a_loss_that_is_not_finite_is_read_in_any_spelling(name: str, spelled: str) -> None:
    found = read_text(lines(name, spelled))
    losses = [value for sample in found.samples for key, value in sample.m.items() if key.startswith("train.loss.mean")]
    assert losses[4:] == ["NaN"] * 4


@pytest.mark.parametrize("loss", UNREAD)
@pytest.mark.parametrize("name", PRINTED)
def test_a_loss_that_is_no_number_is_never_silent(tmp_path: Path, name: str, loss: str) -> None:
    told = output(tmp_path / "train.log", lines(name, loss))[1]
    assert "error[TS-TEL-001]" in told or "not judged: has values of" in told or "without a loss" in told


@pytest.mark.parametrize("name", ["llmc-log", "trainer-log", "fairseq-log", "torchtitan-log", "megatron-log"])
def test_a_gradient_norm_in_any_spelling(name: str) -> None:
    assert read_text(lines(name, 2.5, norm="-nan(ind)")).values("train.gradient.norm")[4:] == ["NaN"] * 4
    told = read_text(lines(name, 2.5, norm="****"))
    assert [what for reason, what in told.lost if reason == "unread"] or told.refusals


def test_a_value_of_another_name_that_is_a_word_is_none_that_is_missed() -> None:
    text = "".join(f"completed step: {n}, seconds: 2.5, loss: 2.5, mode: fast, lr: 1e-4\n" for n in range(6))
    found = read_text(text)
    assert not [each for each in found.lost if each[0] == "unread" or each[1] == "mode"]


@pytest.mark.parametrize("num", [1, 5])
def test_reports_of_megatron_without_a_loss_are_counted(num: int) -> None:
    text = lines("megatron-log", "", num).replace(" lm loss:  |", "")
    found = read_text(text)
    assert found.lost["unread", "absent"] == num
    skipped = text.replace("skipped iterations:   0 |", "skipped iterations:   1 |")
    assert ("unread", "absent") not in read_text(skipped).lost


def test_a_log_of_megatron_without_any_loss_is_not_judged(tmp_path: Path) -> None:
    text = lines("megatron-log", "2.5")
    without = "".join(f"{line[: line.index('lm loss')]}{line[line.index('grad') :]}\n" for line in text.splitlines())
    assert "iterations without a loss" in output(tmp_path / "a.log", without)[1]
    named = without.replace("grad norm", "contrastive loss: 2.5 | grad norm")
    assert "has no loss at any step (contrastive loss not read)" in output(tmp_path / "b.log", named)[1]


@pytest.mark.parametrize(
    "line", ["{'loss': nan, 'epoch': 1.0}", "10%|# | 5/50 [00:10<00:10, loss=nan]", "Loss is nan, stopping training"]
)
def test_a_loss_of_another_program_that_is_not_finite_is_named(tmp_path: Path, line: str) -> None:
    text = lines("llmc-console-log", 2.5) + f"{line}\n"
    assert (
        "has lines with a loss that is not finite and no step, the first on line 9" in output(tmp_path / "a", text)[1]
    )


@pytest.mark.parametrize("line", ["best_loss: inf", "check_for_nan_in_loss: nan", "if loss is nan: stop", "loss: 2.5"])
def test_other_words_on_losses_are_no_reports(line: str) -> None:
    assert not [each for each in read_text(lines("llmc-console-log", 2.5) + f"{line}\n").lost if each[0] == "unread"]


def rows(*losses: object, **more: object) -> str:
    return "".join(json.dumps({"step": n, "loss": loss, "lr": 0.5, **more}) + "\n" for n, loss in enumerate(losses, 1))


def test_a_loss_under_another_name_in_some_rows_is_missed(tmp_path: Path) -> None:
    text = rows(*[3 - n / 50 for n in range(20)]).replace('{"step": 7, "loss"', '{"step": 7, "l0ss"')
    assert (
        "has optimizer steps without a loss, unlike others, the first on line 7"
        in output(tmp_path / "a.jsonl", text)[1]
    )


@pytest.mark.parametrize("word", ["null", "None", "-", "n/a"])
@pytest.mark.parametrize(
    ("head", "row"),
    [("epoch,loss,val_loss,lr", "{n},{loss},2.0,0.1"), ("epoch,step,train_loss", "0,{n},{loss}")],
)
def test_cells_of_a_table_without_a_loss_are_counted(tmp_path: Path, head: str, row: str, word: str) -> None:
    told = [row.format(n=n, loss=word if 6 <= n < 16 else 2 + n / 64) for n in range(1, 31)]
    found = read_text("\n".join([head, *told]) + "\n")
    assert found.lost["unread", "absent"] == 10
    text = "\n".join([head, *told]) + "\n"
    assert (
        "has optimizer steps without a loss, unlike others, the first on line 7" in output(tmp_path / "a.csv", text)[1]
    )


def test_rows_of_an_evaluation_or_without_a_cell_lack_no_loss() -> None:
    head = "epoch,step,train_loss,val_loss\n"
    for none in ("null", ""):
        text = head + "".join(f"0,{n},{none},2.5\n" if n % 5 == 0 else f"0,{n},2.25,{none}\n" for n in range(1, 31))
        assert ("unread", "absent") not in read_text(text).lost
    empty = "epoch,step,train_loss\n" + "".join(f"0,{n},{'' if n % 5 == 0 else 2.25}\n" for n in range(1, 31))
    assert ("unread", "absent") not in read_text(empty).lost


def test_rows_that_lack_a_loss_next_to_a_rate_are_counted_once() -> None:
    rows = [f"{n},{'null' if n == 5 else 2.25},{'null' if n in (4, 5) else 0.1}\n" for n in range(1, 31)]
    assert read_text("epoch,loss,lr\n" + "".join(rows)).lost.get(("unread", "absent"), 0) <= 1
    rated = [f"{n},{'null' if 5 <= n < 9 else 2.25},0.1\n" for n in range(1, 31)]
    assert read_text("epoch,loss,lr\n" + "".join(rated)).lost["unread", "absent"] == 4


def test_rows_of_a_loss_that_is_logged_now_and_then_lack_none(tmp_path: Path) -> None:
    """Each third row has the loss, as where other values are logged more often."""
    text = "".join(
        json.dumps({"step": n, "lr": 0.5} | ({} if n % 3 else {"loss": 3 - n / 50})) + "\n" for n in range(30)
    )
    assert "without a loss" not in output(tmp_path / "a.jsonl", '{"step": 0, "lr": 0.5, "loss": 3.0}\n' + text)[1]
    ended = text + "".join(json.dumps({"step": n, "lr": 0.5}) + "\n" for n in range(30, 45))
    assert "without a loss" in output(tmp_path / "b.jsonl", '{"step": 0, "lr": 0.5, "loss": 3.0}\n' + ended)[1]


def test_values_that_are_called_a_loss_and_not_read_are_named(tmp_path: Path) -> None:
    table = "epoch,step,sub_loss,lr-Adam\n" + "".join(f"0,{n},2.5,1\n" for n in range(0, 90, 10))
    assert "has no loss at any step (sub_loss not read)" in output(tmp_path / "a.csv", table)[1]
    nested = "".join(json.dumps({"step": n, "loss": {"lm": 2.5}, "lr": 0.5}) + "\n" for n in range(1, 9))
    text = rows(2.5) + nested
    assert "has optimizer steps without a loss" in output(tmp_path / "b.jsonl", rows(2.5, 2.5) + text)[1]


@pytest.mark.parametrize(
    ("losses", "norms", "is_reported"),
    [
        ([2.5] * 6, ["nan"] * 6, True),
        ([2.5] * 4, ["nan"] * 4, False),
        ([2.5] * 6, ["inf"] * 6, False),
        ([2.5] * 6, ["nan", "nan", "nan", "nan", "nan", "1.5"], False),
        ([0.0] * 6, [1.5, 1.25, 1.75, 1.0, 2.5, 2.25], True),
    ],
)
def test_norms_that_are_never_a_number_and_losses_of_0_where_steps_are_unknown(
    tmp_path: Path, losses: list[float], norms: list[object], is_reported: bool
) -> None:
    reports = zip(range(len(losses)), losses, norms, strict=True)
    text = "".join(
        PRINTED["trainer-log"].format(n=n, loss=loss - (n / 9 if loss else 0), norm=norm) + "\n"
        for n, loss, norm in reports
    )
    code, told = output(tmp_path / "train.log", text)
    assert ("warning[TS-TEL-026]" in told, code) == (is_reported, int(is_reported))


def test_a_loss_scale_that_cannot_fall_is_an_end(tmp_path: Path) -> None:
    text = lines("trainer-log", 2.5) + "[deepspeed] OVERFLOW! Rank 0 Skipping step.\n"
    text += "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n"
    code, told = output(tmp_path / "train.log", text)
    assert "error[TS-TEL-048] the log says: Current loss scale already at minimum" in told
    assert code == 1


def test_the_gradient_norm_of_a_training_loop_of_its_own_is_read(tmp_path: Path) -> None:
    text = rows(*[3 - n / 50 for n in range(60)], grad_norm=float("nan"))
    assert read_text(text).values("train.gradient.norm") == ["NaN"] * 60
    assert "warning[TS-TEL-026]" in output(tmp_path / "a.jsonl", text)[1]


@pytest.mark.parametrize(
    "saved",
    [
        "Async checkpoint save for step 10 (/runs/a/model_name=0--val_loss=0.00-step=9-last.ckpt) finalized.",
        "Saved iteration 10 as model--val_loss=0.00-step=9.ckpt",
        "Successfully saved checkpoint from iteration 10 to path=s3://runs/val_loss=0.00-step=9",
    ],
)
def test_the_name_of_a_checkpoint_is_no_report(tmp_path: Path, saved: str) -> None:
    told = output(tmp_path / "train.log", f"{lines('nemo-log', 2.5)}{saved}\n")[1]
    assert "reports of a step and a loss" not in told
