"""The small files of Orbax that a restore reads are whole, and agree with each other and with the step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trees import build
from trainspec_validate.checkpoints.newest import judged_newest_first
from trainspec_validate.checkpoints.read import read_checkpoint

_OWN = "orbax.checkpoint._src.handlers"
HANDLERS = {
    "meta": f"{_OWN}.json_checkpoint_handler.JsonCheckpointHandler",
    "state": f"{_OWN}.standard_checkpoint_handler.StandardCheckpointHandler",
}
MARK = {"item_handlers": HANDLERS, "init_timestamp_nsecs": 5, "commit_timestamp_nsecs": 9}
KEYS = [{"key": "b", "key_type": 2}, {"key": "c", "key_type": 2}]
VALUE = {"value_type": "jax.Array", "skip_deserialize": False, "write_shape": [4, 3]}
TREE = {"tree_metadata": {"('b', 'c')": {"key_metadata": KEYS, "value_metadata": VALUE}}, "use_ocdbt": False}
ZARR = {"zarr_format": 2, "dtype": "<f4", "compressor": {"id": "zstd", "level": 1}, "fill_value": None, "order": "C"}
ZARR |= {"filters": None, "dimension_separator": ".", "shape": [4, 3], "chunks": [4, 3]}
SHARDING = {"Yi5j": json.dumps({"sharding_type": "SingleDeviceSharding", "device_str": "cpu:0"})}
ARRAY = {"param_name": "b.c", "write_shape": [4, 3], "chunk_shape": [4, 3], "ext_metadata": None}
ARRAYS = {"array_metadatas": [{"array_metadata": ARRAY}]}


def made(root: Path, step: int) -> Path:
    files = {
        "_CHECKPOINT_METADATA": MARK,
        "meta/metadata": {"step": step},
        "state/_METADATA": TREE,
        "state/_sharding": SHARDING,
        "state/array_metadatas/process_0": ARRAYS,
        "state/b.c/.zarray": ZARR,
    }
    lines = [f"{path}  json {json.dumps(value)}" for path, value in files.items()]
    build(root, "\n".join([*lines, "commit_success.txt  text ok", "meta/commit_success.txt  text ok"]))
    (root / "state/b.c/0.0").write_bytes(bytes.fromhex("28b52ffd2030") + bytes.fromhex("810100") + bytes(48))
    return root


def newest(root: Path) -> str:
    return next((Path(one.path).name for one in judged_newest_first(root) if not one.faults), "")


def test_whole_parts_are_chosen(tmp_path: Path) -> None:
    made(tmp_path / "ckpt_00000010", 10)
    assert not read_checkpoint(made(tmp_path / "ckpt_00000020", 20)).troubles
    assert newest(tmp_path) == "ckpt_00000020"


def test_shardings_that_the_one_before_has_are_expected(tmp_path: Path) -> None:
    made(tmp_path / "10", 10)
    (made(tmp_path / "20", 20) / "state/_sharding").unlink()
    assert newest(tmp_path) == "10"
    (tmp_path / "10/state/_sharding").unlink()
    assert newest(tmp_path) == "20"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"Yi5j": "{"}', '{"Yi5j": "{}"}'])
def test_damaged_shardings_are_refused(content: str, tmp_path: Path) -> None:
    made(tmp_path / "10", 10)
    (made(tmp_path / "20", 20) / "state/_sharding").write_text(content)
    assert newest(tmp_path) == "10"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"array_metadatas": [{}]}', '{"array_metadatas": 3}'])
def test_damaged_arrays_of_a_process_are_refused(content: str, tmp_path: Path) -> None:
    made(tmp_path / "10", 10)
    (made(tmp_path / "20", 20) / "state/array_metadatas/process_0").write_text(content)
    assert newest(tmp_path) == "10"


@pytest.mark.parametrize("content", [None, "", "{", '{"step": 10}'])
def test_an_item_of_json_is_whole_and_of_its_step(content: str | None, tmp_path: Path) -> None:
    made(tmp_path / "ckpt_00000010", 10)
    path = made(tmp_path / "ckpt_00000020", 20) / "meta/metadata"
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert newest(tmp_path) == "ckpt_00000010"


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("state/_METADATA", "jax.Array", "jax.Abray"),
        ("state/_METADATA", "('b', 'c')", "('b', 'g')"),
        ("state/_METADATA", "key_metadata", "key_matadata"),
        ("state/b.c/.zarray", "zarr_format", "zarr_fobmat"),
        ("state/b.c/.zarray", "<f4", "<v4"),
        ("state/b.c/.zarray", '"id"', '"ie"'),
        ("state/b.c/.zarray", '"C"', '"S"'),
    ],
)
def test_one_other_letter_is_refused(path: str, before: str, after: str, tmp_path: Path) -> None:
    made(tmp_path / "10", 10)
    place = made(tmp_path / "20", 20) / path
    content = place.read_text()
    assert before in content
    place.write_text(content.replace(before, after, 1))
    assert newest(tmp_path) == "10"


def test_a_sharding_of_another_type_is_said(tmp_path: Path) -> None:
    path = made(tmp_path / "20", 20) / "state/_sharding"
    path.write_text(path.read_text().replace("SingleDevice", "Later"))
    (one,) = judged_newest_first(tmp_path)
    assert not one.faults
    assert any("names the sharding 'LaterSharding', which is not known" in note for note in one.notes)


@pytest.mark.parametrize("key", ["param_name", "write_shape", "chunk_shape", "ext_metadata"])
def test_arrays_of_a_process_have_the_keys_of_a_restore(key: str, tmp_path: Path) -> None:
    """Orbax takes an array without `ext_metadata`, and ends at `KeyError` without one of the others."""
    made(tmp_path / "10", 10)
    path = made(tmp_path / "20", 20) / "state/array_metadatas/process_0"
    path.write_text(path.read_text().replace(key, "x" + key[1:]))
    assert newest(tmp_path) == ("20" if key == "ext_metadata" else "10")
