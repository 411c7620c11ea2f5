"""Sealing in the background writes the manifest that the validator verifies, and never raises into training."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.torch_saves import saved, saved_before_1_6
from tests.trees import build
from trainspec_record.checkpoints import MANIFEST, Seal, commit, newest_good, seal_in_background
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.documents.schema import failures


def checkpoint(root: Path, step: int) -> Path:
    path = root / f"step-{step}"
    (path / "part").mkdir(parents=True)
    (path / "model.bin").write_bytes(os.urandom(70_000))
    (path / "part" / "optimizer.bin").write_bytes(os.urandom(9_000))
    return path


def sealed(path: Path, **settings: object) -> Seal:
    one = seal_in_background(path, **settings)  # type: ignore[arg-type]
    one.wait(600)
    return one


def test_the_validator_verifies_the_manifest(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 60)
    one = sealed(path)
    assert (one.problem, one.manifest, one.num_bytes_read) == ("", path / MANIFEST, 79_000)
    data = json.loads((path / MANIFEST).read_bytes())
    assert list(failures("CheckpointManifest", data)) == []
    assert data["step"] == 60
    assert CliRunner().invoke(toolbox, ["checkpoint", "verify", str(path)]).exit_code == 0
    with (path / "model.bin").open("r+b") as file:
        file.seek(50)
        file.write(b"changed")
    assert CliRunner().invoke(toolbox, ["checkpoint", "verify", str(path)]).exit_code == 1


def test_digests_of_the_writer_are_taken(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 60)
    known = {"model.bin": hashlib.sha256((path / "model.bin").read_bytes()).hexdigest()}
    one = sealed(path, digests=known, step=7)
    assert (one.problem, one.num_bytes_read) == ("", 9_000)
    assert CliRunner().invoke(toolbox, ["checkpoint", "verify", str(path)]).exit_code == 0
    assert "is no SHA-256" in sealed(path, digests={"model.bin": "abc"}).problem


def test_a_file_is_sealed_next_to_it(tmp_path: Path) -> None:
    entry = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    for step in (10, 20):
        (tmp_path / f"step_{step}.safetensors").write_bytes(len(entry).to_bytes(8, "little") + entry + bytes(4))
        assert sealed(tmp_path / f"step_{step}.safetensors").problem == ""
    assert newest_good(tmp_path) == tmp_path / "step_20.safetensors"
    (tmp_path / "step_20.safetensors").write_bytes((len(entry) + 1).to_bytes(8, "little") + entry + bytes(5))
    assert newest_good(tmp_path) == tmp_path / "step_10.safetensors"
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert result.stdout == f"{tmp_path / 'step_10.safetensors'}\n"
    assert "TS-CKP-071" in result.stderr


@pytest.mark.parametrize("names", [("model_8.pt", "model_9.pt"), ("best.pt", "last.pt"), ("ckpt.pt",)])
@pytest.mark.parametrize("is_of_torch", [True, False])
@pytest.mark.parametrize("num_sealed", [1, 2])
def test_a_sealed_file_is_a_checkpoint(
    names: tuple[str, ...], num_sealed: int, tmp_path: Path, *, is_of_torch: bool
) -> None:
    """Under names that only the content, or nothing but the manifest, shows to be those of states."""
    names = names if is_of_torch else tuple(name.replace(".pt", ".safetensors") for name in names)
    entry = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    for name in names:
        if is_of_torch:
            build(tmp_path, f"{name}  torch weight=F32[4]\n")
        else:
            (tmp_path / name).write_bytes(len(entry).to_bytes(8, "little") + entry + bytes(4))
    for name in names[-num_sealed:]:
        assert sealed(tmp_path / name).problem == ""
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert (result.stdout, newest_good(tmp_path)) == (f"{tmp_path / names[-1]}\n", tmp_path / names[-1])
    assert "so not every changed byte is noticed" not in result.stderr
    changed = (tmp_path / names[-1]).read_bytes()
    (tmp_path / names[-1]).write_bytes(changed[:-1] + bytes([changed[-1] ^ 1]))
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert f"{tmp_path / names[-1]}: not whole" in result.stderr


@pytest.mark.parametrize("damage", ["changed", "cut", "removed", "added", "linked"])
def test_the_newest_good_is_older_than_a_damaged_one(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (9, 10):
        assert sealed(checkpoint(tmp_path, step)).problem == ""
    assert newest_good(tmp_path) == tmp_path / "step-10"
    file = tmp_path / "step-10" / "part" / "optimizer.bin"
    if damage == "changed":
        file.write_bytes(bytes(9_000))
    elif damage == "cut":
        os.truncate(file, 8_999)
    elif damage == "added":
        (file.parent / "more.bin").touch()
    else:
        file.unlink()
    if damage == "linked":
        file.symlink_to(tmp_path / "step-9" / "part" / "optimizer.bin")
    caplog.clear()
    refused: dict[str, str] = {}
    assert newest_good(tmp_path, refused=lambda path, why: refused.update({path.name: why})) == tmp_path / "step-9"
    assert "step-10 is not whole" in caplog.text
    assert list(refused) == ["step-10"]
    assert ("more.bin" if damage == "added" else "optimizer.bin") in refused["step-10"] or damage == "linked"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"step": 1' + "0" * 5_000 + "}", "", None])
@pytest.mark.parametrize("whole", ["step-9", None])
def test_one_whose_manifest_says_nothing_is_refused(text: str | None, whole: str | None, tmp_path: Path) -> None:
    for step in (8, 9, 10):
        assert sealed(checkpoint(tmp_path, step)).problem == ""
    for name in ("step-8", "step-10", *(() if whole else ("step-9",))):
        manifest = tmp_path / name / "trainspec-manifest.json"
        if text is None:
            manifest.unlink()
        else:
            manifest.write_text(text)
    (tmp_path / "logs").mkdir()
    refused: dict[str, str] = {}
    found = newest_good(tmp_path, refused=lambda path, why: refused.update({path.name: why}))
    assert found == (tmp_path / whole if whole else None)
    assert sorted(refused) == (["step-10"] if whole else ["step-10", "step-8", "step-9"])
    assert "manifest" in refused["step-10"]


def test_nothing_raises_into_training(tmp_path: Path) -> None:
    assert "FileNotFoundError" in sealed(tmp_path / "absent").problem
    (tmp_path / "empty").mkdir()
    assert sealed(tmp_path / "empty").problem.endswith("there is no file to seal")
    path = checkpoint(tmp_path, 1)
    (path / "link").symlink_to("model.bin")
    assert "only regular files" in sealed(path).problem
    assert not (path / MANIFEST).exists()
    assert newest_good(tmp_path / "absent") is None
    assert newest_good(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"files": 1}',
        '{"files": [1]}',
        '{"files": [{"path": "../a", "size_bytes": 1, "sha256": "0"}]}',
        "[" * 99_999,
    ],
    ids=["empty", "list", "number", "entry", "outside", "deep"],
)
def test_a_manifest_of_anything_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "a").write_bytes(b"a")
    assert sealed(checkpoint(tmp_path, 5)).problem == ""
    (checkpoint(tmp_path, 6) / MANIFEST).write_text(text)
    assert newest_good(tmp_path) == tmp_path / "step-5"


def test_a_forked_process_seals_too(tmp_path: Path) -> None:
    assert sealed(checkpoint(tmp_path, 1)).problem == ""
    process = os.fork()
    if process == 0:
        os._exit(0 if sealed(checkpoint(tmp_path, 2)).manifest else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert newest_good(tmp_path) == tmp_path / "step-2"


def test_a_commit_replaces_what_a_crashed_save_left(tmp_path: Path) -> None:
    checkpoint(tmp_path, 30).rename(tmp_path / ".step-30.0")
    (tmp_path / "step-30").mkdir()
    (tmp_path / "step-30" / "half").touch()
    commit(tmp_path / ".step-30.0", tmp_path / "step-30")
    assert [path.name for path in tmp_path.iterdir()] == ["step-30"]
    assert json.loads((tmp_path / "step-30" / MANIFEST).read_bytes())["step"] == 30
    assert not (tmp_path / "step-30" / "half").exists()
    assert CliRunner().invoke(toolbox, ["checkpoint", "verify", str(tmp_path / "step-30")]).exit_code == 0
    assert newest_good(tmp_path) == tmp_path / "step-30"


def test_everything_is_durable_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(tmp_path, 30).rename(tmp_path / ".step-30.0")
    done: list[str] = []
    synchronise, rename = os.fsync, Path.rename

    def fsync(descriptor: int) -> None:
        done.append(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path).as_posix())
        synchronise(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        done.append("renamed")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", renamed)
    commit(tmp_path / ".step-30.0", tmp_path / "step-30")
    before = done[: done.index("renamed")]
    assert {"model.bin", "part", "part/optimizer.bin"} <= {name.removeprefix(".step-30.0/") for name in before}
    assert before[-1] == ".step-30.0"
    assert done[-1] == "."


@pytest.mark.parametrize("problem", ["absent", "empty", "link"])
def test_a_commit_that_fails_says_so_and_leaves_the_name_alone(tmp_path: Path, problem: str) -> None:
    part = tmp_path / ".step-30.0"
    if problem != "absent":
        part.mkdir()
    if problem == "link":
        (part / "model.bin").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"step-30\.0"):
        commit(part, tmp_path / "step-30")
    assert not (tmp_path / "step-30").exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda root: (root / "step-20").rename(root / "step-30"), "its manifest states step 20, and its name 30"),
        (lambda root: (root / "step-20").rename(root / "step-20.tmp"), "its name is one of a save in progress"),
        (
            lambda root: (root / "step-20" / ".trainspec-1").touch(),
            ".trainspec-1: the manifest does not list this file",
        ),
        (lambda root: twice(root / "step-20"), "its manifest lists a path twice"),
    ],
)
def test_a_save_that_the_command_refuses_is_not_the_newest(
    change: Callable[[Path], object], why: str, tmp_path: Path
) -> None:
    for step in (10, 20):
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "w.bin").write_bytes(bytes(step))
        assert seal_in_background(tmp_path / f"step-{step}").wait(10)
    change(tmp_path)
    refused: list[str] = []
    assert newest_good(tmp_path, refused=lambda _, words: refused.append(words)) == tmp_path / "step-10"
    assert [words[: len(why)] for words in refused] == [why]


def test_what_an_interrupted_seal_left_refuses_nothing(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 5)
    assert sealed(path).problem == ""
    (path / ".trainspec-0123456789abcdef").write_bytes((path / MANIFEST).read_bytes()[:150])
    (path / ".trainspec-0123456789abcdee").touch()
    assert newest_good(tmp_path) == path
    assert CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path), "--structure-only"]).exit_code == 0


def twice(directory: Path) -> None:
    manifest = json.loads((directory / MANIFEST).read_text())
    manifest["files"] *= 2
    (directory / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("step-200", '"files": [', '"files": [], "files": ['),
        ("step-200", '"step": 200', f'"step": 1{"0" * 400}'),
        ("step-200", '"step": 200', '"step": "200"'),
        ("step-200\n$(id)", '"step": 200', '"step": 200'),
        ("step 200", '"step": 200', '"step": 200'),
        ("-step-200", '"step": 200', '"step": 200'),
    ],
)
def test_a_manifest_or_a_name_that_can_be_misread_is_passed_over(
    name: str, before: str, after: str, tmp_path: Path
) -> None:
    sealed(checkpoint(tmp_path, 100))
    path = checkpoint(tmp_path, 200)
    sealed(path)
    text = (path / MANIFEST).read_text()
    assert before in text
    (path / MANIFEST).write_text(text.replace(before, after, 1))
    path.rename(tmp_path / name)
    assert newest_good(tmp_path) == tmp_path / "step-100"
    found = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert found.stdout == f"{tmp_path / 'step-100'}\n"


@pytest.mark.parametrize(
    ("name", "content", "is_noted"),
    [
        ("model.bin", bytes(9), True),
        ("x.safetensors", bytes(9), False),
        ("best.th", saved(pickle.dumps({"step": 5}, protocol=2)), True),
        ("model", saved_before_1_6({"step": 5}), True),
        ("values", b"\x80", False),
    ],
)
def test_what_was_not_looked_at_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: bytes, *, is_noted: bool
) -> None:
    path = tmp_path / "step-5"
    path.mkdir()
    (path / name).write_bytes(content)
    assert sealed(path).problem == ""
    assert newest_good(tmp_path) == path
    said = [one for one in caplog.messages if "what their pickles would run was not looked at" in one]
    assert [name in one for one in said] == [True] * is_noted
