"""Recognises what an interrupted write of a manifest or of a signature left in a checkpoint.

Each is written under a name that no other program uses (`atomic`), and renamed when it is whole. A write that was
interrupted leaves the first part of such a file under that name. The next seal leaves it out of the manifest. It makes
a checkpoint wrong unless it repeats the manifest or the signature that belongs there: then it hides nothing.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from trainspec_validate.checkpoints import signature
from trainspec_validate.checkpoints.limits import ENTRIES
from trainspec_validate.checkpoints.opening import UnreadableError, read_small
from trainspec_validate.checkpoints.tree import fact_of
from trainspec_validate.checkpoints.view import MANIFEST_NAME, SIGNATURE_NAME, Checkpoint, FileFact

_STARTS = {
    MANIFEST_NAME: '{\n "apiVersion": "trainspec/v1",\n "kind": "CheckpointManifest",\n "save_id": "',
    SIGNATURE_NAME: '{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "verificationMaterial": {',
}
_OLD = "|".join(re.escape(name) for name in _STARTS)
_NAME = re.compile(rf"\.trainspec-[0-9a-f]{{16}}|(?:{_OLD})\.tmp")
"""The second form is that of releases before 0.2, which wrote through a name that is always the same."""
_FREE = re.compile(
    r'("save_id": "[0-9a-f]{1,32}|"created": "[0-9T:Z-]{1,20}|"hint": "[0-9a-f]{1,64}'
    r'|"sig": "[0-9A-Za-z+/=]{0,200})("|\Z)'
)
"""What is another each time that the same files are sealed and signed, up to its end or to that of the text."""
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def leftovers(checkpoint: Checkpoint) -> list[str]:
    """Files that an interrupted seal has left: by their exact names, and with a first part of what it writes."""
    return [path for path, fact in checkpoint.tree.items() if _start(checkpoint.root, fact) is not None]


def forgiven(checkpoint: Checkpoint) -> list[str]:
    """Those of them that are empty, or repeat the manifest or the signature of the files that are there."""
    found = {path: _start(checkpoint.root, fact) for path, fact in checkpoint.tree.items()}
    starts = {path: text for path, text in found.items() if text is not None}
    if not starts or checkpoint.manifest is None:
        return []
    known = [_bare(text) for text in _written(checkpoint)]
    return [path for path, text in starts.items() if any(whole.startswith(_bare(text)) for whole in known)]


def broken_seals(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """Those of them, with what to do about each in words; for files side by side those of their directory."""
    facts = checkpoint.tree.values() if not checkpoint.is_bundle else _facts_of(checkpoint.root)
    words = "left by an interrupted seal; seal the checkpoint again, or remove the file"
    yield from ((fact.path, words) for fact in facts if _start(checkpoint.root, fact) is not None)


def _facts_of(root: Path) -> list[FileFact]:
    with os.scandir(root) as entries:
        names = [entry.name for entry in islice(entries, int(ENTRIES.most)) if _NAME.fullmatch(entry.name)]
    return [fact for name in sorted(names) if (fact := fact_of(root / name, name)) is not None]


def _start(root: Path, fact: FileFact) -> str | None:
    """The text of an entry that is the first part of a manifest or of a signature; None of any other."""
    if _NAME.fullmatch(fact.path) is None or fact.kind != "file":
        return None
    text = _text(root / fact.path)
    if text is None or _CONTROL.search(text):
        return None
    return text if any(text.startswith(start) or start.startswith(text) for start in _STARTS.values()) else None


def _text(path: Path) -> str | None:
    """The text of a file, without a last character that is cut; None where it is no text or cannot be read."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(read_small(path))
    except (UnreadableError, UnicodeDecodeError):
        return None


def _written(checkpoint: Checkpoint) -> list[str]:
    """What a seal has written, or would write, for the files as the manifest says them."""
    expected = json.dumps(signature.bundle(signature.statement(checkpoint), b"", "0" * 64)) + "\n"
    there = (_text(checkpoint.root / name) for name in _STARTS if name in checkpoint.files)
    return [expected, *(text for text in there if text is not None)]


def _bare(text: str) -> str:
    """A text without what may differ; a value that is cut is left out."""

    def kept(found: re.Match[str]) -> str:
        return found[1][: found[1].index(": ") + 3] + found[2]

    return _FREE.sub(kept, text)
