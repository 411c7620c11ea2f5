"""What an interrupted seal leaves is forgiven where it can hide nothing, by `verify` and by the gate alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric import ec

from tests.checkpoints.test_signature import write_keys
from tests.torch_saves import save
from tests.trees import build
from trainspec_validate import validate
from trainspec_validate.checkpoints import signature
from trainspec_validate.cli.toolbox import command as toolbox

NAMES = ["model.sig.tmp", "trainspec-manifest.json.tmp", ".trainspec-0123456789abcdef"]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", *map(str, arguments)])


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return write_keys(tmp_path, ec.generate_private_key(ec.SECP256R1()))


@pytest.fixture
def root(tmp_path: Path, keys: tuple[Path, Path]) -> Path:
    build(tmp_path / "step-60", "model.safetensors  safetensors weight=F32[4]\n")
    assert invoke("seal", tmp_path / "step-60", "--signing-key", keys[0]).exit_code == 0
    return tmp_path / "step-60"


def manifest(root: Path) -> str:
    return (root / "trainspec-manifest.json").read_text()


def sealed_again(root: Path) -> str:
    data = json.loads(manifest(root))
    return json.dumps({**data, "save_id": "ab" * 16, "created": "2026-01-01T00:00:00Z"}, indent=1) + "\n"


def foreign_manifest(root: Path) -> str:
    data = json.loads(manifest(root))
    return json.dumps({**data, "files": [{**data["files"][0], "path": "other"}]}, indent=1) + "\n"


def bundle_of(payload: bytes) -> str:
    return json.dumps(signature.bundle(payload, b"x" * 70, "1" * 64)) + "\n"


FORGIVEN: dict[str, Callable[[Path], str]] = {
    "empty": lambda _: "",
    "cut-manifest": lambda root: manifest(root)[:150],
    "cut-in-the-id": lambda root: manifest(root)[:85],
    "manifest": manifest,
    "sealed-again": sealed_again,
    "sealed-again-and-cut": lambda root: sealed_again(root)[:-40],
    "cut-signature": lambda root: (root / "model.sig").read_text()[:-60],
    "signature": lambda root: (root / "model.sig").read_text(),
}
WRONG: dict[str, Callable[[Path], str]] = {
    "foreign-manifest": foreign_manifest,
    "foreign-head": lambda root: manifest(root)[:60] + "anything else",
    "foreign-bundle": lambda _: bundle_of(b'{"foreign": 1}'),
    "foreign-bundle-cut": lambda _: bundle_of(b'{"foreign": 1}')[:-100],
    "more": lambda root: manifest(root) + "more",
    "long-id": lambda root: manifest(root).replace('"save_id": "', '"save_id": "' + "a" * 33, 1),
}


def verdicts(root: Path, public: Path) -> tuple[int, int, bool]:
    """Exit codes of verify without and with a key, and whether the gate names a file that was left."""
    told = any(found.path.endswith(tuple(NAMES)) for found in validate([root]).findings)
    return invoke("verify", root).exit_code, invoke("verify", root, "--public-key", public).exit_code, told


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", FORGIVEN)
def test_what_repeats_the_seal_is_forgiven_without_a_key(
    root: Path, keys: tuple[Path, Path], name: str, way: str
) -> None:
    assert verdicts(root, keys[1]) == (0, 0, False)
    (root / name).write_text(FORGIVEN[way](root))
    assert verdicts(root, keys[1]) == (0, 1, False)
    assert f"{name}: left by an interrupted seal" in invoke("verify", root).stdout
    with_key = invoke("verify", root, "--public-key", keys[1]).stdout
    assert f"{name}: the manifest does not list this file" in with_key
    assert f"{name}: left by an interrupted seal, and covered by no manifest; remove it" in with_key


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WRONG)
def test_anything_else_under_these_names_is_wrong(root: Path, keys: tuple[Path, Path], name: str, way: str) -> None:
    (root / name).write_text(WRONG[way](root))
    assert verdicts(root, keys[1]) == (1, 1, True)


def test_a_signature_that_was_not_finished_is_forgiven_before_the_first(root: Path) -> None:
    (root / "model.sig").rename(root / "model.sig.tmp")
    assert invoke("verify", root).exit_code == 0


@pytest.mark.parametrize("content", [b"\xed\xa0\x80", b'"\\ud800"', b"-----BEGIN PUBLIC KEY-----\n\xff"])
@pytest.mark.parametrize("file", ["key.pem", "key-\udcff.pem"])
def test_a_key_of_odd_bytes_is_wrong_use(root: Path, tmp_path: Path, content: bytes, file: str) -> None:
    (tmp_path / file).write_bytes(content)
    result = invoke("verify", root, "--public-key", tmp_path / file)
    assert result.exit_code == 2, result.output


@pytest.mark.parametrize(
    "start", ["", '{\n "apiVersion": "trainspec/v1",\n "kind": "CheckpointManifest",\n "save_id": "ab']
)
@pytest.mark.parametrize("is_signed", [True, False])
def test_a_seal_that_broke_off_is_noted_where_a_checkpoint_is_chosen(
    root: Path, start: str, *, is_signed: bool
) -> None:
    if not is_signed:
        (root / "trainspec-manifest.json").unlink()
        (root / "model.sig").unlink()
    (root / NAMES[2]).write_text(start)
    found = invoke("newest-good", root.parent)
    assert (found.exit_code, found.stdout) == (0, f"{root.as_posix()}\n")
    assert f"{NAMES[2]}: left by an interrupted seal; seal the checkpoint again, or remove the file" in found.stderr


def test_a_seal_of_one_of_several_files_that_broke_off_is_noted(tmp_path: Path) -> None:
    for step in (10, 20):
        save(tmp_path / f"step_{step}.pt", {"model": {}, "step": step})
    (tmp_path / NAMES[2]).write_text('{\n "apiVersion": "trainspec/v1",\n')
    (tmp_path / ".trainspec-fedcba9876543210").write_text("of another program")
    found = invoke("newest-good", tmp_path)
    assert found.stdout == f"{tmp_path.as_posix()}/step_20.pt\n"
    assert found.stderr.count("left by an interrupted seal") == 1
