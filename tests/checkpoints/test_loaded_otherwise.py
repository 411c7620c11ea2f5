"""A file is judged by each loader that its name, place or content suggests; one that is not judged is passed over."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.checkpoints.test_keras_files import LAMBDA, PLAIN, archive
from tests.hdf5_made import container
from tests.trees import build
from trainspec_validate.checkpoints import unpacked
from trainspec_validate.checkpoints.pickles import follow
from trainspec_validate.cli.toolbox import command as toolbox

torch = pytest.importorskip("torch")
zstandard = pytest.importorskip("zstandard")

RUNS = b"\x80\x02cos\nsystem\nX\x01\x00\x00\x00x\x85R."
LZ4 = b"\x04\x22\x4d\x18" + bytes(40)


def of_torch(value: Any = None) -> bytes:
    file = io.BytesIO()
    torch.save({"w": torch.zeros(3)} if value is None else value, file)
    return file.getvalue()


def polyglot() -> bytes:
    """A header of safetensors whose length begins as a text of a pickle, and whose key is a chain of further texts."""
    key = (b"U~" + b"a" * 126) * 10 + b"UT"
    data = b"0" * 12 + RUNS
    tail = b'":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (len(data), len(data))
    header = b'{"' + key + tail.ljust(84)
    return struct.pack("<Q", len(header)) + header + data


def tar(member: bytes, mode: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as made:  # type: ignore[call-overload]
        entry = tarfile.TarInfo("model_weights.ckpt")
        entry.size = len(member)
        made.addfile(entry, io.BytesIO(member))
    return file.getvalue()


def with_entry(name: str, content: bytes) -> bytes:
    """A file of PyTorch with one more entry."""
    file = io.BytesIO(of_torch())
    with zipfile.ZipFile(file, "a") as made:
        made.writestr(f"archive/{name}", content)
    return file.getvalue()


def whole_model(settings: Any) -> bytes:
    """What Keras 2 writes in HDF5, as far as its attributes go."""
    text = b"model_config" + json.dumps(settings).encode()
    return container(900)[: -len(text)] + text


def newest(root: Path, file: str, content: bytes, *options: str) -> Result:
    folder = root / "step-1"
    folder.mkdir()
    (folder / "model.pt").write_bytes(of_torch())
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(content)
    return CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(root), *options])


RUN: dict[str, tuple[str, Callable[[], bytes]]] = {
    "safetensors that are a pickle": ("w.safetensors", polyglot),
    "a pickle behind other bytes": ("x.bin", lambda: pickle.dumps(1) + bytes(16) + RUNS),
    "a pickle of protocol 0 behind many bytes": ("x.bin", lambda: pickle.dumps(1) + bytes(300_000) + b"c" + RUNS[3:]),
    "a pickle in Zstandard": ("x.dat", lambda: zstandard.compress(RUNS)),
    "a pickle in the second frame": ("x.dat", lambda: zstandard.compress(pickle.dumps(1)) + zstandard.compress(RUNS)),
    "a pickle in Zstandard in gzip": ("x.dat", lambda: gzip.compress(zstandard.compress(RUNS))),
    "LZ4": ("state", lambda: LZ4),
    "LZ4 of a pickle": ("x.pkl.lz4", lambda: LZ4),
    "a container of NeMo": ("m.nemo", lambda: tar(of_torch(), "w")),
    "a compressed container of NeMo": ("m.nemo", lambda: tar(of_torch(), "w:gz")),
    "values that are used by no tensor": ("m.pt", lambda: with_entry("data/7", RUNS)),
    "a SavedModel": ("export/saved_model.pb", lambda: b"\x08\x01" + bytes(60)),
    "HDF5 with a Lambda layer": ("m.h5", lambda: whole_model(LAMBDA)),
    "HDF5 with a Lambda layer in numbers": ("m.h5", lambda: whole_model(LAMBDA).replace(b"Lambda", b"\\u004cam")),
}


@pytest.mark.parametrize("kind", RUN)
def test_what_another_loader_would_run_is_passed_over(kind: str, tmp_path: Path) -> None:
    file, make = RUN[kind]
    result = newest(tmp_path, file, make())
    assert (result.exit_code, f"{file}: loading it would run" in result.stderr) == (1, True), result.stderr


TAKEN: dict[str, tuple[str, Callable[[], bytes]]] = {
    "numbers in Zstandard": ("x.bin.zst", lambda: zstandard.compress(bytes(99))),
    "values behind a pickle": ("x.bin", lambda: pickle.dumps(1) + struct.pack("<4000f", *map(float, range(4000)))),
    "a text in LZ4": ("log.txt.lz4", lambda: LZ4),
    "programs in an archive": ("code.tar.gz", lambda: tar(b"import os", "w:gz")),
    "an archive in LZ4": ("code.tar.lz4", lambda: LZ4),
    "HDF5 of a whole model": ("m.h5", lambda: whole_model(PLAIN)),
    "HDF5 of weights": ("m.weights.h5", lambda: container(900)),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_what_no_loader_would_run_is_whole(kind: str, tmp_path: Path) -> None:
    file, make = TAKEN[kind]
    result = newest(tmp_path, file, make())
    assert result.exit_code == 0, result.stderr


def test_chunks_of_an_array_are_no_pickles(tmp_path: Path) -> None:
    (tmp_path / "step-1" / "w").mkdir(parents=True)
    (tmp_path / "step-1" / "w" / ".zarray").write_text("{}")
    (tmp_path / "step-1" / "w" / "0.0").write_bytes(LZ4)
    (tmp_path / "step-1" / "model.pt").write_bytes(of_torch())
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert result.exit_code == 0, result.stderr


def test_zstandard_that_nothing_unpacks_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacked.importlib.util, "find_spec", lambda _: None)
    result = newest(tmp_path, "x.dat", zstandard.compress(pickle.dumps(1)))
    assert (result.exit_code, "would run what is in a file of LZ4, or of Zstandard" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("module", "name", "runs"),
    [
        ("os", "system", "os.system"),
        ("keras.layers", "Dense", ""),
        ("keras.layers", "TorchModuleWrapper", "keras.layers.TorchModuleWrapper"),
        ("keras.utils", "get_file", "keras.utils.get_file"),
        ("keras.src.activations", "relu", ""),
    ],
)
def test_settings_of_keras_that_name_another_module(module: str, name: str, runs: str, tmp_path: Path) -> None:
    settings = {
        "module": "keras",
        "class_name": "Sequential",
        "config": {
            "layers": [
                {"module": module, "class_name": name, "config": {}, "registered_name": None},
                {"module": "builtins", "class_name": "function", "config": "my_loss", "registered_name": "function"},
            ]
        },
    }
    (tmp_path / "step-1").mkdir()
    archive(tmp_path / "step-1" / "model.keras", settings)
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert (result.exit_code, f"would run {runs}" in result.stderr) == ((1, True) if runs else (0, False)), (
        result.stderr
    )


@pytest.mark.parametrize("file", [".metadata", "__0_7.distcp"])
def test_pickles_of_dcp_that_nothing_names_are_followed(file: str, tmp_path: Path) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    dcp.save({"w": torch.zeros(3)}, checkpoint_id=tmp_path / "step-1", no_dist=True)
    place = tmp_path / "step-1" / file
    place.write_bytes((place.read_bytes() if place.exists() else b"") + RUNS)
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert (result.exit_code, f"{file}: loading it would run" in result.stderr) == (1, True), result.stderr


@pytest.mark.parametrize(("program", "is_named"), [("torch.py", True), ("mod.py", True), ("train.py", False)])
def test_a_program_that_takes_the_place_of_a_library_is_named(program: str, is_named: bool, tmp_path: Path) -> None:
    build(tmp_path, "step-1/model.safetensors  safetensors w=F32[1]\n")
    (tmp_path / "step-1" / "args.pkl").write_bytes(b"\x80\x02cmod\nState\n)\x81.")
    (tmp_path / "step-1" / program).write_text("")
    result = CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(tmp_path)])
    assert (result.exit_code, f"{program}: holds code" in result.stderr) == (0, is_named), result.stderr


DECIMAL = b"cdecimal\nDecimal\n(X" + struct.pack("<I", 60_001) + b"1" * 60_000 + b"xtR."


def test_a_long_number_takes_no_time_that_grows_with_its_square() -> None:
    begin = time.process_time()
    assert follow(io.BytesIO(b"\x80\x02" + DECIMAL)).misfits.number
    assert time.process_time() - begin < 5
