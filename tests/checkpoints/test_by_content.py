"""A pickle is judged under any name: a loader unpickles whatever file it is given."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import zlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.checkpoints.test_bounded import lowered
from tests.checkpoints.test_zip_readings import EVIL, STATE, container
from tests.trees import build, call, name, pickled, short_text
from trainspec_validate import validate
from trainspec_validate.checkpoints import pickle_code
from trainspec_validate.checkpoints.limits import UNPACKED_BYTES
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.cli.toolbox import command as toolbox

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
PACKED = {"gzip": gzip.compress, "zlib": zlib.compress, "bz2": bz2.compress, "xz": lzma.compress}
PACKED["lzma"] = lambda content: lzma.compress(content, lzma.FORMAT_ALONE)
HIDDEN |= {name: pack(EVIL) for name, pack in PACKED.items()}
HIDDEN["gzip in parts"] = gzip.compress(EVIL[:9]) + gzip.compress(EVIL[9:])
HIDDEN["behind a long line"] = b"V" + b"a " * 100_000 + b"\n0" + OLD
HIDDEN["behind a long number"] = b"NV" + b"a " * 100_000 + b"\np" + b"0" * 70_000 + b"1\n0" + OLD
HIDDEN["behind zeros"] = b"I" + b"0" * 50_000 + b"1\n0" + OLD
HIDDEN["behind a number after zeros"] = b"Np" + b"0" * 50_000 + b"\n0" + OLD
HIDDEN["behind letters of another encoding"] = b"S'\\xc3\\xa9'\n0" + OLD
HIDDEN["behind a long text"] = gzip.compress(b"\x80\x02X" + (200_000).to_bytes(4, "little") + b"a" * 200_000 + OLD)
NAMES = ["m.PT", "m.Pth", "m.joblib", "m.dat", "m.model", "model", "m.json", "m.bin", "m.PKL", "m.npz", "sub/x.txt"]


@pytest.mark.parametrize("way", HIDDEN)
@pytest.mark.parametrize("file", NAMES)
def test_code_is_told_under_any_name(tmp_path: Path, way: str, file: str) -> None:
    build(tmp_path, "model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(HIDDEN[way])
    found = {(one.requirement, one.path) for one in validate([tmp_path]).findings}
    assert ("TS-SEC-001", f"{tmp_path.as_posix()}/{file}") in found


def test_what_unpacks_to_more_than_a_limit_is_reported(tmp_path: Path) -> None:
    build(tmp_path, "model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / "state.dat").write_bytes(gzip.compress(b"B" + (1 << 20).to_bytes(4, "little") + bytes(1 << 20) + OLD))
    with lowered(UNPACKED_BYTES, 100_000):
        found = {(one.requirement, one.path) for one in validate([tmp_path]).findings}
    assert ("TS-SEC-003", f"{tmp_path.as_posix()}/state.dat") in found


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


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x80\x04\x95" + b"\xff" * 8 + b"N.", "a frame states more bytes"),
        (b"\x80\x04\x95" + (3).to_bytes(8, "little") + b"N.", "a frame states more bytes"),
        (b"\x80\x02Pabc\n.", "a persistent id is no tuple"),
        (b"\x80\x02X\x03\x00\x00\x00abcQ.", "a persistent id is no tuple"),
    ],
)
def test_a_pickle_that_nothing_can_load_is_damaged(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "model.pt").write_bytes(content)
    errors = [finding.message for finding in validate([tmp_path]).findings if finding.severity == "error"]
    assert any(told in message for message in errors), errors


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("size", [1, 100_000])
def test_pickles_of_every_protocol_are_followed(tmp_path: Path, protocol: int, size: int) -> None:
    content = pickle.dumps({"a": [1.5] * size, "b": b"x" * size, "c": "y" * size}, protocol)
    (tmp_path / "model.ckpt").write_bytes(content)
    assert [f.message for f in validate([tmp_path]).findings if f.severity == "error"] == []


@pytest.mark.parametrize(("kind", "names"), [("<f4", []), ("|O", ["copyreg.extension_186"])])
def test_numbers_of_an_array_are_no_code_whatever_they_look_like(kind: str, names: list[str]) -> None:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': (2,), }}".ljust(117) + "\n"
    calls = b"\x82\xba(tR."  # the name of an extension, called without arguments
    file = io.BytesIO(b"\x93NUMPY\x01\x00v\x00" + header.encode() + calls + bytes(3))
    assert pickle_code.code_of(file).denied == names


def test_objects_of_version_control_are_no_state(tmp_path: Path) -> None:
    build(tmp_path, "model.safetensors  safetensors weight=F32[4]\n")
    places = [f"{folder}/objects/48/d1f5b3028cadad0cef4f1ffc0f7e7a483c8d39" for folder in (".git", "sub/.git", "git")]
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_bytes(zlib.compress(b"blob 5\0hello"))
    assert list(read_checkpoint(tmp_path).unread) == sorted(places)
    for folder in (".git", "sub/.git", "git"):
        (tmp_path / folder / "HEAD").write_text("ref: refs/heads/main\n")
    assert list(read_checkpoint(tmp_path).unread) == places[2:]
    (tmp_path / ".git" / "m.pkl").write_bytes(EVIL)
    assert "TS-SEC-001" in {one.requirement for one in validate([tmp_path]).findings}


@pytest.mark.parametrize(
    "file", ["pytorch_model.bin", "optimizer.bin", "last.ckpt", "m.pth.tar", "iter.pkl", "a.npz", "x.npy"]
)
@pytest.mark.parametrize("head", [bytes(512), bytes(range(7, 256)) * 3, b""], ids=["zeros", "noise", "empty"])
def test_a_file_of_state_without_its_head_is_not_whole(tmp_path: Path, file: str, head: bytes) -> None:
    for step in (10, 20):
        build(tmp_path, f"step-{step}/model.safetensors  safetensors weight=F32[4]\n")
    tail = container(("archive/data.pkl", pickled(b"}")), ("archive/version", b"3"))[512:]
    (tmp_path / "step-20" / file).write_bytes(head + (tail + b"1" * 9 if head else b""))
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step-10'}\n"), result.stderr


@pytest.mark.parametrize("num_bytes", [40, 128 + 8_000 // 2, 128 + 7_999])
def test_an_array_that_is_cut_is_not_whole(tmp_path: Path, num_bytes: int) -> None:
    for step in (10, 20):
        build(tmp_path, f"step-{step}/model.safetensors  safetensors weight=F32[4]\n")
        np.save(tmp_path / f"step-{step}" / "x.npy", np.zeros(1_000))
    os.truncate(tmp_path / "step-20" / "x.npy", num_bytes)
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step-10'}\n"), result.stderr
    assert "step-20/x.npy" in result.stderr
