"""The only place that knows what an artifact check is: a generator over checkpoints, registered under a requirement."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainspec_validate.checkpoints.view import Checkpoint, Series
from trainspec_validate.documents import CheckpointPolicy, Document


class NotJudged(Exception):  # noqa: N818 - an answer, not an error
    """Raised by a check when the checkpoints hold nothing that it could judge; the text says what is absent."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """What a check yields: the file, what is wrong, and what would be right."""

    path: str
    """As the user named it: a checkpoint directory, a file in it, or a file beside it."""
    message: str
    help: str = ""


CheckFunction = Callable[..., Iterator[Deviation]]


@dataclass(frozen=True, slots=True)
class Check:
    """One registered check: the requirement, and the documents that it asks for beside the checkpoints."""

    requirement: str
    name: str
    function: CheckFunction
    documents: tuple[tuple[str, type[Document]], ...]


_DOCUMENTS: Mapping[Any, type[Document]] = {"CheckpointPolicy": CheckpointPolicy}
_REGISTRY: dict[str, Check] = {}


def check(requirement: str) -> Callable[[CheckFunction], CheckFunction]:
    """Register a generator as the artifact check of one requirement.

    Its first parameter is the `Series`; a further one, annotated CheckpointPolicy, asks for that document, and without
    it the check is not run. The function's name is the requirement's readable name with underscores.

    Raises:
        ValueError: the id is taken, or an annotation is not a kind of document.
    """

    def register(function: CheckFunction) -> CheckFunction:
        if requirement in _REGISTRY:
            raise ValueError(f"{requirement} has two checks: {_REGISTRY[requirement].name} and {function.__name__}")
        _first, *others = (name for name in function.__annotations__ if name != "return")
        for name in others:
            if function.__annotations__[name] not in _DOCUMENTS:
                raise ValueError(f"{function.__name__}: {name} is annotated with no kind of document")
        documents = tuple((name, _DOCUMENTS[function.__annotations__[name]]) for name in others)
        _REGISTRY[requirement] = Check(requirement, function.__name__.replace("_", "-"), function, documents)
        return function

    return register


def checks_of(wanted: Iterable[tuple[str, str]]) -> Iterator[Check]:
    """The checks with these modules and requirement ids; imports no other module."""
    for module, requirement in wanted:
        importlib.import_module(f"{__name__}.{module}")
        yield _REGISTRY[requirement]


def all_checks() -> Mapping[str, Check]:
    """Every artifact check by requirement id; imports every module of this package."""
    import pkgutil  # noqa: PLC0415

    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__name__}.{module.name}")
    return _REGISTRY


__all__ = [
    "Check",
    "Checkpoint",
    "CheckpointPolicy",
    "Deviation",
    "NotJudged",
    "Series",
    "all_checks",
    "check",
    "checks_of",
]
