"""Searches the tree of a document for documents that it names or that name it, for runs that were given one of them.

A search reads regular files below the working directory, or below the directory of the document where that is
elsewhere. It follows no link, and it ends at a limit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainspec_validate.documents.load import LoadError, load_text, read_file
from trainspec_validate.model.suggest import did_you_mean, meant
from trainspec_validate.pipeline.claims import claims
from trainspec_validate.pipeline.files import is_document_name, walk
from trainspec_validate.pipeline.references import tree_of
from trainspec_validate.system.boundary import untrusted
from trainspec_validate.system.budget import Count, Limit, OverLimitError

MAX_ENTRIES = Limit("a search for documents by name", 100_000, "files and directories")
MAX_BYTES = Limit("a search for documents by name", 256 * 1024**2, "bytes")
_MAX_SHOWN = 3
_KEYS = {"ClusterProfile": "cluster", "TrainingPlan": "plan"}
"""Key of a reference to a document of a kind."""
_KINDS = {key: kind for kind, key in _KEYS.items()}
_REFERENCES = {"TrainingPlan": ("cluster",), "CheckpointPolicy": ("cluster", "plan")}
"""Keys of the references that documents of a kind can hold."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Why a document that another one names is not judged with it, and what to do."""

    reason: str
    help: str


@dataclass(frozen=True, slots=True)
class _Text:
    """A file that claims to be a document, as it was read."""

    path: Path
    content: bytes

    def data(self) -> Any:
        """The values in it; None where it cannot be read."""
        try:
            with untrusted(lambda reason, remedy: LoadError("unreadable", reason, remedy)):
                return load_text(self.content, self.path.as_posix()).data
        except LoadError:
            return None


@dataclass(slots=True)
class Trees:
    """The documents of the trees that were searched so far; each tree is read once."""

    _trees: dict[str, list[_Text]] = field(default_factory=dict)
    _refusals: dict[str, str] = field(default_factory=dict)
    _wanted: dict[str, Mapping[tuple[str, str], list[Path]]] = field(default_factory=dict)

    def named(self, path: str, key: str, kind: str, name: str) -> Path | Absent:
        """The only file that declares this kind and name: in the directory of `path`, else in its tree."""
        directory, root = Path(path).parent, tree_of(path)
        for place, deep in ((directory, False), (root, True)):
            matches = _matches(self._texts(place, deep=deep), kind, name)
            if len(matches) == 1:
                return matches[0]
            if matches:
                return _ambiguous(key, name, matches)
        refusal = self._refusals.get(_real(root))
        help_text = f"give its file too, or write {key}: {{file: ...}}"
        searched = f"; the search ended early, since {refusal}" if refusal else ""
        near = _near(self._texts(root, deep=True), kind, name)
        return Absent(f"names {key} {name!r}, which was not given", near + help_text + searched)

    def namesakes(self, path: str, kind: str, name: str) -> list[Path]:
        """The files in the tree of `path` that declare this kind and name, in the order of their paths."""
        return sorted(_matches(self._texts(tree_of(path), deep=True), kind, name)) if kind in _KEYS else []

    def naming(self, path: str, kind: str, name: str) -> Iterator[Path]:
        """The files in the tree of `path` that refer to this kind and name, or to the file itself."""
        key = _KEYS.get(kind)
        for text in self._texts(tree_of(path), deep=True) if key else ():
            if key and _refers(text, path, key, name):
                yield text.path

    def stranded(self, path: str, provides: Callable[[str, str], bool]) -> Iterator[Path]:
        """The files in the tree of `path` that refer to a document which neither that tree nor the run has."""
        root = tree_of(path)
        texts = self._texts(root, deep=True)
        if _real(root) not in self._wanted:
            self._wanted[_real(root)] = _wanted(texts)
        for (kind, name), paths in self._wanted[_real(root)].items():
            if not (name and provides(kind, name)):
                yield from paths

    def _texts(self, place: Path, *, deep: bool) -> list[_Text]:
        key = f"{_real(place)}{os.sep if deep else ''}"
        if key not in self._trees:
            self._trees[key] = []
            entries, num_bytes = Count(MAX_ENTRIES), Count(MAX_BYTES)
            try:
                for file in walk(place, is_document_name, entries.add, deep=deep):
                    text = _read(file, num_bytes) if isinstance(file, Path) else None
                    if text is not None:
                        self._trees[key].append(text)
            except OverLimitError as error:
                self._refusals[_real(place)] = str(error)
        return self._trees[key]


