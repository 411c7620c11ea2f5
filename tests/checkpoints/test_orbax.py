"""Damage to checkpoints of Orbax, of both kinds of storage, is told from the files alone."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import stores_made
from tests.examples import examples
from tests.stores_made import END, HEAD, SUMS, leaf, packed, store, table
from tests.stores_made import ZARR as SETTINGS
from tests.trees import build
from trainspec_validate.checkpoints.formats import _ocdbt
from trainspec_validate.checkpoints.newest import judged_newest_first
from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.pipeline.validation import validate

SAVE = json.dumps({"item_handlers": {"default": "x"}, "init_timestamp_nsecs": 5, "commit_timestamp_nsecs": 9})
KEYS = [{"key": "b", "key_type": 2}, {"key": "c", "key_type": 2}]
ENTRY = {"key_metadata": KEYS, "value_metadata": {"value_type": "jax.Array", "write_shape": [4, 3]}}
ZARR = {"zarr_format": 2, "dtype": "<i4", "compressor": None, "fill_value": None, "order": "C", "filters": None}


def tree(*, new: bool) -> str:
    return json.dumps({"tree_metadata": {"('b', 'c')": ENTRY}, "use_ocdbt": new, "use_zarr3": False})


def made(root: Path, *, new: bool) -> Path:
    """A checkpoint of one array in one of the kinds of storage."""
    lines = [f"_CHECKPOINT_METADATA  json {SAVE}", f"default/_METADATA  json {tree(new=new)}"]
    if new:
        build(root, "\n".join([*lines, "default/d/0a1b  text values"]))
        store(root / "default")
    else:
        array = json.dumps({**ZARR, "shape": [4, 3], "chunks": [2, 3]})
        chunks = ["default/b.c/0.0  text v", "default/b.c/1.0  text v"]
        build(root, "\n".join([*lines, f"default/b.c/.zarray  json {array}", *chunks]))
    return root


def told(root: Path) -> list[tuple[str, str]]:
    return [(trouble.aspect, trouble.path) for trouble in read_checkpoint(root).troubles]


@pytest.mark.parametrize("new", [True, False], ids=["ocdbt", "zarr"])
def test_a_whole_checkpoint_is_read(tmp_path: Path, new: bool) -> None:
    root = made(tmp_path / "60", new=new)
    assert told(root) == []
    assert read_checkpoint(root).formats == ["Orbax"]


@pytest.mark.parametrize(
    ("new", "damage", "wanted"),
    [
        (True, "_CHECKPOINT_METADATA  removed", ("mark", "")),
        (True, '_CHECKPOINT_METADATA  json {"commit_timestamp_nsecs": null}', ("mark", "_CHECKPOINT_METADATA")),
        (True, "_CHECKPOINT_METADATA  text {", ("container", "_CHECKPOINT_METADATA")),
        (True, "default/manifest.ocdbt  cut 1", ("container", "default/manifest.ocdbt")),
        (True, "default/manifest.ocdbt  text nothing", ("container", "default/manifest.ocdbt")),
        (True, "default/d/0a1b  removed", ("files", "default/manifest.ocdbt")),
        (True, "default/d/9f  removed", ("files", "default/manifest.ocdbt")),
        (True, "default/d/9f  cut 1", ("container", "default/d/9f")),
        (True, "default/d/9f  text nothing", ("container", "default/d/9f")),
        (True, "default/manifest.ocdbt  removed", ("files", "default/manifest.ocdbt")),
        (False, "default/b.c/1.0  removed", ("tiling", "default/b.c")),
        (False, "default/b.c/.zarray  removed", ("files", "default/b.c/.zarray")),
        (False, 'default/b.c/.zarray  json {"shape": [4], "chunks": [0]}', ("container", "default/b.c/.zarray")),
        (False, "default/_METADATA  json []", ("container", "default/_METADATA")),
    ],
)
def test_damage_is_told(tmp_path: Path, new: bool, damage: str, wanted: tuple[str, str]) -> None:
    root = made(tmp_path / "60", new=new)
    build(root, damage)
    assert told(root) == [wanted]


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd"])
def test_a_store_that_names_files_elsewhere_is_damaged(tmp_path: Path, name: str) -> None:
    root = made(tmp_path / "60", new=True)
    store(root / "default", name)
    assert told(root) == [("files", "default/manifest.ocdbt")]


def test_a_store_without_values_is_damaged(tmp_path: Path) -> None:
    root = made(tmp_path / "60", new=True)
    shutil.rmtree(root / "default" / "d")
    assert ("files", "default") in told(root)


def test_a_store_without_a_version_is_damaged(tmp_path: Path) -> None:
    """TensorStore refuses one: `num_children=0 outside valid range`."""
    root = made(tmp_path / "60", new=True)
    manifest = root / "default" / "manifest.ocdbt"
    manifest.write_bytes(packed("0cdb3a2a", HEAD + table(["", "d/9f"]) + b"\x00"))
    assert told(root) == [("container", "default/manifest.ocdbt")]
    assert [bool(one.faults) for one in judged_newest_first(tmp_path)] == [True]


def test_an_empty_store_whose_tree_names_arrays_is_damaged(tmp_path: Path) -> None:
    root = made(tmp_path / "60", new=True)
    nothing = b"\x01" + b"\x01" + b"\x00" + b"\x00" + 2 * (b"\xff" * 9 + b"\x01") + SUMS + END
    manifest = root / "default" / "manifest.ocdbt"
    manifest.write_bytes(packed("0cdb3a2a", HEAD + table([""]) + nothing))
    assert told(root) == [("files", "default/manifest.ocdbt")]
    (root / "default" / "_METADATA").write_text('{"tree_metadata": {}, "use_ocdbt": true}', encoding="utf-8")
    assert told(root) == []


@examples(200)
@given(st.data())
def test_a_manifest_of_any_bytes_is_read_or_refused(data: st.DataObject) -> None:
    for magic in ("0cdb3a2a", "0cdb20de"):
        content = packed(magic, data.draw(st.binary(max_size=80)))
        with suppress(UnreadableError, _ocdbt.UnknownLayoutError):
            _ocdbt.manifest_files(content)


@pytest.mark.parametrize("num_keys", [1, 3000])
def test_what_tensorstore_writes_is_read(tmp_path: Path, num_keys: int) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    place = tmp_path / "60" / "default"
    made(tmp_path / "60", new=True)
    shutil.rmtree(place / "d")
    (place / "manifest.ocdbt").unlink()
    values = tensorstore.KvStore.open({"driver": "ocdbt", "base": f"file://{place}/"}).result()
    values["0"] = b"1"
    values.delete_range(tensorstore.KvStore.KeyRange()).result()
    assert ("files", "default/manifest.ocdbt") in told(tmp_path / "60")  # an empty store
    values["b.c/.zarray"] = SETTINGS
    for _ in range(20):  # more versions than a manifest names
        values["1"] = b"1"
    for _ in range(2):
        with tensorstore.Transaction() as changes:
            for key in range(num_keys):
                values.with_transaction(changes)[f"{key}"] = os.urandom(1500)
    assert told(tmp_path / "60") == []
    _, top = _ocdbt.manifest_files((place / "manifest.ocdbt").read_bytes())
    assert top is not None
    needed = _ocdbt.read_tree(tmp_path / "60", "default", top).needed
    assert sum(needed.values()) > num_keys * 1500
    for name in needed:
        (place / name).rename(tmp_path / "aside")
        assert told(tmp_path / "60"), name
        for size in {0, needed[name] // 2, needed[name] - 1}:
            (place / name).write_bytes((tmp_path / "aside").read_bytes()[:size])
            assert told(tmp_path / "60"), (name, size)
        (tmp_path / "aside").rename(place / name)
    assert told(tmp_path / "60") == []


def test_a_changed_byte_of_a_node_is_told(tmp_path: Path) -> None:
    root = made(tmp_path / "60", new=True)
    node = root / "default" / "d" / "9f"
    content = bytearray(node.read_bytes())
    content[-6] ^= 1
    node.write_bytes(content)
    assert told(root) == [("container", "default/d/9f")]


def test_a_turned_bit_in_the_directory_of_arrays_is_told(tmp_path: Path) -> None:
    root = made(tmp_path / "60", new=True)
    path = root / "default" / "manifest.ocdbt"
    content = bytearray(path.read_bytes())
    content[14] ^= 1
    path.write_bytes(content)
    assert told(root) == [("container", "default/manifest.ocdbt")]


def test_a_save_under_its_temporary_name_is_told(tmp_path: Path) -> None:
    made(tmp_path / "60", new=True)
    root = made(tmp_path / "120.orbax-checkpoint-tmp-3", new=True)
    assert ("residue", "") in told(root)
    found = {(f.requirement, Path(f.path).name) for f in validate([tmp_path]).findings if f.severity == "error"}
    assert found == {("TS-CKP-081", root.name)}


def test_an_empty_directory_of_the_next_step_is_told(tmp_path: Path) -> None:
    made(tmp_path / "60", new=True)
    (tmp_path / "120").mkdir()
    found = [(f.requirement, Path(f.path).name) for f in validate([tmp_path]).findings if f.severity == "error"]
    assert found == [("TS-CKP-080", "120")]


def test_ranks_that_save_alone_have_a_mark_each(tmp_path: Path) -> None:
    for rank in (0, 1):
        made(tmp_path / "60" / f"rank-{rank}" / "arrays", new=True)
    assert told(tmp_path / "60") == []
    (tmp_path / "60" / "rank-1" / "arrays" / "_CHECKPOINT_METADATA").unlink()
    assert told(tmp_path / "60") == [("mark", "rank-1/arrays/default")]


@pytest.mark.parametrize(
    "handler", ["orbax.checkpoint.a.PyTreeCheckpointHandler", "orbax.checkpoint.a.b.StandardCheckpointHandler"]
)
def test_a_tree_without_its_description_is_damaged(tmp_path: Path, handler: str) -> None:
    root = made(tmp_path / "10", new=True)
    mark = json.dumps({**json.loads(SAVE), "item_handlers": {"default": handler}})
    (root / "_CHECKPOINT_METADATA").write_text(mark, encoding="utf-8")
    assert told(root) == []
    (root / "default" / "_METADATA").unlink()
    assert told(root) == [("files", "default/_METADATA")]


def test_values_of_a_store_are_named_as_not_checked(tmp_path: Path) -> None:
    root = made(tmp_path / "10", new=True)
    assert (root / "default" / "d" / "0a1b").as_posix() in {one.path for one in validate([root]).unjudged}


@pytest.mark.parametrize("handler", ["a.PyTreeCheckpointHandler", "mine.b.StandardCheckpointHandler"])
def test_a_tree_of_a_handler_outside_orbax_may_lack_its_description(tmp_path: Path, handler: str) -> None:
    root = made(tmp_path / "10", new=True)
    mark = json.dumps({**json.loads(SAVE), "item_handlers": {"default": handler}})
    (root / "_CHECKPOINT_METADATA").write_text(mark, encoding="utf-8")
    (root / "default" / "_METADATA").unlink()
    assert told(root) == []
    assert (root / "default" / "_METADATA").as_posix() in {one.path for one in validate([root]).unjudged}


def test_arrays_without_a_description_are_named_as_not_judged(tmp_path: Path) -> None:
    root = made(tmp_path / "10", new=False)
    array = (root / "default" / "b.c").as_posix()
    assert array not in {one.path for one in validate([root]).unjudged}
    (root / "default" / "_METADATA").unlink()
    (root / "default" / "b.c" / "1.0").unlink()
    assert told(root) == []
    assert array in {one.path for one in validate([root]).unjudged}


@pytest.mark.parametrize("size", [0, 1, 20, -1, None])
def test_a_cut_chunk_of_zarr_is_told(tmp_path: Path, size: int | None) -> None:
    zstandard = pytest.importorskip("zstandard")
    root = made(tmp_path / "60", new=False)
    array = json.dumps({**ZARR, "shape": [4, 3], "chunks": [2, 3], "compressor": {"id": "zstd"}})
    build(root, f"default/b.c/.zarray  json {array}")
    for number, content in enumerate((os.urandom(300_000), bytes(300_000))):
        packed_content = zstandard.ZstdCompressor(write_checksum=bool(number)).compress(content)
        (root / "default" / "b.c" / f"{number}.0").write_bytes(packed_content)
    assert told(root) == []
    chunk = root / "default" / "b.c" / "0.0"
    content = chunk.read_bytes()
    chunk.write_bytes(content + b"more" if size is None else content[:size])
    assert told(root) == [("container", "default/b.c/0.0")]


def told_of(root: Path) -> tuple[set[tuple[str, str]], set[str]]:
    """Errors and what was not judged, of what is found at or below a directory."""
    result = validate([root])
    errors = {(f.requirement, Path(f.path).name) for f in result.findings if f.severity == "error"}
    return errors, {one.path for one in result.unjudged}


@pytest.mark.parametrize("name", ["60", "final_weights"])
def test_a_save_under_any_name_is_one_checkpoint(tmp_path: Path, name: str) -> None:
    root = made(tmp_path / name, new=True)
    part = root / "default" / "ocdbt.process_0"
    part.mkdir()
    store(part)
    (part / "d" / "0a1b").write_text("values", encoding="utf-8")
    assert told_of(root)[0] == set()
    assert told_of(tmp_path)[0] == set()
    (part / "d" / "0a1b").unlink()
    assert {requirement for requirement, _ in told_of(root)[0]} == {"TS-CKP-082"}


def test_a_tree_of_before_the_mark_is_not_called_interrupted(tmp_path: Path) -> None:
    root = made(tmp_path / "60", new=True)
    (root / "_CHECKPOINT_METADATA").unlink()
    older = {"tree_metadata": json.loads(tree(new=True))["tree_metadata"], "use_zarr3": False}
    (root / "default" / "_METADATA").write_text(json.dumps(older), encoding="utf-8")
    errors, unjudged = told_of(root)
    assert errors == set()
    assert root.as_posix() in unjudged
    (root / "default" / "array_metadatas").mkdir()
    assert told_of(root)[0] == {("TS-CKP-080", "60")}


@pytest.mark.parametrize("lost", [".zarray", "1.0"])
def test_a_tree_that_does_not_say_its_storage_may_have_arrays(tmp_path: Path, lost: str) -> None:
    root = made(tmp_path / "60", new=False)
    older = {"tree_metadata": json.loads(tree(new=False))["tree_metadata"], "use_zarr3": False}
    (root / "default" / "_METADATA").write_text(json.dumps(older), encoding="utf-8")
    assert told(root) == []
    (root / "default" / "b.c" / lost).unlink()
    assert len(told(root)) == 1


def test_values_outside_of_arrays_are_not_looked_for(tmp_path: Path) -> None:
    root = made(tmp_path / "60", new=False)
    older = {"tree_metadata": json.loads(tree(new=False))["tree_metadata"], "use_zarr3": False}
    (root / "default" / "_METADATA").write_text(json.dumps(older), encoding="utf-8")
    shutil.rmtree(root / "default" / "b.c")
    assert told(root) != []
    (root / "default" / "checkpoint").write_bytes(b"\x81\xa1a\x01")
    assert told(root) == []


def test_chunks_of_zarr_version_3_are_counted(tmp_path: Path) -> None:
    root = made(tmp_path / "60", new=False)
    said = {**json.loads(tree(new=False)), "use_zarr3": True}
    (root / "default" / "_METADATA").write_text(json.dumps(said), encoding="utf-8")
    shutil.rmtree(root / "default" / "b.c")
    grid = {"name": "regular", "configuration": {"chunk_shape": [2, 3]}}
    array = json.dumps({"zarr_format": 3, "shape": [4, 3], "chunk_grid": grid})
    chunks = ["default/b.c/c/0/0  text v", "default/b.c/c/1/0  text v"]
    build(root, "\n".join([f"default/b.c/zarr.json  json {array}", *chunks]))
    assert told(root) == []
    (root / "default" / "b.c" / "c" / "1" / "0").unlink()
    assert told(root) == [("tiling", "default/b.c")]


@pytest.mark.parametrize(
    ("handler", "wanted"),
    [("orbax.checkpoint.a.JsonCheckpointHandler", [("files", "")]), ("orbax.checkpoint.v1.a.DescriptorHandler", [])],
)
def test_an_item_may_be_absent_where_its_handler_may_write_none(
    tmp_path: Path, handler: str, wanted: list[tuple[str, str]]
) -> None:
    root = made(tmp_path / "60", new=True)
    mark = json.dumps({**json.loads(SAVE), "item_handlers": {"default": "x", "more": handler}})
    (root / "_CHECKPOINT_METADATA").write_text(mark, encoding="utf-8")
    assert told(root) == wanted
    assert wanted or (root / "more").as_posix() in told_of(root)[1]


def test_an_array_that_the_store_does_not_hold_is_damage(tmp_path: Path) -> None:
    """Orbax ends at NOT_FOUND for its settings."""
    root = made(tmp_path / "60", new=True)
    store(root / "default", arrays={"b.d/.zarray": SETTINGS})
    assert told(root) == [("files", "default/manifest.ocdbt")]
    assert [bool(one.faults) for one in judged_newest_first(tmp_path)] == [True]
    words = json.loads((root / "default" / "_METADATA").read_text(encoding="utf-8"))
    words["tree_metadata"]["('b', 'c')"]["value_metadata"]["value_type"] = "None"
    (root / "default" / "_METADATA").write_text(json.dumps(words), encoding="utf-8")
    assert told(root) == []


@pytest.mark.parametrize("is_3", [True, False, None])
def test_a_store_holds_settings_of_the_version_that_the_tree_states(tmp_path: Path, is_3: bool | None) -> None:
    root = made(tmp_path / "60", new=True)
    grid = {"name": "regular", "configuration": {"chunk_shape": [2, 3]}}
    array = json.dumps({"zarr_format": 3, "shape": [4, 3], "chunk_grid": grid}).encode()
    store(root / "default", arrays={"b.c/zarr.json": array})
    words = {**json.loads(tree(new=True)), "use_zarr3": is_3}
    (root / "default" / "_METADATA").write_text(json.dumps(words), encoding="utf-8")
    assert bool(told(root)) is (is_3 is False)


def test_a_save_without_arrays_needs_no_store(tmp_path: Path) -> None:
    """Orbax 0.12 writes none where a tree has text and empty values alone."""
    root = made(tmp_path / "60", new=True)
    words = tree(new=True).replace("jax.Array", "string").replace("[4, 3]", "null")
    (root / "default" / "_METADATA").write_text(words, encoding="utf-8")
    shutil.rmtree(root / "default" / "d")
    (root / "default" / "manifest.ocdbt").unlink()
    assert told(root) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"{", b"["),
        (SETTINGS, b"[]"),
        (SETTINGS, b"null"),
        (b"[4, 3]", b"[NaN, 3]"),
        (b"[4, 3]", b"[4]"),
        (b"[2, 3]", b"[2, 0]"),
        (b'"filters": null', b'"filters": [{"id": "pickle"}]'),
    ],
)
def test_settings_that_tensorstore_refuses_are_damage(tmp_path: Path, before: bytes, after: bytes) -> None:
    root = made(tmp_path / "60", new=True)
    store(root / "default", arrays={"b.c/.zarray": SETTINGS.replace(before, after)})
    assert told(root) == [("container", "default/manifest.ocdbt")]


B_C = ("b.c/.zarray", SETTINGS)
ONE = [B_C, ("c", b"")]


@pytest.mark.parametrize(
    ("node", "settings"),
    [
        (leaf(ONE), {"height": 3}),
        (leaf(ONE[::-1]), {}),
        (leaf([B_C, B_C]), {}),
        (packed("0cdb20de", leaf(ONE)[14:-4] + b"xx"), {}),
        (packed("0cdb20de", b"\x00" + table([]) + b"\x00"), {}),
        (leaf(ONE), {"versions": b"\x02\x01\x01\x00\x00"}),
        (leaf(ONE), {"versions": b"\x02\x02\x01\x00\x00"}),
        (leaf(ONE), {"versions": b"\x02\x00\x01\x00\x00"}),
        (leaf(ONE), {"versions": b"\x02\x01\x11\x00\x00"}),
    ],
    ids=["height", "order", "twice", "after", "empty", "same", "older", "zero", "apart"],
)
def test_a_tree_that_tensorstore_refuses_is_damaged(tmp_path: Path, node: bytes, settings: dict[str, Any]) -> None:
    root = made(tmp_path / "60", new=True)
    stores_made.root(root / "default", leaf(ONE))
    assert told(root) == []
    stores_made.root(root / "default", node, **settings)
    assert [aspect for aspect, _ in told(root)] == ["container"]


@pytest.mark.parametrize(("num_children", "height"), [(1, 1), (200, 3)])
def test_a_node_that_a_tree_names_twice_ends_the_reading(tmp_path: Path, num_children: int, height: int) -> None:
    root = made(tmp_path / "60", new=True)
    keys = b"".join(b"%03d" % one for one in range(num_children))
    count = stores_made.number(num_children)
    size = 0
    node = b""
    for _ in range(4):  # until the length that it says of itself is its own
        places = bytes(num_children) + b"\x06" * num_children + stores_made.number(size) * num_children
        body = count + bytes(num_children - 1) + b"\x03" * num_children + bytes(num_children) + keys + places
        node = packed("0cdb20de", bytes([height]) + table(["d/9f"]) + body + bytes(3 * num_children))
        size = len(node)
    stores_made.root(root / "default", node, height=height)
    assert told(root) == [("container", "default/d/9f")]
    assert "names twice" in read_checkpoint(root).troubles[0].message


@pytest.mark.parametrize("content", ["[]", "1", '{"commit_timestamp_nsecs": -9}'])
def test_a_mark_that_is_no_time_of_a_commit_is_reported(tmp_path: Path, content: str) -> None:
    root = made(tmp_path / "60", new=True)
    (root / "_CHECKPOINT_METADATA").write_text(content, encoding="utf-8")
    assert told(root) == [("mark", "_CHECKPOINT_METADATA")]


@pytest.mark.parametrize(
    "content", ["null", *(tree(new=True).replace("[4, 3]", s) for s in ("[NaN]", "[1e999]", "[-1]"))]
)
def test_a_tree_that_is_no_tree_is_reported(tmp_path: Path, content: str) -> None:
    root = made(tmp_path / "60", new=True)
    (root / "default" / "_METADATA").write_text(content, encoding="utf-8")
    assert told(root) == [("container", "default/_METADATA")]
