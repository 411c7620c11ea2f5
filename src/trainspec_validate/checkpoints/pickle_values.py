"""Defines the values that represent what a pickle would build, and what they take in memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

MOST_FIELDS = 100
"""Of an object whose fields alone are kept."""
SLOT_BYTES = 16
_MOST_SHARED = 256
"""Python has each number up to this one once."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name of code; it represents itself and is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, slots=True)
class Inert:
    """Object that a pickle would build or call: what it names, with which arguments, and which state it is given."""

    function: Any
    arguments: Any = ()
    state: Any = None
    items: list[Any] = field(default_factory=list)
    before: tuple[float, float] | None = None
    """Bytes of values, and of those held by the memo, when it was made; None where it is not made smaller."""


@dataclass(eq=False, slots=True)
class Pairs:
    """A mapping as the pairs that it was given; keys are not hashed."""

    pairs: list[tuple[Any, Any]] = field(default_factory=list)

    def texts(self) -> dict[str, Any]:
        """The pairs whose keys are texts."""
        return {key: value for key, value in self.pairs if isinstance(key, str)}


@dataclass(eq=False, slots=True)
class Record:
    """An object that has nothing but fields, in little memory."""

    function: Name
    keys: tuple[str, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A text, number or line that is too long to be held."""

    num_bytes: int


def is_flat(value: Any) -> bool:
    """Whether a value holds no more than a few numbers or one text."""
    if isinstance(value, Inert):
        is_size = isinstance(value.function, Name) and value.function.name == "Size" and value.state is None
        return is_size and not value.items and isinstance(size_of(value), tuple) and is_flat(size_of(value))
    if isinstance(value, tuple):
        return len(value) <= MOST_FIELDS and all(isinstance(item, int) for item in value)
    return value is None or isinstance(value, (str, int, float))


def size_of(value: Any) -> Any:
    """The numbers of a `torch.Size`; any other value as it is."""
    if isinstance(value, Inert) and isinstance(value.arguments, tuple) and len(value.arguments) == 1:
        return value.arguments[0]
    return value


def flat_bytes(value: Any) -> int:
    """Memory of a flat value in bytes, with its place in its container.

    >>> flat_bytes(None), flat_bytes(256) < flat_bytes(257)
    (16, True)
    """
    if value is None or value is True or value is False or (isinstance(value, int) and 0 <= value <= _MOST_SHARED):
        return SLOT_BYTES
    held = sum(flat_bytes(item) - SLOT_BYTES for item in value) if isinstance(value, tuple) else 0
    return SLOT_BYTES + sys.getsizeof(value) + held
