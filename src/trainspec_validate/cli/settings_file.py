"""Finds and reads the settings of a project: `trainspec.toml`, or `[tool.trainspec]`."""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from trainspec_validate.model.suggest import hint
from trainspec_validate.pipeline.excluded import anchored
from trainspec_validate.system.boundary import open_regular, untrusted, words_of
from trainspec_validate.system.budget import Limit, OverLimitError
from trainspec_validate.system.repository import TOOLS

OWN_FILE = "trainspec.toml"
PROJECT_FILE = "pyproject.toml"
Kind = Literal["text", "number", "list", "flag", "path", "data", "outputs", "files"]
"""Kind of value of a setting; a `path` is relative to its file and stays below it, `outputs` are formats without FILE.

`data` are paths of files that are read and never run. `files` are patterns, relative to the directory of the file; to
the working directory in a file of `--config`.
"""

_FORMS: Mapping[Kind, str] = {
    "text": 'text, such as {key} = "..."',
    "number": "a number, such as {key} = 4",
    "list": 'text or a list of texts, such as {key} = ["..."]',
    "flag": "{key} = true or {key} = false",
    "path": 'a path relative to this file, such as {key} = "..."',
    "data": 'a path or a list of paths relative to this file, such as {key} = ["..."]',
    "files": 'a pattern or a list of patterns, such as {key} = ["tests/**"]',
    "outputs": 'text or a list of texts, such as {key} = "full"',
}


_LISTS: Final = frozenset({"list", "data", "outputs", "files"})
_MOST_BYTES: Final = Limit("a settings file", 1_000_000, "bytes")
_MOST_KEYS: Final = Limit("a settings file", 50_000, "keys and parts of keys")
_MOST_PARTS: Final = Limit("a settings file", 32, "parts of one dotted key")
_NO_KEYS = re.compile(
    r"""
    "{3}(?:[^\\]|\\.)*?"{3} | "{3}.*+ | '{3}.*?'{3} | '{3}.*+
    | "(?:[^"\\\n]|\\[^\n])*+" | "[^\n]*+ | '[^'\n]*+' | '[^\n]*+
    | \#[^\n]*+
    """,
    re.DOTALL | re.VERBOSE,
)
"""Strings and comments of TOML. A string without its end takes the rest of the text, or of its line, where the reader
of TOML stops too: looking for an end again from each later quote would take the square of the time."""
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{int(_MOST_PARTS.most)}}}")
_NO_NAME = re.compile(r"[\s'\"]+")
"""Space and quotes around the parts of a key."""
_UTF_16_STARTS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PIECE_BYTES = 1 << 20
"""How much of two files is compared at a time."""


class ConfigError(Exception):
    """The settings cannot be used; the text names the file and says what would be right."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one file, with paths seen from the working directory."""

    path: Path
    values: Mapping[str, Any]


def load(
    kinds: Mapping[str, Kind],
    explicit: str | None = None,
    start: Path | None = None,
    tree: Path | None = None,
    home: Path | None = None,
) -> Settings | None:
    """The settings of the file that was named, else of `tree`, else of the nearest file from `start` upwards.

    `tree` is a copy of another state of `home` that is searched alone, from the directory that corresponds to the
    working directory upwards: where it has no settings, there are none. `start` and `home` are the working directory
    by default.

    Raises:
        ConfigError: the file cannot be read, is a link out of the tree, holds an unknown key or a value of the wrong
            kind, or both files of one directory hold settings.
    """
    if explicit is not None:
        path = Path(explicit)
        return _settings(path, _read(path), kinds)
    found = _first(_nearest(start or Path.cwd()) if tree is None else _nearest_in(tree, home or Path.cwd()))
    if found is None:
        return None
    here = start or Path.cwd() if tree is None else tree / _inner(home or Path.cwd())
    return _settings(*found, kinds, os.path.relpath(found[0].parent, here))


def _settings(path: Path, content: bytes, kinds: Mapping[str, Kind], directory: str = ".") -> Settings:
    """What a file says; it is written by whoever wrote what is judged. `directory` is its own, from the working one."""
    with untrusted(_unreadable(path)):
        return _checked(path, _table(path, content), kinds, directory)


def _unreadable(path: Path) -> Callable[[str, str], ConfigError]:
    """How to tell that settings cannot be read."""
    return lambda reason, remedy: ConfigError(f"{path}: the settings cannot be read: {reason}; {remedy}")


