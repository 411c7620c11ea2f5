"""Writes the manifest and the signature of a checkpoint, and recognises what an interrupted write of one left behind.

Each is written under a name that no other program uses, and renamed when it is whole. A write that was interrupted
leaves the first part of such a file under that name; it makes no checkpoint wrong, and hides nothing else.
"""

from __future__ import annotations

import codecs
import os
import re
import secrets
from pathlib import Path

from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, read_small
from trainspec_validate.checkpoints.view import MANIFEST_NAME, SIGNATURE_NAME, Checkpoint, FileFact

_STARTS = {
    MANIFEST_NAME: '{\n "apiVersion": "trainspec/v1",\n "kind": "CheckpointManifest",\n "save_id": "',
    SIGNATURE_NAME: '{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "verificationMaterial": {',
}
_KINDS = "|".join(re.escape(name) for name in _STARTS)
_NAME = re.compile(rf"^(?:\.(?P<kind>{_KINDS})\.[0-9a-f]{{16}}|(?P<old>{_KINDS}))\.tmp$")
"""The second form is that of releases before 0.2, which wrote through a name that is always the same."""
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def write_whole(path: Path, text: str) -> None:
    """Put a text into a file, whole or not at all, and through no link.

    Raises:
        OSError: it cannot be written.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        with os.fdopen(os.open(new, flags, 0o666), "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def leftovers(checkpoint: Checkpoint) -> list[str]:
    """Files that an interrupted seal has left: by their exact names, and with a first part of what it writes."""
    return [path for path, fact in checkpoint.tree.items() if is_leftover(checkpoint.root, fact)]


def is_leftover(root: Path, fact: FileFact) -> bool:
    """Whether an entry is the first part of a manifest or of a signature, and can be nothing else."""
    match = _NAME.match(fact.path)
    if match is None or fact.kind != "file":
        return False
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(read_small(root / fact.path))
    except (LimitError, UnreadableError, UnicodeDecodeError):
        return False
    start = _STARTS[match["kind"] or match["old"]]
    return (text.startswith(start) or start.startswith(text)) and not _CONTROL.search(text)
