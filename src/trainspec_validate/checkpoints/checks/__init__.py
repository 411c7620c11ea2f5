"""Defines an artifact check: a generator over checkpoints, registered under a requirement."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainspec_validate.checking import registry
from trainspec_validate.checking.registry import NotApplicable
from trainspec_validate.checkpoints.view import Checkpoint, Series
from trainspec_validate.documents.types import CheckpointPolicy

Violation = registry.Violation[str]
"""Its place is a path as the user named it: a checkpoint directory, a file in it, or a file next to it."""
CheckFunction = Callable[..., Iterator[Violation]]


Check = registry.Check[Violation]
_REGISTRY = registry.Registry[Check, CheckFunction](__name__, (CheckpointPolicy,), Check, num_given=1)
check = _REGISTRY.register
"""Decorator of a generator over a `Series`; a `CheckpointPolicy` is what it can ask for in addition."""
checks_of, all_checks = _REGISTRY.of, _REGISTRY.every

__all__ = [
    "Check",
    "Checkpoint",
    "CheckpointPolicy",
    "NotApplicable",
    "Series",
    "Violation",
    "all_checks",
    "check",
    "checks_of",
]
