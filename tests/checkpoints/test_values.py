"""Values of tensors are read in blocks, in every container that holds them plainly, and judged where that is asked."""

from __future__ import annotations

import json
import math
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bundles_made import Held, bundle, floats
from tests.examples import examples
from tests.trees import build, raw_safetensors
from trainspec_validate.checkpoints.inventory import find
from trainspec_validate.checkpoints.read import read_checkpoint, read_group
from trainspec_validate.checkpoints.statistics import Piece, Statistics
from trainspec_validate.checkpoints.values import statistics
from trainspec_validate.model.finding import Verdict
from trainspec_validate.pipeline.validation import Terms, examine, validate

VALUES = ("TS-CKP-099", "TS-CKP-100", "TS-CKP-101")
PAGE = 4096


def told(path: Path) -> list[tuple[str, str]]:
    found = examine([path], Terms(values=True)).findings
    return [(finding.requirement, finding.message) for finding in found if finding.requirement in VALUES]


def held(root: Path, dtype: str, content: bytes, name: str = "w") -> Path:
    """A safetensors file of one tensor with these bytes."""
    width = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}[dtype]
    header = {name: {"dtype": dtype, "shape": [len(content) // width], "data_offsets": [0, len(content)]}}
    root.mkdir(parents=True, exist_ok=True)
    raw_safetensors(root / "model.safetensors", json.dumps(header).encode(), content)
    return root


def of(path: Path) -> dict[str, Statistics]:
    (group,) = find(path)
    (one,) = read_group(group).checkpoints
    return {found.piece.name: found for found in statistics(one)}


def test_without_being_asked_nothing_is_read(tmp_path: Path) -> None:
    held(tmp_path / "step-1", "F32", floats(math.nan))
    outcomes = {outcome.requirement: outcome for outcome in validate([tmp_path]).outcomes}
    for identifier in VALUES:
        assert outcomes[identifier].verdict is Verdict.NOT_APPLICABLE
        assert outcomes[identifier].reason == "values are read where that is asked for: --values"


def test_what_was_read_is_said(tmp_path: Path) -> None:
    held(tmp_path / "step-1", "F32", floats(1, 2))
    build(tmp_path / "step-1", "notes.txt  text 12345678\n")
    (document,) = examine([tmp_path], Terms(values=True)).documents
    size = (tmp_path / "step-1" / "model.safetensors").stat().st_size + 8
    assert document.name == f"safetensors; values of 1 tensor read, 8 of {size} bytes"


def test_nothing_that_can_be_read_is_no_pass(tmp_path: Path) -> None:
    bundle(tmp_path, "ckpt-1", {"n": Held(bytes(8), (), 9)})
    outcomes = {outcome.requirement: outcome for outcome in examine([tmp_path], Terms(values=True)).outcomes}
    assert outcomes["TS-CKP-099"].reason == "no values of tensors that can be read without their framework"


WAYS = ["safetensors", "torch", "dcp", "tensorflow", "zarr"]


def spoil(root: Path, way: str, number: float) -> None:
    """A checkpoint in one format, whose second value of type F32 is this one."""
    if way == "tensorflow":
        bundle(root, "ckpt-60", {"layer/w": Held(floats(1, number, 2), (3,))})
        return
    if way == "zarr":
        save = {"commit_timestamp_nsecs": 9}
        keys = [{"key": "layer"}, {"key": "w"}]
        entry = {"key_metadata": keys, "value_metadata": {"value_type": "jax.Array"}}
        tree = {"tree_metadata": {"layer/w": entry}, "use_ocdbt": False}
        array = {"shape": [3], "chunks": [3], "dtype": "<f4", "compressor": None, "filters": None}
        array |= {"zarr_format": 2, "order": "C", "fill_value": None}
        lines = [f"60/_CHECKPOINT_METADATA  json {json.dumps(save)}", f"60/d/_METADATA  json {json.dumps(tree)}"]
        build(root, "\n".join([*lines, f"60/d/layer.w/.zarray  json {json.dumps(array)}"]))
        (root / "60" / "d" / "layer.w" / "0").write_bytes(floats(1, number, 2))
        return
    lines = {
        "safetensors": "step-60/model.safetensors  safetensors layer.w=F32[3]",
        "torch": "step-60/model.pt  torch layer.w=F32[3]",
        "dcp": "step-60  dcp 1 layer.w=F32[3]",
    }
    build(root, lines[way])
    (path,) = [path for path in root.rglob("*") if path.suffix in {".safetensors", ".pt", ".distcp"}]
    content = bytearray(path.read_bytes())
    place = content.index(bytes(n * 31 % 119 for n in range(12)))
    content[place : place + 12] = floats(1, number, 2)
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("way", WAYS)
def test_values_are_found_in_every_container(tmp_path: Path, way: str) -> None:
    spoil(tmp_path, way, 3.0)
    (found,) = of(tmp_path).values()
    assert found.piece.name.replace("/", ".").startswith("layer.w")
    assert (found.count, found.sum_of_squares, found.error) == (3, 14.0, "")
    assert told(tmp_path) == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("number", "words"), [(math.nan, "1 NaN among 3 values"), (-math.inf, "1 infinite among")])
def test_values_that_are_not_finite_are_told_in_every_container(
    tmp_path: Path, way: str, number: float, words: str
) -> None:
    spoil(tmp_path, way, number)
    ((identifier, message),) = told(tmp_path)
    assert identifier == "TS-CKP-099"
    assert words in message


@pytest.mark.parametrize(
    ("dtype", "content"),
    [
        ("F64", struct.pack("<4d", 1, math.nan, math.inf, 5e-310)),
        ("F32", struct.pack("<4f", 1, math.nan, math.inf, 1e-42)),
        ("F16", struct.pack("<4e", 1, math.nan, math.inf, 1e-6)),
        ("BF16", struct.pack("<4H", 0x3F80, 0x7FC0, 0xFF80, 0x0001)),
    ],
)
def test_types_are_told_apart(tmp_path: Path, dtype: str, content: bytes) -> None:
    (found,) = of(held(tmp_path / "step-1", dtype, content)).values()
    counts = (found.count, found.num_nan, found.num_infinite, found.num_denormal)
    assert counts == (4, 1, 1, 1)
    assert found.sum_of_squares == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "dtype", "content", "wanted"),
    [
        ("w", "F32", struct.pack("<f", 1e-42) * 40, "100% of the values are smaller"),
        ("state.0.exp_avg_sq", "F32", struct.pack("<f", 1e-42) * 40, ""),
        ("w", "F16", struct.pack("<e", 1e-6) * 40, ""),
        ("state.0.exp_avg_sq", "F32", floats(1, -1, 2), "1 negative values, and squares are none"),
        ("opt.0.nu.layer", "F32", floats(1, -1, -0.0), "1 negative values"),
        ("state.0.exp_avg", "F32", floats(1, -1, 2), ""),
        ("w", "F32", floats(1) + bytes(1 << 21) + floats(1), "a run of 2,093,056 bytes of zero"),
        ("w", "F32", floats(1) + bytes(1 << 19) + floats(1), ""),
        ("w", "F32", bytes((1 << 20) + PAGE), "a run of 1,052,672 bytes of zero"),
    ],
)
def test_what_only_damage_leaves_is_told(tmp_path: Path, name: str, dtype: str, content: bytes, wanted: str) -> None:
    found = told(held(tmp_path / "step-1", dtype, content, name))
    assert [words for identifier, words in found if identifier == "TS-CKP-100" and wanted in words] == [
        words for _, words in found
    ]
    assert bool(found) == bool(wanted)


