"""Registers the checks of trials: pure functions of histories, by the names that scenarios use."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

from trainspec_conformance.records import Entry
from trainspec_conformance.view import View
from trainspec_validate.documents.types.conformance import Claims, Store
from trainspec_validate.documents.types.scenario import Criterion, Scenario


class CannotJudgeError(Exception):
    """The history lacks input of the check; missing input never yields a pass."""


class NotArrivedError(CannotJudgeError):
    """An action of the suite did not reach the stack, so that the stack is not judged."""


def num_ranks_of(view: View) -> int:
    """Ranks of the last start.

    Raises:
        CannotJudgeError: nothing was started.
    """
    if not view.num_ranks:
        raise CannotJudgeError("nothing was started")
    return view.num_ranks


SLOWNESS = frozenset({"hang", "slow", "network"})
"""Faults that a stack takes a slow machine for, as it judges by time limits."""


def hangs(view: View) -> bool:
    """Whether a fault was reported that a slow machine may have been taken for."""
    return any(record.kind in SLOWNESS for _, record in view.faults())


@dataclass(frozen=True)
class Problem:
    """One way in which a trial is not as it has to be."""

    message: str
    entries: tuple[Entry, ...] = ()
    """Where it shows."""
    by_load: bool = False
    """Whether others that keep the machine busy may have brought it about."""
    is_remark: bool = False
    """Whether it says what was not judged, and nothing is wrong."""


@dataclass(frozen=True)
class Case:
    """Input of a check: one trial."""

    scenario: Scenario
    claims: Claims
    trial: View
    control: View | None = None
    """The run of the same job without faults, of the same kind of start."""
    store: Store = field(default_factory=Store)
    """Storage target and names of the stack's checkpoints."""


Check = Callable[[Case, Criterion], Iterator[Problem]]
_CHECKS: dict[str, Check] = {}


def check(name: str) -> Callable[[Check], Check]:
    """Makes a function the check of that name."""

    def register(function: Check) -> Check:
        if name in _CHECKS:
            raise ValueError(f"two checks are called {name}")
        _CHECKS[name] = function
        return function

    return register


@cache
def all_checks() -> dict[str, Check]:
    """Every check by its name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(_CHECKS)
