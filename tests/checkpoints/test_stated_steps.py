"""A count in a state that is less than its name says refuses it where older names show what is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.torch_saves import save as state
from tests.torch_saves import saved_before_1_6
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.pipeline.validation import validate


def legacy(path: Path, value: object) -> None:
    """A file of versions of PyTorch before 1.6."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(saved_before_1_6(value))


def newest(root: Path) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(root)])


def series(root: Path, form: str, make: Any, steps: tuple[int, ...], counts: tuple[Any, ...]) -> Result:
    for step, value in zip(steps, counts, strict=True):
        make(root / form.format(step), value)
    return newest(root)


@pytest.mark.parametrize(
    "name", ["300", "epoch=3-step=300", "run-step-300", "step-300-of-900", "model_step300", f"step-{300:020}"]
)
def test_names_of_any_form_say_a_step(name: str, tmp_path: Path) -> None:
    for each, step in (("step-100", 100), ("step-200", 200), (name, 150)):
        state(tmp_path / each / "model.pt", {"model": {"w": 1.0}, "global_step": step})
    found = newest(tmp_path)
    assert found.stdout.endswith("/step-200\n")
    assert "is 150, older than 300 of the name" in found.stderr


@pytest.mark.parametrize(
    "key", ["iter", "iters", "steps", "train_step", "step_num", "trained_steps", "it", "n_iter", "total_steps"]
)
@pytest.mark.parametrize("form", ["step-{}/model.pt", "step_{}.pt"])
def test_any_key_of_steps_is_read(form: str, key: str, tmp_path: Path) -> None:
    counts = tuple({"w": [1.0, step], key: step} for step in (100, 200, 150))
    found = series(tmp_path, form, state, (100, 200, 300), counts)
    assert found.stdout.endswith(f"/{form.format(200).removesuffix('/model.pt')}\n"), found.stderr


@pytest.mark.parametrize("form", ["step_{}.pt", "model_{:07}.pt", "step-{}/model.pt"])
def test_old_files_of_pytorch_are_read(form: str, tmp_path: Path) -> None:
    counts = tuple({"w": [1.0, step], "iteration": step} for step in (100, 200, 150))
    found = series(tmp_path, form, legacy, (100, 200, 300), counts)
    assert found.stdout.endswith(f"/{form.format(200).removesuffix('/model.pt')}\n"), found.stderr


def test_numbers_of_numpy_and_nested_parts_are_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    counts = tuple({"state": {"timestamp": {"Timestamp": {"batch": numpy.int64(step)}}}} for step in (100, 200, 100))
    found = series(tmp_path, "ep1-ba{}-rank0.pt", state, (100, 200, 300), counts)
    assert found.stdout.endswith("/ep1-ba200-rank0.pt\n"), found.stderr


def test_tensors_of_one_element_are_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for name, step in ((100, 100), (200, 200), (300, 150)):
        (tmp_path / f"step-{name}").mkdir()
        torch.save({"w": torch.ones(3) * step, "step": torch.tensor(step)}, tmp_path / f"step-{name}" / "model.pt")
    assert newest(tmp_path).stdout.endswith("/step-200\n")


@pytest.mark.parametrize(
    ("form", "steps", "counts"),
    [
        ("step-{}/model.pt", (100, 200, 300), ({"iter": 25}, {"iter": 50}, {"iter": 75})),  # optimizer steps
        ("epoch_{}/model.pt", (100, 200, 300), ({"iter": 100}, {"iter": 200}, {"iter": 150})),
        ("step-{}/model.pt", (100, 200, 300), ({"train_steps": 200}, {"train_steps": 200}, {"train_steps": 200})),
        ("step-{}/model.pt", (100, 200, 300), ({"max_steps": 100}, {"max_steps": 200}, {"max_steps": 200})),
        (
            "step-{}/model.pt",  # counted anew in each epoch
            (100, 200, 300),
            ({"iter": 100, "epoch": 0}, {"iter": 200, "epoch": 0}, {"iter": 50, "epoch": 1}),
        ),
        ("step-{}/model.pt", (100, 200, 300), ({"iter": 100}, {"iter": 200}, {"iter": 50, "global_step": 300})),
        ("step-{}/model.pt", (100, 200, 300), ({"iter": 99}, {"iter": 199}, {"iter": 299})),
        ("tokens-{}/model.pt", (100, 200, 300), ({"step": 100}, {"step": 200}, {"step": 50})),
    ],
)
def test_what_counts_something_else_refuses_nothing(
    form: str, steps: tuple[int, ...], counts: tuple[dict[str, int], ...], tmp_path: Path
) -> None:
    values = tuple({"w": [1.0, step], **count} for step, count in zip(steps, counts, strict=True))
    found = series(tmp_path, form, state, steps, values)
    assert found.stdout.endswith(f"/{form.format(300).removesuffix('/model.pt')}\n"), found.stderr


def test_a_count_that_nothing_is_compared_with_is_said(tmp_path: Path) -> None:
    state(tmp_path / "run-step-300" / "model.pt", {"w": [1.0], "iter": 75})
    found = newest(tmp_path)
    assert "/run-step-300/" in found.stdout
    assert "iter is 75, less than 300 of the name, and no older checkpoint next to it shows" in found.stderr


@pytest.mark.parametrize("form", ["step-{}/model.pt", "step_{}.pt"])
def test_the_validator_says_the_same(form: str, tmp_path: Path) -> None:
    counts = tuple({"model": {"w": [1.0, step]}, "train_steps": step} for step in (100, 200, 150))
    series(tmp_path, form, state, (100, 200, 300), counts)
    found = [each for each in validate([tmp_path]).findings if each.requirement == "TS-CKP-088"]
    assert ["train_steps is 150, older than 300 of the name" in each.message for each in found] == [True]
