"""Finds which attributes of modules and classes a mutant replaces, by comparison of before and after."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from registry import Mutant

PACKAGES = ("trainspec_reference", "trainspec_conformance", "trainspec_validate", "trainspec_record")
"""Where a function that is replaced is watched; a change anywhere else is always met."""
WATCHED = (FunctionType, property, staticmethod, classmethod)
"""Names that can be watched: calls and reads of them count as entries."""
Key = tuple[int, str]


@dataclass(frozen=True)
class Attribute:
    """One attribute as it was at a time."""

    owner: str
    """Module, and after a colon the path of the class in it."""
    name: str
    value: Any
    content: tuple[Any, ...]
    """Content of the value, where it can be changed in place."""

    @property
    def is_ours(self) -> bool:
        """Whether it belongs to the trainer or a library that it runs on."""
        return self.owner.partition(":")[0].partition(".")[0] in PACKAGES

    @property
    def path(self) -> str:
        """Where it is found, as `module:Class.name`."""
        return f"{self.owner}.{self.name}" if ":" in self.owner else f"{self.owner}:{self.name}"

    def is_as(self, other: Attribute) -> bool:
        """Whether nothing has changed since."""
        same = len(self.content) == len(other.content)
        return self.value is other.value and same and all(map(_is, self.content, other.content))


def replaced_by(one: Mutant) -> tuple[str, ...] | None:
    """Functions that a mutant replaces, each as `module:Class.name`; None where that is not all that it changes.

    It patches this process: call it in one that does nothing afterwards.
    """
    environment, modules, before = dict(os.environ), set(sys.modules), snapshot()
    one.patch()
    after = snapshot()
    has_task = one.task is not Mutant.task
    if has_task or environment != dict(os.environ) or modules != set(sys.modules) or before.keys() != after.keys():
        return None
    changed = [(before[key], after[key]) for key in before if not before[key].is_as(after[key])]
    if not changed or not all(_can_be_watched(old, new) for old, new in changed):
        return None
    return tuple(sorted(old.path for old, _ in changed))


def _can_be_watched(old: Attribute, new: Attribute) -> bool:
    """Whether one function took the place of another, and nothing else happened."""
    if not old.is_ours or old.value is new.value or type(old.value) is not type(new.value):
        return False
    return isinstance(old.value, WATCHED) and _found(old.path) is new.value


def _found(path: str) -> Any:
    """What stands at a path, as it is kept there."""
    module, _, inner = path.partition(":")
    *classes, name = inner.split(".")
    owner: Any = sys.modules.get(module)
    for one in classes:
        owner = getattr(owner, one, None)
    return getattr(owner, "__dict__", {}).get(name)


def snapshot() -> dict[Key, Attribute]:
    """Every attribute of every module that is loaded, and of every class that one of them names."""
    found = {}
    for number, owner, space in _spaces():
        for name, value in tuple(space.items()):
            one = Attribute(owner, name, value, ())
            found[number, name] = Attribute(owner, name, value, _content(value)) if one.is_ours else one
    return found


def _spaces() -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    """Modules and classes, each once: which one it is, how it is called, and what it holds."""
    pending: list[type] = []
    for name, module in tuple(sys.modules.items()):
        space = getattr(module, "__dict__", {})
        yield id(module), name, space
        pending += [value for value in tuple(space.values()) if isinstance(value, type)]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield id(one), f"{one.__module__}:{one.__qualname__}", vars(one)
            pending += [value for value in vars(one).values() if isinstance(value, type)]


def _content(value: Any) -> tuple[Any, ...]:
    match value:
        case dict():
            return tuple(part for pair in value.items() for part in pair)
        case list() | set():
            return tuple(value)
        case FunctionType():
            own = tuple(part for pair in vars(value).items() for part in pair)
            return (value.__code__, value.__defaults__, value.__kwdefaults__, *own)
        case ModuleType() | type():
            return ()
    return _content(getattr(value, "__dict__", {}))


def _is(one: Any, other: Any) -> bool:
    return one is other
