"""JSON Lines with an object for each report: logging.jsonl of ms-swift, and those of training loops of one's own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from reading import read_text

LOSS = "train.loss.mean{train.loss.name=total}"


def rows(*found: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in found)


def swift(step: int, **more: Any) -> dict[str, Any]:
    return {**more, "epoch": step / 9, "global_step/max_steps": f"{step}/90", "elapsed_time": "1m 5s"}


def test_rows_of_swift() -> None:
    text = rows(
        swift(1, loss=2.5, grad_norm=3.5, learning_rate=1e-4, token_acc=0.5),
        swift(10, loss=2.25, grad_norm=3.25, learning_rate=9e-5),
        swift(10, eval_loss=2.125, eval_runtime=9.5),
        swift(12, train_runtime=99.5, train_loss=2.3),
        {"model_parameter_info": "7B", "global_step": 12, "log_history": [{"loss": 2.5, "step": 1}]},
    )
    found = read_text(text)
    assert found.losses.clock == "none"
    assert not found.refusals
    assert [sample.step for sample in found.samples[:2]] == [1, 10]
    assert found.values(LOSS) == [2.5, 2.25]
    assert found.values("train.gradient.norm") == [3.5, 3.25]
    assert found.values("train.learning_rate") == [1e-4, 9e-5]
    evaluated = "train.evaluation.loss{train.evaluation.set=eval,train.loss.name=total}"
    assert found.values(evaluated) == [2.125]
    assert found.lost["text", "row"] == 1
    assert found.lost["incident", "total"] == 1


@pytest.mark.parametrize("name", ["step", "iteration", "global_step", "train/step"])
def test_rows_of_a_loop_of_its_own(name: str) -> None:
    found = read_text(rows(*({name: step, "loss": 3.0 - step / 100, "lr": 1e-4} for step in (10, 20, 30))))
    assert [sample.step for sample in found.samples] == [10, 20, 30]
    assert found.values(LOSS) == [2.9, 2.8, 2.7]
    assert found.values("train.step.count") == [10.0, 20.0, 30.0]


def test_steps_from_0_are_indices() -> None:
    found = read_text(rows(*({"step": step, "loss": 2.5} for step in range(3))))
    assert [sample.step for sample in found.samples] == [1, 2, 3]


def test_steps_that_come_again_are_unknown() -> None:
    found = read_text(rows(*({"step": step, "loss": 2.5} for step in (1, 2, 3, 1, 2, 3))))
    assert {sample.step for sample in found.samples} == {None}


def test_rows_of_another_kind_are_left_out() -> None:
    train = [{"split": "train", "step": step, "loss": 2.5} for step in (1, 2, 3)]
    found = read_text(rows(*train, {"split": "test", "step": 3, "loss": 9.5}))
    assert found.values(LOSS) == [2.5, 2.5, 2.5]
    assert found.lost["meaning", "split"] == 1


@pytest.mark.parametrize(("first", "clock"), [(1767225600.5, "utc"), (12.5, "none")])
def test_only_seconds_since_1970_are_times(first: float, clock: str) -> None:
    found = read_text(rows(*({"step": step, "loss": 2.5, "time": first + step} for step in (1, 2, 3))))
    assert found.losses.clock == clock
    if clock == "utc":
        assert [sample.time_us for sample in found.samples] == [1767225601500000 + n * 1_000_000 for n in range(3)]


def test_a_row_without_the_time_of_others_is_refused() -> None:
    text = rows({"step": 1, "loss": 2.5, "time": 1767225600}, {"step": 2, "loss": 2.5})
    assert [one.requirement for one in read_text(text).refusals] == ["TS-TEL-016"]


@pytest.mark.parametrize(
    "text",
    [
        rows({"text": "the loss of step 5", "step": 5}, {"text": "b", "step": 6}),
        rows({"loss": 2.5}, {"loss": 2.5}),
        rows({"step": 5, "loss": "much"}, {"step": 6, "loss": "less"}),
    ],
)
def test_other_data_are_no_rows_of_steps(text: str) -> None:
    with pytest.raises(AssertionError, match="no format fits"):
        read_text(text)


def test_a_name_that_changes_in_the_middle_leaves_steps_without_a_loss() -> None:
    found = read_text(rows(*({"step": n, ("loss" if n <= 20 else "my_loss"): 3.0 - n / 100} for n in range(1, 41))))
    assert len(found.values(LOSS)) == 20
    assert found.values("train.step.count") == [float(step) for step in range(1, 41)]


def test_a_last_row_without_a_loss_is_no_step() -> None:
    training = [{"step": step, "loss": 2.5} for step in range(1, 11)]
    found = read_text(rows(*training, {"step": 10, "accuracy": 0.5}, {"step": 11, "accuracy": 0.5}))
    assert found.values("train.step.count") == [float(step) for step in range(1, 11)]


@pytest.mark.parametrize(
    ("told", "num"), [("broken", 1), ("2.5 nats", 1), ("None", 0), ("N/A", 0), ("2.5", 0), (None, 0)]
)
def test_a_loss_that_is_a_text_is_refused_once(told: str | None, num: int) -> None:
    training = [{"step": step, "loss": 2.5} for step in range(1, 6)]
    found = read_text(rows(*training, *({"step": step, "loss": told} for step in (6, 7, 8))))
    assert [(one.code, one.message) for one in found.refusals] == [
        ("value", f"loss is the text {told!r}; the first of 3 rows")
    ] * num