def changed(tree: Path, home: Path, named: Iterable[str], *, nearest: bool = True) -> list[str]:
    """Which of some files, and of the nearest settings, differ between `tree` and `home`, of which it is a copy."""
    names = [relative_to_here(home / name) for name in named if not _same(home / name, tree / name)]
    (own, content), (counts, other) = _content(_nearest(Path.cwd())), _content(_nearest_in(tree, home))
    return names if content == other or not nearest else [own or counts, *names]


def _content(places: Iterable[tuple[Path, Path]]) -> tuple[str, object]:
    """The name of a file with settings, and what a comparison looks at: a project file holds much else."""
    try:
        found = _first(places)
    except ConfigError as error:
        return "the settings file", str(error)
    if found is None or found[0].name == OWN_FILE:
        return (found[0].name, found[1]) if found else ("", None)
    try:
        return PROJECT_FILE, _table(*found)
    except (ConfigError, ValueError, RecursionError):
        return PROJECT_FILE, found[1]


def _same(one: Path, other: Path) -> bool:
    """Whether two regular files have one content; links and what is absent are never the same."""
    try:
        if not all(stat.S_ISREG(file.lstat().st_mode) for file in (one, other)):
            return False
        with one.open("rb") as first, other.open("rb") as second:
            while (piece := first.read(_PIECE_BYTES)) == second.read(_PIECE_BYTES):
                if not piece:
                    return True
    except OSError:
        pass
    return False


def _first(places: Iterable[tuple[Path, Path]]) -> tuple[Path, bytes] | None:
    """The first file that holds settings, and its content.

    Raises:
        ConfigError: it cannot be read, is a link out of its tree, or its directory has settings in another file too.
    """
    for directory, tree in places:
        files = [directory / name for name in (OWN_FILE, PROJECT_FILE)]
        own, project = (path if os.path.lexists(path) and not os.path.isdir(path) else None for path in files)  # noqa: PTH112 - Path.is_dir raises for some
        if own is not None and not _is_inside(own, tree):
            raise _leads_out(own, tree)
        content = _read(project) if project is not None and (own is None or _is_plain(project, tree)) else b""
        if own is not None:
            if _has_settings(content):
                raise ConfigError(f"{own}: {PROJECT_FILE} next to it holds settings too ([tool.trainspec]); keep one")
            return own, _read(own)
        if project is not None and _has_settings(content):
            if not _is_inside(project, tree):
                raise _leads_out(project, tree)
            return project, content
    return None


def _leads_out(path: Path, tree: Path) -> ConfigError:
    """Why settings are not read that a link leads to, whose text is not printed."""
    return ConfigError(f"{path}: this is a link out of {tree}; put the settings themselves there")


def _is_plain(path: Path, tree: Path) -> bool:
    """Whether a file can be read and leads nowhere else."""
    return os.path.isfile(path) and _is_inside(path, tree)  # noqa: PTH113 - Path.is_file raises for some


def _has_settings(content: bytes) -> bool:
    """Whether a project file holds settings of ours, however the key is written; or would, if it were TOML."""
    if content.startswith(_UTF_16_STARTS):
        return _line_of_settings(content.decode("utf-16", "replace")) > 0
    if b"trainspec" not in content:
        return False
    import tomllib  # noqa: PLC0415 - most projects have no settings

    text = content.decode("utf-8", "replace")
    try:
        _bounded(text)
        tools = tomllib.loads(text).get("tool")
    except (ValueError, RecursionError, OverLimitError):
        return _line_of_settings(text) > 0
    return isinstance(tools, dict) and "trainspec" in tools


def _line_of_settings(text: str) -> int:
    """The line on which `tool.trainspec` begins, as a table or a key; 0 where there is none."""
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        bare = _NO_NAME.sub("", line).removeprefix("\ufeff")
        key, assigned, _ = bare.partition("=")
        if bare.startswith("["):
            name = section = bare.strip("[").partition("]")[0]
        else:
            name = f"{section}.{key}".lstrip(".") if assigned else ""
        if f"{name}.".startswith("tool.trainspec.") or (name == "tool" and "trainspec" in bare):
            return number
    return 0


def _nearest(start: Path) -> Iterator[tuple[Path, Path]]:
    """Directories that may hold settings, nearest first, each with the tree that it is judged as a part of.

    The top of a repository is that tree and ends the search. Without a repository a directory is a tree of its own.
    """
    places = (start, *start.parents)
    top = next((place for place in places if (place / ".git").exists()), None)
    for directory in places:
        yield directory, top or directory
        if directory == top:
            return


