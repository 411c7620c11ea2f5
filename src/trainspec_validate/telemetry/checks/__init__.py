"""Defines a stream check: a generator over a run, registered under its requirement's id."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainspec_validate.checking import registry
from trainspec_validate.checking.answers import Unsupported
from trainspec_validate.checking.registry import NotApplicable, require
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.model.finding import Evidence
from trainspec_validate.telemetry.view.run_view import NOWHERE, Location, RunView

Violation = registry.Violation[Location]
"""Its place is the record to look at, or NOWHERE for what is absent, which is reported at the first head."""
CheckFunction = Callable[..., Iterator[Violation]]


Check = registry.Check[Violation]
_REGISTRY = registry.Registry[Check, CheckFunction](
    __name__, (ClusterProfile, TrainingPlan, CheckpointPolicy), Check, num_given=1
)
check = _REGISTRY.register
"""Decorator of a generator over a `RunView`; its further parameters are documents, without which it is not run."""
checks_of, all_checks = _REGISTRY.of, _REGISTRY.every

__all__ = [
    "NOWHERE",
    "Check",
    "Evidence",
    "Location",
    "NotApplicable",
    "RunView",
    "Unsupported",
    "Violation",
    "all_checks",
    "check",
    "checks_of",
    "require",
]
