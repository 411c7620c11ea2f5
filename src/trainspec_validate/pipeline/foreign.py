"""Says whether a text that mentions TrainSpec is, as a whole, one of another program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, Final

import yaml

from trainspec_validate.documents.types import KINDS

HELD: Final = "holds a document in a text of another program"
NOT_OURS: Final = "has the name of a document, and neither its apiVersion nor its keys"
REMEDIES: Final = {
    HELD: "write the document to a file of its own to have it judged",
    NOT_OURS: "name it to have it judged, or rename a file of another program",
}
_TEMPLATE: Final = ("{{", "{%", "<%")
"""What opens a placeholder, for which no reader of YAML has a meaning."""
_VERSION_KEY: Final = "apiversion"
_ALIKE: Final = 0.75
"""Above this share of common letters the name of a key is taken for that of the version, with a slip."""
_HELD: Final = re.compile(r"^[ \t{]*+[\"']?apiVersion[\"']?[ \t]*+:[ \t]*+[\"']?trainspec/v", re.MULTILINE)
_STATED: Final = re.compile(
    r"^[ \t{]*+(?:-[ \t]++)?[\"']?(?:api_?version[\"']?[ \t]*+:[ \t]*+(?P<version>[^\r\n#]{1,80})|kind[\"']?[ \t]*+:"
    rf"[ \t\"']*+(?:{'|'.join(KINDS)})\b)",
    re.MULTILINE | re.IGNORECASE,
)
"""A line that states a version, or a kind of ours."""
_MOST_STATED: Final = 10_000
_REQUIRED: Final = (
    frozenset({"num_nodes", "num_accelerators", "node_groups"}),
    frozenset({"model", "parallelism", "batch", "precision"}),
    frozenset({"interval", "save", "tiers", "commit", "retention", "integrity", "detection", "recovery"}),
)
"""Keys of each kind that every document of it has."""
_FEWEST_KEYS: Final = 2


IsOurs = Callable[[str], bool]
"""Whether a version is one of ours, be it with a slip."""


@dataclass(slots=True)
class Outline:
    """The keys at the top of all documents of a text with those values that are scalars, and what is inside."""

    top: list[tuple[str, str]] = field(default_factory=list)
    num_mappings: int = 0
    versions: list[str] = field(default_factory=list)
    """Values of `apiVersion` below the top."""
    has_held: bool = False
    """Whether a scalar is the text of a document."""

    def names_ours(self, is_ours: IsOurs) -> bool:
        """Whether the top names a version or a kind of ours, be it with a slip in the key."""
        return any(
            (key == "kind" and value in KINDS) or (_is_version_key(key) and is_ours(value)) for key, value in self.top
        )

    @property
    def names_version(self) -> bool:
        """Whether the top has an `apiVersion` with a value."""
        return any(key == "apiVersion" and value for key, value in self.top)

    @property
    def resembles(self) -> bool:
        """Whether the top has keys that every document of one kind has."""
        keys = {key for key, _ in self.top}
        return any(len(keys & required) >= _FEWEST_KEYS for required in _REQUIRED)


def outline_of(content: bytes) -> Outline | None:
    """The outline of a text in YAML or JSON; None where it cannot be read. Nothing is built from it, no alias followed.

    >>> outline_of(b"image: trainspec/v1").top, outline_of(b"a: [")
    ([('image', 'trainspec/v1')], None)
    """
    found = Outline()
    try:
        for depth, key, value in _scalars(content.decode("utf-8-sig"), found):
            if depth == 1:
                found.top.append((key, value))
            elif key == "apiVersion":
                found.versions.append(value)
            if "\n" in value and _HELD.search(value):
                found.has_held = True
    except (yaml.YAMLError, UnicodeDecodeError):
        return None
    return found if found.num_mappings else None


def why_foreign(content: bytes, is_ours: IsOurs) -> str | None:
    """Why a text that mentions TrainSpec is not ours, empty where it holds nothing of ours; None where it may be."""
    outline = outline_of(content)
    if outline is None and _is_template_of_another(content, is_ours):
        return ""
    if outline is None or outline.names_ours(is_ours) or any(map(is_ours, outline.versions)):
        return None
    return HELD if outline.has_held else ""


def _is_template_of_another(content: bytes, is_ours: IsOurs) -> bool:
    """Whether a text has placeholders, no kind of ours, and no version that is ours or is filled in."""
    text = content.decode("utf-8", "replace")
    stated = [found["version"] for found in islice(_STATED.finditer(text), _MOST_STATED)]
    holes = [mark for mark in _TEMPLATE if mark in text]
    return bool(holes) and not any(
        version is None or is_ours(version) or any(mark in version for mark in _TEMPLATE) for version in stated
    )


def why_other(content: bytes) -> str | None:
    """Why a text with the name of a document is not ours, empty where it names its own program; None for the rest."""
    outline = outline_of(content)
    if outline is None or outline.resembles:
        return None
    return "" if outline.names_version else NOT_OURS


def _is_version_key(key: str) -> bool:
    return SequenceMatcher(None, key.lower().replace("_", ""), _VERSION_KEY, autojunk=False).ratio() > _ALIKE


def _scalars(text: str, found: Outline) -> Iterator[tuple[int, str, str]]:
    """Every key with its value, empty for a mapping or list, and how many collections they are in."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    stack: list[str | None] = []
    """For every open collection the key whose value comes next; None for a list, and empty where a key comes."""
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
            continue
        is_start = isinstance(event, yaml.CollectionStartEvent)
        if not is_start and not isinstance(event, yaml.NodeEvent):
            continue
        value = event.value if isinstance(event, yaml.ScalarEvent) else ""
        if stack and stack[-1] == "" and not is_start:
            stack[-1] = value or "?"
        else:
            yield len(stack), (stack[-1] or "") if stack else "", value
            if stack and stack[-1] is not None:
                stack[-1] = ""
        if is_start:
            found.num_mappings += not stack and isinstance(event, yaml.MappingStartEvent)
            stack.append("" if isinstance(event, yaml.MappingStartEvent) else None)
