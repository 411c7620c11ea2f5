"""Says whether a text that mentions TrainSpec is, as a whole, one of another program."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import SequenceMatcher
from itertools import islice
from typing import Final

from trainspec_validate.documents.load.outline import ALIAS, MAX_VALUES, outline_of
from trainspec_validate.documents.types import KINDS

HELD: Final = "holds a document in a text of another program"
NOT_OURS: Final = "has the name of a document, and neither its apiVersion nor its keys"
NO_HEAD: Final = f"names TrainSpec, and none of its first {MAX_VALUES:,} keys and values is a version or kind of it"
REMEDIES: Final = {
    NO_HEAD: "write apiVersion and kind first",
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
_VERSION_LINE: Final = re.compile(rb"^[\"']?apiVersion[\"']?[ \t]*+:[ \t]*+[\"']?trainspec/", re.MULTILINE)
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


def why_foreign(content: bytes, is_ours: IsOurs) -> str | None:
    """Why a text that mentions TrainSpec is not ours, empty where it holds nothing of ours; None where it may be."""

    def names_ours(key: str, value: str) -> bool:
        return _names_ours(key, value, is_ours)

    has_holes = any(mark.encode() in content for mark in _TEMPLATE)  # one that cannot be read may be of another program
    outline = outline_of(content, None if has_holes else names_ours)
    if outline is None:
        return "" if _is_template_of_another(content, is_ours) else None
    if any(names_ours(key, value) for key, value in outline.top):
        return None
    if any(key == "apiVersion" and is_ours(value) for key, value in outline.inside):
        return None
    if outline.is_cut:
        return None if _VERSION_LINE.search(content) else NO_HEAD
    texts = (text for pair in outline.inside + outline.top for text in pair)
    return HELD if any("\n" in text and _HELD.search(text) for text in texts) else ""


def _names_ours(key: str, value: str, is_ours: IsOurs) -> bool:
    """Whether a key at the top names a version or a kind of ours, be it with a slip in the key."""
    is_unknown = value.startswith(ALIAS)  # an alias of no anchor, which no reader of YAML takes
    return (key == "kind" and value in KINDS) or (_is_version_key(key) and (is_unknown or is_ours(value)))


def _is_template_of_another(content: bytes, is_ours: IsOurs) -> bool:
    """Whether a text has placeholders, no kind of ours, and no version that is ours or is filled in."""
    text = content.decode("utf-8", "replace")
    stated = [found["version"] for found in islice(_STATED.finditer(text), _MOST_STATED)]
    holes = [mark for mark in _TEMPLATE if mark in text]
    return bool(holes) and not any(
        version is None or is_ours(version) or any(mark in version for mark in (ALIAS, *_TEMPLATE))
        for version in stated
    )


def why_other(content: bytes) -> str | None:
    """Why a text with the name of a document is not ours, empty where it names its own program; None for the rest."""
    outline = outline_of(content)
    keys = {key for key, _ in outline.top} if outline else set()
    if outline is None or any(len(keys & required) >= _FEWEST_KEYS for required in _REQUIRED):
        return None
    return "" if any(key == "apiVersion" and value for key, value in outline.top) else NOT_OURS


def has_our_kind(content: bytes) -> bool:
    """Whether a text has a kind of ours at the top, in whatever way YAML can write it."""
    outline = outline_of(content)
    return outline is not None and any(key == "kind" and value in KINDS for key, value in outline.top)


def has_our_keys(content: bytes) -> bool:
    """Whether a text whose version is not ours has a kind of ours and keys that each document of a kind has."""
    outline = outline_of(content)
    if outline is None or not any(key == "kind" and value in KINDS for key, value in outline.top):
        return False
    keys = {key for key, _ in outline.top}
    return any(len(keys & required) >= _FEWEST_KEYS for required in _REQUIRED)


def _is_version_key(key: str) -> bool:
    return SequenceMatcher(None, key.lower().replace("_", ""), _VERSION_KEY, autojunk=False).ratio() > _ALIKE