def _real(path: Path) -> str:
    return os.path.realpath(path)


def _read(path: Path, num_bytes: Count) -> _Text | None:
    """A regular file that claims to be a document of ours."""
    try:
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode):
            return None
        num_bytes.add(state.st_size)
        content = read_file(path)
    except (OSError, LoadError):
        return None
    return _Text(path, content) if claims(content) else None


def _matches(texts: Iterable[_Text], kind: str, name: str) -> list[Path]:
    """The files that are the document of a kind and name; where none is, those that mention both and cannot be read."""
    found, unread = [], []
    for text in texts:
        if kind.encode() in text.content and name.encode() in text.content:
            data = text.data()
            if data is None:
                unread.append(text.path)
            elif _kind(data) == kind and _at(data, "metadata", "name") == name:
                found.append(text.path)
    return found or unread


def _near(texts: Iterable[_Text], kind: str, name: str) -> str:
    """The file that declares this kind and a name that is nearly the one, as a question; empty where none does."""
    names: dict[str, Path] = {}
    for text in texts:
        data = text.data() if kind.encode() in text.content else None
        own = _at(data, "metadata", "name")
        if _kind(data) == kind and isinstance(own, str):
            names.setdefault(own, text.path)
    nearest = did_you_mean(name, names)
    return f"{meant(name, nearest)} {names[nearest].as_posix()} declares it; else " if nearest else ""


def _refers(text: _Text, path: str, key: str, name: str) -> bool:
    stem = Path(path).name
    if not any(word.encode() in text.content for word in (name, stem)):
        return False
    data = text.data()
    if key not in _REFERENCES.get(_kind(data) or "", ()):
        return False
    file = _at(data, key, "file")
    if isinstance(file, str):
        return "\0" not in file and _real(text.path.parent / file) == _real(Path(path))
    return bool(_at(data, key, "name") == name)


def _wanted(texts: Iterable[_Text]) -> Mapping[tuple[str, str], list[Path]]:
    """By kind and name of a document that no file is, the files that refer to it; the name is empty for a path."""
    wanted: dict[tuple[str, str], list[Path]] = {}
    texts = list(texts)
    for text in texts:
        data = text.data() if any(kind.encode() in text.content for kind in _REFERENCES) else None
        for key in _REFERENCES.get(_kind(data) or "", ()):
            file, name = _at(data, key, "file"), _at(data, key, "name")
            if isinstance(file, str):
                gone = "\0" not in file and not os.path.lexists(text.path.parent / file)
                wanted.setdefault((_KINDS[key], ""), []).extend([text.path] if gone else [])
            elif isinstance(name, str) and name:
                wanted.setdefault((_KINDS[key], name), []).append(text.path)
    return {(kind, name): paths for (kind, name), paths in wanted.items() if not (name and _matches(texts, kind, name))}


def _kind(data: Any) -> str | None:
    kind = _at(data, "kind")
    return kind if isinstance(kind, str) else None


def _at(data: Any, *keys: str) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _ambiguous(key: str, name: str, matches: Iterable[Path]) -> Absent:
    paths = sorted(path.as_posix() for path in matches)
    more = [f"{len(paths) - _MAX_SHOWN} more"] if len(paths) > _MAX_SHOWN else []
    shown = ", ".join([*paths[:_MAX_SHOWN], *more])
    return Absent(f"names {key} {name!r}, which {len(paths)} files declare: {shown}", f"write {key}: {{file: ...}}")