def _nearest_in(tree: Path, home: Path) -> Iterator[tuple[Path, Path]]:
    """Directories of a copy of `home` that may hold settings, from what corresponds to the working one upwards."""
    inner = _inner(home)
    for part in (inner, *inner.parents):
        yield tree / part, tree


def _inner(home: Path) -> Path:
    """The working directory, from `home`."""
    return Path(os.path.relpath(os.path.realpath(Path.cwd()), os.path.realpath(home)))


def _is_inside(path: Path, tree: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(tree))


def _read(path: Path) -> bytes:
    with untrusted(_unreadable(path)), open_regular(path) as file:
        content = file.read(int(_MOST_BYTES.most) + 1)
        _MOST_BYTES.check(len(content))
        return content


def _table(path: Path, content: bytes) -> Mapping[str, Any]:
    import tomllib  # noqa: PLC0415 - most projects have no settings

    if content.startswith((codecs.BOM_UTF8, *_UTF_16_STARTS)):
        raise ConfigError(
            f"{path}: this begins with a byte order mark, which TOML has not; save it as UTF-8 without one"
        )
    try:
        text = content.decode("utf-8")
        _bounded(text)
        whole = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: this is not TOML in UTF-8: {words_of(error)}") from error
    table = whole
    for key in ("tool", "trainspec") if path.name == PROJECT_FILE else ():
        table = table.get(key, {}) if isinstance(table, dict) else table
    if not isinstance(table, dict):
        line = _line_of_settings(text)
        place = f"{path}:{line}" if line else path
        raise ConfigError(f"{place}: tool.trainspec is not a table; write [tool.trainspec] and the settings below it")
    return table


def _bounded(text: str) -> None:
    """Refuse what the reader of TOML would take memory for beyond all bounds: it grows with the square of dotted keys.

    Raises:
        OverLimitError: there are too many keys, or one has too many parts.
    """
    bare = _NO_KEYS.sub(lambda found: "" if found[0].startswith("#") else "q", text)
    _MOST_KEYS.check(bare.count(".") + bare.count("=") + bare.count("["))
    if _LONG_KEY.search(bare):
        raise OverLimitError(_MOST_PARTS)


def _checked(path: Path, table: Mapping[str, Any], kinds: Mapping[str, Kind], directory: str) -> Settings:
    values = {}
    for key, value in table.items():
        if key not in kinds:
            nearest = hint(key, kinds) or f"one of: {', '.join(kinds)}"
            raise ConfigError(f"{path}: unknown setting {key!r}; {nearest}")
        kind = kinds[key]
        if kind in _LISTS and isinstance(value, str):
            value = [value]  # noqa: PLW2901
        if not _fits(kind, value):
            raise ConfigError(f"{path}: {key} is {_FORMS[kind].format(key=key)}")
        if kind == "number":
            value = str(value)  # noqa: PLW2901
        if kind == "outputs" and any("=" in item for item in value):
            raise ConfigError(f"{path}: {key} names a file; where a report goes is said on the command line only")
        if kind == "path":
            value = _below(path, key, value)  # noqa: PLW2901
        if kind == "data":
            value = [_data(path, key, item) for item in value]  # noqa: PLW2901
        if kind == "files":
            value = [anchored(item, directory) for item in value]  # noqa: PLW2901
        values[key] = value
    return Settings(path, values)


def _below(path: Path, key: str, value: str) -> str:
    """A path that stays below the directory of the settings, seen from the working directory."""
    if not Path(os.path.realpath(path.parent / value)).is_relative_to(os.path.realpath(path.parent)):
        raise ConfigError(f"{path}: {key} leads out of the directory of this file; name it on the command line")
    if any(part.lower() in TOOLS for part in Path(os.path.realpath(path.parent / value)).parts):
        raise ConfigError(f"{path}: {key} leads into a directory of version control; name another file")
    return relative_to_here(path.parent / value)


def _data(path: Path, key: str, value: str) -> str:
    """A path of a file that is data; settings come with what is judged, so they never make anything run."""
    if not value.endswith((".yaml", ".yml", ".json")):
        raise ConfigError(f"{path}: {key} names {value}, which is not YAML; code is named on the command line only")
    return _below(path, key, value)


def _fits(kind: Kind, value: Any) -> bool:
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int | float | str) and not isinstance(value, bool)
    if kind in _LISTS:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return isinstance(value, str)


def relative_to_here(path: Path) -> str:
    """A path seen from the working directory."""
    try:
        return os.path.relpath(path)
    except ValueError:  # another drive
        return str(path)
