"""A file of one tensor, number or text is no checkpoint, and scores in names order nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import command as validator

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")


def state(step: int) -> dict[str, Any]:
    return {"model": {"w": torch.full((3,), float(step))}, "optimizer": {"state": {}, "param_groups": []}}


def newest(root: Path) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(root)])


@pytest.mark.parametrize("value", [torch.zeros(3), torch.nn.Parameter(torch.zeros(2)), 7, "a", None, {}])
@pytest.mark.parametrize("is_old", [False, True])
def test_the_data_of_a_test_is_no_checkpoint(value: Any, is_old: bool, tmp_path: Path) -> None:
    for name in ("input.pt", "output.pt"):
        torch.save(value, tmp_path / name, _use_new_zipfile_serialization=not is_old)
    result = newest(tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    result = CliRunner().invoke(validator, [str(tmp_path)])
    assert "input.pt: not judged: has the name of a file of state" in result.stderr


@pytest.mark.parametrize(
    "value", [state(1), {"w": torch.zeros(2)}, [torch.zeros(1)], ({"w": torch.zeros(2)}, 3), [[[{"w": 1}]], "a"]]
)
def test_state_is_a_checkpoint(value: Any, tmp_path: Path) -> None:
    torch.save(value, tmp_path / "x.pt")
    assert newest(tmp_path).exit_code == 0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.zeros(3), "a tensor alone"),
        (torch.tensor(1.0), "a tensor alone"),
        ([1, 2.5, "a"], "no tensor and no mapping"),
        (((None, None), [("a", ())]), "no tensor and no mapping"),
        (numpy.float64(3), "a number alone"),
        (numpy.zeros(3), "an array alone"),
    ],
)
@pytest.mark.parametrize("name", ["step_40.pt", "step-40/model.pt"])
def test_a_step_with_one_value_is_passed_over(value: Any, words: str, name: str, tmp_path: Path) -> None:
    for each, content in ((name.replace("40", "30"), state(30)), (name, value)):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        torch.save(content, tmp_path / each)
    result = newest(tmp_path)
    assert result.stdout == f"{tmp_path / name.replace('40', '30').partition('/')[0]}\n", result.stderr
    assert f"{name}: the file holds {words}, so no state" in result.stderr


def test_a_step_whose_state_is_nothing_is_passed_over(tmp_path: Path) -> None:
    for step, value in ((10, state(10)), (20, None)):
        (tmp_path / f"step-{step}").mkdir()
        torch.save(value, tmp_path / f"step-{step}" / "model.pt")
    result = newest(tmp_path)
    assert result.stdout == f"{tmp_path}/step-10\n", result.stderr
    assert "step-20/model.pt: the file holds no tensor and no mapping" in result.stderr


@pytest.mark.parametrize(
    ("names", "newer"),
    [
        (["best_model_9_val_acc=0.7600.pt", "best_model_8_val_acc=0.7700.pt"], "best_model_9_val_acc=0.7600.pt"),
        (["model_900_neg_loss=-0.12.pt", "model_1000_neg_loss=-0.2.pt"], "model_1000_neg_loss=-0.2.pt"),
        (["best_checkpoint_neg_loss=-0.1300.pt", "best_checkpoint_neg_loss=-0.1200.pt"], None),
    ],
)
def test_scores_in_names_order_nothing(names: list[str], newer: str | None, tmp_path: Path) -> None:
    for number, name in enumerate(names):
        torch.save(state(number), tmp_path / name)
        os.utime(tmp_path / name, (1_700_000_000 + 60 * number,) * 2)
    result = newest(tmp_path)
    assert (result.exit_code, result.stdout) == ((0, f"{tmp_path}/{newer}\n") if newer else (2, "")), result.stderr
