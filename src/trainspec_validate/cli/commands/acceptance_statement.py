"""Writes, signs and verifies the statement on an acceptance, for `trainspec accept`.

A signed statement is a DSSE envelope, which holds one signature of each party. A plain one is its payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from trainspec_validate.checkpoints.envelope import (
    STATEMENT,
    PrivateKey,
    PublicKey,
    SignatureError,
    Signed,
    envelope,
    envelope_of,
    private_key,
    public_key,
)
from trainspec_validate.checkpoints.opening import UnreadableError, read_json
from trainspec_validate.cli import terminal
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.documents.load import LoadError, read_file
from trainspec_validate.model.finding import Report
from trainspec_validate.pipeline.acceptance import Gathered
from trainspec_validate.pipeline.acceptance_notes import named
from trainspec_validate.report.places import dumps

_PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
_SUBJECT = "accepted.yaml"


def plain(gathered: Gathered, report: Report, name: str) -> str:
    """An in-toto statement about the bytes of a document of this name; equal wherever the files are."""
    found = sorted({finding.requirement for finding in report.findings})
    digest = sha256(gathered.text.encode()).hexdigest()
    others = [one for one in report.unjudged if one not in gathered.unjudged]
    places = {one.path.as_posix(): one.name for one in (*gathered.streams, *gathered.streams_of_no_node)}
    rest = [
        *gathered.failures,
        *(
            f"{'the directory' if one in gathered.left_out else places.get(one.path, name)} {one.reason}"
            for one in others
        ),
    ]
    unjudged = [
        *({"node": node, "facts": list(facts)} for node, facts in gathered.open.items()),
        *([{"facts": rest}] if rest else []),
    ]
    warned = {*gathered.open_requirements, *(one for reason in others for one in reason.requirements)}
    predicate = {
        "result": "FAILED" if found else "WARNED" if unjudged else "PASSED",
        "configuration": [],
        "warnedTests": sorted(warned.difference(found)),
        "failedTests": found,
        "unjudged": unjudged,
        "notRun": [{"test": test, "nodes": list(nodes)} for test, nodes in gathered.not_run.items()],
    }
    return dumps(
        {
            "_type": STATEMENT,
            "subject": [
                {"name": name, "digest": {"sha256": digest}},
                *({"name": one.name, "digest": {"sha256": one.digest}} for one in gathered.streams_of_no_node),
            ],
            "predicateType": _PREDICATE,
            "predicate": predicate,
        }
    )


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that a call names."""

    private: PrivateKey | None
    public: tuple[tuple[str, PublicKey], ...]
    """Each with the path of its file."""


def keys(signing_key: Path | None, public_keys: Sequence[Path]) -> Keys:
    """The keys of files.

    Raises:
        Failure: one cannot be used.
    """
    try:
        private = None if signing_key is None else private_key(signing_key)
        return Keys(private, tuple((path.as_posix(), public_key(path)) for path in public_keys))
    except SignatureError as error:
        raise Failure(str(error)) from error


def signed(gathered: Gathered, report: Report, document: str | None, key: PrivateKey | None) -> str:
    """The statement as it is written: in an envelope where a key signs it.

    Args:
        gathered: of the profile and the files.
        report: on the former.
        document: path that --output names.
        key: of the party that states it.
    """
    text = plain(gathered, report, _SUBJECT if document is None else Path(document).name)
    return text if key is None else _with_signature(_Read(text.encode()), key)


@dataclass(frozen=True, slots=True)
class _Read:
    """A statement that a file has."""

    payload: bytes
    signatures: tuple[Signed, ...] = ()

    @property
    def name(self) -> str:
        """The name of the document that it is about, as it says."""
        try:
            subject = read_json(self.payload, is_strict=True)["subject"][0]["name"]
        except (UnreadableError, LookupError, TypeError):
            return _SUBJECT
        return subject if isinstance(subject, str) else _SUBJECT


def _with_signature(statement: _Read, key: PrivateKey) -> str:
    own = Signed(key.sign(statement.payload), f"sha256:{key.public.fingerprint}")
    return dumps(envelope(statement.payload, [*statement.signatures, own]))


