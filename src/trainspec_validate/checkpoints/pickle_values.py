"""Defines the values that represent what a pickle would build, and what they take in memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.system.budget import Count

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


class Items(list[Any]):
    """The items of a set, in order."""


_CONTAINERS = frozenset({tuple, list, Items, Inert, Pairs})
_TEXTS = frozenset({str, bytes, bytearray})
_LEVELS_OF_A_CALL = 5
"""Levels of its arguments that the judgement of a call goes into, at most."""
_CHARACTERS_OF_A_LOOK = 64


class InertError(ValueError):
    """An inert value does not take what the object of a program takes."""


_MUTABLE = frozenset(
    {"list", "dict", "set", "bytearray", "OrderedDict", "defaultdict", "Counter", "deque", "SimpleNamespace"}
)
"""Classes of Python whose objects are no keys."""
_FILLED = {
    "list": {"list", "deque", "bytearray"},
    "set": {"set"},
    "mapping": {"list", "dict", "bytearray", "OrderedDict", "defaultdict", "Counter", "deque"},
}
"""Those of them that operations put values, items or pairs into."""
_OF_PYTHON = frozenset({"builtins", "__builtin__", "collections", "types"})
_MOST_IN_A_KEY = 10_000
_MOST_KEY_LEVELS = 500
"""Python hashes tuples in tuples by calls of its own, which overrun its stack, and each as often as it is held."""


def items_of(value: Any, kind: str) -> list[Any]:
    """The values of a `list`, the items of a `set` or the pairs of a `mapping`, to put more into.

    Raises:
        InertError: the value is another one.
    """
    if isinstance(value, Inert):
        made = value.function
        is_known = isinstance(made, Name) and made.module in _OF_PYTHON and made.name in _MUTABLE
        if not is_known or made.name in _FILLED[kind]:
            return value.items
    elif kind == "mapping" and isinstance(value, Pairs):
        return value.pairs
    elif isinstance(value, list) and isinstance(value, Items) == (kind == "set") and kind != "mapping":
        return value
    raise InertError(f"something is put into what is no {kind}")


def look_into(value: Any, looks: Count, levels: int = _LEVELS_OF_A_CALL) -> None:
    """Count the values that are looked at in the arguments or the state of a call, before they are.

    Raises:
        OverLimitError: they are more than the limit.
    """
    kind = type(value)
    parts = (value.arguments, value.items, value.state) if kind is Inert else value.pairs if kind is Pairs else value
    looks.add(len(parts))
    if levels and kind is not Pairs:
        for part in parts:
            if type(part) in _CONTAINERS:
                look_into(part, looks, levels - 1)
            elif type(part) in _TEXTS:
                looks.used += len(part) // _CHARACTERS_OF_A_LOOK


def checked_keys(values: list[Any], looks: Count) -> list[Any]:
    """Keys of a mapping, or items of a set.

    Raises:
        OverLimitError: they hold more values than are looked at.
        ValueError: Python cannot hash one, or not in bounded time.
    """
    for value in values:
        if type(value) is not str and type(value) is not int:
            looks.add(_check_key(value))
    return values


def pairs_of(values: list[Any], looks: Count) -> Pairs:
    """The mapping of keys and values that follow each other.

    Raises:
        OverLimitError: the keys hold more values than are looked at.
        ValueError: one has no hash, or no value.
    """
    if len(values) % 2:
        raise ValueError("a key has no value")
    checked_keys(values[::2], looks)
    return Pairs(list(zip(values[::2], values[1::2], strict=True)))


def _check_key(key: Any) -> int:
    """The number of values in a key."""
    level, num_values = [key], 0
    for _ in range(_MOST_KEY_LEVELS):
        num_values += len(level)
        if not level or num_values > _MOST_IN_A_KEY:
            break
        if any(_is_mutable(value) for value in level):
            raise ValueError("a key or an item of a set is a list, a set or a mapping, which has no hash")
        level = [inner for value in level if type(value) is tuple for inner in value]
    if level:
        raise ValueError("a key holds too many values in values, which a loader would hash one by one")
    return num_values


def _is_mutable(value: Any) -> bool:
    if isinstance(value, Inert):
        made = value.function
        is_array = isinstance(made, Name) and made.name == "_reconstruct" and made.module.startswith("numpy.")
        return is_array or (isinstance(made, Name) and made.module in _OF_PYTHON and made.name in _MUTABLE)
    return isinstance(value, list | Pairs | bytearray)


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
