"""Defines what is found in a pickle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.checkpoints.extents import Misfits


@dataclass(slots=True)
class Content:
    """Content of a pickle."""

    value: Any
    denied: list[str]
    """Names of code outside the allow-list, each once."""
    references: list[Any] = field(default_factory=list)
    """Objects outside of itself that it refers to, such as storages."""
    functions: list[str] = field(default_factory=list)
    """Those of the denied names that run something, and are no classes."""
    limit: str = ""
    """Which limit it passes, so that no more of it was followed."""
    damage: str = ""
    """In which way something that has to be a pickle is none."""
    misfits: Misfits = field(default_factory=Misfits)
    """Tensors and arrays that take more than their storages or bytes hold."""
    is_whole: bool = False
    """Whether it was followed up to its end."""
