"""Finds files of a tree that a search for documents passes over and that may be documents: hidden, linked, renamed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainspec_validate.pipeline.archives import documents_in, packed_documents
from trainspec_validate.pipeline.claims import claimed, claims, names_kind
from trainspec_validate.pipeline.files import SKIPPED_DIRECTORIES, is_document_name, is_stream_name, may_be_renamed
from trainspec_validate.pipeline.layers import NotFollowedError
from trainspec_validate.pipeline.links import link_reason
from trainspec_validate.pipeline.overlooked import (
    CHECK_OUT,
    NO_SUBMODULE,
    PACKED_DOCUMENT,
    is_of_a_tool,
    is_packed_document,
    packed_reason,
    why_not_looked_into,
)
from trainspec_validate.pipeline.texts import Text
from trainspec_validate.system.budget import Count, Limit, OverLimitError
from trainspec_validate.system.packings import is_archive
from trainspec_validate.system.repository import absent_submodules, absent_submodules_below

MAX_ENTRIES = Limit("a search for files that are passed over", 200_000, "files and directories")
_COPY: Final = "put the files themselves there"
_UNPACK: Final = "unpack it"


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A file or a link that was not read."""

    path: Path
    reason: str
    text: Text | None = None
    """Kind of its content; None for a link, which is not followed, and for a submodule without its files."""
    has_own_name: bool = False
    """Whether the name is one of a document, or of what is kept next to one."""
    remedy: str = ""
    """Action by which it is judged; empty where its name is enough."""


def passed_over(root: Path, read: Collection[str]) -> Iterator[PassedOver]:
    """Entries that a search below `root` leaves out; `read` are the real paths of what it read.

    Raises:
        OverLimitError: there are too many files.
    """
    top = os.path.realpath(root)
    num_entries = Count(MAX_ENTRIES)
    pending = [(root, "")]
    yield from map(_submodule, absent_submodules_below(root))
    while pending:
        parent, reason = pending.pop()
        yield from map(_submodule, absent_submodules(parent))
        for entry in _entries(parent):
            num_entries.add(1)
            path = Path(parent, entry.name)
            own_reason = reason or _reason(entry.name)
            if entry.is_symlink():
                yield from _link(path, top) if not own_reason else ()
            elif entry.is_dir(follow_symlinks=False):
                pending += [] if is_of_a_tool(entry) else [(path, own_reason)]
            elif entry.is_file(follow_symlinks=False):
                yield from _file(path, own_reason, read)


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []  # the search itself says so


def _reason(name: str) -> str:
    if name.startswith("."):
        return "is hidden by a name that begins with a dot"
    return f"is below {name}" if name in SKIPPED_DIRECTORIES else ""


def _submodule(place: Path) -> PassedOver:
    return PassedOver(place, NO_SUBMODULE, remedy=CHECK_OUT)


def _link(link: Path, top: str) -> Iterator[PassedOver]:
    """A link out of the tree; what it leads to inside is looked at under its own name."""
    target = os.path.realpath(link)
    if target == top or target.startswith(top + os.sep):
        if not os.path.lexists(target) and is_document_name(link.name):
            yield PassedOver(link, link_reason(link), remedy="correct the link, or remove it")
    elif os.path.isdir(target):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        yield PassedOver(link, "is a link to a directory elsewhere, which is not followed", remedy=_COPY)
    elif is_document_name(link.name):
        yield PassedOver(link, link_reason(link), remedy=_COPY)


def _file(path: Path, reason: str, read: Collection[str]) -> Iterator[PassedOver]:
    if os.path.realpath(path) in read or (is_document_name(path.name) and not reason):
        return
    if is_packed_document(path.name):
        why, start = packed_reason(path)
        if why and (start or not reason):
            yield PassedOver(
                path, reason or why, Text(path, start) if start else None, has_own_name=True, remedy=_UNPACK
            )
        return
    if is_archive(path.name):
        yield from _archive(path, reason)
        return
    try:
        packed = None if is_stream_name(path.name) else packed_documents(path)
    except (OverLimitError, NotFollowedError) as error:
        yield PassedOver(path, why_not_looked_into(error), remedy=_UNPACK)
        return
    for name, content in packed or ():
        why = reason or (f"is {name!r} in an archive" if name else PACKED_DOCUMENT)
        yield PassedOver(path, why, Text(path, content), has_own_name=True, remedy=_UNPACK)
    text = Text(path, claimed(path) if packed is None else b"")
    if text.content:
        is_wide = b"\0" in text.content and names_kind(text.content)  # no reader of text parses it
        has_own_name = is_document_name(path.name) or may_be_renamed(path.name) or is_wide
        yield PassedOver(path, reason or "has a name that is not searched", text, has_own_name)


def _archive(path: Path, reason: str) -> Iterator[PassedOver]:
    """The documents of ours in an archive, or the archive itself where it cannot be looked at."""
    from trainspec_validate.checkpoints.format_table import ARCHIVE  # noqa: PLC0415 - start-up

    found = documents_in(path)
    if found is None and not reason:
        yield PassedOver(path, ARCHIVE, remedy=_UNPACK)
    for name, content in found or ():
        if claims(content):
            why = reason or f"is {name!r} in an archive"
            yield PassedOver(path, why, Text(path, content), has_own_name=True, remedy=_UNPACK)
