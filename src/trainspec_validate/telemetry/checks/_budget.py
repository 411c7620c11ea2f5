"""Finds the budget of a policy for a fault of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainspec_validate.documents.types import CheckpointPolicy
from trainspec_validate.documents.types.checkpoint import FaultClass, RecoveryPath
from trainspec_validate.performance.derived.policy import way_back
from trainspec_validate.telemetry.checks import RunView
from trainspec_validate.telemetry.checks._attributes import word
from trainspec_validate.telemetry.checks._episodes import Episode, recovered_episodes
from trainspec_validate.telemetry.view.run_view import PlacedEvent

WAYS_BACK: dict[str, FaultClass] = {
    "process": "process-loss",
    "device": "process-loss",
    "device_memory": "process-loss",
    "node": "node-loss",
    "power": "node-loss",
    "link": "network-loss",
    "nic": "network-loss",
    "network": "network-loss",
    "storage": "storage-loss",
    "hang": "hang",
    "silent_corruption": "silent-corruption",
}
"""Class of fault in a policy, by what failed in the words of a stream."""
OTHER_NODE = frozenset({"node_swap", "hot_spare"})
"""Actions that continue without the node, so that a fault of one device costs all of it."""


def class_in_policy(fault: PlacedEvent, actions: Sequence[str] = ()) -> FaultClass | None:
    """The class of a policy that a fault belongs to; None where no record says so."""
    found = WAYS_BACK.get(word(fault, "train.fault.class") or "")
    return "node-loss" if found == "process-loss" and OTHER_NODE.intersection(actions) else found


def actions_of(episode: Episode) -> list[str]:
    """Actions against a fault, in order."""
    named = (word(recovery.opened, "train.recovery.action") for recovery in episode.recoveries)
    return [action for action in named if action is not None]


def path_of(policy: CheckpointPolicy, episode: Episode) -> RecoveryPath | None:
    """The recovery path that the policy has for the fault of an episode; None where it has none."""
    fault = class_in_policy(episode.fault, actions_of(episode))
    return way_back(policy, fault) if fault is not None else None


@dataclass(frozen=True, slots=True)
class Promised:
    """A recovery with the recovery path that promises how long it takes."""

    episode: Episode
    path: RecoveryPath
    seconds: float


Measured = Callable[[Episode], float | None]


def promised(run: RunView, policy: CheckpointPolicy, measured: Measured) -> list[Promised]:
    """The recoveries whose time can be measured and that the policy has a recovery path for.

    Raises:
        NotApplicable: no fault of the run needed a recovery.
    """
    found = ((e, path_of(policy, e), measured(e)) for e in recovered_episodes(run))
    return [Promised(e, path, seconds) for e, path, seconds in found if path is not None and seconds is not None]


def too_many(mine: Sequence[Promised], limit: Callable[[RecoveryPath], float]) -> Iterator[tuple[Promised, str]]:
    """Recoveries over a limit, where more of a class are than its quantile allows; each with the count in words."""
    by_fault: dict[str, list[Promised]] = {}
    for one in mine:
        by_fault.setdefault(one.path.fault, []).append(one)
    for fault, group in by_fault.items():
        over = [one for one in group if one.seconds > limit(one.path)]
        if len(over) > math.floor(len(group) * (1 - group[0].path.quantile) + 1e-9):
            for one in over:
                yield one, f"{len(over):,} of {len(group):,} recoveries from {fault} take longer"
