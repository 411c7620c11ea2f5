"""`trainspec checkpoint` writes manifests that the schema accepts, and tells every kind of damage."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.trees import build
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.documents.schema import failures

MODEL = "model.safetensors  safetensors weight=F32[4]\n"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", *map(str, arguments)])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "step-60"
    build(directory, f"{MODEL}optimizer/part.pt  torch exp_avg=F32[16]\nlog.txt  text running\n")
    return directory


def manifest(root: Path) -> dict[str, object]:
    data: dict[str, object] = json.loads((root / "trainspec-manifest.json").read_text(encoding="utf-8"))
    return data


def test_a_seal_lists_every_file_and_satisfies_the_schema(root: Path) -> None:
    options = (
        "--state",
        "model,optimizer",
        "--num-tokens",
        "1e9",
        "--num-ranks",
        "2",
        "--run",
        "r",
        "--unsealed",
        "*.txt",
    )
    result = invoke("seal", root, *options)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"{(root / 'trainspec-manifest.json').as_posix()}: 2 files, ")
    first, *others = result.stdout.splitlines()
    assert first.endswith(" GB/s")
    assert others[-1] == f"  unsealed: {(root / 'log.txt').as_posix()}"
    data = manifest(root)
    assert list(failures("CheckpointManifest", data)) == []
    paths = ["model.safetensors", "optimizer/part.pt"]
    digests = [hashlib.sha256((root / path).read_bytes()).hexdigest() for path in paths]
    sizes = [(root / path).stat().st_size for path in paths]
    wanted = [{"path": p, "size_bytes": s, "sha256": d} for p, s, d in zip(paths, sizes, digests, strict=True)]
    assert (data["files"], data["unsealed"], data["step"]) == (wanted, ["log.txt"], 60)
    assert (data["state"], data["num_tokens"], data["layout"]) == (["model", "optimizer"], 1e9, {"num_ranks": 2})
    assert not (root / "trainspec-manifest.json.tmp").exists()


def test_a_seal_is_not_replaced_unless_asked_to(root: Path) -> None:
    assert invoke("seal", root, "--save-id", "first-save").exit_code == 0
    result = invoke("seal", root)
    assert (result.exit_code, "--force replaces it" in result.stderr) == (2, True)
    assert manifest(root)["save_id"] == "first-save"
    assert invoke("seal", root, "--force").exit_code == 0
    assert manifest(root)["save_id"] != "first-save"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("near.pt  link model.safetensors", "only files can be sealed"),
        ('trainer_state.json  json {"global_step": 61}', "its parts say different steps: 60, 61"),
    ],
)
def test_what_cannot_be_sealed_is_told(root: Path, line: str, words: str) -> None:
    build(root, line)
    result = invoke("seal", root)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (root / "trainspec-manifest.json").exists()


def test_an_item_of_state_is_one_that_policies_know(root: Path) -> None:
    result = invoke("seal", root, "--state", "modle")
    assert (result.exit_code, "'modle' is no item of state" in result.stderr) == (2, True)


def test_a_whole_checkpoint_is_verified_with_its_rate(root: Path) -> None:
    invoke("seal", root)
    result = invoke("verify", root, "--compare-read")
    assert result.exit_code == 0
    rate = r"\d+\.\d\d GB/s"
    shares = rf"\d+% of a plain read \({rate}\), \d+% of the quickest one \({rate}\)"
    assert re.search(rf"hashed at {rate}: {shares}; 0 wrong\n$", result.stdout)


def test_a_file_that_cannot_be_read_is_wrong_beside_a_plain_read_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_reader: object, path: Path) -> Iterator[memoryview]:
        raise PermissionError(13, "Permission denied", str(path))

    invoke("seal", root)
    monkeypatch.setattr("trainspec_validate.checkpoints.blocks.Reader.blocks", refuse)
    result = invoke("verify", root, "--compare-read")
    assert result.exit_code == 1
    assert "model.safetensors: the file cannot be read: permission denied\n" in result.stdout
    assert result.stdout.endswith("; 3 wrong\n")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("model.safetensors  flipped", "model.safetensors: the content is not what was sealed"),
        ("model.safetensors  cut 1", "model.safetensors: the file has"),
        ("model.safetensors  removed", "model.safetensors: the manifest lists this file with"),
        ("more.py  text x", "more.py: the manifest does not list this file"),
        ("optimizer/part.pt  removed\noptimizer/part.pt  link ../model.safetensors", "there is a link"),
    ],
)
def test_damage_is_told(root: Path, damage: str, words: str) -> None:
    invoke("seal", root)
    build(root, damage)
    result = invoke("verify", root)
    assert (result.exit_code, words in result.stdout) == (1, True), result.stdout
    assert result.stdout.endswith("; 1 wrong\n")


def test_a_directory_without_a_manifest_is_told(root: Path) -> None:
    result = invoke("verify", root)
    assert result.exit_code == 2
    assert "write one with trainspec checkpoint seal" in result.stderr


def test_a_file_of_many_blocks_is_hashed_whole(tmp_path: Path) -> None:
    from trainspec_validate.checkpoints.hashing import digests

    content = os.urandom(9 * (1 << 20) + 17)
    (tmp_path / "large").write_bytes(content)
    (tmp_path / "link").symlink_to("large")
    done: list[tuple[int, int]] = []
    found = digests(tmp_path, ["large", "link"], lambda *progress: done.append(progress))
    assert found["large"] == hashlib.sha256(content).hexdigest()
    assert isinstance(found["link"], OSError)
    assert max(done)[0] == len(content)


@pytest.mark.parametrize(
    ("damage", "path"),
    [
        ("optimizer/part.pt  cut 40", "optimizer/part.pt"),
        ("optimizer/part.pt  flipped", "optimizer/part.pt"),
        ("model.safetensors  cut 1", "model.safetensors"),
        ("model.safetensors  cut 9", "model.safetensors"),
        ('model.safetensors  text "\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f{}"', "model.safetensors"),
    ],
)
def test_a_damaged_file_is_not_sealed(root: Path, damage: str, path: str) -> None:
    build(root, damage)
    result = invoke("seal", root)
    assert (result.exit_code, (root / "trainspec-manifest.json").exists()) == (2, False)
    assert f"Error: {root.as_posix()}/{path}: " in result.stderr
    assert "restore the file from another copy, or leave it out with --unsealed" in " ".join(result.stderr.split())
    assert invoke("seal", root, "--unsealed", path).exit_code == 0


def test_a_container_that_programs_read_differently_is_not_sealed(root: Path) -> None:
    content = (root / "optimizer/part.pt").read_bytes()
    (root / "optimizer/part.pt").write_bytes(content + b"abc")
    result = invoke("seal", root)
    assert (result.exit_code, (root / "trainspec-manifest.json").exists()) == (2, False)
    assert "optimizer/part.pt: the container is a zip container that programs read in different ways" in result.stderr


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ("__0_0.distcp  text x", ": .metadata, which is written after all shards, is missing"),
        (
            'model.bin.index.json json {"weight_map": {"w": "../x"}}',
            "model.bin.index.json: the file name '../x'",
        ),
        (f"model.bin.index.json json {'[' * 70}{']' * 70}", "model.bin.index.json: the index passes a limit"),
    ],
)
def test_a_seal_names_an_interrupted_save_and_what_was_not_examined(tmp_path: Path, tree: str, words: str) -> None:
    build(tmp_path, tree)
    result = invoke("seal", tmp_path)
    assert (result.exit_code, (tmp_path / "trainspec-manifest.json").exists()) == (1, True)
    assert words in result.output


def test_a_seal_names_what_a_checkpoint_lacks(tmp_path: Path) -> None:
    build(tmp_path, "model-00001-of-00002.safetensors  safetensors weight=F32[4]\n")
    result = invoke("seal", tmp_path)
    assert (result.exit_code, (tmp_path / "trainspec-manifest.json").exists()) == (1, True)
    assert "1 of 2 files model-*-of-00002.safetensors are missing" in result.output
