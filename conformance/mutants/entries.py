"""Notes which functions the processes of a stack enter, without a change to their behaviour."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

WATCHED, ENTERED = "TRAINSPEC_MUTANTS_WATCHED", "TRAINSPEC_MUTANTS_ENTERED"
"""Variables that name the file of what is watched, a line each, and the file for what was entered."""
Note = Callable[[str], None]


def record() -> None:
    """Note from now on what this process enters, before it does."""
    watch(Path(os.environ[WATCHED]).read_text(encoding="ascii").split(), Notes(Path(os.environ[ENTERED])))


class Notes:
    """Names, each once for a process, in a file that all processes of a stack share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: set[str] = set()

    def __call__(self, name: str) -> None:
        """Note a name; it is on the file when this returns."""
        if name in self._known:
            return
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(file, f"{name}\n".encode("ascii"))
        finally:
            os.close(file)
        self._known.add(name)


def entered(path: Path) -> set[str]:
    """Names that were noted in a file; none where no process has noted any."""
    return set(path.read_text(encoding="ascii").split()) if path.exists() else set()


def watch(paths: Iterable[str], note: Note) -> None:
    """Put what notes a function in the place of the function, at just the attribute that is named.

    Args:
        paths: each as `module:Class.name`, of a module that is loaded.
        note: called with the path before the function runs.
    """
    for path in paths:
        module, _, inner = path.partition(":")
        *classes, name = inner.split(".")
        owner: Any = sys.modules[module]
        for one in classes:
            owner = getattr(owner, one)
        setattr(owner, name, _watched(vars(owner)[name], path, note))


def _watched(value: Any, path: str, note: Note) -> Any:
    match value:
        case staticmethod() | classmethod():
            return type(value)(_noting(value.__func__, path, note))
        case property():
            get, put, delete = (one and _noting(one, path, note) for one in (value.fget, value.fset, value.fdel))
            return property(get, put, delete, value.__doc__)
    return _noting(value, path, note)


def _noting(function: Callable[..., Any], path: str, note: Note) -> Callable[..., Any]:
    @functools.wraps(function)
    def noting(*arguments: Any, **more: Any) -> Any:
        note(path)
        return function(*arguments, **more)

    return noting
