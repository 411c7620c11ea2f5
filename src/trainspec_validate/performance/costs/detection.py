"""Models how fast faults are noticed and recovered from, and how many trials show it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name} is {value}, wanted a finite number of 0 or more")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer that can notice faults.

    Raises:
        ValueError: a time is negative or not finite.
    """

    name: str
    timeout_seconds: float
    """Silence after which the layer reports."""
    faults: frozenset[str]
    """Classes of fault that it sees."""
    poll_seconds: float = 0.0
    """Time between two looks; the time-out can pass just after one."""
    after: str | None = None
    """Layer whose report starts this one's clock, as an eviction waits for a node to be declared lost."""

    def __post_init__(self) -> None:
        _not_negative(timeout_seconds=self.timeout_seconds, poll_seconds=self.poll_seconds)


@dataclass(frozen=True, slots=True)
class Detection:
    """Which layer reports a fault first, and when at the latest."""

    layer: str
    worst_seconds: float
    path: tuple[str, ...]
    """The layers that wait for each other, ending with the one that decides."""


def worst_seconds(layers: Sequence[Layer], name: str) -> float:
    """Longest time from a fault to the report of a layer: its time-out, one poll, and what it waits for.

    Kubernetes declares a node lost after 40 s (kubernetes/kubernetes#127352), and evicts its pods 300 s later
    (default tolerations):

    >>> node = Layer("node-monitor", 40, frozenset({"node-loss"}), poll_seconds=5)
    >>> evict = Layer("eviction", 300, frozenset({"node-loss"}), after="node-monitor")
    >>> worst_seconds([node, evict], "eviction")
    345.0

    Raises:
        ValueError: there is no such layer, two have the same name, or layers wait for each other in a circle.
    """
    by_name = {layer.name: layer for layer in layers}
    return float(sum(by_name[step].timeout_seconds + by_name[step].poll_seconds for step in _path(layers, name)))


def _path(layers: Sequence[Layer], name: str) -> tuple[str, ...]:
    by_name = {layer.name: layer for layer in layers}
    if len(by_name) < len(layers):
        raise ValueError("two layers have the same name")
    path: list[str] = []
    following: str | None = name
    while following is not None:
        if following not in by_name:
            raise ValueError(f"there is no layer {following}; there are {', '.join(by_name)}")
        if following in path:
            raise ValueError(f"layers wait for each other: {' after '.join([*path, following])}")
        path.append(following)
        following = by_name[following].after
    return tuple(reversed(path))


def detection(layers: Sequence[Layer], fault: str) -> Detection | None:
    """The layer whose longest time is the shortest of all that see the fault; None when none sees it.

    Each layer works by itself, so the earliest report decides.

    >>> watchdog = Layer("collective-watchdog", 600, frozenset({"hang", "node-loss"}))
    >>> heartbeat = Layer("heartbeat", 30, frozenset({"node-loss"}), poll_seconds=5)
    >>> detection([watchdog, heartbeat], "hang").layer, detection([watchdog, heartbeat], "node-loss").worst_seconds
    ('collective-watchdog', 35.0)

    Raises:
        ValueError: as `worst_seconds`.
    """
    seen = [layer.name for layer in layers if fault in layer.faults]
    if not seen:
        return None
    first = min(seen, key=lambda name: worst_seconds(layers, name))
    return Detection(first, worst_seconds(layers, first), _path(layers, first))


@dataclass(frozen=True, slots=True)
class Phases:
    """Parts of a recovery after the fault is noticed, in seconds.

    Raises:
        ValueError: a time is negative or not finite.
    """

    decide: float
    restart: float
    restore: float
    first_step: float

    def __post_init__(self) -> None:
        _not_negative(decide=self.decide, restart=self.restart, restore=self.restore, first_step=self.first_step)

    @property
    def total(self) -> float:
        """Seconds from the report to the first completed step."""
        return self.decide + self.restart + self.restore + self.first_step


@dataclass(frozen=True, slots=True)
class Verdict:
    """A recovery against its budget, and what would have to be shorter."""

    total_seconds: float | None
    """From the fault to the first completed step; None when no layer notices the fault."""
    over_seconds: float
    """Seconds beyond the budget; 0 when it holds, infinite when nothing notices the fault."""
    detection: Detection | None
    longest: str
    """The longest part of the recovery: `detect`, `decide`, `restart`, `restore` or `first_step`."""
    shorten: str | None
    """Layer that comes within the budget by the smallest cut; None when none is needed or none suffices."""
    shorten_to_seconds: float | None
    """Time-out with which that layer keeps the budget."""


