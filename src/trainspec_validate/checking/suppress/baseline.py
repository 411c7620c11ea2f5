"""Reads, applies and writes a baseline: known findings, so that only new ones fail."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

from trainspec_validate.checking.suppress.common import (
    UNKNOWN,
    UNUSED,
    Complaint,
    Run,
    SuppressionResult,
    home_of,
    lookup,
)
from trainspec_validate.documents.load import LoadError, Source, load_text, read_file
from trainspec_validate.model.finding import Finding, Pointer, Suppressed, SuppressionKind, Unjudged
from trainspec_validate.model.requirements import Index
from trainspec_validate.system.atomic import write_atomically
from trainspec_validate.system.boundary import InputError, open_regular

Mode = Literal["use", "write", "prune"]
Key = tuple[str, str, str]
"""File relative to the baseline, requirement id, JSON pointer: nothing that moves when lines move."""
Open = tuple[str, str]
"""File relative to the baseline, and the id of a requirement that is not judged on it, or why none is: a sentence."""

FORMAT_VERSION = "1"
DEFAULT_NAME = "trainspec-baseline.json"
_START_BYTES: Final = 16 * 1024**2
_END_BYTES: Final = 1024**2
"""Of a larger file, its size, its start and its end count."""


class Baseline:
    """The counted findings of one baseline file and what it leaves open, and after a run what is left to write."""

    def __init__(self, path: str, mode: Mode = "use", tree: str | None = None, *, takes_unjudged: bool = False) -> None:
        """Read the file, which need not exist when it is about to be written.

        A file in `tree`, a copy of another state of the working directory, speaks of the working directory.
        With `takes_unjudged` the mode `write` records requirements that are not judged too.

        Raises:
            InputError: the file cannot be read or is no baseline.
        """
        self.path = Path(path).as_posix()
        self.mode = mode
        self._directory = home_of(path, tree)
        self.takes_unjudged = takes_unjudged
        self.counts: Counter[Key] = Counter()
        self.open: dict[Open, int] = {}
        """What is recorded as not judged, and where in the file."""
        self.digests: dict[Open, str] = {}
        """Of the content of files of which nothing was judged, where the baseline has them."""
        self.source: Source | None = None
        self._places: dict[Key, int] = {}
        if mode != "write" or Path(path).exists():
            self._read()
        self.remaining = self.counts
        self.remaining_open = frozenset(self.open)
        self.unrecorded: tuple[str, ...] = ()
        """Requirements whose findings no baseline takes, and that this run has findings of."""

    def _read(self) -> None:
        how = "write it with --write-baseline"
        if not os.path.lexists(self.path):
            raise InputError(f"{self.path}: no such file or directory; check the name, or {how}")
        try:
            self.source = load_text(read_file(Path(self.path)), self.path, "json")
        except LoadError as error:
            raise InputError(f"{self.path}: {error}; {how}") from error
        data = self.source.data
        if not isinstance(data, dict) or data.get("format_version") != FORMAT_VERSION:
            raise InputError(f"{self.path}: this is no baseline of format version {FORMAT_VERSION}; {how}")
        try:
            for index, entry in enumerate(data["findings"]):
                self.counts[_key(entry)] += _count(entry)
                self._places.setdefault(_key(entry), index)
            for index, entry in enumerate(data.get("unjudged", [])):
                self.open.setdefault(_open(entry), index)
                self.digests |= {_open(entry): str(entry["digest"])} if "digest" in entry else {}
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{self.path}: an entry lacks file, requirement, pointer or count; {how}") from error

    def apply(self, findings: Iterable[Finding], run: Run) -> SuppressionResult:
        """Silence what the baseline counts; what it counts in vain is complained about, or left out of it."""
        tally = SuppressionResult()
        self._name_by_id(run.index)
        current = list(findings)
        keys = [self._key_of(finding) for finding in current]
        taken = {key for key in keys if lookup(key[1], run.index)[0] is not None}
        occurring = Counter(key for key in keys if key in taken)
        left = occurring.copy() if self.mode == "write" else self.counts.copy()
        for finding, key in zip(current, keys, strict=True):
            if key in taken and left[key] > 0:
                left[key] -= 1
                tally.suppressed.append(Suppressed(finding, SuppressionKind.BASELINE, f"recorded in {self.path}"))
            else:
                tally.kept.append(finding)
        present = {_normal(self._relative(path)): path for path in run.paths}
        gone = {key: number for key, number in (self.counts - occurring).items() if self._gone(key, present, run)}
        self.unrecorded = tuple(sorted({key[1] for key in keys if key not in taken}))
        base = self.counts | occurring if self.mode == "write" else self.counts
        self.remaining = +(base - Counter(gone))
        if self.mode == "use":
            tally.complaints.extend(self._complaints(gone, run))
        return tally

    def mark(self, entries: Iterable[Unjudged], run: Run, tally: SuppressionResult) -> list[Unjudged]:
        """The entries, of which those that the baseline records say so; what it records in vain is complained about.

        An entry of which it records some requirements becomes two. A file of which nothing was judged is recorded with
        the reason and a digest, so that the same file is new where it is not judged for another one, or has changed.
        """
        entries = list(entries)
        self.open = {(file, _id_of(word, run.index)): place for (file, word), place in self.open.items()}
        occurring = {(self._relative(entry.path), one) for entry in entries for one in _words_of(entry)}
        known = {key for key in self.open.keys() & occurring if not self._has_changed(key)}
        present = {_normal(self._relative(path)): path for path in run.paths}
        gone = {key for key in self.open.keys() - known if self._gone(key, present, run)}
        taken = occurring if self.mode == "write" and self.takes_unjudged else known
        self.remaining_open = frozenset((self.open.keys() - gone) | taken)
        tally.complaints += self._idle(gone, run) if self.mode == "use" else ()
        return [part for entry in entries for part in self._parts(entry, taken)]

    def _parts(self, entry: Unjudged, taken: set[Open]) -> Iterator[Unjudged]:
        file = self._relative(entry.path)
        if not entry.requirements:
            yield replace(entry, recorded=self.path if (file, entry.reason) in taken else "")
            return
        recorded = tuple(one for one in entry.requirements if (file, one) in taken)
        others = tuple(one for one in entry.requirements if (file, one) not in taken)
        if others:
            yield replace(entry, requirements=others)
        if recorded:
            yield replace(entry, requirements=recorded, recorded=self.path)

    def _idle(self, gone: Iterable[Open], run: Run) -> Iterator[Complaint]:
        help_text = "remove what no longer occurs with --prune-baseline"
        for file, identifier in sorted(gone):
            known, message, help_of_word = lookup(identifier, run.index)
            place: Pointer = ("unjudged", self.open[file, identifier])
            if _is_reason(identifier):
                is_changed = self._has_changed((file, identifier)) and os.path.lexists(Path(self._directory, file))
                what = "has changed since it was recorded" if is_changed else "is judged now, or is there no more"
                yield Complaint(UNUSED, self.path, f"{file} {what}", help_text, place)
            elif known is None:
                yield Complaint(UNKNOWN, self.path, message, help_of_word or help_text, place)
            else:
                message = f"{identifier} is judged now, or nothing is left to judge, in {file}"
                yield Complaint(UNUSED, self.path, message, help_text, place)

    def _name_by_id(self, index: Index) -> None:
        """Put the id in place of a name, a former name or another spelling of the id, as `lookup` takes them."""
        counts: Counter[Key] = Counter()
        places: dict[Key, int] = {}
        for key, number in self.counts.items():
            named = (key[0], _id_of(key[1], index), key[2])
            counts[named] += number
            places.setdefault(named, self._places[key])
        self.counts, self._places = counts, places

    def _gone(self, key: Key | Open, present: dict[str, str], run: Run) -> bool:
        """Whether an entry that does not occur is proven stale, not merely out of this run's sight."""
        file, identifier = key[:2]
        if not _is_reason(identifier) and lookup(identifier, run.index)[0] is None:
            return True
        if self._has_changed((file, identifier)):
            return True
        path = present.get(_normal(file))
        if path is None:
            return not os.path.exists(Path(self._directory, file))  # noqa: PTH110 - Path.exists raises for long names
        return _is_reason(identifier) or run.judged(identifier, path)

    def _digest(self, key: Open) -> str:
        return digest_of(Path(self._directory, key[0])) if _is_reason(key[1]) else ""

    def _written_digest(self, key: Open) -> str:
        """The digest to write: an entry of a run that prunes keeps its own."""
        return self.digests.get(key, "") if self.mode == "prune" else self._digest(key)

    def _has_changed(self, key: Open) -> bool:
        """Whether a file of which nothing was judged has another content than the baseline has a digest of."""
        return key in self.digests and self.digests[key] != self._digest(key)

    def _complaints(self, gone: dict[Key, int], run: Run) -> Iterator[Complaint]:
        for key, number in gone.items():
            file, identifier, pointer = key
            known, message, help_text = lookup(identifier, run.index)
            place: Pointer = ("findings", self._places[key])
            if known is None:
                yield Complaint(UNKNOWN, self.path, message, help_text or "remove it with --prune-baseline", place)
                continue
            where = f"{file} {pointer}".rstrip()
            found = self.counts[key] - number
            often = f"occurs {found} instead of {self.counts[key]} times" if found else "no longer occurs"
            message = f"{identifier} {often} at {where}"
            yield Complaint(UNUSED, self.path, message, "remove what no longer occurs with --prune-baseline", place)

    def write(self) -> int:
        """Write what the run leaves, sorted, and return how many findings that is.

        Raises:
            OSError: the file cannot be written.
        """
        entries = [
            {"file": file, "requirement": requirement, "pointer": pointer, "count": number}
            for (file, requirement, pointer), number in sorted(self.remaining.items())
        ]
        document: dict[str, Any] = {"format_version": FORMAT_VERSION, "findings": entries}
        if self.remaining_open:
            document["unjudged"] = [
                {"file": file, "reason" if _is_reason(word) else "requirement": word}
                | ({"digest": digest} if (digest := self._written_digest((file, word))) else {})
                for file, word in sorted(self.remaining_open)
            ]
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        write_atomically(self.path, text, is_output=True)
        return sum(self.remaining.values())

    def _key_of(self, finding: Finding) -> Key:
        pointer = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in finding.pointer)
        return (self._relative(finding.path), finding.requirement, pointer)

    def _relative(self, path: str) -> str:
        try:
            return Path(os.path.relpath(path, self._directory)).as_posix()
        except ValueError:  # another drive
            return Path(path).as_posix()


