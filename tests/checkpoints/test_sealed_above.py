"""The manifest of a directory vouches for the checkpoints below it, and a file with odd signs in its name is a save."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.trees import build
from trainspec_validate.cli.toolbox import command as toolbox


def newest(root: Path) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(root)])


def seal(root: Path) -> None:
    assert CliRunner().invoke(toolbox, ["checkpoint", "seal", str(root)]).exit_code == 0


def change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 16
    path.write_bytes(content)


@pytest.mark.parametrize("form", ["step-{}/model.safetensors", "run/step-{}/model.safetensors", "step_{}.safetensors"])
def test_the_manifest_of_a_directory_above_is_compared(form: str, tmp_path: Path) -> None:
    for step in (100, 200):
        build(tmp_path, f"{form.format(step)}  safetensors w=F32[64]\n")
    seal(tmp_path)
    sound = newest(tmp_path)
    assert "200" in sound.stdout
    assert "there is no" not in sound.stderr
    change(tmp_path / form.format(200))
    damaged = newest(tmp_path)
    assert "100" in damaged.stdout
    assert "the content is not what was sealed" in damaged.stderr


def test_what_was_saved_after_the_seal_is_chosen_without_it(tmp_path: Path) -> None:
    build(tmp_path / "step-100", "model.safetensors  safetensors w=F32[64]\n")
    seal(tmp_path)
    build(tmp_path / "step-200", "model.safetensors  safetensors w=F32[64]\n")
    found = newest(tmp_path)
    assert found.stdout.endswith("step-200\n")
    assert "step-200: there is no trainspec-manifest.json" in found.stderr


def test_a_file_that_was_removed_after_the_seal_is_missed(tmp_path: Path) -> None:
    for step in (100, 200):
        build(tmp_path / f"step-{step}", "a.safetensors  safetensors w=F32[64]\nb.safetensors  safetensors v=F32[9]\n")
    seal(tmp_path)
    (tmp_path / "step-200" / "b.safetensors").unlink()
    assert newest(tmp_path).stdout.endswith("step-100\n")


@pytest.mark.parametrize("name", ["step_200 x.pt", "step_200$(id).pt", "{step_200}.pt"])
def test_a_file_with_odd_signs_in_its_name_hides_no_other_save(name: str, tmp_path: Path) -> None:
    build(tmp_path, "step_100.pt  torch w=F32[64]\nother.pt  torch w=F32[64]\n")
    (tmp_path / "other.pt").rename(tmp_path / name)
    found = newest(tmp_path)
    assert found.stdout.endswith("/step_100.pt\n")
    assert "the name is not printed" in found.stderr


@pytest.mark.parametrize("name", ["step_100-rank1.pt", "optimizer.pt", "optimizer_step_100_ema.pt"])
def test_further_parts_of_one_save_are_no_saves(name: str, tmp_path: Path) -> None:
    build(tmp_path, "step_100.pt  torch w=F32[64]\nother.pt  torch m=F32[9]\n")
    (tmp_path / "other.pt").rename(tmp_path / name)
    assert newest(tmp_path).stdout == f"{tmp_path.as_posix()}\n"
