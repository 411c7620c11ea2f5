"""A file that has the name of a loss, and a number for it in no row, is never taken for one without findings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from reading import read_text

from trainspec_validate import validate

_NUM = 12


def _lines(row: Callable[[int, Any], dict[str, Any]], losses: Sequence[float | None]) -> str:
    return "".join(json.dumps(row(n, loss)) + "\n" for n, loss in enumerate(losses, 1))


def _table(header: str, row: str, losses: Sequence[float | None]) -> str:
    filled = (row.format(n=n, loss="" if loss is None else loss) for n, loss in enumerate(losses, 1))
    return "".join(f"{line}\n" for line in (header, *filled))


def _state(losses: Sequence[float | None]) -> str:
    entries = [{"step": n, "epoch": n / 10, "loss": loss, "grad_norm": 0.5} for n, loss in enumerate(losses, 1)]
    return json.dumps({"global_step": _NUM, "log_history": entries})


FILES: dict[str, Callable[[Sequence[float | None]], str]] = {
    "json-rows": lambda losses: _lines(lambda n, loss: {"step": n, "loss": loss, "lr": 0.1}, losses),
    "swift-log": lambda losses: _lines(
        lambda n, loss: {"loss": loss, "learning_rate": 0.1, "global_step/max_steps": f"{n}/{_NUM}"}, losses
    ),
    "llamafactory": lambda losses: _lines(
        lambda n, loss: {"current_steps": n, "total_steps": _NUM, "loss": loss, "lr": 0.1}, losses
    ),
    "trainer-state": _state,
    "lightning-csv": lambda losses: _table("epoch,step,train_loss,lr-Adam", "0,{n},{loss},0.1", losses),
    "epoch-csv": lambda losses: _table("epoch,train_loss,lr", "{n},{loss},0.1", losses),
    "wandb-history": lambda losses: _table("_step,_timestamp,train/loss", "{n},17000000{n:02},{loss}", losses),
    "wandb-panel": lambda losses: _table(
        '"Step","a-1 - loss","a-1 - loss__MIN","a-1 - loss__MAX"', '"{n}","{loss}","{loss}","{loss}"', losses
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_loss_without_a_number_in_any_row_is_not_judged(name: str, tmp_path: Path) -> None:
    text = FILES[name]([None] * _NUM)
    found = read_text(text)
    assert [num for (reason, _), num in found.lost.items() if reason == "unread"] == [_NUM]
    path = tmp_path / ("trainer_state.json" if name == "trainer-state" else "log.jsonl")
    path.write_text(text)
    unjudged = [each for each in validate([path]).unjudged if "without a number in any row" in each.reason]
    assert [set(each.requirements) for each in unjudged] == [{"TS-TEL-055", "TS-TEL-088"}]


@pytest.mark.parametrize("name", FILES)
def test_a_loss_that_has_a_number_in_some_rows_is_one_that_is_read(name: str) -> None:
    found = read_text(FILES[name]([None, None, *[2.5 - n / 50 for n in range(_NUM)]]))
    assert not [what for reason, what in found.lost if reason == "unread" and "without a number" in what]
    assert [key for sample in found.samples for key in sample.m if key.startswith("train.loss.mean")]


@pytest.mark.parametrize("name", ["wandb-history", "wandb-panel"])
def test_a_file_without_any_value_of_a_known_name_is_an_error(name: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(FILES[name]([None] * _NUM))
    assert "TS-TEL-003" in {finding.requirement for finding in validate([path]).findings}


def test_names_that_are_no_loss_of_training_lack_none(tmp_path: Path) -> None:
    rows = _lines(lambda n, _: {"step": n, "val_loss": None, "reward": 0.5, "loss_scale": None}, [None] * _NUM)
    path = tmp_path / "log.jsonl"
    path.write_text(rows)
    assert not [each for each in validate([path]).unjudged if "without a number" in each.reason]
    both = _lines(lambda n, _: {"step": n, "loss": None, "train_loss": 3 - n / 50}, [None] * _NUM)
    assert not [what for reason, what in read_text(both).lost if reason == "unread"]
