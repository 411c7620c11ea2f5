"""Collects the formats which the modules of a package list in `FORMATS`."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Protocol, TypeVar


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
