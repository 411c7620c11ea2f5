"""Finds the files behind what the user named: files, directories and patterns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from trainspec_validate.boundary import refusal_of, untrusted
from trainspec_validate.budget import Limit, OverLimitError

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
"""Ends of names under which a directory is searched for streams; a file that is named is told by its content."""
OWN_NAMES = frozenset({"cluster", "plan", "checkpoint"})
"""File names without suffix that are always ours, whatever they hold."""
STDIN = "-"
STDIN_NAME = "<stdin>"
_SKIPPED_DIRECTORIES = frozenset({"node_modules", "__pycache__", "site-packages"})
_WILDCARDS = frozenset("*?[")
MARK = b"trainspec/v"
"""What every document of ours says of its version."""
_MOST_LEVELS: Final = Limit("a directory", 100, "levels of directories")
_MOST_FILES: Final = Limit("a directory", 1_000_000, "files")


class InputError(Exception):
    """What the user named cannot be judged: it does not exist, cannot be read, or holds nothing of ours."""


class NothingFoundError(InputError):
    """A directory holds no document and no stream; it may hold checkpoints."""

    def __init__(self, argument: str) -> None:
        super().__init__(f"{argument}: the directory holds no YAML or JSON file, no stream and no checkpoint")
        self.argument = argument


def unreadable(name: str) -> Callable[[str, str], InputError]:
    """How to tell that the file of a name cannot be read."""
    return lambda reason, remedy: InputError(f"{name}: {reason}; {remedy}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file to load; one that was only found in a directory may turn out not to be ours."""

    path: Path
    name: str
    found: bool
    argument: str = ""
    """The directory or pattern that it was found in."""


def collect(arguments: Iterable[str], failures: list[InputError]) -> list[Candidate]:
    """The files behind the arguments, each once, in the order given and then by name.

    An argument that does not exist, or holds no YAML or JSON file, is added to `failures`.
    """
    candidates: dict[str, Candidate] = {}
    for argument in arguments:
        try:
            with untrusted(unreadable(argument)):
                expanded = list(_expand(argument, failures))
        except InputError as error:
            failures.append(error)
            continue
        for candidate in expanded:
            key = os.path.realpath(candidate.path)
            if key not in candidates or not candidate.found:
                candidates[key] = candidate
    return list(candidates.values())


def _expand(argument: str, failures: list[InputError]) -> Iterator[Candidate]:
    path = Path(argument)
    if not argument:
        raise InputError("a path is empty; write . for the working directory")
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        num_failures = len(failures)
        files = list(walk(path, failures=failures))
        if not files and len(failures) == num_failures:
            raise NothingFoundError(argument)
        for file in files:
            yield Candidate(file, file.as_posix(), True, argument)
    elif os.path.exists(path):  # noqa: PTH110 - so does Path.exists
        yield Candidate(path, path.as_posix(), found=False)
    elif _WILDCARDS & set(argument):
        try:
            matches = sorted(_glob(argument))
        except (ValueError, NotImplementedError, RecursionError) as error:
            raise InputError(
                f"{argument}: this is not a pattern; write ** only as a whole step, as in a/**/b*"
            ) from error
        if not matches:
            raise InputError(f"{argument}: no file matches the pattern")
        for match in matches:
            yield Candidate(match, match.as_posix(), True, argument)
    else:
        reason = "the link leads nowhere" if os.path.islink(path) else f"no such file or directory{_nearby(path)}"  # noqa: PTH114
        raise InputError(f"{argument}: {reason}")


def _nearby(path: Path) -> str:
    from trainspec_validate.suggest import did_you_mean  # noqa: PLC0415

    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    near = did_you_mean(path.name, names)
    return f"; did you mean {(path.parent / near).as_posix()!r}?" if near else ""


def _glob(pattern: str) -> Iterator[Path]:
    pure = PurePath(pattern)
    if any("**" in part and part != "**" for part in pure.parts):  # Python 3.13 reads it as *, older ones refuse it
        raise ValueError(pattern)
    anchor = Path(pure.anchor) if pure.anchor else Path()
    relative = pure.relative_to(pure.anchor) if pure.anchor else pure
    plain = next((n for n, part in enumerate(pure.parts) if _WILDCARDS & set(part)), 0)
    for match in anchor.glob(str(relative)):
        if match.is_file() and _fits(match.name) and not _behind_link(match, plain):
            yield match


def _behind_link(path: Path, num_named: int) -> bool:
    """Whether the path leads through a link below what the user spelt out."""
    parts = path.parts
    return any(Path(*parts[: end + 1]).is_symlink() for end in range(num_named, len(parts)))


def walk(
    directory: Path,
    entered: Callable[[int], None] | None = None,
    *,
    deep: bool = True,
    failures: list[InputError] | None = None,
) -> Iterator[Path]:
    """Documents and streams below a directory, without hidden files and without following links.

    `entered` is called with the number of entries of each directory. Without `deep` the directory alone is looked at.
    What cannot be searched is added to `failures`.
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
            if failures is not None:
                failures.append(_unsearched(parent, error))
            continue
        if entered:
            entered(len(entries))
        for entry in entries:
            if _is_candidate(entry):
                num_files += 1
                if num_files > _MOST_FILES.most:
                    if failures is not None:
                        failures.append(_unsearched(directory, OverLimitError(_MOST_FILES)))
                    return
                yield Path(parent, entry.name)
        if deep:
            pending += [(Path(parent, entry.name), level + 1) for entry in reversed(entries) if _is_searched(entry)]


def _is_candidate(entry: os.DirEntry[str]) -> bool:
    named = _fits(entry.name) and not entry.name.startswith(".")
    return named and not entry.is_symlink() and not entry.is_dir(follow_symlinks=False)


def _is_searched(entry: os.DirEntry[str]) -> bool:
    named = not entry.name.startswith(".") and entry.name not in _SKIPPED_DIRECTORIES
    return named and entry.is_dir(follow_symlinks=False)


def _unsearched(directory: Path, error: Exception) -> InputError:
    """Why what lies below a directory is not judged."""
    reason, remedy = refusal_of(error) or (str(error), "")
    if isinstance(error, OverLimitError):
        return InputError(f"{directory.as_posix()}: {reason}; not all of it was searched, name the directories in it")
    return InputError(f"{directory.as_posix()}: {reason.replace('file', 'directory', 1)}; {remedy}")


def _fits(name: str) -> bool:
    """Whether a name is one of a document or of a stream."""
    return PurePath(name).suffix in SUFFIXES or name.endswith(STREAM_SUFFIXES)


def is_ours(candidate: Candidate, content: bytes) -> bool:
    """Whether a file that was found in a directory claims to be a TrainSpec document."""
    stem = candidate.path.name.split(".")[0]
    return MARK in content or stem in OWN_NAMES or ".trainspec." in candidate.path.name
