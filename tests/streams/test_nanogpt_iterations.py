"""The log of nanoGPT: iterations, evaluations between them, restarts, damage."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import read_text

from trainspec_validate.pipeline.validation import validate

LOSS = "train.loss.mean{train.loss.name=total}"
EVALUATED = "train.evaluation.loss{{train.evaluation.set={},train.loss.name=total}}"


def iterations(first: int, last: int, every: int = 1) -> str:
    """Lines as the program prints them."""
    return "".join(
        f"iter {index}: loss {10.9 - index / 100:.4f}, time {250 + index % 7:.2f}ms, mfu 107.52%\n"
        for index in range(first, last + 1, every)
    )


def evaluation(step: int) -> str:
    return f"step {step}: train loss {10.9 - step / 100:.4f}, val loss {11 - step / 100:.4f}\n"


def test_lines_are_records_with_completed_steps() -> None:
    found = read_text("number of parameters: 123.59M\n" + evaluation(0) + iterations(0, 1))
    assert [(sample.step, sample.m) for sample in found.samples] == [
        (0, {EVALUATED.format("train"): 10.9, EVALUATED.format("val"): 11.0}),
        (1, {LOSS: 10.9, "train.step.count": 1.0}),
        (2, {LOSS: 10.89, "train.step.duration": 0.251, "train.step.count": 2.0}),
    ]
    assert found.losses.clock == "none"
    assert found.lost["meaning", "mfu"] == 2
    assert not found.refusals


@pytest.mark.parametrize("line", ["iter 5: loss 2.5, time 250.00ms\n", "iter 5: loss nan, time 250ms, mfu 30%\r\n"])
def test_other_spellings_of_a_line(line: str) -> None:
    (sample,) = read_text(line).samples
    assert (sample.step, sample.m[LOSS]) == (6, "NaN" if "nan" in line else 2.5)


@pytest.mark.parametrize("last", [20, 25])
def test_a_resume_begins_an_attempt(last: int, tmp_path: Path) -> None:
    """It evaluates at the step of its checkpoint again."""
    text = evaluation(0) + iterations(0, last) + evaluation(20) + iterations(20, 40)
    found = read_text(text)
    assert [head.att for head in found.heads] == [0, 1]
    (tmp_path / "train.log").write_text(text)
    assert validate([str(tmp_path / "train.log")]).findings == ()


def test_evaluations_of_a_run_begin_no_attempt() -> None:
    text = evaluation(0) + iterations(0, 199, 10) + evaluation(200) + iterations(200, 300, 10)
    assert [head.att for head in read_text(text).heads] == [0]


@pytest.mark.parametrize("line", ["iter 5: loss\n", "iter 5: loss x, time 250.00ms\n", "step 5: train loss 2.5\n"])
def test_a_line_without_its_values_is_refused(line: str) -> None:
    found = read_text(iterations(0, 4) + line)
    assert len(found.refusals) == 1
    assert len(found.samples) == 5


@pytest.mark.parametrize("every", [1, 10, 100])
@pytest.mark.parametrize("middle", ["", evaluation(500)])
def test_the_interval_between_reports_counts_from_the_first_iteration(every: int, middle: str, tmp_path: Path) -> None:
    text = iterations(0, 5 * every - 1, every) + middle + iterations(5 * every, 9 * every, every)
    if middle:
        text = text.replace("step 500", f"step {5 * every}")
    assert [head.report_interval_steps for head in read_text(text).heads] == [every]
    (tmp_path / "train.log").write_text(text)
    assert validate([str(tmp_path / "train.log")]).findings == ()


def test_reports_between_the_multiples_of_their_interval_are_a_part_of_all(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(iterations(3, 93, 10))
    assert [found.requirement for found in validate([str(tmp_path / "train.log")]).findings] == ["TS-TEL-031"]


PREFIXES = ["0: ", "\x1b[0m", "\x1b[2K\x1b[32m", "[rank0]: ", "2026-01-01 00:00:00 | ", "x\r", "worker-0:"]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_reports_after_the_prefix_of_a_launcher_are_read(prefix: str) -> None:
    bare, prefixed = iterations(0, 3) + evaluation(4), iterations(4, 9)
    text = bare + "".join(f"{prefix}{line}\n" for line in (evaluation(4) + prefixed).splitlines())
    found = read_text(text)
    assert [sample.m for sample in found.samples] == [
        sample.m for sample in read_text(bare + evaluation(4) + prefixed).samples
    ]
    assert not found.refusals
    # What a carriage return ends is a line of its own, which a terminal shows no longer.
    assert (("text", "text") in found.lost) is prefix.endswith("\r")


def test_colours_after_a_report_are_no_part_of_it() -> None:
    found = read_text(iterations(0, 3) + "\x1b[32miter 4: loss 2.5\x1b[0m, time 250.00ms, mfu 30.00%\x1b[0m\n")
    assert found.samples[-1].m[LOSS] == 2.5


@pytest.mark.parametrize("line", ["0: iter 5: loss , time 1ms\n", "\x1b[0mstep 5: train loss 2.5\n"])
def test_a_prefixed_line_without_its_values_is_refused(line: str) -> None:
    assert len(read_text(iterations(0, 4) + line).refusals) == 1


@pytest.mark.parametrize("prefix", ["0: ", "[rank0]: ", "\x1b[0m"])
def test_a_log_whose_every_line_has_a_prefix_is_read(prefix: str) -> None:
    found = read_text("".join(f"{prefix}{line}\n" for line in iterations(0, 9).splitlines()))
    assert [sample.step for sample in found.samples] == list(range(1, 11))


def test_bits_per_character_are_converted_to_nats() -> None:
    found = read_text(
        "step 0: train loss 6.0 BPC, val loss 6.5 BPC\niter 0: loss 6.25 BPC, time 9.00ms, mfu -100.00%\n"
    )
    values = [value for sample in found.samples for key, value in sample.m.items() if "loss" in key]
    assert values == [pytest.approx(bits * 0.6931471805599453) for bits in (6.0, 6.5, 6.25)]
    assert not found.refusals
