"""Recognises what an interrupted write of a manifest or of a signature left in a checkpoint, for `seal` and `verify`.

Each is written under a name that no other program uses (`atomic`), and renamed when it is whole. A write that was
interrupted leaves the first part of such a file under that name; it makes no checkpoint wrong, and hides nothing else.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, read_small
from trainspec_validate.checkpoints.view import MANIFEST_NAME, SIGNATURE_NAME, Checkpoint, FileFact

_STARTS = {
    MANIFEST_NAME: '{\n "apiVersion": "trainspec/v1",\n "kind": "CheckpointManifest",\n "save_id": "',
    SIGNATURE_NAME: '{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "verificationMaterial": {',
}
_OLD = "|".join(re.escape(name) for name in _STARTS)
_NAME = re.compile(rf"\.trainspec-[0-9a-f]{{16}}|(?:{_OLD})\.tmp")
"""The second form is that of releases before 0.2, which wrote through a name that is always the same."""
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def leftovers(checkpoint: Checkpoint) -> list[str]:
    """Files that an interrupted seal has left: by their exact names, and with a first part of what it writes."""
    return [path for path, fact in checkpoint.tree.items() if is_leftover(checkpoint.root, fact)]


def is_leftover(root: Path, fact: FileFact) -> bool:
    """Whether an entry is the first part of a manifest or of a signature, and can be nothing else."""
    if _NAME.fullmatch(fact.path) is None or fact.kind != "file":
        return False
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(read_small(root / fact.path))
    except (LimitError, UnreadableError, UnicodeDecodeError):
        return False
    is_start = any(text.startswith(start) or start.startswith(text) for start in _STARTS.values())
    return is_start and not _CONTROL.search(text)