def recovery(layers: Sequence[Layer], fault: str, phases: Phases, budget_seconds: float) -> Verdict:
    """Time from a fault to the first completed step, against a budget, in the worst case.

    An example with a default collective time-out of 10 minutes, 50 s to reschedule, 5.4 s to restore and 12.7 s to the
    next step:

    >>> layers = [Layer("collective-watchdog", 600, frozenset({"hang"}))]
    >>> verdict = recovery(layers, "hang", Phases(0, 50, 5.4, 12.7), budget_seconds=90)
    >>> round(verdict.total_seconds, 1), verdict.longest, verdict.shorten, round(verdict.shorten_to_seconds, 1)
    (668.1, 'detect', 'collective-watchdog', 21.9)

    Raises:
        ValueError: the budget is negative or not finite, or as `worst_seconds`.
    """
    _not_negative(budget_seconds=budget_seconds)
    found = detection(layers, fault)
    parts = {
        "detect": found.worst_seconds if found else math.inf,
        "decide": phases.decide,
        "restart": phases.restart,
        "restore": phases.restore,
        "first_step": phases.first_step,
    }
    total = sum(parts.values())
    over = max(0.0, total - budget_seconds)
    cut = _smallest_cut(layers, fault, budget_seconds - phases.total) if over else None
    return Verdict(
        total_seconds=total if found else None,
        over_seconds=over,
        detection=found,
        longest=max(parts, key=lambda part: parts[part]),
        shorten=cut[0] if cut else None,
        shorten_to_seconds=cut[1] if cut else None,
    )


def _smallest_cut(layers: Sequence[Layer], fault: str, room: float) -> tuple[str, float] | None:
    """Layer and time-out that fit into the room with the smallest cut; a report comes no sooner than a poll."""
    by_name = {layer.name: layer for layer in layers}
    cuts: list[tuple[float, str, float]] = []
    for seen in (layer for layer in layers if fault in layer.faults):
        excess = worst_seconds(layers, seen.name) - room
        for step in _path(layers, seen.name):
            left = by_name[step].timeout_seconds - excess
            if left > 0:
                cuts.append((excess, step, left))
    if not cuts:
        return None
    _, name, left = min(cuts)
    return name, left


def recoveries(
    layers: Sequence[Layer], phases: Mapping[str, Phases], budgets_seconds: Mapping[str, float]
) -> dict[str, Verdict]:
    """The verdict of every class of fault that has a budget.

    >>> layers = [Layer("agent", 10, frozenset({"process-loss"}))]
    >>> verdicts = recoveries(layers, {"process-loss": Phases(2, 20, 20, 20)}, {"process-loss": 90})
    >>> verdicts["process-loss"].total_seconds, verdicts["process-loss"].over_seconds
    (72.0, 0.0)

    Raises:
        ValueError: a fault with a budget has no phases, or as `recovery`.
    """
    lacking = [fault for fault in budgets_seconds if fault not in phases]
    if lacking:
        raise ValueError(f"no phases of recovery for {', '.join(lacking)}")
    return {fault: recovery(layers, fault, phases[fault], budget) for fault, budget in budgets_seconds.items()}


def trials_needed(quantile: float, confidence: float = 0.95, misses: int = 0) -> int:
    """Trials with at most so many misses that show "this share of recoveries is within the budget".

    The smallest n for which a true share of `quantile` would do as well with a probability of at most
    1 - confidence (one-sided Clopper-Pearson bound).

    >>> trials_needed(0.95), trials_needed(0.95, misses=1), trials_needed(0.5)
    (59, 93, 5)

    Raises:
        ValueError: a share is not between 0 and 1, misses are negative, or more than a million trials are needed.
    """
    if not (0 < quantile < 1 and 0 < confidence < 1) or misses < 0:
        raise ValueError("wanted shares between 0 and 1, and 0 misses or more")
    low, high = misses, max(1, misses)
    while _at_most(misses, high, 1 - quantile) > 1 - confidence:
        low, high = high, 2 * high
        if high > 1 << 20:
            raise ValueError("more than a million trials are needed")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _at_most(misses, middle, 1 - quantile) <= 1 - confidence else (middle, high)
    return high


def _at_most(misses: int, trials: int, share: float) -> float:
    """Probability of at most so many misses; terms by logarithms, since single ones underflow."""
    return math.fsum(
        math.exp(
            math.lgamma(trials + 1)
            - math.lgamma(k + 1)
            - math.lgamma(trials - k + 1)
            + k * math.log(share)
            + (trials - k) * math.log1p(-share)
        )
        for k in range(misses + 1)
    )
