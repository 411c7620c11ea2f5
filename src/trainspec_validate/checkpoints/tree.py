"""Lists every entry below a checkpoint directory, for the manifest that covers all of them. No link is followed.

Pipes, sockets, devices and links are named and never opened. An entry that cannot be listed is named too, so that a
manifest never vouches for a part of a tree as if it were the whole.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

from trainspec_validate.checkpoints.hub_cache import blob_of
from trainspec_validate.checkpoints.limits import DEPTH, ENTRIES
from trainspec_validate.checkpoints.view import Aspect, Checkpoint, FileFact
from trainspec_validate.system.boundary import reason_of
from trainspec_validate.system.budget import Count, OverLimitError
from trainspec_validate.system.process import memory_of_the_machine

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


@dataclass(slots=True)
class Tree:
    """Entries below a directory."""

    files: dict[str, FileFact] = field(default_factory=dict)
    """Every entry that is no directory, by its path."""
    folders: tuple[str, ...] = ()
    """Every directory."""
    empty_folders: tuple[str, ...] = ()
    """Directories without any entry."""
    unlisted: list[tuple[Aspect, str, str]] = field(default_factory=list)
    """Entry that could not be listed: the aspect, the path and the reason."""


def walk(root: Path) -> Tree:
    """List everything below a directory, hidden entries included."""
    tree = Tree()
    folders: list[str] = []
    empty: list[str] = []
    num_entries = Count(ENTRIES)
    pending = [("", 0)]
    while pending:
        folder, depth = pending.pop()
        try:
            with memory_of_the_machine():
                entries = _entries(root / folder, may_be_link=not folder)
        except OSError as error:
            words = f"the directory cannot be listed: {reason_of(error)}"
            tree.unlisted.append(("container", folder, words))
            continue
        try:
            num_entries.add(len(entries))
            DEPTH.check(depth)
        except OverLimitError as error:
            tree.unlisted.append(("limits", "", f"the directory was not listed to its end: {error}"))
            break
        if not entries and folder:
            empty.append(folder)
        for name, is_folder in entries:
            path = f"{folder}/{name}" if folder else name
            if is_folder:
                folders.append(path)
                pending.append((path, depth + 1))
            elif fact := fact_of(root / path, path):
                tree.files[path] = fact
    tree.folders, tree.empty_folders = tuple(sorted(folders)), tuple(sorted(empty))
    tree.files = dict(sorted(tree.files.items()))
    return tree


def _entries(directory: Path, *, may_be_link: bool) -> list[tuple[str, bool]]:
    """Names in a directory, and which of them are directories.

    Raises:
        OSError: it cannot be listed, or is a link by now.
    """
    descriptor = os.open(directory, _FOLDER if may_be_link else _FOLDER | _NO_FOLLOW)
    try:
        with os.scandir(descriptor) as entries:
            found = islice(entries, int(ENTRIES.most) + 1)
            return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in found)
    finally:
        os.close(descriptor)


def fact_of(place: Path, path: str) -> FileFact | None:
    """Entry at a place; None where there is nothing any more."""
    try:
        status = place.lstat()
        target = str(place.readlink()) if stat.S_ISLNK(status.st_mode) else ""
        blob = blob_of(place) if target else None
        if blob is not None:  # the link of a cache is the file that it leads to
            status = blob.lstat()
    except OSError:
        return None
    kind: Literal["file", "link", "special"] = "file" if stat.S_ISREG(status.st_mode) else "special"
    if stat.S_ISLNK(status.st_mode):
        return FileFact(path, "link", 0, status.st_mtime_ns, target)
    return FileFact(path, kind, status.st_size, status.st_mtime_ns, target, (status.st_ino, status.st_ctime_ns))


def irregular(root: Path, fact: FileFact) -> tuple[str, str]:
    """Why an entry may not be in a checkpoint even where no one vouches for it, and the remedy; empty if it may."""
    if fact.kind == "special":
        return "this is a pipe, a socket or a device, which is not opened", "a checkpoint holds regular files only"
    if fact.kind == "link":
        real_root, end = os.path.realpath(root), os.path.realpath(root / fact.path)
        if not os.path.exists(end):  # noqa: PTH110 - Path.exists raises for a name that is too long
            return f"the link to {fact.target!r} leads nowhere", "copy the file into the checkpoint, or remove the link"
        if os.path.commonpath([real_root, end]) != real_root:
            return f"the link leads to {fact.target!r}, outside the checkpoint", "copy the file into the checkpoint"
    return "", ""


def changes(checkpoint: Checkpoint, ignored: Collection[str]) -> Iterator[tuple[str, str]]:
    """Entries below a checkpoint that are not what they were when it was listed, and in which way.

    Args:
        checkpoint: as it was listed.
        ignored: paths that may change.
    """
    now = walk(checkpoint.root)
    for path in sorted(checkpoint.tree.keys() | now.files.keys()):
        if path not in ignored and checkpoint.tree.get(path) != now.files.get(path):
            yield path, "the file changed while the checkpoint was read"
    for folder in sorted({*checkpoint.empty_folders} ^ {*now.empty_folders}):
        yield folder, "the directory changed while the checkpoint was read"
    yield from ((path, words) for _, path, words in now.unlisted if (path, words) not in checkpoint.unlisted)
