"""Judges streams that are still being written: the new part of their files, again and again."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from trainspec_validate.documents.types import Document
from trainspec_validate.documents.types.stream import Head
from trainspec_validate.model.finding import CheckResult, Finding
from trainspec_validate.model.requirements import Index, Requirement
from trainspec_validate.system.boundary import open_regular, untrusted
from trainspec_validate.telemetry.decode.batch import Batch, in_order, join
from trainspec_validate.telemetry.decode.reader import decoder_of
from trainspec_validate.telemetry.decode.rows import RowBuilder
from trainspec_validate.telemetry.decode.run_file import NATIVE, RunFile
from trainspec_validate.telemetry.fold.build import view_of
from trainspec_validate.telemetry.fold.digest import Digest
from trainspec_validate.telemetry.fold.engine import Options, circumstances, run_file
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.native import MAX_LINE_BYTES, read_line
from trainspec_validate.telemetry.formats.source import MAX_RECORD_BYTES, Block, SourceError, blocks, head_of
from trainspec_validate.telemetry.judge import judge_view
from trainspec_validate.telemetry.waiting import waits

_PIECE_BYTES: Final = 1_000_000
_ANEW: Final = "what was read counts, the rest is not judged; run the command again"
_REPLACED: Final = f"another file has taken the place of the one that was followed; {_ANEW}"
_MOST_ENTRIES: Final = 10_000
_FEWEST_LOOKS: Final = 2
"""Looks from which the time of a file counts: it may be that of a machine whose clock is wrong."""
_NEWEST: Final = 0.2
"""Weight of the newest time between two growths of a file."""
_USUAL_US: Final = 10_000_000
"""Between two looks that find something new in a file, where nothing holds records back."""
OTHER_FORMAT: Final = "its format is"
"""Begins why a file of another program is not followed."""
Kind = tuple[str, str, str]
"""Identity of a finding while its numbers grow and its line moves: requirement, file and series."""


@dataclass(slots=True)
class _Followed:
    """One file, and how far it was read."""

    file: RunFile
    decode: Callable[[Block], Batch]
    status: os.stat_result
    is_link: bool = False
    """Whether its name was one of a link when it was first read."""
    read: tuple[int, Any] = field(default_factory=lambda: (0, blake2b(digest_size=16)))
    """Bytes that were read, whole lines, and their hash: one value, since a signal can come between two."""
    state: tuple[int, int, int] = (0, 0, 0)
    """Its size and times as of the last look."""
    num_same: int = 0
    """Looks in a row that found it in the same state."""
    judged_bytes: int = 0
    last_us: int = -1
    """Time of its last record; not the newest one, since a clock can be set back."""
    grown_us: int = -1
    """When it was last seen to have grown."""
    num_growths: int = 0
    num_looks: int = 0
    usual_us: float = 0.0
    """Mean time between two growths, the newest ones first."""

    def idle_us(self, now_us: int) -> int:
        """Time since it last grew: by our clock, or by that of the file system where it was not yet seen to grow."""
        if self.num_growths > 1 or self.num_looks < _FEWEST_LOOKS:
            return now_us - self.grown_us
        return now_us - min(self.status.st_mtime_ns // 1_000, self.grown_us)

    def grows(self, now_us: int, new: Sequence[Batch]) -> None:
        """Note that records were read, at the time of the look."""
        self.num_growths += 1
        self.last_us = next((int(batch.time_us[-1]) for batch in reversed(new) if len(batch.time_us)), self.last_us)
        if self.grown_us >= 0:
            self.usual_us += (now_us - self.grown_us - self.usual_us) * (_NEWEST if self.usual_us else 1.0)
        self.grown_us = now_us

    @property
    def offset(self) -> int:
        """Bytes that were read: whole lines."""
        return self.read[0]

    def news(self) -> list[Batch]:
        """The records on whole lines that were written since the last look.

        Raises:
            SourceError: the file cannot be read any more, or is not the one whose start was read.
            OSError: likewise.
        """
        status = _status(self.file.path)
        if self.is_replaced(status):
            raise SourceError(_REPLACED)
        if status.st_size < self.offset:
            raise SourceError(f"the file has become shorter than what was read of it; {_ANEW}")
        if self._stands(status) and status.st_size - self.offset > MAX_RECORD_BYTES:
            return []  # a line that is far too long has no end yet, and looking for it in vain again takes long
        found, end = [], self.offset
        for block in blocks(self.file.path, self.offset):
            if block.is_tail:
                break
            end = block.offset + len(block.content)
            found.append(self.decode(block))
        if found:
            self.read, self.status = self._read_to(end), status
        return found

    def is_replaced(self, status: os.stat_result) -> bool:
        """Whether another file has its name, or a link does that may lead to the same file at another place."""
        return not os.path.samestat(status, self.status) or (self.file.path.is_symlink() and not self.is_link)

    def _stands(self, status: os.stat_result) -> bool:
        """Whether two looks have read the file as it is: it can change again within a tick of its clock."""
        state = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        self.num_same = self.num_same + 1 if state == self.state else 0
        self.state = state
        return self.num_same > 1

    def _read_to(self, end: int) -> tuple[int, Any]:
        """The bytes read and their hash; from the file, since blocks hold no more than the start of a long line."""
        summed = self.read[1].copy()
        with open_regular(self.file.path) as opened:
            opened.seek(self.offset)
            for piece in _pieces(opened, end - self.offset):
                summed.update(piece)
        return end, summed

    def was_changed(self, path: Path | None = None) -> bool:
        """Whether the part that was read does not hold any more what was read of it; of another file with a path.

        Raises:
            OSError: the file cannot be read any more.
        """
        now = blake2b(digest_size=16)
        num_bytes, summed = self.read
        with open_regular(path or self.file.path) as opened:
            for piece in _pieces(opened, num_bytes):
                now.update(piece)
        return bool(now.digest() != summed.digest())


@dataclass(slots=True)
class Follower:
    """Judges a live run; its memory follows from the number of series, not from its duration."""

    requirements: Sequence[Requirement]
    index: Index
    documents: Mapping[type[Document], Document]
    digest: Digest = field(default_factory=Digest)
    followed: dict[str, _Followed] = field(default_factory=dict)
    judged: dict[Kind, list[Finding]] = field(default_factory=dict)
    """Findings that are true as of the last look, by kind."""
    withdrawn: list[Finding] = field(default_factory=list)
    """Findings that the last look found to be true no longer."""
    run: str = ""
    """The run that is followed; empty as long as there is none."""
    is_growing: bool = False
    """Whether the last look found new records."""
    waits: dict[str, str] = field(default_factory=dict)
    """Events that the run waits for as of the last look, by the part that stays the same as long as the wait lasts."""
    headless: dict[str, Path] = field(default_factory=dict)
    """Files whose first line has no end yet."""
    renamed: set[str] = field(default_factory=set)
    """New names of files that were followed; they are not read again."""
    refused: dict[str, str] = field(default_factory=dict)
    """Files that cannot be followed, or not any further, and why; what was read of them still counts."""

    def look(self, paths: Iterable[Path], now_us: int) -> tuple[list[Finding], CheckResult | None]:
        """Read what is new in files, old and new ones, and give the findings that were not reported before.

        Returns:
            The new findings, and the judgement of all that was read; None as long as no file has a head.
        """
        seen = {path.as_posix(): path for path in paths}
        self.headless = {name: path for name, path in self.headless.items() if name in seen}
        fresh = [path for name, path in seen.items() if name not in self.followed and name not in self.refused]
        fresh = [path for path in fresh if not self._was_renamed(path)]
        self.run = self.run or _newest_run(fresh)
        for path in fresh:
            self._begin(path)
        if not self.followed:
            return [], None
        self.digest.add(in_order(join(self._news(now_us))))
        judgement = self._judged(now_us)
        for one in self.followed.values():
            one.judged_bytes = one.offset
        return list(self._new(judgement.findings)), judgement

    def _new(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Findings that were not reported before; one that has only moved, as its numbers grow, was."""
        before, self.judged = self.judged, {}
        for finding in findings:
            self.judged.setdefault(_kind(finding), []).append(finding)
        self.withdrawn = []
        for kind in before.keys() | self.judged.keys():
            old, now = before.get(kind, []), self.judged.get(kind, [])
            yield from _more(now, old)
            self.withdrawn += _more(old, now)

    @property
    def is_lost(self) -> bool:
        """Whether there were streams, and none of them can be read any further."""
        return bool(self.followed) and not self.headless and self.followed.keys() <= self.refused.keys()

    @property
    def has_ended(self) -> bool:
        """Whether the run has said that it ends."""
        return self.digest.events.has_ended

    def unjudged_ends(self) -> Iterator[tuple[str, int, int, bool]]:
        """Each file that is longer than what was judged of it.

        Its name, the bytes judged, the bytes after them, and whether a line ends among these.

        A file that is refused is left out: what is under its name now may be another.
        """
        places = [(name, one.file.path, one.judged_bytes) for name, one in self.followed.items()]
        places = [place for place in places if place[0] not in self.refused]
        places += [(name, path, 0) for name, path in self.headless.items()]
        for name, path, offset in sorted(places):
            with suppress(OSError, SourceError):  # a file that is gone has no end to name
                num_bytes = _status(path).st_size - offset
                if num_bytes > 0:
                    yield name, offset, num_bytes, _has_line_end(path, offset)

    def rewritten(self) -> Iterator[tuple[str, str]]:
        """Files whose part that was read has been changed since, and how; each is read once more."""
        for name, one in sorted(self.followed.items()):
            with suppress(OSError, SourceError):  # that a file is gone was said
                if name in self.refused:
                    continue
                if one.is_replaced(_status(one.file.path)):
                    yield name, _REPLACED
                elif one.was_changed():
                    yield name, "what was read of it has been changed since; judge it again without --follow"

    def _was_renamed(self, path: Path) -> bool:
        """Whether a file was followed under another name that is not its own any more; its records were read.

        A new file can have the number of one that is gone, so what was read of that one has to be in it.
        """
        name, before = path.as_posix(), self.name_of(path)
        if before is None or _is_at(self.followed[before].file.path, self.followed[before].status):
            return False
        if name not in self.renamed:
            one = self.followed[before]
            with suppress(OSError, SourceError):  # what cannot be read is refused as a new file
                if one.offset and path.stat().st_size >= one.offset and not one.was_changed(path):
                    self.renamed.add(name)
        return name in self.renamed

    def name_of(self, path: Path) -> str | None:
        """The name under which a file was followed that has another name by now."""
        with suppress(OSError):
            status = path.lstat()
            return next((name for name, one in self.followed.items() if os.path.samestat(one.status, status)), None)
        return None

    def _news(self, now_us: int) -> list[Batch]:
        found: list[Batch] = []
        self.is_growing = False
        for name, one in self.followed.items():
            if name in self.refused:
                continue
            try:
                with untrusted(SourceError):
                    one.num_looks += 1
                    new = one.news()
            except SourceError as error:
                self.refused[name] = f"{error}{_renamed(one)}"
                continue
            found += new
            if new:
                self.is_growing = True
                one.grows(now_us, new)
        return found

    def _begin(self, path: Path) -> None:
        name = path.as_posix()
        try:
            with untrusted(SourceError):
                status = _status(path)
                if b"\n" not in head_of(path, MAX_LINE_BYTES + 2):
                    self.headless[name] = path  # the head is not on its line yet; the next look will tell
                    return
                self.headless.pop(name, None)
                file = run_file(len(self.followed), path, name)
        except SourceError as error:
            self.refused[name] = str(error)
            return
        if file.format != NATIVE or file.is_compressed:
            self.refused[name] = why_not_followed(file.format)
            return
        if file.head is None:
            self.refused[name] = _why_no_head(path)
            return
        self.run = self.run or file.head.run
        if file.head.run != self.run:
            words = f"it is of run {file.head.run}, and run {self.run} is followed"
            self.refused[name] = f"{words}; give the directory or the files of one run"
            return
        builder = RowBuilder(self.digest.names, self.digest.facts(file.number), file.head)
        self.digest.names.know([file.head])
        self.followed[name] = _Followed(file, decoder_of(builder), status, file.path.is_symlink())

    def _judged(self, now_us: int) -> CheckResult:
        files = [one.file for one in self.followed.values()]
        options = Options(is_live=True, now_us=now_us, watched_until_us=self._watched_until_us(now_us))
        view = view_of(self.digest, circumstances(files, self.digest, options))
        self.waits = {one.what: one.details for one in waits(view)}
        return judge_view(view, files, self.requirements, self.index, self.documents, is_followed=True)

    def _watched_until_us(self, now_us: int) -> dict[int, int]:
        """Up to when records of each file would have been seen, by the clock that wrote it.

        That is its last record plus the time since it last grew, so that clocks of other machines do not matter, less
        what a file system or writer holds back. Where a file cannot be read any more, nothing says what it would show.
        """
        if self.refused.keys() & self.followed.keys():
            return {}
        held_us = max(0, round(float(np.median([one.usual_us for one in self.followed.values()]))) - _USUAL_US)
        return {
            one.file.number: one.last_us + max(0, one.idle_us(now_us) - held_us)
            for one in self.followed.values()
            if one.last_us >= 0
        }


