"""Defines a rule: a generator over typed documents, registered under its requirement's id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainspec_validate.checking import registry
from trainspec_validate.checking.registry import NotApplicable, Registry, require
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, Document, TrainingPlan
from trainspec_validate.model.finding import Cause, Pointer


@dataclass(frozen=True, slots=True)
class Place:
    """A path of keys in one of the documents that a rule was given."""

    document: Document
    pointer: Pointer
    key: bool = False
    """True to point at the key itself instead of its value."""


class Unresolved(NotApplicable):
    """Raised by a rule that cannot judge what a document states: the requirement concerns it and stays unjudged.

    The documents lack what their author can give: a key, a figure, a part that is named. `help` says what to give. The
    reason follows the name of the file.
    """

    cause: Cause = "absent"

    def __init__(self, place: Place, reason: str, help: str) -> None:  # noqa: A002
        super().__init__(reason)
        self.place = place
        self.help = help


class Uncovered(Unresolved):
    """Raised by a rule that has no formula, catalog figure or measurement for what a document states."""

    cause: Cause = "uncovered"

    def __init__(self, place: Place, reason: str, help: str = "") -> None:  # noqa: A002
        super().__init__(place, reason, help)


Violation = registry.Violation[Place]


def at(document: Document, *pointer: str | int) -> Place:
    """The value at a path of keys and indices, for example `at(plan, "parallelism", "data")`."""
    return Place(document, pointer)


def at_key(document: Document, *pointer: str | int) -> Place:
    """The key at a path, for findings about what a section lacks."""
    return Place(document, pointer, key=True)


RuleFunction = Callable[..., Iterator[Violation]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One registered rule: the requirement that it checks and the kinds of documents that it asks for."""

    requirement: str
    name: str
    function: RuleFunction
    parameters: tuple[tuple[str, type[Document]], ...]

    @property
    def kinds(self) -> frozenset[type[Document]]:
        """The kinds of documents that must be in the set for this rule to run."""
        return frozenset(kind for _, kind in self.parameters)


_REGISTRY = Registry[Rule, RuleFunction](__name__, (ClusterProfile, TrainingPlan, CheckpointPolicy), Rule)
rule = _REGISTRY.register
"""Decorator of a generator whose annotations name the documents that it wants; it runs once for each set of those."""
rules_of, all_rules = _REGISTRY.of, _REGISTRY.every

__all__ = [
    "NotApplicable",
    "Place",
    "Rule",
    "Uncovered",
    "Unresolved",
    "Violation",
    "all_rules",
    "at",
    "at_key",
    "require",
    "rule",
    "rules_of",
]
