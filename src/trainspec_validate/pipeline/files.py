"""Finds the files behind what the user named: files, directories and patterns."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePath
from typing import BinaryIO, Final

from trainspec_validate.system.boundary import InputError, UnreadableError, refusal_of, unreadable, untrusted
from trainspec_validate.system.budget import Count, Limit, OverLimitError
from trainspec_validate.system.patterns import WILDCARDS, find

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
STREAM_SUFFIXES = (
    ".jsonl",
    ".ndjson",
    ".jsonl.gz",
    ".ndjson.gz",
    ".jsonl.zst",
    ".ndjson.zst",
    ".parquet",
    ".prom",
    ".mllog",
)
"""Ends of names of streams."""
_LOG_SUFFIXES = (".log", ".txt", ".out", ".err", ".csv")
"""Ends of names of texts that may be logs of training programs."""
_EVENT_FILE = ".tfevents."
"""In the middle of names of event files of TensorBoard, which end in the time, the host and more."""
_METRICS = re.compile(r"[/\\][0-9a-f]{32}[/\\]metrics(?:[/\\]|$)")
"""A run of MLflow, and the directory of its metrics."""
STDIN = "-"
STDIN_NAME = "<stdin>"
SKIPPED_DIRECTORIES = frozenset({"node_modules", "__pycache__", "site-packages"})
_OTHER_SUFFIXES: Final = frozenset(
    f".{end}"
    for end in (
        *("py", "pyc", "pyi", "ipynb", "c", "cc", "cpp", "cu", "cuh", "h", "hpp", "go", "rs", "java", "js", "ts", "sh"),
        *("toml", "ini", "html", "css", "xml", "svg", "png", "jpg", "gif", "pdf", "so", "o", "a", "bin", "pt", "npy"),
    )
)
"""Ends of names of programs, pictures and state, which are many and no documents."""
QUOTING_SUFFIXES: Final = _OTHER_SUFFIXES | frozenset(
    f".{end}"
    for end in (
        *("md", "mdx", "markdown", "rst", "adoc", "org", "tex", "diff", "patch", "rmd", "qmd"),
        *("bash", "zsh", "fish", "ps1", "pl", "rb", "jl", "lua", "mjs", "tsx", "jsx"),
    )
)
"""Ends of names of programs and documentation, which may quote documents and lines of a log."""
_RENAMED: Final = re.compile(
    r"(?:\.(?:j2|jinja2?|tmpl|tpl|template|in|dist|example|sample|bak|backup|disabled|off|old|orig|save)|~|\s)+$"
)
"""Ends of names of templates and of what is kept next to a document."""
_TEXT_SUFFIXES: Final = frozenset({"", ".txt", ".json5", ".jsonc", ".conf", ".cfg"})
_MOST_LEVELS: Final = Limit("a directory", 100, "levels of directories")
_MOST_STDIN: Final = Limit("a stream on standard input", 4 * 1024**3, "bytes")
_PIECE_BYTES = 8_000_000
_MOST_FILES: Final = Limit("a directory", 1_000_000, "files")
_MOST_COMPARED: Final = 2_000


@dataclass(frozen=True, slots=True)
class File:
    """A file that was named, or found in a directory or by a pattern."""

    path: Path
    name: str
    """As findings name it."""
    argument: str = ""
    """The directory or pattern in which it was found; empty where the file itself was named."""

    @property
    def found(self) -> bool:
        """Whether the file was found, so that it may belong to another program."""
        return bool(self.argument)


def files_of(
    argument: str, fits: Callable[[str], bool] | None = None, *, deep: bool = True
) -> Iterator[File | InputError]:
    """The files behind one argument by name; what is absent or cannot be searched is an error among them.

    Args:
        argument: a file, a directory or a pattern.
        fits: which names count in a directory; None for those of documents, streams and logs.
        deep: whether directories below a directory are searched too.
    """
    try:
        with untrusted(unreadable(argument)):
            yield from _files_of(argument, fits or is_candidate, deep=deep)
    except InputError as error:
        yield error


def _files_of(argument: str, fits: Callable[[str], bool], *, deep: bool) -> Iterator[File | InputError]:
    path = Path(argument)
    if not argument:
        raise InputError("a path is empty; write . for the working directory")
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        for found in walk(path, fits, whole=_holds_metrics, deep=deep):
            yield found if isinstance(found, InputError) else File(found, found.as_posix(), argument)
    elif os.path.exists(path):  # noqa: PTH110 - so does Path.exists
        yield File(path, path.as_posix())
    elif WILDCARDS & set(argument):
        yield from (File(match, match.as_posix(), argument) for match in _matches(argument))
    else:
        reason = "the link leads nowhere" if os.path.islink(path) else f"no such file or directory{_nearby(path)}"  # noqa: PTH114
        raise InputError(f"{argument}: {reason}")


def _nearby(path: Path) -> str:
    from trainspec_validate.model.suggest import did_you_mean  # noqa: PLC0415

    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    # by stems: a common suffix makes names of few letters look alike
    alike = [name for name in names[:_MOST_COMPARED] if did_you_mean(path.stem, [PurePath(name).stem])]
    near = did_you_mean(path.name, alike)
    return f"; did you mean {(path.parent / near).as_posix()!r}?" if near else ""


def _matches(pattern: str) -> list[Path]:
    """The regular files that match a pattern.

    Raises:
        InputError: there is none, or this is not a pattern.
    """
    try:
        matches = sorted(islice(_glob(pattern), int(_MOST_FILES.most) + 1))
    except (ValueError, NotImplementedError, RecursionError) as error:
        raise InputError(f"{pattern}: this is not a pattern; write ** only as a whole step, as in a/**/b*") from error
    _MOST_FILES.check(len(matches))
    if not matches:
        raise InputError(f"{pattern}: no file matches the pattern")
    return matches


def linked_matches(pattern: str) -> Iterator[Path]:
    """Entries that match a pattern and are left out, because they are links or behind one."""
    if not WILDCARDS & set(pattern) or os.path.lexists(pattern):
        return
    try:
        yield from sorted(islice(_glob(pattern, behind_links=True), int(_MOST_FILES.most)))
    except (OSError, ValueError, NotImplementedError, RecursionError):
        return  # the search reports why


def _glob(pattern: str, *, behind_links: bool = False) -> Iterator[Path]:
    pure = PurePath(pattern)
    if any("**" in part and part != "**" for part in pure.parts):  # Python 3.13 reads it as *, older ones refuse it
        raise ValueError(pattern)
    anchor = Path(pure.anchor) if pure.anchor else Path()
    relative = pure.relative_to(pure.anchor) if pure.anchor else pure
    plain = next((n for n, part in enumerate(pure.parts) if WILDCARDS & set(part)), 0)
    for match in find(anchor, relative.parts):
        if _behind_link(match, plain) is behind_links and (match.is_file() or match.is_symlink()):
            yield match


def _behind_link(path: Path, num_named: int) -> bool:
    """Whether the path leads through a link below what the user spelt out."""
    parts = path.parts
    return any(Path(*parts[: end + 1]).is_symlink() for end in range(num_named, len(parts)))


def walk(
    directory: Path,
    fits: Callable[[str], bool],
    entered: Callable[[int], None] | None = None,
    *,
    whole: Callable[[Path], bool] | None = None,
    deep: bool = True,
) -> Iterator[Path | InputError]:
    """Files below a directory whose names fit, without hidden files and without following links.

    Of a directory that `whole` takes all files count, whatever their names are. `entered` is called with the number of
    entries of each directory. Without `deep` the directory alone is looked at. A directory that cannot be searched is
    an error among the files.
    """
    pending = [(directory, 0)]
    num_files = 0
    while pending:
        parent, level = pending.pop()
        try:
            _MOST_LEVELS.check(level)
            with os.scandir(parent) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except (OSError, OverLimitError) as error:
            yield _unsearched(parent, error)
            continue
        if entered:
            entered(len(entries))
        every = whole is not None and whole(parent)
        for entry in entries:
            if _is_file(entry) and (every or fits(entry.name)):
                num_files += 1
                if num_files > _MOST_FILES.most:
                    yield _unsearched(directory, OverLimitError(_MOST_FILES))
                    return
                yield Path(parent, entry.name)
        if deep:
            pending += [(Path(parent, entry.name), level + 1) for entry in reversed(entries) if _is_searched(entry)]


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is no directory, no link and not hidden; reading tells of a pipe."""
    hidden = entry.name.startswith(".")
    return not hidden and not entry.is_symlink() and not entry.is_dir(follow_symlinks=False)


