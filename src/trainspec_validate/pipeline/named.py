"""Searches the tree of a document for documents that it names or that name it, for runs that were given one of them.

A search reads regular files below the working directory, or below the directory of the document where that is
elsewhere; for documents that refer to one, below the top of its repository. It follows no link, and ends at a limit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainspec_validate.documents.load import LoadError, read_file
from trainspec_validate.model.finding import Unjudged
from trainspec_validate.model.suggest import did_you_mean, meant
from trainspec_validate.pipeline import excluded
from trainspec_validate.pipeline.claims import NO_TEXT, NO_VERSION, claims, hidden_claims, is_in_ebcdic
from trainspec_validate.pipeline.detect import why_unread
from trainspec_validate.pipeline.files import is_document_name, walk
from trainspec_validate.pipeline.passed_over import PassedOver, passed_over
from trainspec_validate.pipeline.references import Absent, tree_of
from trainspec_validate.pipeline.texts import KEYS, KINDS_OF_KEYS, REFERENCES, Text
from trainspec_validate.system.boundary import UnreadableError, reason_of
from trainspec_validate.system.budget import Count, Limit, OverLimitError
from trainspec_validate.system.repository import superproject_of

MAX_ENTRIES = Limit("a search for documents by name", 100_000, "files and directories")
MAX_BYTES = Limit("a search for documents by name", 256 * 1024**2, "bytes")
_MAX_SHOWN = 3


@dataclass(slots=True)
class _Tree:
    """What a search of a tree read, and what kept it from reading the rest."""

    texts: list[Text] = field(default_factory=list)
    unread: list[tuple[str, str, str]] = field(default_factory=list)
    """Path, reason and help of what could not be read or searched."""
    refusal: str = ""
    """Why the search ended early."""
    read: set[str] = field(default_factory=set)
    """Real paths of the files that were read."""


@dataclass(slots=True)
class Trees:
    """The documents of the trees that were searched so far; each tree is read once."""

    tree_of: Callable[[str], Path] = tree_of
    """The directory that is searched for a document."""
    is_excluded: Callable[[str | Path], bool] = excluded.covers
    """Whether a file that was found is left out; `excluded.takes` also counts it."""
    _trees: dict[str, _Tree] = field(default_factory=dict)
    _wanted: dict[str, Mapping[tuple[str, str], list[Path]]] = field(default_factory=dict)
    _passed_over: dict[str, list[PassedOver]] = field(default_factory=dict)

    def named(self, path: str, key: str, kind: str, name: str) -> Path | Absent:
        """The only file that declares this kind and name: in the directory of `path`, else in its tree."""
        directory, root = Path(path).parent, self.tree_of(path)
        for place, deep in ((directory, False), (root, True)):
            matches = _matches(self._texts(place, deep=deep), kind, name)
            if len(matches) == 1:
                return matches[0]
            if matches:
                return _ambiguous(key, name, matches)
        refusal = self._searched(root, deep=True).refusal
        help_text = f"give its file too, or write {key}: {{file: ...}}"
        searched = f"; the search ended early, since {refusal}" if refusal else ""
        near = _near(self._texts(root, deep=True), kind, name)
        may_exist = bool(refusal) or self._is_excluded(root, kind, name)
        return Absent(f"names {key} {name!r}, which was not given", near + help_text + searched, may_exist)

    def _is_excluded(self, root: Path, kind: str, name: str) -> bool:
        """Whether an excluded file of a tree declares this kind and name."""
        if not excluded.is_in_use():
            return False
        key = f"{_real(root)}{os.sep}excluded"
        if key not in self._trees:
            self._trees[key] = _search(root, lambda path: not excluded.covers(path), deep=True)
        return bool(self._trees[key].refusal or _matches(self._trees[key].texts, kind, name))

    def namesakes(self, path: str, kind: str, name: str) -> list[Path]:
        """The files in the tree of `path` that declare this kind and name, in the order of their paths."""
        return sorted(_matches(self._texts(self.tree_of(path), deep=True), kind, name)) if kind in KEYS else []

    def naming(self, path: str, kind: str, name: str) -> Iterator[Path]:
        """The files in the tree of `path` that refer to this kind and name, or to the file itself."""
        key = KEYS.get(kind)
        for text in self._texts(self.tree_of(path), deep=True) if key else ():
            if key and text.refers(path, key, name):
                yield text.path

    def unnamed(self, path: str, kind: str) -> Iterator[Path]:
        """The files in the tree of `path` that name no document of its kind, and can only be for this one."""
        for text in self._naming_none(path, kind):
            meant_ones = self._meant(text, path, kind)
            if len(meant_ones) == 1 and _real(meant_ones[0].path) == _real(path):
                yield text.path

    def undecided(self, path: str, kind: str) -> Iterator[Unjudged]:
        """The files in the tree of `path` that name no document of its kind where several could be meant."""
        for text in self._naming_none(path, kind):
            num = len(self._meant(text, path, kind))
            if num > 1:
                key = KEYS[kind]
                reason = f"names no {key}, and {num} {key}s could be meant, of which {path} is one"
                yield Unjudged(text.path.as_posix(), reason, f"write {key}: {{name: ...}}", ())

    def only(self, path: str, kind: str) -> Path | None:
        """The only file of a kind in the directory of `path`, else in its tree."""
        meant = _of_kind_near(self._texts(self.tree_of(path), deep=True), Path(path), kind)
        return meant[0].path if len(meant) == 1 else None

    def _naming_none(self, path: str, kind: str) -> Iterator[Text]:
        """Documents that are judged with one of a kind, and name none; a policy has the cluster of its plan."""
        key = KEYS.get(kind)
        texts = self._texts(self.tree_of(path), deep=True) if key else []
        for text in texts:
            if not any(kind.encode() in text.content for kind in REFERENCES):
                continue
            facts = text.facts
            if key is None or facts.failure or key not in REFERENCES.get(facts.kind, ()) or key in facts.references:
                continue
            through_plan = facts.kind == "CheckpointPolicy" and key == "cluster"
            if through_plan and ("plan" in facts.references or _of_kind_near(texts, text.path, "TrainingPlan")):
                continue
            yield text

    def _meant(self, text: Text, path: str, kind: str) -> list[Text]:
        return _of_kind_near(self._texts(self.tree_of(path), deep=True), text.path, kind)

    def unreached(self, path: str, kind: str, name: str) -> Iterator[Unjudged]:
        """Inputs that may refer to a document and were not read: broken texts, and what a search passes over."""
        key = KEYS.get(kind)
        if not key:
            return
        root = self.tree_of(path)
        tree = self._searched(root, deep=True)
        passed = self._passed(root, tree)
        if tree.refusal:
            what = f"documents that name {key} {name!r}"
            reason = f"was not searched to its end for {what}, since {tree.refusal}"
            yield Unjudged(root.as_posix(), reason, "name those documents too", ())
        if (outer := superproject_of(root)) is not None:
            reason = f"has this repository as a submodule, and was not searched for documents that name {key} {name!r}"
            yield Unjudged(os.path.relpath(outer), reason, "run from there to have them judged", ())
        yield from (Unjudged(*entry, ()) for entry in tree.unread)
        for text in tree.texts:
            failure = text.facts.failure
            which = _which(text, path, key, name) if failure else ""
            if failure and which:
                yield Unjudged(text.path.as_posix(), f"{which} and cannot be read: {failure.message}", failure.help, ())
            if text.holds(path, key, name):
                reason = f"holds a document for {key} {name!r} in a file of kind {text.facts.kind or 'none'}"
                yield Unjudged(text.path.as_posix(), reason, "give the document a file of its own", ())
        for found in passed:
            which = f"{_which(found.text, path, key, name)} and " if found.text else ""
            if found.text is None or _may_refer(found, path, key, name):
                remedy = f"{found.remedy or f'name {found.path.as_posix()}'} to have it judged"
                yield Unjudged(found.path.as_posix(), f"{which}{found.reason}", remedy, ())

    def _passed(self, root: Path, tree: _Tree) -> list[PassedOver]:
        key = _real(root)
        if key not in self._passed_over:
            self._passed_over[key] = []
            try:
                passed = passed_over(root, tree.read)
                self._passed_over[key] += [entry for entry in passed if not self.is_excluded(entry.path)]
            except OverLimitError as error:
                tree.refusal = tree.refusal or str(error)
        return self._passed_over[key]

    def stranded(self, path: str, provides: Callable[[str, str], bool]) -> Iterator[Path]:
        """The files in the tree of `path` that refer to a document which neither that tree nor the run has."""
        root = self.tree_of(path)
        texts = self._texts(root, deep=True)
        if _real(root) not in self._wanted:
            self._wanted[_real(root)] = _wanted(texts)
        for (kind, name), paths in self._wanted[_real(root)].items():
            if not (name and provides(kind, name)):
                yield from paths

    def _texts(self, place: Path, *, deep: bool) -> list[Text]:
        return self._searched(place, deep=deep).texts

    def _searched(self, place: Path, *, deep: bool) -> _Tree:
        key = f"{_real(place)}{os.sep if deep else ''}"
        if key not in self._trees:
            self._trees[key] = _search(place, self.is_excluded, deep=deep)
        return self._trees[key]


def _search(place: Path, is_excluded: Callable[[str | Path], bool], *, deep: bool) -> _Tree:
    tree = _Tree()
    entries, num_bytes = Count(MAX_ENTRIES), Count(MAX_BYTES)
    climbs = ".." in place.parts
    try:
        for file in walk(place, is_document_name, entries.add, deep=deep):
            if isinstance(file, UnreadableError) and not is_excluded(file.name):
                tree.unread.append((file.name, file.reason, file.help))
            elif isinstance(file, Path) and not is_excluded(file):
                _read(tree, Path(os.path.relpath(file)) if climbs else file, num_bytes)
    except OverLimitError as error:
        tree.refusal = str(error)
    return tree


def _real(path: str | Path) -> str:
    return os.path.realpath(path)


def _read(tree: _Tree, path: Path, num_bytes: Count) -> None:
    """Add a regular file that claims to be a document of ours."""
    tree.read.add(_real(path))
    try:
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode):
            return
        num_bytes.add(state.st_size)
        text = Text(path, read_file(path))
    except OSError as error:
        tree.unread.append((path.as_posix(), f"cannot be read: {reason_of(error)}", "make it readable"))
    except LoadError as error:
        if error.code == "unreadable" or hidden_claims(path) or why_unread(path) is None:
            tree.unread.append((path.as_posix(), f"cannot be read: {error.message}", error.help))
    else:
        if claims(text.content) or claims(text.plain):
            tree.texts.append(text)
        else:
            _unclaimed(tree, text)


def _unclaimed(tree: _Tree, text: Text) -> None:
    """Add what names no version of ours and may be one of ours, by what a search of a directory says of it."""
    reason = NO_TEXT if is_in_ebcdic(text.content) else why_unread(text.path)
    if reason is None or reason == NO_VERSION:
        tree.texts.append(text)
    elif reason and text.content.strip():  # an empty file refers to nothing
        tree.unread.append((text.path.as_posix(), reason, "write the file anew, or remove it"))


def _which(text: Text, path: str, key: str, name: str) -> str:
    """What a text that is not judged has to do with a document; empty where it has nothing."""
    if text.may_lack(key):
        return f"names no {key}, may be for {name!r}"
    is_one = not text.facts.failure or text.mentions(path, name)
    return f"mentions {key} {name!r}" if is_one else ""


def _may_refer(found: PassedOver, path: str, key: str, name: str) -> bool:
    """Whether a file that was passed over refers to a document, or cannot be read and mentions it."""
    text = found.text
    if text is not None and text.may_lack(key) and (found.has_own_name or not text.facts.failure):
        return True
    if text is None or not text.facts.failure:
        return text is not None and text.refers(path, key, name)
    return found.has_own_name and key in REFERENCES.get(text.unread_kind(), ()) and text.mentions(path, name)


def _of_kind_near(texts: Iterable[Text], path: Path, kind: str) -> list[Text]:
    """The documents of a kind that one without a reference could be for: the only one of its directory, else all."""
    found = [text for text in texts if kind.encode() in text.content and text.facts.kind == kind]
    near = [text for text in found if _real(text.path.parent) == _real(path.parent)]
    return near if len(near) == 1 else found


def _matches(texts: Iterable[Text], kind: str, name: str) -> list[Path]:
    """The files that are the document of a kind and name; where none is, those that mention both and cannot be read."""
    found, unread = [], []
    for text in texts:
        if kind.encode() in text.content and text.has(name):
            if text.facts.failure:
                unread += [text.path] if name.encode() in text.content else []
            elif text.facts.kind == kind and text.facts.name == name:
                found.append(text.path)
    return found or unread


def _near(texts: Iterable[Text], kind: str, name: str) -> str:
    """The file that declares this kind and a name that is nearly the one, as a question; empty where none does."""
    names: dict[str, Path] = {}
    for text in texts:
        if kind.encode() in text.content and text.facts.kind == kind and text.facts.name:
            names.setdefault(text.facts.name, text.path)
    nearest = did_you_mean(name, names)
    return f"{meant(name, nearest)} {names[nearest].as_posix()} declares it; else " if nearest else ""


def _wanted(texts: Iterable[Text]) -> Mapping[tuple[str, str], list[Path]]:
    """By kind and name of a document that no file is, the files that refer to it; the name is empty for a path."""
    wanted: dict[tuple[str, str], list[Path]] = {}
    texts = list(texts)
    for text in texts:
        is_one = any(kind.encode() in text.content for kind in REFERENCES)
        for key, reference in text.facts.references.items() if is_one else ():
            file, name = reference.get("file"), reference.get("name")
            if isinstance(file, str):
                gone = "\0" not in file and not os.path.lexists(text.path.parent / file)
                wanted.setdefault((KINDS_OF_KEYS[key], ""), []).extend([text.path] if gone else [])
            elif isinstance(name, str) and name:
                wanted.setdefault((KINDS_OF_KEYS[key], name), []).append(text.path)
    return {(kind, name): paths for (kind, name), paths in wanted.items() if not (name and _matches(texts, kind, name))}


def _ambiguous(key: str, name: str, matches: Iterable[Path]) -> Absent:
    paths = sorted(path.as_posix() for path in matches)
    more = [f"{len(paths) - _MAX_SHOWN} more"] if len(paths) > _MAX_SHOWN else []
    shown = ", ".join([*paths[:_MAX_SHOWN], *more])
    return Absent(
        f"names {key} {name!r}, which {len(paths)} files declare: {shown}", f"write {key}: {{file: ...}}", several=True
    )
