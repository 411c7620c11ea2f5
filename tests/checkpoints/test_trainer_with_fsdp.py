"""A checkpoint of the Trainer with shards of PyTorch FSDP has all of its parts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.trees import build
from trainspec_validate.cli.toolbox import command as toolbox


def newest(root: Path) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(root)])


def trainer(root: Path, *steps: int) -> None:
    for step in steps:
        build(
            root / f"checkpoint-{step}",
            f"pytorch_model_fsdp_0  dcp 2 weight=F32[4,3]\noptimizer_0  dcp 2 exp_avg=F32[4,{step}]\n"
            "scheduler.pt  torch s=F32[1]\nrng_state_0.pth  torch r=F32[4]\nrng_state_1.pth  torch q=F32[3]\n"
            f'trainer_state.json  json {{"global_step": {step}}}\n',
        )


def moments(step: int) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    return {"optim.state.w.exp_avg": torch.full((3,), step), "optim.state.w.exp_avg_sq": torch.full((3,), step)}


def test_a_whole_one_is_chosen(tmp_path: Path) -> None:
    trainer(tmp_path, 10, 20)
    assert newest(tmp_path).stdout.endswith("/checkpoint-20\n")


@pytest.mark.parametrize("name", ["trainer_state.json", "scheduler.pt", "pytorch_model_fsdp_0", "optimizer_0"])
def test_one_without_a_part_is_refused(name: str, tmp_path: Path) -> None:
    trainer(tmp_path, 10, 20)
    path = tmp_path / "checkpoint-20" / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    assert newest(tmp_path).stdout.endswith("/checkpoint-10\n")


@pytest.mark.parametrize("part", ["model", "optimizer"])
def test_a_part_of_an_older_save_is_refused(part: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as saves

    trainer(tmp_path, 10, 20)
    folders = {"model": "pytorch_model_fsdp_0", "optimizer": "optimizer_0"}
    for step in (10, 20):
        for folder in folders.values():
            shutil.rmtree(tmp_path / f"checkpoint-{step}" / folder)
            saves.save({"w": torch.rand(500)}, checkpoint_id=tmp_path / f"checkpoint-{step}" / folder)
    assert newest(tmp_path).stdout.endswith("/checkpoint-20\n")
    shutil.rmtree(tmp_path / "checkpoint-20" / folders[part])
    shutil.copytree(tmp_path / "checkpoint-10" / folders[part], tmp_path / "checkpoint-20" / folders[part])
    found = newest(tmp_path)
    assert found.stdout.endswith("/checkpoint-10\n")
    assert "is also that of" in found.stderr


def test_shards_of_accelerate_are_none_of_the_trainer(tmp_path: Path) -> None:
    parts = "scheduler.bin  torch s=F32[1]\nrandom_states_0.pkl  torch r=F32[4]\n"
    build(
        tmp_path / "checkpoint-20",
        f"pytorch_model_fsdp_0  dcp 2 weight=F32[4,3]\noptimizer_0  dcp 2 exp_avg=F32[4,3]\n{parts}",
    )
    assert newest(tmp_path).stdout.endswith("/checkpoint-20\n")


@pytest.mark.parametrize("is_stale", [False, True])
def test_shards_of_older_weights_are_refused(tmp_path: Path, *, is_stale: bool) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as saves

    for step in (10, 20, 30):
        trainer(tmp_path, step)
        for name, state in (
            ("pytorch_model_fsdp_0", {"model.w": torch.full((3,), step)}),
            ("optimizer_0", moments(step)),
        ):
            shutil.rmtree(tmp_path / f"checkpoint-{step}" / name)
            saves.save(state, checkpoint_id=tmp_path / f"checkpoint-{step}" / name, no_dist=True)
    if is_stale:
        name = "pytorch_model_fsdp_0/__0_0.distcp"
        shutil.copy(tmp_path / "checkpoint-20" / name, tmp_path / "checkpoint-30" / name)
    assert newest(tmp_path).stdout.endswith("/checkpoint-10\n" if is_stale else "/checkpoint-30\n")
