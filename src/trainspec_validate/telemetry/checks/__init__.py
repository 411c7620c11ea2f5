"""The only place that knows what a stream check is: a generator over a run, registered under its requirement's id."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.documents import CheckpointPolicy, ClusterProfile, Document, TrainingPlan
from trainspec_validate.findings import Evidence
from trainspec_validate.telemetry.view import NOWHERE, Location, RunView


class NotJudged(Exception):  # noqa: N818 - an answer, not an error
    """Raised by a check when the run holds nothing that it could judge; the text says what is absent."""


class Unsupported(NotJudged):
    """Raised by a check when the stream declares, with a reason, that it cannot give what would be judged."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """What a check yields: where, what is wrong, what would be right, and the evidence."""

    location: Location
    """Of the record to look at; NOWHERE for what is absent, which is reported at the first head."""
    message: str
    help: str = ""
    evidence: Evidence = field(default_factory=Evidence)
    related: tuple[tuple[Location, str], ...] = ()


CheckFunction = Callable[..., Iterator[Deviation]]


@dataclass(frozen=True, slots=True)
class Check:
    """One registered check: the requirement, and the documents that it asks for beside the run."""

    requirement: str
    name: str
    function: CheckFunction
    documents: tuple[tuple[str, type[Document]], ...]


_DOCUMENTS: Mapping[Any, type[Document]] = {
    kind.__name__: kind for kind in (ClusterProfile, TrainingPlan, CheckpointPolicy)
}
_REGISTRY: dict[str, Check] = {}


def check(requirement: str) -> Callable[[CheckFunction], CheckFunction]:
    """Register a generator as the stream check of one requirement.

    Its first parameter is the `RunView`; further parameters, annotated with a kind of document, are the documents that
    it also needs, and without them it is not run. The function's name is that of the requirement with underscores.

    Raises:
        ValueError: the id is taken, or an annotation is not a kind of document.
    """

    def register(function: CheckFunction) -> CheckFunction:
        if requirement in _REGISTRY:
            raise ValueError(f"{requirement} has two checks: {_REGISTRY[requirement].name} and {function.__name__}")
        annotations = {k: v for k, v in function.__annotations__.items() if k != "return"}
        _first, *others = annotations
        for name in others:
            if annotations[name] not in _DOCUMENTS:
                raise ValueError(f"{function.__name__}: {name} is annotated {annotations[name]!r}, no kind of document")
        documents = tuple((name, _DOCUMENTS[annotations[name]]) for name in others)
        _REGISTRY[requirement] = Check(requirement, function.__name__.replace("_", "-"), function, documents)
        return function

    return register


def checks_of(wanted: Iterable[tuple[str, str]]) -> Iterator[Check]:
    """The checks with these modules and requirement ids; imports no other module."""
    for module, requirement in wanted:
        importlib.import_module(f"{__name__}.{module}")
        yield _REGISTRY[requirement]


def all_checks() -> Mapping[str, Check]:
    """Every stream check by requirement id; imports every module of this package."""
    import pkgutil  # noqa: PLC0415

    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__name__}.{module.name}")
    return _REGISTRY


__all__ = [
    "NOWHERE",
    "Check",
    "Deviation",
    "Evidence",
    "Location",
    "NotJudged",
    "RunView",
    "Unsupported",
    "all_checks",
    "check",
    "checks_of",
]
