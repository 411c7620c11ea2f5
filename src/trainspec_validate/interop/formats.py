"""Registers foreign formats, lists those that can be read, and detects the format of a text."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Protocol, TypeVar

from trainspec_validate.interop import readers
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment, Kind
from trainspec_validate.model.suggest import hint


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str:
        """Short name that people type."""
        ...


Entry = TypeVar("Entry", bound=Named)


def collected(package: ModuleType, kind: type[Entry]) -> dict[str, Entry]:
    """Every format of a package by name, in the order of names.

    Raises:
        ValueError: two modules claim one name, or a module lists something else.
    """
    found: dict[str, Entry] = {}
    for module in sorted(item.name for item in pkgutil.iter_modules(package.__path__)):
        if module.startswith("_"):
            continue
        for entry in importlib.import_module(f"{package.__name__}.{module}").FORMATS:
            if not isinstance(entry, kind):
                raise ValueError(f"{module} lists {entry!r}, which is no {kind.__name__}")
            if entry.name in found:
                raise ValueError(f"two modules claim the format {entry.name}")
            found[entry.name] = entry
    return dict(sorted(found.items()))


_TRAINSPEC = re.compile(
    r"""^apiVersion[ \t]*:[ \t]*["']?trainspec/|"apiVersion"[ \t]*:[ \t]*"trainspec/""", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Format:
    """One foreign format that can be read."""

    name: str
    """Short name, for example `slurm-topology-conf`."""
    title: str
    """What it is, in a few words for the list of formats."""
    kind: Kind
    looks_like: Callable[[ForeignText], bool]
    """Whether a text is written in it, judged by content alone; cheap, and never raises."""
    read: Callable[[ForeignText], Fragment]
    """Raises `ForeignFormatError` for what it cannot read."""


@cache
def formats() -> Mapping[str, Format]:
    """Every format by name, in the order of names."""
    return collected(readers, Format)


def recognise(text: ForeignText) -> Format:
    """The one format that a text is written in.

    Raises:
        ForeignFormatError: no format fits, or several do, or the text is a document already.
    """
    fitting = [entry for entry in formats().values() if entry.looks_like(text)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(entry.name for entry in fitting)
        raise ForeignFormatError(f"fits several formats: {names}", help="name one with --format")
    if not text.text.strip():
        raise ForeignFormatError("the file is empty", help="the program that wrote it may have failed; run it again")
    if _TRAINSPEC.search(text.text):
        raise ForeignFormatError("this already is a TrainSpec document", help="validate it with trainspec-validate")
    raise ForeignFormatError("fits no known format", help="`trainspec import --list` shows what is read")


def by_name(name: str) -> Format:
    """The format of a name.

    Raises:
        ForeignFormatError: there is none.
    """
    try:
        return formats()[name]
    except KeyError:
        told = hint(name, formats()) or "`trainspec import --list` shows what is read"
        raise ForeignFormatError(f"no format {name!r}; {told}") from None