def why_not_followed(format: str) -> str:  # noqa: A002
    """Why a file of a format is not followed, and what to do."""
    form = "" if format == NATIVE else f"{OTHER_FORMAT} {format}, and "
    remedy = "judge it again as it grows, such as with `watch -n 60 trainspec-validate FILE`"
    return f"{form}only metric streams in plain JSON Lines can be followed; {remedy}"


def _status(path: Path) -> os.stat_result:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise SourceError("this is not a regular file")
    return status


def _is_at(path: Path, status: os.stat_result) -> bool:
    """Whether a path still leads to a file."""
    try:
        return os.path.samestat(path.stat(), status)
    except OSError:
        return False


def _pieces(opened: BinaryIO, num_bytes: int) -> Iterator[bytes]:
    """So many of the next bytes, as far as there are."""
    while num_bytes > 0 and (piece := opened.read(min(num_bytes, _PIECE_BYTES))):
        num_bytes -= len(piece)
        yield piece


def _has_line_end(path: Path, offset: int) -> bool:
    with open_regular(path) as opened:
        opened.seek(offset)
        return any(b"\n" in piece for piece in iter(lambda: opened.read(_PIECE_BYTES), b""))


def _newest_run(paths: Iterable[Path]) -> str:
    """The run of the stream that was written last, which is the live one next to runs that have ended."""
    newest: list[tuple[int, Path]] = []
    for path in paths:
        with suppress(OSError):
            newest.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(newest, reverse=True):
        with suppress(SourceError), untrusted(SourceError):
            head = read_line(head_of(path, MAX_LINE_BYTES + 2).partition(b"\n")[0].removesuffix(b"\r"))
            if isinstance(head, Head):
                return head.run
    return ""


