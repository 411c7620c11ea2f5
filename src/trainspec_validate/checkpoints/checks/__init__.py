"""Defines an artifact check: a generator over checkpoints, registered under a requirement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainspec_validate.checking import registry
from trainspec_validate.checking.answers import NotJudged
from trainspec_validate.checkpoints.view import Checkpoint, Series
from trainspec_validate.documents.types import CheckpointPolicy


@dataclass(frozen=True, slots=True)
class Deviation:
    """What a check yields: the file, what is wrong, and what would be right."""

    path: str
    """As the user named it: a checkpoint directory, a file in it, or a file beside it."""
    message: str
    help: str = ""


CheckFunction = Callable[..., Iterator[Deviation]]


Check = registry.Check[Deviation]
_REGISTRY = registry.Registry[Check, CheckFunction](__name__, (CheckpointPolicy,), Check, num_given=1)
check = _REGISTRY.register
"""Decorator of a generator over a `Series`; a `CheckpointPolicy` is what it can ask for beside it."""
checks_of, all_checks = _REGISTRY.of, _REGISTRY.every

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