def _is_searched(entry: os.DirEntry[str]) -> bool:
    named = not entry.name.startswith(".") and entry.name not in SKIPPED_DIRECTORIES
    return named and entry.is_dir(follow_symlinks=False)


def _unsearched(directory: Path, error: Exception) -> InputError:
    """Why what lies below a directory is not judged."""
    reason, remedy = refusal_of(error) or (str(error), "")
    if isinstance(error, OverLimitError):
        remedy = "not all of it was searched, name the directories in it"
        return UnreadableError(directory.as_posix(), reason, remedy)
    return UnreadableError(directory.as_posix(), reason.replace("file", "directory", 1), remedy)


@contextmanager
def kept(start: bytes, rest: BinaryIO, name: str) -> Iterator[File]:
    """Standard input, of which some bytes were read, as a file that can be read again; removed afterwards.

    Raises:
        OverLimitError: there is too much of it.
    """
    import tempfile  # noqa: PLC0415 - start-up: few runs read a stream from standard input

    num_bytes = Count(_MOST_STDIN)
    with tempfile.TemporaryDirectory(prefix="trainspec-") as directory:
        path = Path(directory, "stdin")
        with path.open("wb") as file:
            piece = start
            while piece:
                num_bytes.add(len(piece))
                file.write(piece)
                piece = rest.read(_PIECE_BYTES)
        yield File(path, name)


