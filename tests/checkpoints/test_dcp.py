"""Damage to distributed checkpoints of PyTorch is told from the files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trees import NOW_SECONDS, build, call, mapping, name, pickled, short_text
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.pipeline.validation import validate

WHOLE = "step-60  dcp 2 weight=F32[4,3] bias=F32[4]\n"


def told(root: Path) -> set[tuple[str, str]]:
    return {(trouble.aspect, trouble.path) for trouble in read_checkpoint(root).troubles}


def test_a_whole_checkpoint_is_read(tmp_path: Path) -> None:
    build(tmp_path, WHOLE)
    checkpoint = read_checkpoint(tmp_path / "step-60")
    assert checkpoint.formats == ["PyTorch DCP"]
    assert checkpoint.troubles == []
    assert {"mark", "files", "tiling", "container", "code", "paths", "limits"} <= checkpoint.examined
    assert (checkpoint.is_complete, len(checkpoint.archives)) == (True, 4)


@pytest.mark.parametrize(
    ("damage", "wanted"),
    [
        ("step-60/.metadata  removed", ("mark", "")),
        ("step-60/.metadata  cut 1", ("container", ".metadata")),
        ("step-60/.metadata  text nothing", ("container", ".metadata")),
        ("step-60/__1_0.distcp  removed", ("files", "__1_0.distcp")),
        ("step-60/__1_0.distcp  cut 1", ("files", "__1_0.distcp")),
        ("step-60/__1_0.distcp  text ''", ("files", "__1_0.distcp")),
        ("step-60/__2_0.distcp  text old", ("residue", "__2_0.distcp")),
        ("step-60/.metadata.tmp  text half", ("residue", ".metadata.tmp")),
    ],
)
def test_damage_is_told(tmp_path: Path, damage: str, wanted: tuple[str, str]) -> None:
    build(tmp_path, f"{WHOLE}{damage}\n")
    assert told(tmp_path / "step-60") == {wanted}


def test_a_flipped_byte_is_told_by_the_checksum(tmp_path: Path) -> None:
    build(tmp_path, f"{WHOLE}step-60/__0_0.distcp  flipped\n")
    found = [finding for finding in validate([tmp_path]).findings if finding.severity == "error"]
    assert [(f.requirement, Path(f.path).name) for f in found] == [("TS-CKP-084", "__0_0.distcp")]


def test_a_shard_of_a_later_save_under_the_old_index_is_told(tmp_path: Path) -> None:
    build(tmp_path, f"{WHOLE}step-60/__0_0.distcp  age -600\n")
    assert (tmp_path / "step-60" / "__0_0.distcp").stat().st_mtime == NOW_SECONDS + 600
    found = {finding.requirement for finding in validate([tmp_path]).findings}
    assert found == {"TS-CKP-070", "TS-CKP-090"}


@pytest.mark.parametrize("lost", ["offset", "chunk"])
def test_pieces_that_do_not_cover_the_tensor_are_told(tmp_path: Path, lost: str) -> None:
    build(tmp_path, WHOLE)
    index = tmp_path / "step-60" / ".metadata"
    content = index.read_bytes()
    piece = b"J\x02\x00\x00\x00J\x00\x00\x00\x00ttRX"
    shifted = piece.replace(b"\x02", b"\x01", 1)
    assert content.count(piece) == 2
    where = content.index(piece) if lost == "chunk" else content.rindex(piece)
    index.write_bytes(content[:where] + shifted + content[where + len(piece) :])
    assert told(tmp_path / "step-60") == {("tiling", ".metadata")}


def test_code_in_the_index_is_told_and_not_run(tmp_path: Path) -> None:
    build(tmp_path, WHOLE)
    canary = tmp_path / "canary"
    state = {short_text("state_dict_metadata"): call(name("os", "mkdir"), short_text(str(canary)))}
    (tmp_path / "step-60" / ".metadata").write_bytes(pickled(mapping(state)))
    assert ("code", ".metadata") in told(tmp_path / "step-60")
    assert not canary.exists()


def test_paths_of_the_index_that_lead_out_are_told(tmp_path: Path) -> None:
    build(tmp_path, WHOLE)
    index = tmp_path / "step-60" / ".metadata"
    index.write_bytes(index.read_bytes().replace(b"__1_0.distcp", b"../0.distcp/"))
    assert ("paths", ".metadata") in told(tmp_path / "step-60")
    assert [path.name for path in tmp_path.iterdir()] == ["step-60"]
