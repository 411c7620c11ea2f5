"""Finds the checkpoints among the named paths, and has each series of them judged."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainspec_validate.boundary import UnreadableError, unreadable, untrusted
from trainspec_validate.checkpoints.view import MANIFEST_NAME, Checkpoint
from trainspec_validate.collect import STREAM_SUFFIXES, SUFFIXES
from trainspec_validate.engine import Binding
from trainspec_validate.findings import DocumentSummary, Finding, Outcome
from trainspec_validate.requirements import Index
from trainspec_validate.selection import Selection
from trainspec_validate.streamed import Streams, belonging

if TYPE_CHECKING:
    from trainspec_validate.checkpoints.inventory import Group

_TEXTS = (*SUFFIXES, *STREAM_SUFFIXES)
"""Ends of names of documents and streams, which are no checkpoints."""


@dataclass(slots=True)
class Stored:
    """The checkpoints of the set, and what came of them."""

    progress: Callable[[int, int], None] | None = None
    """Called with what was done so far and all there is to do."""
    reads_values: bool = False
    """Whether the values of tensors are read too."""
    groups: dict[str, Group] = field(default_factory=dict)
    """By real path of the directory that holds them."""
    members: set[Path] = field(default_factory=set)
    """Every checkpoint directory."""
    files: set[str] = field(default_factory=set)
    """Files, or what names of files have in common, that were named and are a checkpoint."""
    arguments: set[str] = field(default_factory=set)
    """Directories that were named and hold some."""
    findings: list[Finding] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    documents: list[DocumentSummary] = field(default_factory=list)

    @property
    def paths(self) -> frozenset[str]:
        """The directories and files that were judged."""
        return frozenset(document.path for document in self.documents)

    def find(self, argument: str) -> list[str]:
        """Note the checkpoints at or below a directory, or the one in a file; returns what could not be searched."""
        if not os.path.isdir(argument):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
            self._take(argument)
            return []
        from trainspec_validate.checkpoints.inventory import find  # noqa: PLC0415
        from trainspec_validate.checkpoints.limits import ENTRIES  # noqa: PLC0415

        failures = []
        try:
            with untrusted(unreadable(argument)):
                groups = list(find(Path(argument)))
        except UnreadableError as error:
            return [str(error)]
        for group in groups:
            if group.is_cut:
                words = f"{argument}: more than {ENTRIES.most:,} files are below; not all was searched for checkpoints"
                failures.append(f"{words}, name their directories")
            if group.members:
                self.groups.setdefault(os.path.realpath(group.root), group)
                self.members.update(group.members)
                self.arguments.add(argument)
        return failures

    def _take(self, argument: str) -> None:
        """Note a checkpoint that is no directory; what cannot be looked at is told by whoever reads it as a file."""
        if argument.endswith(_TEXTS):
            return
        from trainspec_validate.checkpoints.inventory import find_named  # noqa: PLC0415

        with contextlib.suppress(UnreadableError), untrusted(unreadable(argument)):
            group = find_named(Path(argument))
            if group is not None:
                self.groups.setdefault(os.path.realpath(group.root), group)
                self.files.add(argument)

    def holds(self, path: Path) -> bool:
        """Whether a file that was found belongs to a checkpoint and is no document of its own."""
        return path.parent in self.members and path.name == MANIFEST_NAME


def judge_stored(
    stored: Stored,
    selection: Selection,
    index: Index,
    bound: Iterable[Binding],
    streams: Streams,
) -> list[str]:
    """Judge every series of checkpoints; returns what could not be read.

    A kind of document counts where there is one of it, or where the only plan or policy refers to one of several.
    """
    from trainspec_validate.checkpoints.judge import judge_series  # noqa: PLC0415
    from trainspec_validate.checkpoints.read import read_group  # noqa: PLC0415

    wanted = [r for r in index.by_id.values() if r.check == "artifact" and selection.takes(index, r.id)]
    beside = belonging({kind: member.document for kind, member in binding.items()} for binding in bound)
    total = sum(len(group.members) + len(wanted) for group in stored.groups.values())
    done = 0
    saved = streams.saved[0] if len(streams.saved) == 1 else None

    def seen() -> None:
        nonlocal done
        done += 1
        if stored.progress:
            stored.progress(done, total)

    failures: list[str] = []
    for group in stored.groups.values():
        try:
            with untrusted(unreadable(group.root.as_posix())):
                series = read_group(group, saved, seen, reads_values=stored.reads_values)
        except UnreadableError as error:
            failures.append(str(error))
            continue
        judgement = judge_series(series, wanted, index, beside, seen)
        stored.findings += judgement.findings
        stored.outcomes += judgement.outcomes
        stored.documents += (_summary(one, reads_values=stored.reads_values) for one in series.checkpoints)
    return failures


def _summary(checkpoint: Checkpoint, *, reads_values: bool) -> DocumentSummary:
    from trainspec_validate.checkpoints.values import share_read  # noqa: PLC0415

    formats = ", ".join(dict.fromkeys(checkpoint.formats)) or "of no known format"
    if reads_values:
        formats += f"; {share_read(checkpoint)}"
    return DocumentSummary(checkpoint.name, "Checkpoint", formats)
