"""Headers that the library of safetensors refuses are refused here too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate.checkpoints.formats.safetensors import header, tensors_in
from trainspec_validate.checkpoints.opening import UnreadableError

ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
NONE = {"dtype": "F32", "data_offsets": [0, 0]}


def listed(directory: Path, value: dict[str, Any]) -> list[str]:
    """Names of the tensors in a file with a header."""
    content = json.dumps(value).encode()
    (directory / "model.safetensors").write_bytes(len(content).to_bytes(8, "little") + content + bytes(4))
    return [one.name for one in tensors_in(header(directory / "model.safetensors")[1])]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a\ud800": ONE}, "half a character"),
        ({"a": ONE, "__metadata__": {"b": "\udfff"}}, "half a character"),
        ({"a": ONE, "__metadata__": {"\ud83d": "b"}}, "half a character"),
        ({"a": {**ONE, "\ud83d": "b"}}, "half a character"),
        ({"a": {"dtype": "F32", "shape": [0]}}, "without one of dtype, shape and data_offsets"),
        ({"a": {**NONE, "shape": [1 << 40, 1 << 40, 0]}}, "more elements than can be counted"),
        ({"a": {**NONE, "shape": [0, 1 << 62]}, "b": {**NONE, "shape": [1 << 62, 4, 0]}}, "tensor 'b' whose shape"),
    ],
)
def test_what_the_library_refuses(value: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=words):
        listed(tmp_path, value)


@pytest.mark.parametrize(
    ("shape", "offsets"),
    [
        *(("[-0]", "[0, 0]"), ("[0, -0]", "[0, 0]"), ("[0]", "[-0, 0]"), ("[0]", "[0, -0]")),
        *(("[0.0]", "[0, 0]"), ("[0]", "[0e0, 0]")),
    ],
)
def test_a_zero_that_is_no_whole_number(shape: str, offsets: str, tmp_path: Path) -> None:
    content = f'{{"layer-0": {{"dtype": "F32", "shape": {shape}, "data_offsets": {offsets}}}}}'.encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(content).to_bytes(8, "little") + content)
    with pytest.raises(UnreadableError, match="no whole numbers from 0"):
        list(tensors_in(header(path)[1]))


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400"])
def test_a_number_that_json_has_not(number: str, tmp_path: Path) -> None:
    content = f'{{"a": {{"dtype": "F32", "shape": [0], "data_offsets": [0, 0], "more": {number}}}}}'.encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(content).to_bytes(8, "little") + content)
    with pytest.raises(UnreadableError, match="is not a finite number"):
        header(path)


def test_what_the_library_reads(tmp_path: Path) -> None:
    whole = {"\U0001f600": ONE, "\\ud800": {**NONE, "shape": [0, 1 << 40, 1 << 40]}, "__metadata__": {"a": "é"}}
    assert listed(tmp_path, whole) == ["\U0001f600", "\\ud800"]
    more = {"layer-0": {**ONE, "more": [0, {"a": -0.0}]}, "b": {**NONE, "shape": [(1 << 64) - 1, 0]}}
    assert listed(tmp_path, more) == ["layer-0", "b"]
