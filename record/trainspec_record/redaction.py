"""Hides names of hosts, devices and emitters in written records, and texts that can hold them."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from trainspec_record.catalog import ATTRIBUTES
from trainspec_record.claim import open_regular

WITHOUT_A_WORD: Final = "the attempt ended without a word"
NOT_COMMITTED: Final = "the attempt ended before the commit"
GIVEN_UP: Final = "the save was given up"
NOT_WRITTEN: Final = "the file could not be written"
COMPILATION: Final = "compilation"
_OWN: Final = frozenset({WITHOUT_A_WORD, NOT_COMMITTED, GIVEN_UP, NOT_WRITTEN, COMPILATION})
_TYPE: Final = re.compile(
    r"[A-Za-z_]\w{0,80}(Error|Exception|Interrupt|Exit)|\w{1,80} ended the program|an error ended the program"
)


def ended_by(error: str | None) -> str:
    """Cause that ended the program, by the name of the type of an error."""
    return f"{error or 'an error'} ended the program"


def is_own(text: str) -> bool:
    """Whether the recorder writes this reason, or it is the name of a type of errors."""
    return text in _OWN or _TYPE.fullmatch(text) is not None


REDACT = "TRAINSPEC_REDACT"
"""File with the key by which names are hidden."""
LEAST_KEY_BYTES, MOST_KEY_BYTES = 16, 4096
NUM_DIGITS = 32
MAX_KNOWN = 100_000
"""Names whose hashes are remembered."""
NAMES = frozenset({"host.id", "hw.id", "train.network.source", "train.network.target", "train.fault.component"})
"""Attributes that are names of hosts and devices."""
TEXTS = frozenset({"train.reason", "train.rank.map"})
"""Attributes in free words: what the recorder did not write itself is hidden as a whole."""
_HIDDEN = re.compile(r"h:[0-9a-f]{16,}")
_HEADS = re.compile(r"heads of rank-\*\.[0-9]+\.jsonl")
_PLACES = re.compile(
    r"""[A-Za-z][A-Za-z0-9+.-]*://[^\s'",;]+            # s3://bucket/file
    |(?<![\w.~/\\])(?:~|[A-Za-z]:)?[/\\][^\s'",;:]+     # /home/someone/file, C:\file
    |(?<![\w.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]+)?(?![\w.])  # 10.0.0.7:29500
    """,
    re.VERBOSE,
)


def read_key(path: Path | str) -> bytes:
    """The key that a file holds.

    Raises:
        ValueError: the file cannot be read, or is too short to keep a secret.
    """
    try:
        with os.fdopen(open_regular(path, follow=True), "rb") as file:
            key = file.read(MOST_KEY_BYTES).strip()
    except OSError as error:
        raise ValueError(f"the key for {REDACT} cannot be read: {path}: {error.strerror}") from error
    if len(key) < LEAST_KEY_BYTES:
        raise ValueError(
            f"{path} holds {len(key)} bytes, and a key has {LEAST_KEY_BYTES} or more: openssl rand -hex 32"
        )
    return key


class Redaction:
    """Hides names by a keyed hash, so that equal names stay equal and no one without the key finds them out."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[str, str] = {}
        self._subjects: set[str] = set()
        """Hosts and devices that records have named."""

    def name(self, text: Any) -> str:
        """`h:` and the keyed hash of a name; one that is hidden already stays."""
        plain = str(text)
        found = self._known.get(plain)
        if found is None:
            digest = hmac.new(self._key, plain.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
            found = plain if _HIDDEN.fullmatch(plain) else f"h:{digest[:NUM_DIGITS]}"
            if len(self._known) < MAX_KNOWN:
                self._known[plain] = found
        return found

    def file(self, emitter: str) -> str:
        """An emitter as a part of a file name: without the name of its host."""
        kind, dash, host = emitter.partition("-")
        return emitter if kind in {"job", "rank"} else f"{kind}{dash}{self.name(host)}"

    def head(self, head: Mapping[str, Any]) -> dict[str, Any]:
        """The head of a stream, which says how names are hidden."""
        told = self.record(head)
        told["declared"] = self._attributes(head.get("declared", {}))
        for key in ("unsupported", "extension_metrics"):
            if key in head:
                told[key] = self._texts(head[key])
        return {**told, "redaction": "keyed-hash"}

    def record(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """A record without names."""
        found = dict(record)
        for key in ("host", "device", "emitter"):
            if key in found:
                if key != "emitter" and len(self._subjects) < MAX_KNOWN:
                    self._subjects.add(str(found[key]))
                found[key] = self.name(found[key])
        if "id" in found:
            found["id"] = self.text(found["id"])
        if "a" in found:
            found["a"] = self._attributes(found["a"])
        if "m" in found:
            found["m"] = {self._key_of(key): value for key, value in found["m"].items()}
        return found

    def text(self, text: str) -> str:
        """A text in which paths, addresses, and the hosts and devices of this stream are hidden."""
        found = _PLACES.sub(lambda match: self.name(match[0]), text)
        for subject in self._subjects:
            if subject in found and not _HIDDEN.fullmatch(found):
                pattern = rf"(?<![\w.-]){re.escape(subject)}(?![\w-])"
                found = re.sub(pattern, lambda match: self.name(match[0]), found)
        return found

    def _attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._attribute(name, value) for name, value in attributes.items()}

    def _attribute(self, name: str, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._attribute(name, each) for each in value]
        known = ATTRIBUTES.get(name)
        if not isinstance(value, str) or (known is not None and value in known.values):
            return value
        if name in NAMES:
            return self.name(value)
        if name in TEXTS:
            return value if is_own(value) or _HEADS.fullmatch(value) else self.name(value)
        return self.text(value)

    def _texts(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._texts(each) for key, each in value.items()}
        return self.text(value) if isinstance(value, str) else value

    def _key_of(self, key: str) -> str:
        """The key of a series; the nodes at the ends of a probe are names."""
        metric, brace, series = key.partition("{")
        if not brace or "train.network." not in series:
            return key
        pairs = (pair.partition("=") for pair in series.rstrip("}").split(","))
        told = ",".join(f"{name}={self.name(value) if name in NAMES else value}" for name, _, value in pairs)
        return f"{metric}{{{told}}}"
