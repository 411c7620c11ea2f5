"""Declares the interface of the readers of a node, and reads small files of the kernel for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_BYTES = 65_536
"""More than any file of the kernel that is read here."""
MOST = 2**60
"""No counter of a kernel gets there, and a record cannot hold much more."""


@dataclass
class Reading:
    """Values of one subject at one moment."""

    m: dict[str, Any]
    device: str | None = None
    """`hw.id`; None for values of the node."""
    start_us: int | None = None
    """When the counters among the values began to count; None where the head says it."""


@dataclass
class Source:
    """One reader of a node: what it can give here, and what not."""

    scopes: frozenset[str] = frozenset()
    read: Callable[[], Iterator[Reading]] | None = None
    """Readings of this moment; None where there are none."""
    declared: dict[str, Any] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    """Metrics that it would give elsewhere, each with the reason."""
    extension_metrics: dict[str, dict[str, str]] = field(default_factory=dict)
    """Metrics of a vendor that it gives in addition to those of the catalog."""
    close: Callable[[], None] | None = None


def read_text(path: Path) -> str | None:
    """The text of a small file; None where it is not there, or cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return None


def read_whole(path: Path) -> int | None:
    """The whole number that a file holds; None where it holds none."""
    return whole(read_text(path) or "")


def whole(text: str) -> int | None:
    """The number that a text is; None where it is none, or is out of all bounds."""
    try:
        found = int(text)
    except ValueError:
        return None
    return found if abs(found) < MOST else None


def listed(folder: Path, pattern: str = "*") -> list[Path]:
    """Entries of a folder in order; none where it is not there."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []
