"""Signs a manifest, and states what a signature covers and whether a key made it.

The file is an OpenSSF Model Signing bundle (https://github.com/ossf/model-signing-spec): an in-toto statement with the
digest of every file, in a DSSE envelope (https://github.com/secure-systems-lab/dsse), in a Sigstore bundle. The digests
are those of the manifest, so that nothing is read a second time; other programs verify it from the files alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from trainspec_validate.checkpoints.boundary import failure
from trainspec_validate.checkpoints.envelope import (
    STATEMENT,
    Envelope,
    PrivateKey,
    SignatureError,
    Signed,
    envelope,
    mismatch_words,
    private_key,
    public_key,
)
from trainspec_validate.checkpoints.opening import UnreadableError, read_json, read_small
from trainspec_validate.checkpoints.view import MANIFEST_NAME, SIGNATURE_NAME, Checkpoint
from trainspec_validate.system.atomic import write_atomically
from trainspec_validate.system.process import memory_of_the_machine
from trainspec_validate.system.structs import converted

_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PREDICATE = "https://model_signing/signature/v1.0"
_SHOWN = 3


class _Bundle(msgspec.Struct, rename="camel"):
    dsse_envelope: Envelope


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
            content = read_small(checkpoint.root / SIGNATURE_NAME)
            found = converted(read_json(content, is_strict=True), _Bundle).dsse_envelope
            statement = converted(read_json(found.payload, is_strict=True), _Statement)
    except UnreadableError as error:
        raise SignatureError(f"the signature {error}") from error
    except msgspec.ValidationError as error:
        raise SignatureError(
            f"the signature is no bundle of the model-signing format: {mismatch_words(error)}"
        ) from error
    except Exception as error:
        raise SignatureError(f"the signature {failure(error)[1]}") from error
    found.check()
    for said, wanted in ((statement.type_, STATEMENT), (statement.predicate_type, _PREDICATE)):
        if said != wanted:
            raise SignatureError(f"the signature says {said!r}, wanted {wanted!r}")
    resources = statement.predicate.resources
    if {resource.algorithm for resource in resources} - {"sha256"}:
        raise SignatureError("the signature has digests other than SHA-256, which the manifest has")
    if [subject.digest.get("sha256") for subject in statement.subject] != [_root_digest(resources)]:
        raise SignatureError("the digest of the signature's subject is not that of the files that it lists")
    digests = {resource.name: resource.digest.lower() for resource in resources}
    return Signature(digests, found.payload, tuple(signed.sig for signed in found.signatures))


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
            "_type": STATEMENT,
            "subject": [{"name": checkpoint.root.resolve().name, "digest": {"sha256": root_digest}}],
            "predicateType": _PREDICATE,
            "predicate": {"serialization": serialization, "resources": resources},
        }
    ).encode()


def bundle(payload: bytes, signature: bytes, key_digest: str) -> dict[str, Any]:
    """The bundle of a signed statement as plain values; `key_digest` names the key for verifiers."""
    material = {"publicKey": {"hint": key_digest}, "tlogEntries": []}
    return {
        "mediaType": _BUNDLE,
        "verificationMaterial": material,
        "dsseEnvelope": envelope(payload, [Signed(signature)]),
    }


def signer(key_file: Path) -> Callable[[Checkpoint], Path]:
    """Signer with the key of a file, if signatures can be made with it.

    Raises:
        SignatureError: it cannot be used.
    """
    return partial(_sign, private_key(key_file))


def _sign(key: PrivateKey, checkpoint: Checkpoint) -> Path:
    """Write the signature of a sealed checkpoint beside its manifest, whole or not at all.

    Raises:
        SignatureError: there is no manifest.
        OSError: the signature cannot be written.
    """
    payload = statement(checkpoint)
    path = checkpoint.root / SIGNATURE_NAME
    text = json.dumps(bundle(payload, key.sign(payload), key.public.fingerprint)) + "\n"
    write_atomically(path, text, is_output=True)
    return path


def is_made_by(signature: Signature, key_file: Path) -> bool:
    """Whether the key that belongs to a public key made the signature.

    Raises:
        SignatureError: the key cannot be used.
    """
    key = public_key(key_file)
    return any(key.has_made(signed, signature.payload) for signed in signature.signatures)
