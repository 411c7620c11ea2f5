"""Defines a stream check: a generator over a run, registered under its requirement's id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from trainspec_validate.checking import registry
from trainspec_validate.checking.answers import NotJudged, Unsupported
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.model.finding import Evidence
from trainspec_validate.telemetry.view.run_view import NOWHERE, Location, RunView


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


Check = registry.Check[Deviation]
_REGISTRY = registry.Registry[Check, CheckFunction](
    __name__, (ClusterProfile, TrainingPlan, CheckpointPolicy), Check, num_given=1
)
check = _REGISTRY.register
"""Decorator of a generator over a `RunView`; its further parameters are documents, without which it is not run."""
checks_of, all_checks = _REGISTRY.of, _REGISTRY.every

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
