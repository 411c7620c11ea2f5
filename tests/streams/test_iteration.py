"""Fields of a line of Megatron-LM that contradict each other, or the line before."""

from __future__ import annotations

import pytest
from reading import read_text


def line(step: int, *fields: str) -> str:
    return f" iteration {step:8d}/  100000 | " + " | ".join(fields) + " |\n"


def rated(rate: str, elapsed: str = "elapsed time per iteration (ms): 2000.0") -> str:
    return line(1, elapsed, "global batch size: 64", f"samples per second: {rate}")


@pytest.mark.parametrize(
    ("rate", "is_right"),
    [("32.0", True), ("32.5", True), ("33.0", False), ("0.032", False), ("0", False), ("3e1", False), ("nan", True)],
)
def test_samples_per_second_are_the_batch_over_the_time(rate: str, is_right: bool) -> None:
    codes = [refusal.code for refusal in read_text(rated(rate)).refusals]
    assert codes == ([] if is_right else ["rate"])


def test_the_factor_is_told() -> None:
    (found,) = read_text(rated("0.032")).refusals
    assert found.message == "samples per second is 0.032, and 64 samples in 2 s are 32, 1000 times as many"


def test_few_digits_are_no_contradiction() -> None:
    assert read_text(rated("0.001", "elapsed time per iteration (s): 64000")).refusals == []
    assert read_text(rated("1", "elapsed time per iteration (s): 45")).refusals == []


def scaled(step: int, scale: float, skipped: str = "0") -> str:
    return line(step, "lm loss: 1.0", f"loss scale: {scale}", f"number of skipped iterations: {skipped}")


@pytest.mark.parametrize(
    ("second", "num"),
    [
        (scaled(20, 32768.0), 1),
        (scaled(20, 32768.0, "1"), 0),
        (scaled(20, 131072.0), 0),
        (scaled(5, 32768.0), 0),
        (line(20, "lm loss: 1.0", "loss scale: 32768.0"), 0),
    ],
)
def test_a_scale_that_falls_has_skipped_an_iteration(second: str, num: int) -> None:
    found = read_text(scaled(10, 65536.0) + second)
    assert [refusal.code for refusal in found.refusals] == ["skip"] * num


def test_a_scale_that_falls_over_lines_that_are_missing_tells_nothing() -> None:
    found = read_text(scaled(10, 65536.0) + scaled(20, 65536.0) + scaled(50, 32768.0))
    assert found.refusals == []


@pytest.mark.parametrize("second", ["lm loss: 2.5E+00", "lm loss: 2.6E+00"])
def test_an_iteration_that_is_reported_again(second: str) -> None:
    """A warning at most: some files have the reports of several runs, one after another."""
    (refused,) = read_text(line(10, "lm loss: 2.5E+00") + line(10, second)).refusals
    assert (refused.message, refused.is_accepted) == ("iteration 10 is reported again", True)
    assert refused.requirement == "TS-TEL-031"


@pytest.mark.parametrize(("num", "messages"), [(9, []), (13, ["100 iterations in a row up to 100 are skipped"])])
def test_iterations_that_are_all_skipped(num: int, messages: list[str]) -> None:
    skipped = (line(10 * n, "number of skipped iterations:  10") for n in range(1, num + 1))
    found = read_text(line(0, "number of skipped iterations:   0") + "".join(skipped))
    assert [refusal.message for refusal in found.refusals] == messages


def test_skipped_iterations_with_a_completed_one_between() -> None:
    found = read_text("".join(line(10 * n, f"number of skipped iterations:  {9 + n % 2}") for n in range(1, 30)))
    assert not found.refusals


@pytest.mark.parametrize(("value", "num"), [("N/A", 1), ("2.5E+00", 0), ("2.5/2.6", 0)])
def test_a_loss_that_is_a_text(value: str, num: int) -> None:
    found = read_text(line(10, f"lm loss: {value}"))
    assert [refusal.message for refusal in found.refusals] == [f"lm loss is the text {value!r}"] * num
