"""Where a policy says items of state are found, they are looked for by name in every format; saves are told apart."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.bundles_made import bundle, training
from tests.checkpoints.test_orbax import store
from tests.trees import build, mapping, object_of, pickled, short_text
from trainspec_validate.checkpoints.checks import NotApplicable, Series, Violation
from trainspec_validate.checkpoints.checks.keys import state_keys
from trainspec_validate.checkpoints.checks.sealed import save_id_unique
from trainspec_validate.checkpoints.inventory import find
from trainspec_validate.checkpoints.read import read_group
from trainspec_validate.documents.load import load_text
from trainspec_validate.documents.types import CheckpointPolicy
from trainspec_validate.documents.types.checkpoint import State, StateKeys

BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base" / "checkpoint.yaml"
METADATA = "torch.distributed.checkpoint.metadata"


def series(root: Path) -> Series:
    (group,) = find(root)
    return read_group(group)


def absent(root: Path, *patterns: str) -> list[str]:
    """What is told of a policy with these patterns."""
    policy = msgspec.convert(load_text(BASE.read_text(encoding="utf-8"), BASE.name).data, CheckpointPolicy)
    keys = (StateKeys(item="optimizer", patterns=patterns),) if patterns else ()
    changed = msgspec.structs.replace(policy, state=State(items=("model",), keys=keys))
    return [violation.message for violation in state_keys(series(root), changed)]


WAYS = {
    "safetensors": ("step-1/model.safetensors  safetensors opt.v=F32[4]", "opt.v"),
    "torch": ("step-1/state.pt  torch opt.v=F32[4] global_step:7", "global_step"),
    "dcp": ("step-1  dcp 2 opt.v=F32[4]", "opt.?"),
    "file": ("step-1/model.safetensors  safetensors w=F32[4]\nstep-1/optimizer.pt  torch v=F32[1]", "optim*.pt"),
}


@pytest.mark.parametrize("way", WAYS)
def test_names_are_found_in_every_format(tmp_path: Path, way: str) -> None:
    lines, pattern = WAYS[way]
    build(tmp_path, lines)
    assert absent(tmp_path, pattern) == []
    (words,) = absent(tmp_path, pattern, "scheduler.*")
    assert words.startswith("no name of a tensor, of other state or of a file fits 'scheduler.*', where optimizer")


def test_names_of_bundles_and_trees_are_found(tmp_path: Path) -> None:
    bundle(tmp_path / "tf", "ckpt-1", training(1))
    keys = [{"key": "b", "key_type": 2}, {"key": "c", "key_type": 2}]
    leaf = {"key_metadata": keys, "value_metadata": {"value_type": "jax.Array", "skip_deserialize": False}}
    tree = {"tree_metadata": {"('b', 'c')": leaf}, "use_zarr3": False}
    lines = ['_CHECKPOINT_METADATA  json {"commit_timestamp_nsecs": 1}', f"d/_METADATA  json {json.dumps(tree)}"]
    build(tmp_path / "orbax" / "60", "\n".join([*lines, "d/d/0a1b  text xxxxxx"]))
    store(tmp_path / "orbax" / "60" / "d")
    assert absent(tmp_path / "tf", "optimizer/_variables/*", "save_counter") == []
    assert absent(tmp_path / "orbax", "b.c") == []


def test_without_patterns_nothing_is_judged(tmp_path: Path) -> None:
    build(tmp_path, WAYS["safetensors"][0])
    with pytest.raises(NotApplicable, match=r"no state\.keys in the policy"):
        absent(tmp_path)
    build(tmp_path, "step-1/model.safetensors  cut 1")
    with pytest.raises(NotApplicable, match="no whole checkpoint"):
        absent(tmp_path, "opt.v")


def saved(root: Path, save_id: bytes) -> None:
    """A checkpoint of PyTorch DCP that holds nothing but the identity of its save."""
    about = object_of(METADATA, "StorageMeta", save_id=save_id)
    empty = {"state_dict_metadata": mapping({}), "storage_data": mapping({})}
    root.mkdir(parents=True)
    (root / ".metadata").write_bytes(pickled(object_of(METADATA, "Metadata", storage_meta=about, **empty)))


def copies(root: Path) -> list[Violation]:
    return list(save_id_unique(series(root)))


def test_a_copy_under_the_name_of_another_step_is_told(tmp_path: Path) -> None:
    for step, save_id in ((10, b"aa"), (20, b"bb"), (30, b"aa")):
        saved(tmp_path / f"step-{step}", short_text(save_id.decode()))
    (found,) = copies(tmp_path)
    assert (Path(found.place).name, found.message.endswith("step-10")) == ("step-30", True)


def test_an_identity_that_is_no_text_is_none(tmp_path: Path) -> None:
    for step in (10, 20):
        saved(tmp_path / f"step-{step}", b"N")
    with pytest.raises(NotApplicable):
        copies(tmp_path)
