"""The links of the cache of huggingface_hub to its own files are read; a reader follows no other link."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.trees import build, flipped
from trainspec_validate.checkpoints.hub_cache import blob_of
from trainspec_validate.checkpoints.inventory import find_named
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.pipeline.validation import validate

REVISION = "0123456789abcdef0123456789abcdef01234567"
FILES = "model.safetensors  safetensors w=F32[4]\nunet/config.json  json {}\nconfig.json  json {}\n"
"""A file in large file storage, and small ones, one of them in a directory."""


def newest(directory: Path) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(directory)])


def cached(root: Path, files: str = FILES) -> Path:
    """A cache with one snapshot, as huggingface_hub writes it: the snapshot."""
    build(root / "plain", files)
    snapshot, blobs = root / "models--org--name" / "snapshots" / REVISION, root / "models--org--name" / "blobs"
    blobs.mkdir(parents=True)
    for path in sorted(path for path in (root / "plain").rglob("*") if path.is_file()):
        content = path.read_bytes()
        is_large = path.suffix != ".json"
        name = hashlib.sha256(content).hexdigest() if is_large else hashlib.sha1(content).hexdigest()
        (blobs / name).write_bytes(content)
        link = snapshot / path.relative_to(root / "plain")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blobs / name, link.parent))
    return snapshot


@pytest.mark.parametrize("named", ["snapshot", "model", "snapshots"])
def test_a_whole_snapshot_is_chosen(tmp_path: Path, named: str) -> None:
    snapshot = cached(tmp_path)
    directory = {"snapshot": snapshot, "model": snapshot.parent.parent, "snapshots": snapshot.parent}[named]
    result = newest(directory)
    assert (result.exit_code, result.stdout) == (0, f"{snapshot}\n"), result.stderr
    assert [one for one in validate([directory]).findings if one.severity == "error"] == []


def test_a_file_that_was_named_keeps_its_name(tmp_path: Path) -> None:
    named = cached(tmp_path) / "model.safetensors"
    group = find_named(named)
    assert group is not None
    assert group.members == [named]
    assert [one for one in validate([named]).findings if one.severity == "error"] == []


def test_a_changed_byte_contradicts_the_digest_that_names_the_file(tmp_path: Path) -> None:
    snapshot = cached(tmp_path)
    flipped((snapshot / "model.safetensors").resolve().rename(tmp_path / "x.safetensors"))
    (tmp_path / "x.safetensors").rename((snapshot / "model.safetensors").resolve())
    result = newest(snapshot)
    assert result.exit_code == 1
    assert "model.safetensors: the content contradicts its recorded SHA-256 (TS-CKP-084)" in result.stderr


def test_a_file_that_is_missing_or_cut_is_named(tmp_path: Path) -> None:
    snapshot = cached(tmp_path)
    blob = (snapshot / "model.safetensors").resolve()
    os.truncate(blob, blob.stat().st_size - 1)
    assert "and its header asks for" in newest(snapshot).stderr
    blob.unlink()
    told = newest(snapshot).stderr
    assert f"the link to '../../blobs/{blob.name}' leads nowhere (TS-SEC-002)" in told, told


@pytest.mark.parametrize(
    "target",
    [
        "../../../secret",
        "../../blobs/../secret",
        "../../blobs/not-a-digest",
        f"../../../other/blobs/{'0' * 64}",
        f"../../blobs/{'1' * 64}",
    ],
    ids=["outside", "dotted", "named", "other-cache", "link-to-a-link"],
)
def test_a_link_that_leads_anywhere_else_is_refused(tmp_path: Path, target: str) -> None:
    snapshot = cached(tmp_path)
    blobs = snapshot.parent.parent / "blobs"
    for place in (tmp_path / "secret", blobs / "not-a-digest", tmp_path / "other" / "blobs" / ("0" * 64)):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((snapshot / "model.safetensors").read_bytes())
    (snapshot.parent.parent / "secret").write_bytes(b"x")
    (blobs / ("1" * 64)).symlink_to("../../secret")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(target)
    assert blob_of(snapshot / "model.safetensors") is None
    assert {(one.aspect, one.path) for one in read_checkpoint(snapshot).troubles} == {("paths", "model.safetensors")}
