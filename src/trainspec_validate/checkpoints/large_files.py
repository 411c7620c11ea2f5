"""Recognizes the pointers that Git leaves in place of files where Git LFS did not fetch them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trainspec_validate.checkpoints.opening import open_file
from trainspec_validate.checkpoints.view import Checkpoint, FileFact

START: Final = b"version https://git-lfs.github.com/spec/v1\n"
"""First line of a pointer: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md."""
_MOST_BYTES: Final = 1_024
"""A pointer has fewer bytes."""
WORDS: Final = "a Git LFS pointer is in place of the file; run git lfs pull"
_MOST_NAMED: Final = 3
_OTHERS: Final = (
    *(".md", ".rst", ".html", ".ipynb", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".mp4", ".wav"),
    *(".csv", ".tsv", ".jsonl", ".parquet", ".arrow", ".gz", ".tar", ".zip"),
)
"""Ends of names of documentation, media and data, which no loader of a checkpoint opens."""


def report_pointers(checkpoint: Checkpoint) -> None:
    """Report pointers in place of files that loaders open once, instead of all that readers made of their texts.

    Loaders open more than state: the configuration and the tokenizer too.
    """
    doubted = {*(trouble.path for trouble in checkpoint.troubles), *checkpoint.unread, *checkpoint.doubts}
    found = [
        path
        for path, fact in checkpoint.files.items()
        if (path in doubted or not path.lower().endswith(_OTHERS)) and _is_pointer(checkpoint.root / path, fact)
    ]
    if not found:
        return
    checkpoint.forget(frozenset(found))
    if not checkpoint.formats:
        checkpoint.formats.append("Git LFS pointers")
    checkpoint.pointers = tuple(found)
    for path in found:
        checkpoint.report("container", path, WORDS)


def in_words(checkpoint: Checkpoint) -> str:
    """All pointers of a checkpoint that has several, with their number and the first names."""
    found = checkpoint.pointers
    more = f" and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
    names = ", ".join(found[:_MOST_NAMED]) + more
    return f"Git LFS pointers are in place of {len(found):,} files: {names}; run git lfs pull"


def _is_pointer(path: Path, fact: FileFact) -> bool:
    if fact.kind != "file" or not len(START) <= fact.size_bytes < _MOST_BYTES:
        return False
    try:
        with open_file(path) as file:
            return file.read(len(START)) == START
    except OSError:
        return False
