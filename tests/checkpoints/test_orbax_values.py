"""Chunks of arrays in a store of OCDBT are checked as far as their packing shows damage."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate.checkpoints.formats import _ocdbt
from trainspec_validate.checkpoints.formats._ocdbt_values import damaged_chunks
from trainspec_validate.checkpoints.formats._zstd import check_frame
from trainspec_validate.checkpoints.opening import UnreadableError

ZSTD = {"driver": "zarr", "metadata": {"chunks": [64, 64], "compressor": {"id": "zstd", "level": 1}}}
SHARDS = {
    "driver": "zarr3",
    "metadata": {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [64, 64]}},
        "codecs": [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": [32, 64],
                    "codecs": [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 1}}],
                },
            }
        ],
    },
}
PLAIN = {"driver": "zarr", "metadata": {"chunks": [64, 64], "compressor": None}}


def made(root: Path, settings: dict[str, Any]) -> _ocdbt.Tree:
    """A store with three arrays of four chunks each, as TensorStore writes it; returns its tree."""
    tensorstore = pytest.importorskip("tensorstore")
    numpy = pytest.importorskip("numpy")
    for name in ("b", "params.w", "x"):
        place = {"driver": "ocdbt", "base": f"file://{root}/"}
        array = tensorstore.open(
            {**settings, "kvstore": {**place, "path": f"{name}/"}},
            create=True,
            dtype=tensorstore.float32,
            shape=[128, 128],
        ).result()
        array.write(numpy.random.default_rng(1).normal(size=(128, 128)).astype("float32")).result()
    _, top = _ocdbt.manifest_files((root / "manifest.ocdbt").read_bytes())
    assert top is not None
    return _ocdbt.read_tree(root, "", top)


@pytest.mark.parametrize("settings", [ZSTD, SHARDS], ids=["zarr", "zarr3"])
def test_a_file_with_values_that_ends_in_zeros_is_told(settings: dict[str, Any], tmp_path: Path) -> None:
    tree = made(tmp_path, settings)
    assert list(damaged_chunks(tmp_path, "", tree)) == []
    values = [value for _, value in _ocdbt.values_of(tmp_path, "", tree.top, _ocdbt.Budget())]
    chunks = [value for value in values if isinstance(value, _ocdbt.Stretch) and value.num_bytes > 1_000]
    assert len(chunks) == 12
    for one in chunks:
        path = tmp_path / one.file.name
        content = path.read_bytes()
        for place in (0, one.num_bytes // 2, one.num_bytes - 9):
            end = one.offset_bytes + one.num_bytes
            path.write_bytes(content[: one.offset_bytes + place].ljust(end, b"\0") + content[end:])
            assert [name for name, _ in damaged_chunks(tmp_path, "", tree)] == [one.file.name], place
        path.write_bytes(content)


def test_keys_are_those_that_were_written(tmp_path: Path) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    values = tensorstore.KvStore.open({"driver": "ocdbt", "base": f"file://{tmp_path}/"}).result()
    written = {f"{number % 7}/{number}": bytes([number % 256]) * (number % 300) for number in range(4_000)}
    for key, value in written.items():
        with_all = values.write(key, value)
    with_all.result()
    values.write("last", b"1").result()
    _, top = _ocdbt.manifest_files((tmp_path / "manifest.ocdbt").read_bytes())
    assert top is not None
    found = {key.decode(): value for key, value in _ocdbt.values_of(tmp_path, "", top, _ocdbt.Budget())}
    assert sorted(found) == sorted([*written, "last"])
    for key, value in written.items():
        one = found[key]
        assert (one if isinstance(one, bytes) else one.num_bytes) in (value, len(value))


def test_values_that_are_not_packed_are_not_judged(tmp_path: Path) -> None:
    tree = made(tmp_path, PLAIN)
    _, _, path = max((path.stat().st_size, path.name, path) for path in (tmp_path / "d").iterdir())
    path.write_bytes(bytes(1_000) + path.read_bytes()[1_000:])
    assert list(damaged_chunks(tmp_path, "", tree)) == []


@pytest.mark.parametrize("level", [-5, 1, 3, 19])
def test_frames_of_any_content_are_whole(level: int, tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    chance = random.Random(1)
    contents = [b"", b"\0", bytes(300_000), chance.randbytes(200_000), b"ab" * 99_999 + bytes(9)]
    contents += [bytes(chance.choices((0, 1, 60, 61, 62), k=150_000)), b"1" * 7 + bytes(200_000)]
    for content in contents:
        frame = zstandard.ZstdCompressor(level=level).compress(content)
        path = tmp_path / "values"
        path.write_bytes(b"before" + frame + b"after")
        check_frame(path, 6, len(frame))
        if len(frame) > 20:
            with pytest.raises(UnreadableError):
                check_frame(path, 6, len(frame) - 1)
