"""A pickle is judged under any name: a loader unpickles whatever file it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints.test_zip_readings import EVIL, STATE, container
from tests.trees import build, call, name, pickled, short_text
from trainspec_validate import validate
from trainspec_validate.checkpoints.read import read_checkpoint

OLD = b"cposix\nsystem\n(S'true'\ntR."
HIDDEN = {
    "zip": container(("archive/data.pkl", EVIL)),
    "zip-other-name": container(STATE, ("archive/state", EVIL)),
    "pickle": EVIL,
    "first-protocol": OLD,
    "old-protocol-said": b"\x80\x00" + OLD,
    "grouped": b"(S'true'\niposix\nsystem\n.",
    "fails-later": OLD[:-1] + b"\xff",
}
NAMES = ["m.PT", "m.Pth", "m.joblib", "m.dat", "m.model", "model", "m.json", "m.bin", "m.PKL", "m.npz", "sub/x.txt"]


@pytest.mark.parametrize("way", HIDDEN)
@pytest.mark.parametrize("file", NAMES)
def test_code_is_told_under_any_name(tmp_path: Path, way: str, file: str) -> None:
    build(tmp_path, "model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(HIDDEN[way])
    found = {(one.requirement, one.path) for one in validate([tmp_path]).findings}
    assert ("TS-SEC-001", f"{tmp_path.as_posix()}/{file}") in found


@pytest.mark.parametrize("file", ["m.PT", "m.Bin"])
def test_a_directory_with_other_letter_case_is_a_checkpoint(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_bytes(HIDDEN["zip"])
    for path in (tmp_path, tmp_path / file):
        assert "TS-SEC-001" in {one.requirement for one in validate([path]).findings}


@pytest.mark.parametrize(
    "content",
    [
        *(b"import os\nimport sys\n", b"class A(B):\n    pass\nR\n", b"cat\ndog\n", b"(import os\n", b"", b"Notes\n"),
        *(b"{}", b"[1, 2]\n", b"\x93NUMPY\x01\x00", bytes(1000), b"\x80\x00\x00\x00", b"<!doctype html>", b"% comment"),
        *(pickled(b"}"), pickled(call(name("collections", "OrderedDict"))), pickled(short_text("x"))),
    ],
)
def test_files_that_call_nothing_are_no_findings(tmp_path: Path, content: bytes) -> None:
    build(tmp_path, "model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / "notes").write_bytes(content)
    assert read_checkpoint(tmp_path).troubles == []
