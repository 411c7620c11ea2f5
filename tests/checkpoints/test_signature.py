"""A signature vouches for a manifest and its files, and nothing that was changed since passes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.trees import build
from trainspec_validate.checkpoints import signature
from trainspec_validate.checkpoints.envelope import SignatureError
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.cli.toolbox import command as toolbox

TREE = "model.safetensors  safetensors weight=F32[4]\noptimizer/part.pt  torch exp_avg=F32[16]\nlog.txt  text running\n"
PEM = serialization.Encoding.PEM


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", *map(str, arguments)])


def write_keys(directory: Path, key: Any, password: bytes | None = None) -> tuple[Path, Path]:
    """Files of a private key and of its public key."""
    private, public = directory / "key.pem", directory / "key.pub.pem"
    locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    private.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, locked))
    public.write_bytes(key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "step-60"
    build(directory, TREE)
    return directory


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return write_keys(tmp_path, ec.generate_private_key(ec.SECP256R1()))


@pytest.fixture
def signed(root: Path, keys: tuple[Path, Path]) -> Path:
    result = invoke("seal", root, "--unsealed", "log.txt", "--signing-key", keys[0])
    assert result.exit_code == 0, result.output
    return root


def rewrite(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the bundle in a checkpoint."""
    path = root / "model.sig"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def restated(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """A change of the statement inside of the bundle."""

    def run(data: dict[str, Any]) -> None:
        statement = json.loads(base64.b64decode(data["dsseEnvelope"]["payload"]))
        change(statement)
        data["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()

    return run


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_the_key_that_signed_is_the_only_one_that_verifies(root: Path, tmp_path: Path, curve: ec.EllipticCurve) -> None:
    private, public = write_keys(tmp_path, ec.generate_private_key(curve))
    assert invoke("seal", root, "--signing-key", private).exit_code == 0
    result = invoke("verify", root, "--public-key", public)
    assert (result.exit_code, "0 wrong" in result.stdout) == (0, True)
    (tmp_path / "other").mkdir()
    _, other = write_keys(tmp_path / "other", ec.generate_private_key(curve))
    result = invoke("verify", root, "--public-key", other)
    assert (result.exit_code, "was not made by the key" in result.stdout) == (1, True)


def test_a_signature_covers_manifest_and_files_and_nothing_unsealed(signed: Path) -> None:
    found = signature.read(read_checkpoint(signed))
    assert sorted(found.digests) == ["model.safetensors", "optimizer/part.pt", "trainspec-manifest.json"]
    serialized = json.loads(found.payload)["predicate"]["serialization"]
    assert serialized["ignore_paths"] == ["model.sig", "log.txt"]


def test_without_a_key_it_is_said_that_nobody_checked_whose_it_is(signed: Path) -> None:
    result = invoke("verify", signed)
    assert (result.exit_code, "whose signature it is was not checked" in result.stdout) == (0, True)


def test_a_manifest_that_was_written_again_is_not_what_was_signed(signed: Path, keys: tuple[Path, Path]) -> None:
    assert invoke("seal", signed, "--force").exit_code == 0
    result = invoke("verify", signed, "--public-key", keys[1])
    assert result.exit_code == 1
    assert "does not cover log.txt" in result.stdout
    assert "has another digest of trainspec-manifest.json" in result.stdout


def test_a_signature_that_was_asked_for_and_is_not_there_is_wrong(root: Path, keys: tuple[Path, Path]) -> None:
    assert invoke("seal", root).exit_code == 0
    result = invoke("verify", root, "--public-key", keys[1])
    assert (result.exit_code, "there is none, and --public-key asks for one" in result.stdout) == (1, True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data["dsseEnvelope"].update(payloadType="text/plain"), "wanted"),
        (lambda data: data.pop("dsseEnvelope"), "no bundle of the model-signing format"),
        (lambda data: data["dsseEnvelope"].update(payload="!"), "no bundle"),
        (lambda data: data["dsseEnvelope"].update(payload=base64.b64encode(b"{").decode()), "is no JSON"),
        (restated(lambda data: data.update(predicateType="other")), "says 'other'"),
        (restated(lambda data: data["predicate"]["resources"].pop()), "digest of the signature's subject"),
        (
            restated(lambda data: data["predicate"]["resources"][0].update(digest="zz")),
            "digest of the signature's subject",
        ),
        (restated(lambda data: data["predicate"]["resources"][0].update(algorithm="blake3")), "other than SHA-256"),
        (lambda data: data["dsseEnvelope"].update(signatures=[]), "was not made by the key"),
        (restated(lambda data: data.update(predicate={**data["predicate"], "more": 1})), "was not made by the key"),
    ],
)
def test_what_was_changed_is_found(
    signed: Path, keys: tuple[Path, Path], change: Callable[[dict[str, Any]], None], words: str
) -> None:
    rewrite(signed, change)
    result = invoke("verify", signed, "--public-key", keys[1])
    assert (result.exit_code, words in result.stdout) == (1, True), result.output


def test_keys_that_cannot_be_used_are_told(root: Path, signed: Path, tmp_path: Path) -> None:
    def refused(key: Any, words: str, password: bytes | None = None) -> None:
        folder = tmp_path / words.replace(" ", "-").replace("/", "")
        folder.mkdir()
        private, public = write_keys(folder, key, password)
        before = {path: path.read_bytes() for path in root.iterdir() if path.is_file()}
        result = invoke("seal", root, "--force", "--signing-key", private)
        assert before == {path: path.read_bytes() for path in root.iterdir() if path.is_file()}
        assert (result.exit_code, words in result.stderr) == (2, True), result.output
        if password is None:
            assert words in invoke("verify", signed, "--public-key", public).stderr

    refused(ed25519.Ed25519PrivateKey.generate(), "keys on elliptic curves")
    refused(ec.generate_private_key(ec.SECP224R1()), "P-256, P-384 or P-521")
    refused(ec.generate_private_key(ec.SECP256R1()), "without a password", b"secret")
    (tmp_path / "no.pem").write_text("no key")
    assert "no private key in PEM" in invoke("seal", root, "--force", "--signing-key", tmp_path / "no.pem").stderr
    assert "no public key in PEM" in invoke("verify", signed, "--public-key", tmp_path / "no.pem").stderr


@examples(60)
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_garbage_is_refused_with_a_reason(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    root = tmp_path_factory.mktemp("garbage") / "step-1"
    build(root, "model.safetensors  safetensors weight=F32[4]\ntrainspec-manifest.json  sealed\n")
    (root / "model.sig").write_bytes(content)
    with pytest.raises(SignatureError, match="signature"):
        signature.read(read_checkpoint(root))
