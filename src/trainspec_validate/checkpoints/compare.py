"""Compares the files of a checkpoint with its manifest."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.checkpoints.hashing import Progress, digests
from trainspec_validate.checkpoints.leftovers import forgiven
from trainspec_validate.checkpoints.paths import fault, leads_to_any
from trainspec_validate.checkpoints.tree import changes, irregular
from trainspec_validate.checkpoints.view import MANIFEST_NAME, SIGNATURE_NAME, Checkpoint
from trainspec_validate.documents.types import SealedFile
from trainspec_validate.system.boundary import reason_of

_SHOWN_DIGITS = 12


def _listed(checkpoint: Checkpoint) -> Iterator[SealedFile]:
    """The files of the manifest whose paths may be joined to the directory."""
    if checkpoint.manifest:
        yield from (file for file in checkpoint.manifest.files if not fault(file.path))


def absent_files(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """Listed files and directories that are not there as the manifest says, and in which way."""
    for file in _listed(checkpoint):
        fact = checkpoint.tree.get(file.path)
        if fact is None:
            yield file.path, f"the manifest lists this file with {file.size_bytes:,} bytes, and it is missing"
        elif fact.kind != "file":
            yield file.path, "the manifest lists this file, and there is a link or something else in its place"
        elif fact.size_bytes != file.size_bytes:
            yield file.path, f"the file has {fact.size_bytes:,} bytes, and the manifest says {file.size_bytes:,}"
    there = set(checkpoint.tree_folders)
    for path in checkpoint.manifest.empty_folders if checkpoint.manifest else ():
        if path not in there and not fault(path):
            yield path, "the manifest lists this directory, and it is missing"


def comparable(checkpoint: Checkpoint) -> dict[str, str]:
    """Digests of the listed files that have the right size."""
    wrong = {path for path, _ in absent_files(checkpoint)}
    return {file.path: file.sha256 for file in _listed(checkpoint) if file.path not in wrong}


def changed_files(checkpoint: Checkpoint, progress: Progress | None = None) -> Iterator[tuple[str, str]]:
    """Listed files of the right size whose content is another, or cannot be read."""
    wanted = comparable(checkpoint)
    for path, found in digests(checkpoint.root, wanted, progress).items():
        if isinstance(found, OSError):
            yield path, f"the file cannot be read: {reason_of(found)}"
        elif found != wanted[path]:
            shown = f"SHA-256 is {found[:_SHOWN_DIGITS]}…, and the manifest says {wanted[path][:_SHOWN_DIGITS]}…"
            yield path, f"the content is not what was sealed: {shown}"


def unlisted_files(checkpoint: Checkpoint, *, is_strict: bool = False) -> Iterator[tuple[str, str]]:
    """Entries in the directory, at any depth, that the manifest does not cover, in words.

    Args:
        checkpoint: with its manifest.
        is_strict: report what an interrupted seal has left too, even where it only repeats the manifest.
    """
    if checkpoint.manifest is None:
        return
    listed = checkpoint.sealed
    known = {*listed, *checkpoint.manifest.unsealed, MANIFEST_NAME, SIGNATURE_NAME}
    passed = set() if is_strict else {*forgiven(checkpoint)}
    for path, fact in checkpoint.tree.items():
        if path not in known and path not in passed:
            yield path, "the manifest does not list this file"
        elif path not in listed and path not in checkpoint.files:
            yield from ((path, words) for words, _ in [irregular(checkpoint.root, fact)] if words)
    folders, paths = {*checkpoint.manifest.empty_folders}, sorted(known)
    for path in checkpoint.empty_folders:
        if path not in folders and not leads_to_any(path, paths):
            yield path, "the manifest does not list this directory"


def changed_meanwhile(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """Covered files and directories that are not what they were when the checkpoint was listed."""
    if checkpoint.manifest:
        yield from changes(checkpoint, {*checkpoint.manifest.unsealed, *forgiven(checkpoint)})
