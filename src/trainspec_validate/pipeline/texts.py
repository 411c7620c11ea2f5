"""Reads a file of a tree as far as a search needs it: its kind, its name, and the documents that it refers to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from trainspec_validate.documents.load import LoadError, load_text
from trainspec_validate.documents.types import KINDS
from trainspec_validate.system.boundary import untrusted

KEYS: Final[Mapping[str, str]] = {"ClusterProfile": "cluster", "TrainingPlan": "plan"}
"""Key of a reference to a document of a kind."""
KINDS_OF_KEYS: Final[Mapping[str, str]] = {key: kind for kind, key in KEYS.items()}
REFERENCES: Final[Mapping[str, tuple[str, ...]]] = {
    "TrainingPlan": ("cluster",),
    "CheckpointPolicy": ("cluster", "plan"),
}
"""Keys of the references that documents of a kind can hold."""
_MOST_HELD: Final = 100
"""Texts in the values of one file that are looked at."""
_KIND: Final = re.compile(
    rf"^[ \t{{]*+[\"']?kind[\"']?\s*+:\s*+[\"']?({'|'.join(REFERENCES)})\b".encode(), re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a text that a search needs."""

    kind: str = ""
    name: str = ""
    references: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By key of a reference, its `file` and `name`."""
    failure: LoadError | None = None
    """Why the text cannot be read."""
    held: tuple[Facts, ...] = ()
    """Those of documents that a file of another kind holds, such as a ConfigMap of Kubernetes."""


@dataclass(frozen=True)
class Text:
    """A file that claims to be a document, as it was read."""

    path: Path
    content: bytes

    @cached_property
    def facts(self) -> Facts:
        """Content, or the reason why it cannot be read."""
        try:
            with untrusted(lambda reason, remedy: LoadError("unreadable", reason, remedy)):
                data = load_text(self.content, self.path.as_posix()).data
        except LoadError as error:
            return Facts(failure=error)
        facts = _facts(data)
        return facts if facts.kind in KINDS else replace(facts, held=tuple(_held(data, self.path)))

    @cached_property
    def plain(self) -> bytes:
        """Its letters of ASCII, also where each of them takes two or four bytes."""
        return self.content.translate(None, b"\0")

    def has(self, word: str) -> bool:
        """Whether the word is in it; true where it may be written with escapes."""
        return word.encode() in self.content or b"\\" in self.content

    def refers(self, path: str, key: str, name: str) -> bool:
        """Whether it refers to a document, by file or by name."""
        if not (self.has(name) or self.has("file")):
            return False
        reference = self.facts.references.get(key, {})
        file = reference.get("file")
        if isinstance(file, str):
            return "\0" not in file and os.path.realpath(self.path.parent / file) == os.path.realpath(path)
        return bool(reference.get("name") == name)

    def holds(self, path: str, key: str, name: str) -> bool:
        """Whether a file of another kind holds a document that may be for this one."""
        return any(_may_mean(facts, path, key, name) for facts in self.facts.held)

    def mentions(self, path: str, name: str) -> bool:
        """Whether a text that cannot be read has a document's name, or that of its file, as a word."""
        words = (re.escape(word.encode()) for word in (name, Path(path).name) if word)
        return bool(re.search(rb"(?<![\w.-])(?:" + b"|".join(words) + rb")(?![\w.-])", self.plain))

    def may_lack(self, key: str) -> bool:
        """Whether a document that can have such a reference has none, and can be for any document of that kind."""
        if not self.facts.failure:
            return key in REFERENCES.get(self.facts.kind, ()) and key not in self.facts.references
        is_one = key in REFERENCES.get(self.unread_kind(), ())
        return is_one and not re.search(rb"\b" + key.encode() + rb"\b[\"']?\s*:", self.plain)

    def unread_kind(self) -> str:
        """The kind of a document that can refer to others, of a text that cannot be read; empty for others."""
        found = _KIND.search(self.plain)
        return found[1].decode() if found else ""


def _facts(data: Any) -> Facts:
    kind, name = at(data, "kind"), at(data, "metadata", "name")
    kind = kind if isinstance(kind, str) else ""
    # what has no known kind is found too, and its finding says so
    keys = REFERENCES.get(kind, () if kind in KINDS else tuple(KINDS_OF_KEYS))
    references = {key: _reference(at(data, key)) for key in keys if at(data, key) is not None}
    return Facts(kind, name if isinstance(name, str) else "", references)


def _held(data: Any, path: Path) -> Iterator[Facts]:
    """What is said of documents that refer to others, below the top of a text or in a value of it."""
    pending, num_texts = [data], 0
    while pending:
        value = pending.pop()
        pending += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if (
            isinstance(value, dict)
            and value is not data
            and at(value, "apiVersion")
            and isinstance(kind := at(value, "kind"), str)
            and kind in REFERENCES
        ):
            yield _facts(value)
        elif isinstance(value, str) and "\n" in value and num_texts < _MOST_HELD and _KIND.search(value.encode()):
            num_texts += 1
            facts = Text(path, value.encode()).facts
            if facts.kind in REFERENCES:
                yield facts


def _may_mean(facts: Facts, path: str, key: str, name: str) -> bool:
    """Whether a document that another file holds is for one of a tree: by its name, by that of its file, or by none."""
    if key not in REFERENCES.get(facts.kind, ()):
        return False
    reference = facts.references.get(key, {})
    file = reference.get("file")
    return (
        not reference or reference.get("name") == name or (isinstance(file, str) and Path(file).name == Path(path).name)
    )


def _reference(value: Any) -> Mapping[str, Any]:
    """A reference; a bare text is an error of form, and its meaning is plain."""
    if isinstance(value, dict):
        return {key: value[key] for key in ("file", "name") if key in value}
    return {"name": value} if isinstance(value, str) else {}


def at(data: Any, *keys: str) -> Any:
    """Value of plain data below some keys; None where it has nothing."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data
