"""Signs a manifest, and states what a signature covers and whether a key made it.

The file is an OpenSSF Model Signing bundle (https://github.com/ossf/model-signing-spec): an in-toto statement with the
digest of every file, in a DSSE envelope (https://github.com/secure-systems-lab/dsse), in a Sigstore bundle. The digests
are those of the manifest, so that nothing is read a second time; other programs verify it from the files alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trainspec_validate.checkpoints.boundary import failure
from trainspec_validate.checkpoints.limits import KEY_BYTES
from trainspec_validate.checkpoints.opening import UnreadableError, read_json, read_small
from trainspec_validate.checkpoints.view import MANIFEST_NAME, SIGNATURE_NAME, Checkpoint
from trainspec_validate.system.atomic import write_atomically
from trainspec_validate.system.boundary import OutOfMemoryError
from trainspec_validate.system.process import memory_of_the_machine

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey

_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PAYLOAD = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://model_signing/signature/v1.0"
_SHOWN = 3
_SHOWN_CHARACTERS = 200


class SignatureError(Exception):
    """A checkpoint cannot be signed, or a key or signature cannot be read; the text says why."""


class _Signed(msgspec.Struct):
    sig: bytes


class _Envelope(msgspec.Struct, rename="camel"):
    payload: bytes
    payload_type: str
    signatures: list[_Signed]


class _Bundle(msgspec.Struct, rename="camel"):
    dsse_envelope: _Envelope


class _Resource(msgspec.Struct):
    name: str
    algorithm: str
    digest: str


class _Predicate(msgspec.Struct):
    resources: list[_Resource]


class _Subject(msgspec.Struct):
    digest: dict[str, str]


class _Statement(msgspec.Struct, rename={"type_": "_type", "predicate_type": "predicateType"}):
    type_: str
    predicate_type: str
    subject: list[_Subject]
    predicate: _Predicate


@dataclass(frozen=True, slots=True)
class Signature:
    """Content of a signature, genuine or not."""

    digests: dict[str, str]
    """SHA-256 of each file that it covers, in hexadecimal digits."""
    payload: bytes
    signatures: tuple[bytes, ...]


def read(checkpoint: Checkpoint) -> Signature:
    """The signature that is in a checkpoint.

    Raises:
        SignatureError: it is no bundle of this format, or contradicts itself.
    """
    try:
        with memory_of_the_machine():
            envelope = msgspec.convert(read_json(read_small(checkpoint.root / SIGNATURE_NAME)), _Bundle).dsse_envelope
            statement = msgspec.convert(read_json(envelope.payload), _Statement)
    except UnreadableError as error:
        raise SignatureError(f"the signature {error}") from error
    except msgspec.ValidationError as error:
        raise SignatureError(f"the signature is no bundle of the model-signing format: {error}") from error
    except Exception as error:
        raise SignatureError(f"the signature {failure(error)[1]}") from error
    for said, wanted in (
        (envelope.payload_type, _PAYLOAD),
        (statement.type_, _STATEMENT),
        (statement.predicate_type, _PREDICATE),
    ):
        if said != wanted:
            raise SignatureError(f"the signature says {said!r}, wanted {wanted!r}")
    resources = statement.predicate.resources
    if {resource.algorithm for resource in resources} - {"sha256"}:
        raise SignatureError("the signature has digests other than SHA-256, which the manifest has")
    if [subject.digest.get("sha256") for subject in statement.subject] != [_root_digest(resources)]:
        raise SignatureError("the digest of the signature's subject is not that of the files that it lists")
    digests = {resource.name: resource.digest.lower() for resource in resources}
    return Signature(digests, envelope.payload, tuple(signed.sig for signed in envelope.signatures))


def _root_digest(resources: list[_Resource]) -> str | None:
    try:
        return hashlib.sha256(b"".join(bytes.fromhex(resource.digest) for resource in resources)).hexdigest()
    except ValueError:
        return None


def differences(checkpoint: Checkpoint, signature: Signature) -> Iterator[str]:
    """In which ways a signature covers something else than the manifest that is next to it, in words."""
    wanted = _digests(checkpoint)
    for verb, paths in (
        ("does not cover", wanted.keys() - signature.digests.keys()),
        ("covers, without an entry of the manifest,", signature.digests.keys() - wanted.keys()),
        (
            "has another digest of",
            {path for path, digest in signature.digests.items() if wanted.get(path, digest) != digest},
        ),
    ):
        if paths:
            more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
            yield f"the signature {verb} {', '.join(sorted(paths)[:_SHOWN])}{more}"


def _digests(checkpoint: Checkpoint) -> dict[str, str]:
    """SHA-256 of the manifest and of the files that it lists."""
    if checkpoint.manifest is None:
        raise SignatureError(f"{checkpoint.place(MANIFEST_NAME)}: {checkpoint.manifest_problem or 'there is none'}")
    found = {file.path: file.sha256 for file in checkpoint.manifest.files}
    return {**found, MANIFEST_NAME: checkpoint.manifest_digest}


def statement(checkpoint: Checkpoint) -> bytes:
    """Statement that is signed: the in-toto statement about a sealed checkpoint.

    Raises:
        SignatureError: there is no manifest that can be read.
    """
    digests = sorted(_digests(checkpoint).items())
    resources = [{"name": name, "algorithm": "sha256", "digest": digest} for name, digest in digests]
    unsealed = checkpoint.manifest.unsealed if checkpoint.manifest else ()
    root_digest = hashlib.sha256(b"".join(bytes.fromhex(digest) for _, digest in digests)).hexdigest()
    serialization = {
        "method": "files",
        "hash_type": "sha256",
        "allow_symlinks": False,
        "ignore_paths": [SIGNATURE_NAME, *unsealed],
    }
    return json.dumps(
        {
            "_type": _STATEMENT,
            "subject": [{"name": checkpoint.root.resolve().name, "digest": {"sha256": root_digest}}],
            "predicateType": _PREDICATE,
            "predicate": {"serialization": serialization, "resources": resources},
        }
    ).encode()


def bundle(payload: bytes, signature: bytes, key_digest: str) -> dict[str, Any]:
    """The bundle of a signed statement as plain values; `key_digest` names the key for verifiers."""
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": _PAYLOAD,
        "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": ""}],
    }
    material = {"publicKey": {"hint": key_digest}, "tlogEntries": []}
    return {"mediaType": _BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope}


def signer(key_file: Path) -> Callable[[Checkpoint], Path]:
    """Signer with the key of a file, if signatures can be made with it.

    Raises:
        SignatureError: it cannot be used.
    """
    serialization, ec = _library()
    try:
        with memory_of_the_machine():
            key = serialization.load_pem_private_key(_key(key_file), None)
    except OutOfMemoryError:
        raise
    except Exception as error:  # odd curves and types have errors of their own, some of them of OpenSSL
        raise SignatureError(f"{key_file}: no private key in PEM without a password: {_first_line(error)}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SignatureError(f"{key_file}: the format takes keys on elliptic curves, such as P-256")
    _algorithm(key.public_key())
    return partial(_sign, key)


def _sign(key: EllipticCurvePrivateKey, checkpoint: Checkpoint) -> Path:
    """Write the signature of a sealed checkpoint beside its manifest, whole or not at all.

    Raises:
        SignatureError: there is no manifest.
        OSError: the signature cannot be written.
    """
    serialization, _ = _library()
    payload, public = statement(checkpoint), key.public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    signed = bundle(payload, key.sign(_encoded(payload), _algorithm(public)), hashlib.sha256(pem).hexdigest())
    path = checkpoint.root / SIGNATURE_NAME
    write_atomically(path, json.dumps(signed) + "\n")
    return path


def is_made_by(signature: Signature, key_file: Path) -> bool:
    """Whether the key that belongs to a public key made the signature.

    Raises:
        SignatureError: the key cannot be used.
    """
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

    serialization, ec = _library()
    try:
        with memory_of_the_machine():
            key = serialization.load_pem_public_key(_key(key_file))
    except OutOfMemoryError:
        raise
    except Exception as error:
        raise SignatureError(f"{key_file}: no public key in PEM of a known kind: {_first_line(error)}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise SignatureError(f"{key_file}: the format takes keys on elliptic curves, such as P-256")
    for signed in signature.signatures:
        try:
            key.verify(signed, _encoded(signature.payload), _algorithm(key))
        except InvalidSignature:
            continue
        return True
    return False


def _key(path: Path) -> bytes:
    try:
        return read_small(path, KEY_BYTES)
    except UnreadableError as error:
        raise SignatureError(f"{path}: the key {error}") from error


def _first_line(error: Exception) -> str:
    return (str(error).split("\n") or [""])[0][:_SHOWN_CHARACTERS] or type(error).__name__


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError:
        raise SignatureError("signatures need cryptography: pip install 'trainspec-validate[signing]'") from None
    return serialization, ec


def _algorithm(key: EllipticCurvePublicKey) -> ECDSA:
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    by_curve: dict[str, hashes.HashAlgorithm] = {
        "secp256r1": hashes.SHA256(),
        "secp384r1": hashes.SHA384(),
        "secp521r1": hashes.SHA512(),
    }
    if key.curve.name not in by_curve:
        raise SignatureError(f"the curve {key.curve.name} has no digest in the format: P-256, P-384 or P-521 have")
    return ec.ECDSA(by_curve[key.curve.name])


def _encoded(payload: bytes) -> bytes:
    """The pre-authentication encoding of DSSE 1.0."""
    return f"DSSEv1 {len(_PAYLOAD)} {_PAYLOAD} {len(payload)} ".encode() + payload
