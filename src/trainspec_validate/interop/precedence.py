"""Decides which of two different facts of two files stays."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from trainspec_validate.interop.fragment import Unknown
from trainspec_validate.model.finding import Pointer

Inputs = Mapping[Pointer, Any]
"""Values that a fact was computed from, by their places."""
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Side:
    """Facts of one file."""

    value: Any
    name: str
    """Name of the file."""
    default: bool
    """Whether the value rests on a default of a framework."""

    def __str__(self) -> str:
        text = repr(self.value) if isinstance(self.value, list | dict) else str(self.value)
        told = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        return f"{told} by {self.name}{' (a default)' if self.default else ''}"


def prefer(place: Pointer, present: Side, new: Side) -> tuple[bool, str]:
    """Whether the new value replaces the present one, and the remark that names both.

    >>> prefer(("memory", "activation_policy"), Side("none", "a.json", True), Side("full", "b.yaml", False))[1]
    'memory.activation_policy is full by b.yaml, which is taken, and none by a.json (a default)'
    """
    replaced = present.default and not new.default
    taken, left = (new, present) if replaced else (present, new)
    return replaced, f"{'.'.join(map(str, place))} is {taken}, which is taken, and {left}"


def forget(place: Pointer, *tables: MutableMapping[Pointer, Any]) -> None:
    """Remove from tables by place what is said of a place and of those inside it."""
    for table in tables:
        for inner in [key for key in table if key[: len(place)] == place]:
            del table[inner]


def value_at(facts: Any, place: Pointer) -> Any:
    """The value at a path of keys and positions; None where there is none.

    >>> value_at({"tiers": [{"num_switches": 4}]}, ("tiers", 0, "num_switches")), value_at({}, ("tiers", 0))
    (4, None)
    """
    for key in place:
        if isinstance(facts, dict) and key in facts:
            facts = facts[str(key)]
        elif isinstance(facts, list) and isinstance(key, int) and key < len(facts):
            facts = facts[key]
        else:
            return None
    return facts


def drop_outdated(
    facts: dict[str, Any],
    inputs: MutableMapping[Pointer, Inputs],
    origins: MutableMapping[Pointer, str],
    *tables: MutableMapping[Pointer, Any],
) -> list[Unknown]:
    """Remove the facts that a file computed from values which did not stay; they, with the reason.

    `inputs` holds every computed fact with the values that it was computed from, `origins` the file of every fact;
    `tables` are others by place that lose the facts too.
    """
    dropped: list[Unknown] = []
    changed = True
    while changed:
        changed = False
        for place, values in list(inputs.items()):
            stale = next((item for item, value in values.items() if value_at(facts, item) != value), None)
            inner = value_at(facts, place[:-1])
            if stale is None or not isinstance(inner, dict):
                continue
            how = f"{origins.get(place, 'a file')} computes it from {'.'.join(map(str, stale))}"
            dropped.append(Unknown(place, f"{how}, of which another file says otherwise"))
            inner.pop(str(place[-1]), None)
            forget(place, inputs, origins, *tables)
            changed = True
    return dropped