@dataclass(frozen=True, slots=True)
class Judge:
    """Compares files with the result of this call, and says on standard error what holds and what does not."""

    gathered: Gathered
    report: Report
    keys: Keys

    def is_verified(self, paths: Sequence[Path]) -> bool:
        """Whether documents and statements are of these files, and each public key signed a statement.

        Raises:
            Failure: a file cannot be read.
        """
        contents = {path.as_posix(): _content(path) for path in paths}
        statements = {place: content for place, content in contents.items() if content.lstrip().startswith(b"{")}
        results = [
            self._is_statement(place, content) if place in statements else _is_equal(place, content, self.gathered.text)
            for place, content in contents.items()
        ]
        if self.keys.public and not statements:
            terminal.tell(f"{', '.join(contents)}: no statement, so --public-key finds no signature to verify")
            return False
        return all(results)

    def countersigned(self, path: Path) -> str | None:
        """The statement of a file with the signature of the private key; None where it is not of these files.

        Raises:
            Failure: the file cannot be read.
        """
        key, statement = self.keys.private, self._statement(path.as_posix(), _content(path))
        if statement is None or key is None:
            return None
        others = [one for one in statement.signatures if not key.public.has_made(one.sig, statement.payload)]
        terminal.tell(f"{path.as_posix()}: signed, fingerprint of the key sha256:{key.public.fingerprint}")
        return _with_signature(replace(statement, signatures=tuple(others)), key)

    def _statement(self, place: str, content: bytes) -> _Read | None:
        """The statement of a file, if it is that of these files."""
        try:
            data = read_json(content, is_strict=True)
            is_plain = not isinstance(data, dict) or "payload" not in data
            found = _Read(content) if is_plain else _of_envelope(data)
        except (UnreadableError, SignatureError) as error:
            terminal.tell(f"{place}: {error}")
            return None
        wanted = plain(self.gathered, self.report, found.name)
        if not _is_equal(f"{place}: the statement" if not is_plain else place, found.payload, wanted):
            return None
        if self.gathered.not_run:
            each = (f"{test} on {named(list(nodes))}" for test, nodes in self.gathered.not_run.items())
            terminal.tell(f"{place}: not run: {'; '.join(each)}")
        return found

    def _is_statement(self, place: str, content: bytes) -> bool:
        found = self._statement(place, content)
        return found is not None and self._holds(place, found)

    def _holds(self, place: str, statement: _Read) -> bool:
        """Whether each public key made a signature of a statement; tells whose signatures there are."""
        num_signatures = len(statement.signatures)
        if not num_signatures:
            terminal.tell(f"{place}: unsigned: it shows what the files give, and not who states it")
            return not self.keys.public
        counted = f"{num_signatures} signature{'' if num_signatures == 1 else 's'}"
        if not self.keys.public:
            terminal.tell(f"{place}: {counted}; whose was not checked; --public-key does")
            return True
        left, is_each = list(statement.signatures), True
        for path, key in self.keys.public:
            others = [one for one in left if not key.has_made(one.sig, statement.payload)]
            is_signed = any(key.has_made(one.sig, statement.payload) for one in statement.signatures)
            word = "signed" if is_signed else "not signed"
            terminal.tell(f"{place}: {word} by the key of {path}, fingerprint sha256:{key.fingerprint}")
            left, is_each = others, is_each and is_signed
        if left:
            terminal.tell(f"{place}: {len(left)} of {counted} made by none of these keys")
        return is_each


def _of_envelope(data: dict[str, Any]) -> _Read:
    found = envelope_of(data)
    return _Read(found.payload, tuple(found.signatures))


def _content(path: Path) -> bytes:
    try:
        return read_file(path)
    except LoadError as error:
        raise Failure(f"{path.as_posix()}: {error.message}") from error


def _is_equal(place: str, content: bytes, wanted: str) -> bool:
    if content == wanted.encode():
        terminal.tell(f"{place}: verified, sha256 {sha256(content).hexdigest()}")
        return True
    before = content.decode("utf-8", "replace")
    lines = zip([*before.split("\n"), ""], [*wanted.split("\n"), ""], strict=False)
    number = next((n for n, (one, other) in enumerate(lines, 1) if one != other), 1)
    terminal.tell(f"{place}:{number}: differs from what the profile and the files give")
    return False
