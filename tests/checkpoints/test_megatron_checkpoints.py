"""What Megatron adds to a distributed checkpoint is read: its mark, its common state and its digests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.trees import build
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.pipeline.validation import validate

WHOLE = """
iter_0000060  dcp 2 weight=F32[4,3]
iter_0000060/common.pt  torch iteration:60
iter_0000060/metadata.json  json {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
latest_checkpointed_iteration.txt  text 60
"""


def errors(root: Path) -> list[tuple[str, str]]:
    found = [finding for finding in validate([root]).findings if finding.severity == "error"]
    return [(finding.requirement, Path(finding.path).relative_to(root).as_posix()) for finding in found]


def record(root: Path, **changed: str) -> None:
    """Write the digests as Megatron does."""
    paths = [path for path in root.iterdir() if path.is_file()]
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    (root / "integrity.json").write_text(json.dumps({"algorithm": "sha256", "files": {**files, **changed}}))


def test_a_whole_checkpoint_is_read(tmp_path: Path) -> None:
    build(tmp_path, WHOLE)
    record(tmp_path / "iter_0000060")
    checkpoint = read_checkpoint(tmp_path / "iter_0000060")
    assert checkpoint.formats == ["torch.save", "PyTorch DCP", "Megatron dist-checkpoint"]
    assert (checkpoint.troubles, checkpoint.step) == ([], 60)
    assert [claim.step for claim in checkpoint.claims] == [60]
    assert errors(tmp_path) == []


@pytest.mark.parametrize(
    ("damage", "wanted"),
    [
        ("iter_0000060/metadata.json  removed", {("TS-CKP-080", "iter_0000060")}),
        ("iter_0000060/common.pt  removed", {("TS-CKP-082", "iter_0000060/common.pt")}),
        ("iter_0000060/common.pt  torch iteration:59", {("TS-CKP-088", "iter_0000060/common.pt")}),
        ("latest_checkpointed_iteration.txt  text 120", {("TS-CKP-091", "latest_checkpointed_iteration.txt")}),
        ("latest_checkpointed_iteration.txt  text 'sixty one'", {("TS-CKP-091", "latest_checkpointed_iteration.txt")}),
    ],
)
def test_damage_is_told(tmp_path: Path, damage: str, wanted: set[tuple[str, str]]) -> None:
    build(tmp_path, f"{WHOLE}{damage}\n")
    assert wanted <= set(errors(tmp_path))
    assert {requirement for requirement, _ in errors(tmp_path)} <= {*(one for one, _ in wanted), "TS-CKP-092"}


def test_a_flipped_byte_is_told_by_its_digests(tmp_path: Path) -> None:
    build(tmp_path, WHOLE)
    record(tmp_path / "iter_0000060")
    build(tmp_path, "iter_0000060/__0_0.distcp  flipped\n")
    assert errors(tmp_path) == [("TS-CKP-084", "iter_0000060/__0_0.distcp")]


def test_digests_of_files_elsewhere_are_told_and_not_followed(tmp_path: Path) -> None:
    build(tmp_path, WHOLE)
    record(tmp_path / "iter_0000060", **{"../secret": "0" * 64})
    assert errors(tmp_path) == [("TS-SEC-002", "iter_0000060/integrity.json")]


def test_digests_of_another_kind_are_told(tmp_path: Path) -> None:
    build(tmp_path, f'{WHOLE}iter_0000060/integrity.json  json {{"algorithm": "md5", "files": {{}}}}\n')
    assert errors(tmp_path) == [
        ("TS-CKP-083", "iter_0000060/integrity.json"),
        ("TS-CKP-092", "latest_checkpointed_iteration.txt"),
    ]


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        ("mp_rank_00 mp_rank_01 mp_rank_02", ""),
        ("mp_rank_00 mp_rank_02", "1 of 3 directories mp_rank_* are missing"),
        ("mp_rank_00_000 mp_rank_01_000 mp_rank_00_001", "1 of 2 x 2 directories mp_rank_* are missing"),
        ("tp_rank_00_pp_rank_000 tp_rank_01_pp_rank_001", "2 of 2 x 2 directories tp_rank_* are missing"),
    ],
)
def test_directories_of_ranks_are_a_whole_grid(tmp_path: Path, folders: str, words: str) -> None:
    root = tmp_path / "iter_0000060"
    for folder in folders.split():
        build(root, f"{folder}/model_optim_rng.pt  torch weight=F32[4]\n")
    found = [one.message for one in read_checkpoint(root).troubles if one.aspect == "shards"]
    assert found == ([words] if words else [])


def test_every_rank_says_the_step(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for step, second in ((20, 20), (30, 20)):
        for rank, said in enumerate((step, second)):
            folder = tmp_path / f"iter_{step:07}" / f"mp_rank_{rank:02}"
            folder.mkdir(parents=True)
            torch.save({"iteration": said, "model": {"w": torch.ones(4)}}, folder / "model_optim_rng.pt")
    found = [each for each in validate([tmp_path]).findings if each.requirement == "TS-CKP-088"]
    assert [each.path.endswith("iter_0000030/mp_rank_01/model_optim_rng.pt") for each in found] == [True]
    assert "(iteration) is 20, and the name of the directory" in found[0].message
