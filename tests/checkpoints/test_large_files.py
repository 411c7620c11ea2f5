"""Pointers of Git LFS in place of the files of a checkpoint are named for what they are, once for each file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.trees import build
from trainspec_validate.checkpoints.inventory import find
from trainspec_validate.checkpoints.view import MAX_TROUBLES
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.pipeline.validation import validate

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 123456\n"
WORDS = "a Git LFS pointer is in place of the file; run git lfs pull"


def faults(path: Path) -> list[tuple[str, str, str]]:
    found = validate([path]).findings
    return [(one.requirement, Path(one.path).name, one.message) for one in found if one.requirement != "TS-CKP-070"]


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "model.pt", "last.ckpt", "__0_0.distcp"])
def test_a_pointer_is_reported_once(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(POINTER, encoding="utf-8")
    own = [fault for fault in faults(tmp_path) if fault[1] == name]
    assert own == [("TS-CKP-083", name, WORDS)]
    shown = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert shown.exit_code == 1
    assert shown.output.count(WORDS) == 1


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_pointer_that_was_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(POINTER, encoding="utf-8")
    assert faults(tmp_path / name) == [("TS-CKP-083", name, WORDS)]


def test_pointers_beside_whole_files(tmp_path: Path) -> None:
    build(tmp_path, "model.safetensors  safetensors w=F32[4]\n")
    for name in ("optimizer.pt", "scheduler.bin", "a.npz"):
        (tmp_path / name).write_text(POINTER, encoding="utf-8")
    words = "Git LFS pointers are in place of 3 files: a.npz, optimizer.pt, scheduler.bin; run git lfs pull"
    assert faults(tmp_path) == [("TS-CKP-083", tmp_path.name, words)]


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "config.json", "tokenizer.model", "merges.txt", "tokenizer/vocab.json", "model.py"]
)
def test_a_pointer_in_place_of_what_loaders_open_besides(tmp_path: Path, name: str) -> None:
    build(tmp_path, "model.safetensors  safetensors w=F32[4]\n")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(POINTER, encoding="utf-8")
    assert faults(tmp_path) == [("TS-CKP-083", Path(name).name, WORDS)]
    shown = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert (shown.exit_code, shown.output.count(WORDS)) == (1, 1)


@pytest.mark.parametrize("name", ["README.md", "picture.png", "data/train.jsonl", "train.parquet"])
def test_pointers_in_place_of_documentation_and_data_refuse_no_checkpoint(tmp_path: Path, name: str) -> None:
    build(tmp_path, "model.safetensors  safetensors w=F32[4]\n")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(POINTER, encoding="utf-8")
    assert faults(tmp_path) == []


def test_many_pointers_are_one_finding(tmp_path: Path) -> None:
    for number in range(MAX_TROUBLES - 1):
        (tmp_path / f"part_{number:04}.pt").write_text(POINTER, encoding="utf-8")
    names = "part_0000.pt, part_0001.pt, part_0002.pt"
    words = f"{MAX_TROUBLES - 1:,} files: {names} and {MAX_TROUBLES - 4:,} more; run git lfs pull"
    assert [message for _, _, message in faults(tmp_path)] == [f"Git LFS pointers are in place of {words}"]


@pytest.mark.parametrize("text", [POINTER[9:], POINTER.replace("v1", "v9"), POINTER + "x" * 1_024])
def test_what_is_no_pointer_keeps_its_reason(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.safetensors").write_text(text, encoding="utf-8")
    found = faults(tmp_path)
    assert found
    assert all(message != WORDS for _, _, message in found)


@pytest.mark.parametrize("name", ["tokens.bin", "notes.md", "picture.png"])
def test_pointers_in_place_of_other_files_are_no_checkpoint(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(POINTER, encoding="utf-8")
    assert find(tmp_path) == []
    build(tmp_path, "model.safetensors  safetensors w=F32[4]\n")
    assert [fault for fault in faults(tmp_path) if name.endswith((".md", ".png"))] == []
