"""Describes a foreign format, and collects the formats that the modules of a package list."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, TypeVar

from trainspec_validate.interop.fragment import ForeignText, Fragment, Kind


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


@dataclass(frozen=True, slots=True)
class Format:
    """One foreign format that can be read."""

    name: str
    """Short name, for example `slurm-topology-conf`."""
    title: str
    """Title, in a few words for the list of formats."""
    kind: Kind
    looks_like: Callable[[ForeignText], bool]
    """Whether a text is written in it, judged by content alone; cheap, and never raises."""
    read: Callable[[ForeignText], Fragment]
    """Raises `ForeignFormatError` for what it cannot read."""
