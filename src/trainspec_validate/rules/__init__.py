"""The only place that knows what a rule is: a generator over typed documents, registered under its requirement's id."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from trainspec_validate.documents import CheckpointPolicy, ClusterProfile, Document, TrainingPlan
from trainspec_validate.findings import Pointer


class NotApplicable(Exception):  # noqa: N818 - an answer, not an error
    """Raised by a rule when the documents hold nothing that it could judge; the text says what is absent."""


@dataclass(frozen=True, slots=True)
class Place:
    """A path of keys in one of the documents that a rule was given."""

    document: Document
    pointer: Pointer
    key: bool = False
    """True to point at the key itself instead of its value."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What a rule yields: the place, what is wrong, what would be right, and other places to look at."""

    place: Place
    message: str
    help: str = ""
    related: tuple[tuple[Place, str], ...] = ()


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


_ANNOTATIONS: Mapping[str, type[Document]] = {
    kind.__name__: kind for kind in (ClusterProfile, TrainingPlan, CheckpointPolicy)
}
_REGISTRY: dict[str, Rule] = {}


def rule(requirement: str) -> Callable[[RuleFunction], RuleFunction]:
    """Register a generator as the check of one requirement.

    The parameters' annotations name the documents that the rule wants; it runs once for every set of documents
    that belong together. The function's name is the requirement's readable name with underscores.

    Raises:
        ValueError: the id is taken, or an annotation is not a document kind.
    """

    def register(function: RuleFunction) -> RuleFunction:
        if requirement in _REGISTRY:
            raise ValueError(f"{requirement} has two rules: {_REGISTRY[requirement].name} and {function.__name__}")
        parameters = []
        for name, annotation in function.__annotations__.items():
            if name == "return":
                continue
            if annotation not in _ANNOTATIONS:
                raise ValueError(f"{function.__name__}: {name} is annotated {annotation!r}, which is no document kind")
            parameters.append((name, _ANNOTATIONS[annotation]))
        name = function.__name__.replace("_", "-")
        _REGISTRY[requirement] = Rule(requirement, name, function, tuple(parameters))
        return function

    return register


def rules_of(wanted: Iterable[tuple[str, str]]) -> Iterator[Rule]:
    """The rules with these modules and requirement ids; imports no other module, since start-up pays for each."""
    for module, requirement in wanted:
        importlib.import_module(f"{__name__}.{module}")
        yield _REGISTRY[requirement]


def all_rules() -> Mapping[str, Rule]:
    """Every rule by requirement id; imports every module of this package."""
    import pkgutil  # noqa: PLC0415

    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__name__}.{module.name}")
    return _REGISTRY