def _normal(path: str) -> str:
    return os.path.normcase(os.path.normpath(path))


def _key(entry: Any) -> Key:
    file, requirement, pointer = entry["file"], entry["requirement"], entry["pointer"]
    if not all(isinstance(part, str) for part in (file, requirement, pointer)):
        raise TypeError("not text")
    return file, requirement, pointer


def _id_of(word: str, index: Index) -> str:
    known = lookup(word, index)[0]
    return word if known is None else known.id


def _open(entry: Any) -> Open:
    file, word = entry["file"], entry["reason"] if "reason" in entry else entry["requirement"]
    if not (isinstance(file, str) and isinstance(word, str)):
        raise TypeError("not text")
    if _is_reason(word) != ("reason" in entry):
        raise ValueError("a reason is a sentence, and a requirement a word")
    return file, word


def _is_reason(word: str) -> bool:
    return " " in word


def _words_of(entry: Unjudged) -> tuple[str, ...]:
    """What a baseline records of an entry, besides its file."""
    return entry.requirements or (entry.reason,)


def _count(entry: Any) -> int:
    number = entry["count"]
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError("not a count")
    return number


def digest_of(path: str | os.PathLike[str]) -> str:
    """A digest of a file, of the target of a link or of an empty directory; empty for what has none.

    >>> digest_of("no such file")
    ''
    """
    try:
        state = os.lstat(path)
        if stat.S_ISLNK(state.st_mode):
            return _text("link", os.fsencode(os.readlink(path)))  # noqa: PTH115 - as it is written
        if stat.S_ISDIR(state.st_mode):
            return _text("directory") if not _has_entries(path) else ""
        if not stat.S_ISREG(state.st_mode):
            return ""
        with open_regular(Path(path)) as file:
            pieces = [file.read(_START_BYTES)]
            if state.st_size > _START_BYTES:
                file.seek(max(_START_BYTES, state.st_size - _END_BYTES))
                pieces.append(file.read(_END_BYTES))
    except (OSError, ValueError):
        return ""
    return _text(f"file {state.st_size}", *pieces)


def _has_entries(path: str | os.PathLike[str]) -> bool:
    with os.scandir(path) as entries:
        return any(entry.name != ".git" for entry in entries)


def _text(kind: str, *pieces: bytes) -> str:
    digest = sha256(f"{kind}\n".encode())
    for piece in pieces:
        digest.update(piece)
    return f"sha256:{digest.hexdigest()}"
