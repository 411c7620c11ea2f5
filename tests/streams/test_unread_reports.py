"""Reports of steps in console logs that their reader does not read are counted, and none vanishes in a long line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from reading import read_text

from trainspec_validate.cli.validate import command

_LOSS = "train.loss.mean{train.loss.name=lm}"


def megatron(step: int, loss: object = 2.5, nan: int = 0, skipped: int = 0, digits: int = 8) -> str:
    return (
        f" [2026-01-31 12:{step:02}:00] iteration {step:{digits}}/      50 | elapsed time per iteration (ms): 60000.0 |"
        f" learning rate: 1.0E-04 | lm loss: {loss} | loss scale: 1.0 | number of skipped iterations:   {skipped} |"
        f" number of nan iterations:   {nan} |"
    )


def titan(step: int) -> str:
    return f"[titan] 2026-01-31 13:{step:02}:00,123 - root - INFO - step: {step}  loss: nan  memory: 10GiB(10%)  tps: 9"


def output(path: Path, text: str, *options: str) -> tuple[int, str]:
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(command, [str(path), "--color", "never", *options])
    return done.exit_code, done.output


def test_a_carriage_return_ends_a_line_of_a_console() -> None:
    found = read_text("\r".join(megatron(step, 3 - step / 100) for step in range(1, 31)))
    assert found.values(_LOSS) == [3 - step / 100 for step in range(1, 31)]
    assert len(read_text("10%|#\r20%|##\r" + "\r".join(map(titan, range(1, 9))) + "\n").samples) == 8


@pytest.mark.parametrize("between", ["\x85", "\u2028", "\f", " "])
def test_further_reports_of_a_line_are_counted(between: str) -> None:
    found = read_text(between.join(map(megatron, range(1, 31))))
    assert (len(found.samples), found.lost["unread", "reports"]) == (1, 29)


@pytest.mark.parametrize(
    "line",
    [
        titan(20),
        "iter 210: loss nan, time 100ms, mfu 1%",
        megatron(20, "nan").replace("iteration ", "iteration: "),
        megatron(20, "nan").replace("/ ", " of "),
        '{"step": 20, "loss": 2.5}',
        "Step [20/50] train loss = 2.5",
    ],
)
def test_reports_in_another_form_are_named_and_not_judged(tmp_path: Path, line: str) -> None:
    text = "".join(f"{megatron(step)}\n" for step in range(1, 11)) + f"done\n{line}\n{line}\n"
    code, told = output(tmp_path / "train.log", text, "--fail-on", "unjudged")
    assert "not judged: has reports of a step and a loss that are not read, the first on line 12" in told
    assert "reports of a step and a loss that are not read (2)" in told
    assert code != 0


@pytest.mark.parametrize(
    "line",
    [
        "step 20 took 2.5 s",
        "loss scale: 1.0 at iteration 20",
        "time per iteration 20 ms, the loss is fine",
        "saved step 20",
        "10%|# | 20/50 [00:10<00:10,  2.0it/s]",
        "elapsed time per iteration (ms): 20.0 | lm loss: 2.5",
    ],
)
def test_other_lines_are_no_reports(line: str) -> None:
    found = read_text("".join(f"{megatron(step)}\n{line}\n" for step in range(1, 11)))
    assert ("unread", "reports") not in found.lost


def test_a_line_of_several_losses_is_one_report() -> None:
    line = megatron(3) + " load_balancing_loss: 1.0 | mtp_1 loss: 2.0 |"
    assert ("unread", "reports") not in read_text(f"{megatron(1)}\n{megatron(2)}\n{line}\n").lost


def test_an_iteration_that_is_no_step_is_a_damaged_line() -> None:
    text = f"{megatron(1)}\n{megatron(2)}\n{megatron(3).replace('       3/', '10000000000000000003/')}\n{megatron(4)}\n"
    found = read_text(text)
    assert [each.requirement for each in found.refusals] == ["TS-TEL-001"]
    assert len(found.samples) == 3


@pytest.mark.parametrize(("nan", "skipped", "num"), [(1, 0, 1), (2, 1, 1), (1, 1, 0), (0, 1, 0)])
def test_iterations_that_are_not_finite_are_among_the_skipped_ones(nan: int, skipped: int, num: int) -> None:
    found = read_text(f"{megatron(1)}\n{megatron(2, nan=nan, skipped=skipped)}\n{megatron(3)}\n")
    assert [each.requirement for each in found.refusals] == ["TS-TEL-042"] * num
