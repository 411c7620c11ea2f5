"""A file with the name of a file of state is judged as a pickle or named as not judged, and never passed in silence."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import shutil
import struct
import tarfile
import tracemalloc
import zlib
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.checkpoints.test_zip_readings import EVIL, container
from tests.trees import build
from trainspec_validate import validate
from trainspec_validate.checkpoints.content import kind_of
from trainspec_validate.checkpoints.opening import UnreadableError, read_json
from trainspec_validate.checkpoints.pickle_code import code_at_start
from trainspec_validate.checkpoints.pickle_values import Name
from trainspec_validate.checkpoints.pickles import follow
from trainspec_validate.cli.commands.checkpoint import command
from trainspec_validate.cli.validate import command as gate

BASE = Path(__file__).resolve().parents[2] / "spec" / "v1" / "base"
HEAD = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n"
OBJECTS = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(HEAD)) + HEAD + EVIL
LEGACY = b"".join(pickle.dumps(one, 2) for one in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})) + EVIL


@pytest.mark.parametrize("name", ["pytorch_model.bin", "m.pt", "m.PTH", "m.ckpt", "m.pkl", "m.joblib", "m.npy"])
@pytest.mark.parametrize("content", [EVIL, OBJECTS, LEGACY], ids=["pickle", "objects", "legacy"])
def test_a_pickle_alone_in_a_directory_is_judged(tmp_path: Path, name: str, content: bytes) -> None:
    if content == LEGACY and name.endswith((".pkl", ".joblib", ".npy")):
        pytest.skip("no library writes it so")
    (tmp_path / name).write_bytes(content)
    for place in (tmp_path, tmp_path / name):
        if place.is_file() and name.endswith(".bin") and content == OBJECTS:
            continue
        assert "TS-SEC-001" in {one.requirement for one in validate([place]).findings}


@pytest.mark.parametrize("name", ["x.pt", "x.bin", "x.pkl", "x.joblib", "x.npz"])
def test_what_is_of_no_format_is_named(tmp_path: Path, name: str) -> None:
    build(tmp_path, "a/model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / name).write_bytes(b"junk" + container(("a/data.pkl", EVIL)))
    assert (tmp_path / "n" / name).as_posix() in {one.path for one in validate([tmp_path]).unjudged}


@pytest.mark.parametrize("name", ["s.joblib", "s.pkl.gz", "s.bin"])
@pytest.mark.parametrize("content", [zlib.compress(EVIL), gzip.compress(EVIL)], ids=["zlib", "gzip"])
def test_what_is_compressed_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    build(tmp_path, "model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / name).write_bytes(content)
    assert (tmp_path / name).as_posix() in {one.path for one in validate([tmp_path]).unjudged}


def test_programs_that_a_configuration_imports_are_named(tmp_path: Path) -> None:
    build(tmp_path, "model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "model.M"}}', encoding="utf-8")
    (tmp_path / "model.py").write_text("import os\n", encoding="utf-8")
    assert f"{tmp_path.as_posix()}/model.py" in {one.path for one in validate([tmp_path]).unjudged}


def test_a_second_pickle_and_objects_in_an_archive_are_judged(tmp_path: Path) -> None:
    build(tmp_path, "model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / "two.pkl").write_bytes(pickle.dumps({"a": 1}, 2) + EVIL)
    (tmp_path / "o.npz").write_bytes(container(("o.npy", OBJECTS)))
    found = {Path(one.path).name for one in validate([tmp_path]).findings if one.requirement == "TS-SEC-001"}
    assert found == {"two.pkl", "o.npz"}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_json_is_in_utf8(encoding: str) -> None:
    with pytest.raises(UnreadableError):
        read_json('{"a": 1}'.encode(encoding))


def test_a_number_put_twice_shifts_no_other() -> None:
    numbers = b"Vos\nq\x01q\x00q\x01Vsystem\n\x94h\x00h\x02\x93."
    assert follow(io.BytesIO(b"\x80\x04" + numbers)).value == Name("os", "system")


def test_unsealed_files_are_told(tmp_path: Path) -> None:
    build(tmp_path, "model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / "w.dat").write_bytes(b"x")
    runner = CliRunner()
    for words in (["seal", str(tmp_path), "--unsealed", "w.dat"], ["verify", str(tmp_path)]):
        told = runner.invoke(command, words).output
        assert "1 file left unsealed" in told
        assert f"unsealed: {tmp_path.as_posix()}/w.dat" in told
    assert json.loads((tmp_path / "trainspec-manifest.json").read_bytes())["unsealed"] == ["w.dat"]
    assert (tmp_path / "w.dat").as_posix() in {one.path for one in validate([tmp_path]).unjudged}


PLAIN = {
    "m.th": pickle.dumps({"a": 1}, 2),
    "x.dat": container(("a/data.pkl", pickle.dumps({}))),
    "model.pt.bak": b"anything",
    "w.safetensors.1": b"anything",
    "w.h5~": b"anything",
    "model": pickle.dumps({"a": [1, 2]}, 0),
    "checkpoint": pickle.dumps(Path("a"), 0),
    "m.params": (0x112).to_bytes(8, "little") + bytes(40),
    "weights.data": b"\x89HDF\r\n\x1a\n" + bytes(40),
    "w.raw": struct.pack("<Q", 16) + b'{"__metadata__":{}}'[:16] + bytes(9),
}


@pytest.mark.parametrize("name", PLAIN)
def test_state_under_any_name_is_named(tmp_path: Path, name: str) -> None:
    build(tmp_path, "a/model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / name).write_bytes(PLAIN[name])
    assert (tmp_path / name).as_posix() in {one.path for one in validate([tmp_path]).unjudged}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("Makefile", b"all:\n\tcc main.c\n"),
        ("model", b"cat and dog\n"),
        ("data.zip.txt", b"PK\x03\x04"),
        ("words.dat", b"(d)\n"),
        ("code.py", pickle.dumps(1, 2)),
        ("notes.dat", b"class\nname\nother\n"),
        ("release.1", b".TH man page\n"),
        ("attributes.json", b'{"name": "x"}'),
        ("notes", b"cat\ndog\nSunday\n"),
        ("poem", b"(See below\nit is here)\n"),
        ("lines", b"cat\ndog\npaul\n"),
        ("log", gzip.compress(b"cat and dog\n")),
        ("set.dat", bz2.compress(b"{}")),
        ("z", b"x\x9cis no zlib"),
    ],
)
def test_ordinary_files_are_not_named(tmp_path: Path, name: str, content: bytes) -> None:
    build(tmp_path, "a/model.safetensors  safetensors weight=F32[4]\n")
    (tmp_path / name).write_bytes(content)
    assert (tmp_path / name).as_posix() not in {one.path for one in validate([tmp_path]).unjudged}


def tar(content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("state.pkl")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


UNMARKED = {
    **{f"protocol {n}": pickle.dumps(eval, n) for n in range(6)},
    **{f"values of protocol {n}": pickle.dumps({"a": [1, 2]}, n) for n in range(6)},
    **{f"nothing of protocol {n}": pickle.dumps([], n) for n in range(2, 6)},
    "no frame": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R.",
    "called at once": b"cposix\nsystem\nS'id'\n\x85R.",
    "called in a group": b"(S'id'\niposix\nsystem\n.",
    "binary text": b"cposix\nsystem\nX\x02\x00\x00\x00id\x85R.",
}
PACKERS = {"zlib": zlib.compress, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
PACKERS |= {"lzma": partial(lzma.compress, format=lzma.FORMAT_ALONE)}


@pytest.mark.parametrize("packed", ["", *PACKERS])
@pytest.mark.parametrize("which", UNMARKED)
def test_bare_pickles_in_a_directory_of_nothing_else_are_named(tmp_path: Path, which: str, packed: str) -> None:
    """Also behind a document, with which the directory is no mistake, and where the file is named itself."""
    content = PACKERS[packed](UNMARKED[which]) if packed else UNMARKED[which]
    (tmp_path / "opt").write_bytes(content)
    alone = CliRunner().invoke(gate, [str(tmp_path)])
    kind = "compressed pickle" if packed else "pickle"
    assert (alone.exit_code, f"opt: not judged: begins as a {kind} does" in " ".join(alone.output.split())) == (2, True)
    shutil.copy(BASE / "cluster.yaml", tmp_path)
    assert (tmp_path / "opt").as_posix() in {one.path for one in validate([tmp_path]).unjudged}
    named = CliRunner().invoke(gate, [str(tmp_path / "opt"), "--format", "concise"])
    assert "TS-DOC" not in named.output
    assert (f"begins as a {kind} does, which is not judged" in named.output) == bool(packed)


def test_the_start_of_a_compressed_file_is_unpacked_once_and_in_bounded_memory(tmp_path: Path) -> None:
    content = pickle.dumps({"a": 1})
    for _ in range(2_000):
        content = gzip.compress(content, 0)
    dictionary = b"\x5d" + (2**32 - 1).to_bytes(4, "little") + b"\xff" * 8
    (tmp_path / "opt").write_bytes(content)
    (tmp_path / "adam").write_bytes(dictionary + bytes(100))
    tracemalloc.start()
    assert {kind_of(tmp_path / name) for name in ("opt", "adam")} == {""}
    assert tracemalloc.get_traced_memory()[1] < 100_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["checkpoint_100", "epoch-3", "7"])
@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_is_named_after_a_step_is_no_empty_directory(tmp_path: Path, name: str, protocol: int) -> None:
    for path in (tmp_path / name, tmp_path / "step-9" / "state"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps({"a": [1, 2]}, protocol))
        assert {one.requirement for one in validate([path]).findings} == {"TS-CKP-070"}


@pytest.mark.parametrize("name", ["weights.bin", "weights", "x.dat", "m.ckpt"])
def test_a_tar_archive_under_another_name_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(tar(EVIL))
    assert "TS-SEC" not in CliRunner().invoke(gate, [str(tmp_path)]).output
    alone = CliRunner().invoke(gate, [str(tmp_path)])
    assert (alone.exit_code, name in alone.output) == (2, True)
    build(tmp_path, "model.safetensors  safetensors weight=F32[4]\n")
    assert (tmp_path / name).as_posix() in {one.path for one in validate([tmp_path]).unjudged}
    if not name.endswith(".ckpt"):
        named = CliRunner().invoke(gate, [str(tmp_path / name)])
        assert "is an archive, and its files are not looked at; unpack it" in " ".join(named.output.split())


def test_arrays_of_n5_are_named(tmp_path: Path) -> None:
    build(tmp_path, "a/model.safetensors  safetensors weight=F32[4]\n")
    build(tmp_path, 'n/attributes.json  json {"dimensions": [4], "blockSize": [2], "dataType": "float32"}\n')
    assert (tmp_path / "n").as_posix() in {one.path for one in validate([tmp_path]).unjudged}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("weights.bin", bytes(range(256)), "has the name of a file of state"),
        ("x.tar", bytes(512), "is an archive, and its files are not looked at; unpack it"),
        ("m.params", PLAIN["m.params"], "begins as a file of parameters of MXNet does, which is not judged"),
    ],
)
def test_a_named_file_that_is_not_judged_is_said_to_be_state(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    result = CliRunner().invoke(gate, [str(tmp_path / name)])
    assert (result.exit_code, words in " ".join(result.output.split())) == (2, True)


@pytest.mark.parametrize("name", ["m.th", "x.dat", "model"])
def test_a_named_file_of_state_is_judged_under_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(EVIL)
    assert "TS-SEC-001" in {one.requirement for one in validate([tmp_path / name]).findings}


@pytest.mark.parametrize(("total", "is_named"), [("16", False), ("16.0", False), ("32", True), ("FILE", False)])
def test_the_total_of_an_index_is_compared(tmp_path: Path, total: str, is_named: bool) -> None:
    build(tmp_path, "model.safetensors  safetensors weight=F32[4]\n")
    total = total.replace("FILE", str((tmp_path / "model.safetensors").stat().st_size))
    index = f'{{"metadata": {{"total_size": {total}}}, "weight_map": {{"weight": "model.safetensors"}}}}'
    build(tmp_path, f"model.safetensors.index.json  json {index}\n")
    path = (tmp_path / "model.safetensors.index.json").as_posix()
    assert (path in {one.path for one in validate([tmp_path]).unjudged}) == is_named


CALL = b"cos\nsystem\nX\x04\x00\x00\x00true\x85R."


@pytest.mark.parametrize(
    "before",
    [
        b"]K\x01aK\x00K\x02s0",
        b"cargparse\nNamespace\n(N}X\x03\x00\x00\x00zzzK\x01stb0",
        b"I0x10\n0",
        b"K\x01K\x02a0",
    ],
    ids=["item of a list", "state of a class", "hexadecimal", "item of a number"],
)
def test_a_call_after_what_only_objects_take_is_named(tmp_path: Path, before: bytes) -> None:
    (tmp_path / "extra.npy").write_bytes(before + CALL)
    with (tmp_path / "extra.npy").open("rb") as file:
        assert code_at_start(file).denied == ["os.system"]
    report = validate([str(tmp_path)])
    assert "TS-SEC-001" in {found.requirement for found in report.findings}


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02Iabc\n.",
        b"\x80\x02(.",
        b"\x80\x02(\x85.",
        b"\x80\x02N((\x86.",
        b"\x80\x02}(]Nu.",
        b"\x80\x02ccollections\nOrderedDict\nNR.",
    ],
    ids=[
        "word for a number",
        "mark",
        "mark in a tuple",
        "two marks",
        "key that is a list",
        "arguments that are no tuple",
    ],
)
def test_a_pickle_that_no_program_loads_is_refused(content: bytes) -> None:
    with pytest.raises(UnreadableError):
        follow(io.BytesIO(content))
