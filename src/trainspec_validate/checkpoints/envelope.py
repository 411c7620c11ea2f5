"""Signs bytes with a private key, and states whether a key made a signature: DSSE envelopes, for seals and statements.

Source of the format: https://github.com/secure-systems-lab/dsse (envelope and pre-authentication encoding). The payload
is an in-toto statement. Keys are on elliptic curves, as OpenSSF Model Signing takes them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trainspec_validate.checkpoints.limits import KEY_BYTES
from trainspec_validate.checkpoints.opening import UnreadableError, read_small
from trainspec_validate.system.boundary import OutOfMemoryError
from trainspec_validate.system.process import memory_of_the_machine
from trainspec_validate.system.structs import converted

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey

STATEMENT = "https://in-toto.io/Statement/v1"
_PAYLOAD = "application/vnd.in-toto+json"
_MOST_SIGNATURES = 64
_SHOWN_CHARACTERS = 200
_LACKS = re.compile(r"Object missing required field `([^`]{1,100})`?")
_OF_KIND = re.compile(r"Expected `([^`]{1,100})`, got `([^`]{1,100})")
_KINDS = {
    "object": "a mapping",
    "array": "a list",
    "str": "text",
    "bytes": "text in base64",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
}
"""Kinds of values, by the words of the converter."""


class SignatureError(Exception):
    """Something cannot be signed, or a key or signature cannot be read; the text says why."""


class Signed(msgspec.Struct):
    """One signature of an envelope."""

    sig: bytes
    keyid: str = ""
    """A hint, which no signature covers."""


class Envelope(msgspec.Struct, rename="camel"):
    """A payload with its signatures, genuine or not."""

    payload: bytes
    payload_type: str
    signatures: list[Signed]

    def check(self) -> None:
        """Refuse what no signer of statements writes.

        Raises:
            SignatureError: the payload is of another type, or there are too many signatures.
        """
        if self.payload_type != _PAYLOAD:
            raise SignatureError(f"the signature says {self.payload_type!r}, wanted {_PAYLOAD!r}")
        if len(self.signatures) > _MOST_SIGNATURES:
            raise SignatureError(f"there are {len(self.signatures):,} signatures, more than {_MOST_SIGNATURES}")


def envelope(payload: bytes, signatures: Sequence[Signed]) -> dict[str, Any]:
    """An envelope as plain values."""
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": _PAYLOAD,
        "signatures": [{"sig": base64.b64encode(one.sig).decode(), "keyid": one.keyid} for one in signatures],
    }


def mismatch_words(error: msgspec.ValidationError) -> str:
    """Words for a value that a record does not take, with its place.

    >>> mismatch_words(msgspec.ValidationError("Expected `str`, got `int` - at `$.payloadType`"))
    'payloadType is a whole number, where text belongs'
    >>> mismatch_words(msgspec.ValidationError("Object missing required field `payload`"))
    "it lacks the key 'payload'"
    """
    what, _, place = str(error).rstrip("`").partition(" - at `$")
    place = place.lstrip(".") or "it"
    if match := _LACKS.fullmatch(what):
        return f"{place} lacks the key {match[1]!r}"
    if what == "Invalid base64 encoded string":
        return f"{place} is no base64"
    if match := _OF_KIND.match(what):
        wanted = " or ".join(_KINDS.get(word, word) for word in match[1].split(" | "))
        return f"{place} is {_KINDS.get(match[2], match[2])}, where {wanted} belongs"
    return f"{place} does not fit: {what}"


def envelope_of(data: Mapping[str, Any]) -> Envelope:
    """The envelope in the values of a JSON text.

    Raises:
        SignatureError: they are none, or it is not of a statement.
    """
    try:
        found = converted(data, Envelope)
    except msgspec.ValidationError as error:
        raise SignatureError(f"the signature is no DSSE envelope: {mismatch_words(error)}") from error
    found.check()
    return found


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies."""

    key: EllipticCurvePublicKey

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the key in PEM, in hexadecimal digits, as `openssl pkey -pubin` writes it."""
        serialization, _ = _library()
        pem = self.key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(pem).hexdigest()

    def has_made(self, signature: bytes, payload: bytes) -> bool:
        """Whether the private key that belongs to this one made a signature of a payload."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

        try:
            self.key.verify(signature, _encoded(payload), _algorithm(self.key))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A key that signs."""

    key: EllipticCurvePrivateKey

    @property
    def public(self) -> PublicKey:
        """The key that verifies what this one signs."""
        return PublicKey(self.key.public_key())

    def sign(self, payload: bytes) -> bytes:
        """A signature of a payload."""
        return self.key.sign(_encoded(payload), _algorithm(self.key.public_key()))


def private_key(path: Path) -> PrivateKey:
    """The private key of a file, if signatures can be made with it.

    Raises:
        SignatureError: it cannot be used.
    """
    serialization, ec = _library()
    try:
        with memory_of_the_machine():
            key = serialization.load_pem_private_key(_read(path), None)
    except OutOfMemoryError:
        raise
    except SignatureError:
        raise
    except Exception as error:  # odd curves and types have errors of their own, some of them of OpenSSL
        raise SignatureError(f"{path}: no private key in PEM without a password: {_first_line(error)}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SignatureError(f"{path}: the format takes keys on elliptic curves, such as P-256")
    _algorithm(key.public_key())
    return PrivateKey(key)


def public_key(path: Path) -> PublicKey:
    """The public key of a file.

    Raises:
        SignatureError: it cannot be used.
    """
    serialization, ec = _library()
    try:
        with memory_of_the_machine():
            key = serialization.load_pem_public_key(_read(path))
    except OutOfMemoryError:
        raise
    except SignatureError:
        raise
    except Exception as error:
        raise SignatureError(f"{path}: no public key in PEM of a known kind: {_first_line(error)}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise SignatureError(f"{path}: the format takes keys on elliptic curves, such as P-256")
    _algorithm(key)
    return PublicKey(key)


def _read(path: Path) -> bytes:
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
