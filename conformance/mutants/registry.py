"""Holds the mutants of the reference trainer, each with the requirement that it breaks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from entries import record

from trainspec_validate.documents.types.conformance import Task

HONEST = "honest"
"""Name of the stack without a defect, which records the functions that it enters."""
MODULES = (
    "lies_of_recovery",
    "lies_of_hosts",
    "lies_of_checkpoints",
    "lies_of_resumes",
    "lies_of_numbers",
    "lies_of_machines",
    "lies_of_telemetry",
    "lies_of_training",
    "lies_of_stores",
    "lies_of_outcomes",
    "lies_by_recognition",
    "lies_of_shortcuts",
)
Patch = Callable[[], None]


@dataclass(frozen=True)
class Mutant:
    """One stack with a defect."""

    name: str
    lie: str
    requirement: str
    """The requirement that it has to fail."""
    also: Mapping[str, str] = field(default_factory=dict)
    """Requirements that it may fail too, each with the reason."""
    patch: Patch = lambda: None
    """Changes the reference trainer in the controller and in each worker."""
    task: Callable[[Task], Task] = lambda task: task
    """Changes what the stack is asked for."""


_MUTANTS: dict[str, Mutant] = {}


def mutant(name: str, requirement: str, lie: str, also: Mapping[str, str] | None = None) -> Callable[[Patch], Patch]:
    """Makes a function that patches the reference trainer a mutant."""

    def register(patch: Patch) -> Patch:
        add(Mutant(name, lie, requirement, also or {}, patch))
        return patch

    return register


def add(one: Mutant) -> None:
    """Register a mutant.

    Raises:
        ValueError: its name is taken.
    """
    if one.name in _MUTANTS or one.name == HONEST:
        raise ValueError(f"two mutants are called {one.name}")
    _MUTANTS[one.name] = one


def all_mutants() -> dict[str, Mutant]:
    """Every mutant by its name."""
    for module in MODULES:
        importlib.import_module(module)
    return dict(_MUTANTS)


def named(name: str) -> Mutant:
    """A mutant, from as few modules as it takes to find it; or the stack without a defect, with all modules.

    Raises:
        KeyError: there is none of that name.
    """
    if name == HONEST:
        all_mutants()
        return Mutant(HONEST, "None: it notes what it enters.", "", patch=record)
    for module in MODULES:
        if name not in _MUTANTS:
            importlib.import_module(module)
    return _MUTANTS[name]