class RealPaths:
    """Finds the real paths of many files; that of their directory is found once."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def of(self, path: str | Path) -> str:
        """The same as `os.path.realpath`."""
        folder, name = os.path.split(path)
        if name in {"", ".", ".."} or os.path.islink(path):  # noqa: PTH114 - Path.is_link raises for a long name
            return os.path.realpath(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return os.path.join(self._folders[folder], name)  # noqa: PTH118 - for many files


def is_document_name(name: str) -> bool:
    """Whether a name is one of a document.

    >>> [is_document_name(name) for name in ("a.yaml", "b/A.JSON", ".yaml", "a/.yaml", "a.yaml.txt", "a.yml/", "..yml")]
    [True, True, False, False, False, True, True]
    """
    stem, _, end = name.rstrip("/").rpartition(".")
    return f".{end.lower()}" in SUFFIXES and stem != "" and not stem.endswith("/")


def may_be_renamed(name: str) -> bool:
    """Whether a name is one of a template, a text, or what is kept next to a document."""
    name = name.lower()
    return PurePath(name).suffix.strip() in _TEXT_SUFFIXES or is_document_name(_RENAMED.sub("", name))


def is_stream_name(name: str) -> bool:
    """Whether a name is one of a stream."""
    return name.lower().endswith(STREAM_SUFFIXES)


def _holds_metrics(directory: Path) -> bool:
    """Whether a directory has the metric files of an MLflow run, which are named as the metrics are."""
    return _METRICS.search(os.path.abspath(directory)) is not None  # noqa: PTH100 - Path.resolve follows links


def is_candidate(name: str) -> bool:
    """Whether a file of this name is looked at in a directory."""
    plain = name.lower().removesuffix(".gz").removesuffix(".zst")
    return is_document_name(name) or is_stream_name(name) or plain.endswith(_LOG_SUFFIXES) or _EVENT_FILE in plain
