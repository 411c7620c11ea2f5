"""Keeps which generator checks a requirement, and finds its module."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from trainspec_validate.documents.types import Document
from trainspec_validate.model.finding import Evidence

Function = TypeVar("Function", bound=Callable[..., Iterator[Any]])
Documents = tuple[tuple[str, type[Document]], ...]
"""Parameters of a generator that are documents, with the kind of each."""


class NotApplicable(Exception):  # noqa: N818 - an answer, not an error
    """Raised by a check when it is given nothing that it could judge; the text says what is absent."""


Value = TypeVar("Value")


def require(value: Value | None, absent: str) -> Value:
    """The value, unless it is None or an empty collection.

    Raises:
        NotApplicable: there is nothing to judge; `absent` says what is missing.
    """
    if value is None or (isinstance(value, list | tuple | dict) and not value):
        raise NotApplicable(absent)
    return value


PlaceT = TypeVar("PlaceT")


@dataclass(frozen=True)  # with slots an alias `Violation[...]` cannot be called in Python 3.11
class Violation(Generic[PlaceT]):
    """Result that a check yields: the place, what is wrong there, what would be right, and what that rests on."""

    place: PlaceT
    message: str
    help: str = ""
    evidence: Evidence = field(default_factory=Evidence)
    """For violations in streams."""
    related: tuple[tuple[PlaceT, str], ...] = ()
    """Other places to look at, with a few words on why."""
    at_most_warning: bool = False
    """Whether it is accepted elsewhere: on other node groups that a plan leaves open, or by the rules of a log."""


class Registered(Protocol):
    """Entry of a registry."""

    @property
    def name(self) -> str:
        """Readable name of the requirement."""


Kept = TypeVar("Kept", bound=Registered)
Found = TypeVar("Found")


@dataclass(frozen=True)  # with slots an alias `Check[...]` cannot be called in Python 3.11
class Check(Generic[Found]):
    """One registered check: the requirement, and the documents that it asks for in addition to what it judges."""

    requirement: str
    name: str
    function: Callable[..., Iterator[Found]]
    documents: Documents


class Registry(Generic[Kept, Function]):
    """The generators of the modules of one package, by requirement id."""

    def __init__(
        self,
        package: str,
        kinds: Iterable[type[Document]],
        make: Callable[[str, str, Function, Documents], Kept],
        *,
        num_given: int = 0,
    ) -> None:
        self._package, self._make, self._num_given = package, make, num_given
        self._kinds: Mapping[str, type[Document]] = {kind.__name__: kind for kind in kinds}
        self._kept: dict[str, Kept] = {}

    def register(self, requirement: str) -> Callable[[Function], Function]:
        """Register a generator under a requirement.

        The first `num_given` parameters are what it judges; the annotations of the others name kinds of documents. Its
        name is that of the requirement with underscores.

        Raises:
            ValueError: the id is taken, or an annotation is not a kind of document.
        """

        def keep(function: Function) -> Function:
            if requirement in self._kept:
                raise ValueError(f"{requirement} is checked by {self._kept[requirement].name} and {function.__name__}")
            name = function.__name__.replace("_", "-")
            self._kept[requirement] = self._make(requirement, name, function, self._documents(function))
            return function

        return keep

    def _documents(self, function: Function) -> Documents:
        found = [(name, kind) for name, kind in function.__annotations__.items() if name != "return"]
        for name, kind in found[self._num_given :]:
            if kind not in self._kinds:
                raise ValueError(f"{function.__name__}: {name} is annotated {kind!r}, which is no kind of document")
        return tuple((name, self._kinds[kind]) for name, kind in found[self._num_given :])

    def of(self, wanted: Iterable[tuple[str, str]]) -> Iterator[Kept]:
        """Checks that these modules register under these ids; imports no other module, since start-up pays for each.

        A module that another thread is still importing has registered checks whose names are not all defined yet, so
        that each is imported, which waits for that thread.
        """
        for module, requirement in wanted:
            importlib.import_module(f"{self._package}.{module}")
            yield self._kept[requirement]

    def every(self) -> Mapping[str, Kept]:
        """Everything that is registered, by requirement id; imports every module of the package."""
        import pkgutil  # noqa: PLC0415

        for module in pkgutil.iter_modules(importlib.import_module(self._package).__path__):
            if not module.name.startswith("_"):
                importlib.import_module(f"{self._package}.{module.name}")
        return self._kept
