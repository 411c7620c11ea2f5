"""Whatever a file makes its reader raise is a failure of that file, reported once; a mistake of ours passes through."""

from __future__ import annotations

import json
import lzma
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa, x25519
from hypothesis import given
from hypothesis import strategies as st

from tests import bundles_made
from tests.checkpoints import test_keras_files, test_orbax
from tests.checkpoints.test_signature import invoke, write_keys
from tests.examples import examples
from tests.trees import build
from trainspec_validate import validate
from trainspec_validate.checkpoints.formats import READERS, safetensors, torch_zip
from trainspec_validate.checkpoints.inventory import find
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.values import statistics

TREE = """model.safetensors  safetensors weight=F32[4]
optimizer.pt  torch exp_avg=F32[16]
near/state.pt  torch exp_avg=F32[16]
"""
ERRORS: list[Exception] = [
    *(struct.error("x"), zipfile.BadZipFile("x"), lzma.LZMAError("x"), EOFError("x"), UnicodeError("x")),
    *(RecursionError("x"), OverflowError("x"), MemoryError(), ValueError("x"), OSError(5, "Input/output error")),
]
MISTAKES: list[Exception] = [
    *(KeyError("x"), IndexError("x"), TypeError("x"), AttributeError("x"), ZeroDivisionError("x")),
    *(AssertionError("x"), NotImplementedError("x"), RuntimeError("x")),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(("module", "place"), [(torch_zip, "follow"), (safetensors, "header")])
def test_an_error_of_a_reader_is_a_failure_of_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, module: Any, place: str
) -> None:
    build(tmp_path / "step-1", TREE)
    original, calls = getattr(module, place), []

    def fail_first(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            raise error
        return original(*arguments)

    monkeypatch.setattr(module, place, fail_first)
    checkpoint = read_checkpoint(tmp_path / "step-1")
    (trouble,) = checkpoint.troubles
    assert (trouble.aspect in {"limits", "container"}, trouble.path.endswith((".pt", ".safetensors"))) == (True, True)
    assert len(checkpoint.archives) == (1 if module is torch_zip else 2)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda error: type(error).__name__)
def test_a_mistake_of_ours_is_no_failure_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Exception
) -> None:
    build(tmp_path / "step-1", TREE)

    def fail(*_: object) -> object:
        raise mistake

    monkeypatch.setattr(safetensors, "header", fail)
    with pytest.raises(type(mistake)) as raised:
        read_checkpoint(tmp_path / "step-1")
    assert raised.value is mistake


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__module__.rpartition(".")[2])
def test_an_error_of_a_format_keeps_no_other_from_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Callable[..., None]
) -> None:
    build(tmp_path / "step-1", TREE)

    def fail(_checkpoint: object) -> None:
        raise struct.error("surprise")

    fail.__module__ = reader.__module__
    readers = tuple(fail if one is reader else one for one in READERS)
    monkeypatch.setattr("trainspec_validate.checkpoints.formats.READERS", readers)
    checkpoint = read_checkpoint(tmp_path / "step-1")
    assert [trouble.message for trouble in checkpoint.troubles if "error: surprise" in trouble.message]
    assert checkpoint.formats


def _keras(root: Path) -> None:
    root.mkdir()
    test_keras_files.archive(root / "model.keras")


def _tensorflow(root: Path) -> None:
    root.mkdir()
    bundles_made.bundle(root, "ckpt-1", bundles_made.training(1))
    bundles_made.pointer(root, "ckpt-1")