def test_values_that_grow_by_a_million_are_told(tmp_path: Path) -> None:
    held(tmp_path / "step-1", "F32", floats(1e-3, 2e-3))
    held(tmp_path / "step-2", "F32", floats(1, 2))
    held(tmp_path / "step-3", "F32", floats(1e7, 2))
    ((identifier, words),) = told(tmp_path)
    assert identifier == "TS-CKP-101"
    assert words == "tensor 'w': root mean square 7.07e+06, and 1.58 in step-2"


def test_compressed_entries_are_not_read(tmp_path: Path) -> None:
    import zipfile

    build(tmp_path / "whole", "model.pt  torch w=F32[4]\n")
    (tmp_path / "step-1").mkdir()
    with (
        zipfile.ZipFile(tmp_path / "whole" / "model.pt") as source,
        zipfile.ZipFile(tmp_path / "step-1" / "model.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for entry in source.namelist():
            packed.writestr(entry, source.read(entry))
    assert statistics(read_checkpoint(tmp_path / "step-1")) == []


def test_numbers_with_their_highest_byte_first_are_not_read(tmp_path: Path) -> None:
    import zipfile

    build(tmp_path, "step-1/model.pt  torch w=F32[4]\n")
    with zipfile.ZipFile(tmp_path / "step-1" / "model.pt", "a") as packed:
        packed.writestr("archive/byteorder", "big")
    assert statistics(read_checkpoint(tmp_path / "step-1")) == []


def test_a_cut_file_is_told_by_others(tmp_path: Path) -> None:
    root = held(tmp_path / "step-1", "F32", floats(*range(100)))
    build(root, "model.safetensors  cut 8\n")
    (found,) = of(tmp_path).values()
    assert found.error
    assert told(tmp_path) == []


def longest(pages: list[Any]) -> int:
    best = run = 0
    for page in pages:
        run = 0 if page else run + PAGE
        best = max(best, run)
    return best


@examples(40)
@given(st.lists(st.lists(st.booleans(), max_size=5), max_size=6))
def test_runs_of_zeros_are_followed_over_blocks(blocks: list[list[bool]]) -> None:
    found = Statistics(Piece("file", "w", 0, 0, dtype="F32"))
    for block in blocks:
        found.add(memoryview(b"".join(bytes([page]) * PAGE for page in block)))
    assert found.zero_bytes == longest([page for block in blocks for page in block])


@pytest.mark.parametrize(("num_levels", "refused"), [(300, False), (2_000, True)])
def test_a_state_that_is_nested_without_end_is_refused(num_levels: int, refused: bool, tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    state = b"\x80\x02}q\0" + b"}X\1\0\0\0ah\0sq\0" + b"0" + b"}X\1\0\0\0ah\0sq\0000" * (num_levels - 1) + b"h\0."
    with zipfile.ZipFile(tmp_path / "step-1" / "state.pt", "w") as file:
        file.writestr("archive/data.pkl", state)
        file.writestr("archive/version", "3\n")
    found = {finding.requirement: finding.message for finding in examine([tmp_path], Terms(values=True)).findings}
    assert ("TS-SEC-003" in found) is refused
    assert not refused or "at most 1,000 levels of values in values" in found["TS-SEC-003"]