def _renamed(one: _Followed) -> str:
    """The new name of a file that is gone from the one it was followed by, in words; empty where none is seen."""
    with suppress(OSError), os.scandir(one.file.path.parent) as entries:
        if not one.file.path.exists():
            for entry in islice(entries, _MOST_ENTRIES):
                if entry.inode() == one.status.st_ino and entry.is_file(follow_symlinks=False):
                    return f"; it was renamed to {entry.name}, and what is written there from now on is not judged"
    return ""


def _why_no_head(path: Path) -> str:
    record = read_line(head_of(path, MAX_LINE_BYTES + 2).partition(b"\n")[0].removesuffix(b"\r"))
    if isinstance(record, Refusal):
        return f"the first line is no head: {record.message} ({record.requirement})"
    return "the file does not begin with a head"


def _kind(finding: Finding) -> Kind:
    return finding.requirement, finding.path, finding.evidence.series if finding.evidence else ""


def _more(some: Sequence[Finding], others: Sequence[Finding]) -> list[Finding]:
    """As many of some findings of a kind as there are more of than of others, by their lines."""
    lines = {_line(finding) for finding in others}
    num = max(0, len(some) - len(others))
    unlike = [finding for finding in some if _line(finding) not in lines]
    return unlike[max(0, len(unlike) - num) :] if num else []


def _line(finding: Finding) -> int:
    return finding.span.line if finding.span else 0