LAYOUTS: dict[str, Callable[[Path], object]] = {
    "files": lambda root: build(root, TREE + 'model.safetensors.index.json  json {"weight_map": {}}\n'),
    "dcp": lambda root: build(root / "step-1", ".  dcp 2 weight=F32[4]\ncommon.pt  torch iteration:1\n"),
    "keras": _keras,
    "tensorflow": _tensorflow,
    "orbax-old": lambda root: test_orbax.made(root, new=False),
    "orbax-new": lambda root: test_orbax.made(root, new=True),
    "trainer": lambda root: build(
        root / "checkpoint-5", f'{TREE}trainer_state.json  json {{"global_step": 5}}\nrng_state_0.pth  torch a=F32[1]\n'
    ),
    "sealed": lambda root: build(root, f"{TREE}trainspec-manifest.json  sealed\nmodel.sig  signed\n"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@examples(25)
@given(data=st.data())
def test_damaged_files_are_findings_and_never_mistakes_of_ours(
    tmp_path_factory: pytest.TempPathFactory, layout: str, data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("damaged")
    LAYOUTS[layout](place / "run")
    files = sorted(path for path in place.rglob("*") if path.is_file())
    for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=2, unique=True)):
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            begin = data.draw(st.integers(0, max(0, len(content) - 1)))
            new = data.draw(st.binary(max_size=6) | st.sampled_from([b"\xff" * 8, b"\0" * 8, b"PK\5\6", b"[" * 99]))
            content[begin : begin + data.draw(st.sampled_from([0, 1, len(new), len(content)]))] = new
        path.write_bytes(content)
    assert validate([place]) is not None
    for group in find(place):
        for member in group.members:
            statistics(read_checkpoint(member, group.files.get(member)))
    invoke("verify", place / "run")
    shutil.rmtree(place)


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    head = bytes([size]) if size < 128 else bytes([0x82, *size.to_bytes(2, "big")])
    return bytes([tag]) + head + content


def oid(text: str) -> bytes:
    numbers = [int(word) for word in text.split(".")]
    found = bytearray([40 * numbers[0] + numbers[1]])
    for value in numbers[2:]:
        digits = [value & 0x7F]
        while value := value >> 7:
            digits.append(value & 0x7F | 0x80)
        found += bytes(reversed(digits))
    return der(6, bytes(found))


def pem(kind: str, content: bytes) -> str:
    import base64

    text = base64.encodebytes(content).decode()
    return f"-----BEGIN {kind}-----\n{text}-----END {kind}-----\n"


def public(curve: bytes, size: int) -> str:
    point = der(3, b"\0\4" + bytes(range(1, 2 * size + 1)))
    return pem("PUBLIC KEY", der(0x30, der(0x30, oid("1.2.840.10045.2.1") + curve) + point))


ODD_KEYS = {
    "SM2": public(oid("1.2.156.10197.1.301"), 32),
    "secp192k1": public(oid("1.3.132.0.31"), 24),
    "secp112r1": public(oid("1.3.132.0.6"), 14),
    "brainpoolP224r1": public(oid("1.3.36.3.3.2.8.1.1.5"), 28),
    "brainpoolP256t1": public(oid("1.3.36.3.3.2.8.1.1.8"), 32),
    "binary-field": public(oid("1.3.132.0.16"), 36),
    "explicit": public(der(0x30, der(2, b"\1")), 32),
    "no-point": public(oid("1.2.840.10045.3.1.7"), 0),
    "off-the-curve": public(oid("1.2.840.10045.3.1.7"), 32),
    "unknown-kind": pem("PUBLIC KEY", der(0x30, der(0x30, oid("1.3.9999.1")) + der(3, b"\0abc"))),
    "certificate": pem("CERTIFICATE", der(0x30, b"")),
    "empty": pem("PUBLIC KEY", b""),
    "not-text": "\x00\xff",
    "long": "-----BEGIN PUBLIC KEY-----\n" + "A" * 2_000_000,
}


@pytest.mark.parametrize("kind", ODD_KEYS)
def test_keys_of_odd_kinds_are_wrong_use(tmp_path: Path, kind: str) -> None:
    build(tmp_path / "step-1", TREE)
    private, _ = write_keys(tmp_path, ec.generate_private_key(ec.SECP256R1()))
    assert invoke("seal", tmp_path / "step-1", "--signing-key", private).exit_code == 0
    (tmp_path / "odd.pem").write_text(ODD_KEYS[kind], encoding="latin-1")
    for command, option in (("verify", "--public-key"), ("seal", "--signing-key")):
        force = ["--force"] if command == "seal" else []
        result = invoke(command, tmp_path / "step-1", option, tmp_path / "odd.pem", *force)
        assert (result.exit_code, result.stderr.startswith("Error: ")) == (2, True), (result.output, result.exception)
        assert "odd.pem" in result.stderr


KEYS: list[Callable[[], Any]] = [
    lambda: rsa.generate_private_key(65_537, 2_048),
    lambda: dsa.generate_private_key(1_024),
    x25519.X25519PrivateKey.generate,
    lambda: ec.generate_private_key(ec.SECP256K1()),
    lambda: ec.generate_private_key(ec.BrainpoolP256R1()),
    lambda: ec.generate_private_key(ec.BrainpoolP384R1()),
]


@pytest.mark.parametrize("number", range(len(KEYS)))
def test_keys_of_known_kinds_that_the_format_has_not_are_wrong_use(tmp_path: Path, number: int) -> None:
    build(tmp_path / "step-1", TREE)
    (tmp_path / "odd").mkdir()
    good, _ = write_keys(tmp_path, ec.generate_private_key(ec.SECP256R1()))
    assert invoke("seal", tmp_path / "step-1", "--signing-key", good).exit_code == 0
    private, known = write_keys(tmp_path / "odd", KEYS[number]())
    for arguments in (("verify", "--public-key", known), ("seal", "--force", "--signing-key", private)):
        result = invoke(arguments[0], tmp_path / "step-1", *arguments[1:])
        assert result.exit_code == 2, result.output
        assert "P-256" in result.stderr


def test_a_pointer_with_odd_characters_is_a_finding(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    bundles_made.bundle(run, "ckpt-1", bundles_made.training(1))
    for text in ("/a\\0b/ckpt-1", "/a\0b/ckpt-1", "/" + "a" * 5_000 + "/ckpt-1"):
        (run / "checkpoint").write_text(f'model_checkpoint_path: "{text}"\n')
        assert validate([run]) is not None


def test_settings_of_an_archive_that_nest_are_limits(tmp_path: Path) -> None:
    root = tmp_path / "run"
    _keras(root)
    test_keras_files.archive(root / "model.keras", json.loads("[" * 70 + "]" * 70))
    assert ("limits", "model.keras") in {(one.aspect, one.path) for one in read_checkpoint(root).troubles}
