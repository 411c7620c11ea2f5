"""Tests the directory of checkpoints: every cut, every damage, every wrong pointer."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trainspec_reference.common import checkpoints
from trainspec_reference.common.checkpoints import POINTER, TRAINER_FILE, Search, Vault, name_of, search
from trainspec_reference.common.messages import File
from trainspec_reference.common.state import TrainerState

from trainspec_validate.checkpoints import seal
from trainspec_validate.checkpoints.view import MANIFEST_NAME

KEPT = 3


class Cut(BaseException):
    """The process is killed here."""


def saved(vault: Vault, step: int, save_id: str = "") -> None:
    """Save the state of a step: a file whose content says which."""
    save_id = save_id or f"save-{step:06}"
    directory = vault.stage(save_id)
    content = f"state of {step}".encode() * 100
    (directory / "state.bin").write_bytes(content)
    file = File(path="state.bin", size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    commit(vault, save_id, step, [file])


def commit(vault: Vault, save_id: str, step: int, files: list[File]) -> None:
    facts = {"state": ("model",), "layout": {"num_ranks": 1}}
    vault.commit(save_id, TrainerState(step=step, num_tokens=32 * step), files, facts)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    made = Vault(tmp_path / "checkpoints", KEPT, "r")
    made.tidy()
    return made


def found_step(vault: Vault) -> int | None:
    found = search(vault).found
    return found.step if found else None


def test_a_save_becomes_a_checkpoint_that_the_validator_and_the_pointer_know(vault: Vault) -> None:
    saved(vault, 10)
    saved(vault, 20)
    assert (vault.root / POINTER).read_text() == "step-00000020\n"
    assert found_step(vault) == 20
    command = [sys.executable, "-m", "trainspec_validate", str(vault.root)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_the_oldest_beyond_the_number_that_is_kept_are_removed(vault: Vault) -> None:
    for step in range(10, 60, 10):
        saved(vault, step)
    assert vault.names() == [name_of(step) for step in (50, 40, 30)]
    assert sorted(path.name for path in vault.root.iterdir()) == [POINTER, *reversed(vault.names())]


def test_a_damaged_checkpoint_does_not_count_as_kept(vault: Vault) -> None:
    for step in (10, 20, 30):
        saved(vault, step)
    (vault.root / name_of(30) / "state.bin").unlink()
    assert found_step(vault) == 20
    saved(vault, 40)
    assert vault.names() == [name_of(step) for step in (40, 30, 20, 10)]


def cut_after(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have the process be killed at one of the operations on files, and do nothing any more."""
    count = [0]

    def cutting(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            count[0] += 1
            if count[0] > number:
                raise Cut
            return function(*arguments, **options)

        return called

    for owner, name in ((os, "fsync"), (Path, "rename"), (Path, "replace"), (Path, "mkdir"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, cutting(getattr(owner, name)))
    monkeypatch.setattr(shutil, "rmtree", cutting(shutil.rmtree))
    monkeypatch.setattr(checkpoints, "write_durably", cutting(checkpoints.write_durably))
    monkeypatch.setattr(seal, "write", cutting(seal.write))


@pytest.mark.parametrize(("before", "step"), [((10, 20, 30), 40), ((10, 20, 30), 30), ((10,), 20)])
def test_a_kill_at_any_operation_of_a_save_loses_nothing(tmp_path: Path, before: tuple[int, ...], step: int) -> None:
    num_cuts, was_finished = 0, False
    while not was_finished:
        vault = Vault(tmp_path / f"cut-{num_cuts}", KEPT, "r")
        vault.tidy()
        for each in before:
            saved(vault, each)
        with pytest.MonkeyPatch.context() as patch:
            cut_after(patch, num_cuts)
            try:
                saved(vault, step, f"again-{step}")
                was_finished = True
            except Cut:
                num_cuts += 1
        after = Vault(vault.root, KEPT, "r")
        after.tidy()
        result = search(after)
        assert result.found is not None
        assert result.found.step in {before[-1], step}
        assert [refusal for refusal in result.refusals if refusal.checkpoint != POINTER] == []
        assert not [path for path in after.root.iterdir() if path.name.startswith(".") or path.suffix == ".tmp"]
        saved(after, step, f"later-{step}")
        assert found_step(after) == max(step, *before)
    assert num_cuts > 10


# --- damage -----------------------------------------------------------------------------------------------------


def cut_byte(root: Path) -> None:
    content = (root / "state.bin").read_bytes()
    (root / "state.bin").write_bytes(content[:-1])


def flip_bit(root: Path) -> None:
    content = bytearray((root / "state.bin").read_bytes())
    content[len(content) // 2] ^= 1
    (root / "state.bin").write_bytes(content)


def stale_file(root: Path) -> None:
    """The file of the checkpoint before, which has the same size."""
    shutil.copyfile(root.parent / name_of(10) / "state.bin", root / "state.bin")


def stale_directory(root: Path) -> None:
    shutil.rmtree(root)
    shutil.copytree(root.parent / name_of(10), root)


def rewrite_manifest(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((root / MANIFEST_NAME).read_text())
    change(manifest)
    (root / MANIFEST_NAME).write_text(json.dumps(manifest))


def traversal(root: Path) -> None:
    (root.parent / "outside").write_bytes(b"x")
    entry = {"path": "../outside", "size_bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    rewrite_manifest(root, lambda manifest: manifest["files"].append(entry))


def other_trainer_state(root: Path) -> None:
    """A state of the trainer of another step, with a manifest that agrees."""
    text = TrainerState(step=19).to_json()
    (root / TRAINER_FILE).write_bytes(text)

    def change(manifest: dict[str, Any]) -> None:
        for file in manifest["files"]:
            if file["path"] == TRAINER_FILE:
                file.update(size_bytes=len(text), sha256=hashlib.sha256(text).hexdigest())

    rewrite_manifest(root, change)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut-byte": (cut_byte, "bytes, and the manifest says"),
    "emptied": (lambda root: (root / "state.bin").write_bytes(b""), "0 bytes"),
    "flipped-bit": (flip_bit, "the content is not what was sealed"),
    "missing": (lambda root: (root / "state.bin").unlink(), "it is missing"),
    "stale-file": (stale_file, "the content is not what was sealed"),
    "stale-directory": (stale_directory, "says step 10"),
    "link": (lambda root: [(root / "state.bin").unlink(), (root / "state.bin").symlink_to("/etc/hostname")], "a link"),
    "no-manifest": (lambda root: (root / MANIFEST_NAME).unlink(), "never committed"),
    "half-manifest": (lambda root: os.truncate(root / MANIFEST_NAME, 100), "is no JSON"),
    "unlisted": (lambda root: (root / "more.bin").write_bytes(b"x"), "does not list"),
    "traversal": (traversal, "../outside"),
    "other-trainer-state": (other_trainer_state, "says step 19"),
    "partial": (lambda root: [shutil.rmtree(root), root.mkdir(), (root / "state.bin").touch()], "never committed"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_with_its_reason(vault: Vault, damage: str) -> None:
    saved(vault, 10)
    saved(vault, 20)
    do, words = DAMAGES[damage]
    do(vault.root / name_of(20))
    result = search(vault)
    assert result.found is not None
    assert result.found.step == 10
    refused = [refusal for refusal in result.refusals if refusal.checkpoint == name_of(20)]
    assert len(refused) == 1
    assert words in refused[0].reason


POINTERS = {
    "empty": "",
    "garbage": "\x00\x01 !",
    "dangling": "step-00000999\n",
    "behind": "step-00000010\n",
    "two words": "step-00000010 step-00000020\n",
    "upwards": "../../etc\n",
}


@pytest.mark.parametrize("pointer", [*POINTERS, "missing", "directory", "link"])
def test_a_wrong_pointer_decides_nothing(vault: Vault, pointer: str) -> None:
    saved(vault, 10)
    saved(vault, 20)
    path = vault.root / POINTER
    path.unlink()
    if pointer == "directory":
        path.mkdir()
    elif pointer == "link":
        path.symlink_to("/dev/null")
    elif pointer != "missing":
        path.write_text(POINTERS[pointer])
    result = search(vault)
    assert result.found is not None
    assert result.found.step == 20
    assert bool(result.refusals) == (pointer not in {"behind", "missing"})
    saved(vault, 30)
    assert path.read_text() == "step-00000030\n"


def test_nothing_is_restored_when_all_is_damaged_and_nothing_was_ever_saved_when_there_is_nothing(vault: Vault) -> None:
    assert search(vault) == Search()
    saved(vault, 10)
    flip_bit(vault.root / name_of(10))
    result = search(vault)
    assert result.found is None
    assert result.had_saved


# --- what lies in the way, and what does not fit ----------------------------------------------------------------


def leftovers() -> Iterator[Callable[[Path], Any]]:
    yield lambda home: [home.mkdir(), (home / "state.bin").write_bytes(b"partial")]
    yield lambda home: home.write_bytes(b"a file")
    yield lambda home: home.symlink_to("/nowhere")


@pytest.mark.parametrize("leave", list(leftovers()))
def test_what_lies_at_the_place_of_a_save_is_replaced(vault: Vault, leave: Callable[[Path], Any]) -> None:
    leave(vault.root / name_of(10))
    saved(vault, 10)
    assert found_step(vault) == 10


def test_a_manifest_that_does_not_fit_leaves_what_was_there(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the limit would cut the modules that are imported below it
    saved(vault, 10)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    directory = vault.stage("save-too-large")
    (directory / "state.bin").write_bytes(b"x")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
        with pytest.raises(OSError, match="large"):
            commit(vault, "save-too-large", 20, [])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    vault.discard("save-too-large")
    assert vault.names() == [name_of(10)]
    assert found_step(vault) == 10
    assert (vault.root / POINTER).read_text() == "step-00000010\n"


def test_a_rank_that_writes_on_cannot_keep_a_save_that_was_given_up(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging = vault.stage("given-up")
    (staging / "state.bin").write_bytes(b"x")
    remove = shutil.rmtree

    def slow(path: Path, **options: Any) -> None:
        with pytest.raises(FileNotFoundError):
            (staging / "late.bin").write_bytes(b"x")
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", slow)
    vault.discard("given-up")
    assert list(vault.root.iterdir()) == []
