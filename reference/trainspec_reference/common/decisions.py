"""Decides how to answer a fault: with which workers a run continues, and from which state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainspec_reference.common.job import Job
from trainspec_reference.common.messages import Left
from trainspec_validate.documents.types.checkpoint import CheckpointPolicy, FaultClass
from trainspec_validate.documents.types.communication import Compression

Kind = Literal["process", "hang", "node", "network", "storage", "corruption", "numeric", "out-of-memory"]
"""Word of a trace's `fault`."""
Way = Literal["restart", "replace", "shrink", "wait", "rollback"]
"""Word of a trace's `decision`."""

_CLASSES: dict[Kind, FaultClass] = {
    "process": "process-loss",
    "out-of-memory": "process-loss",
    "hang": "hang",
    "node": "node-loss",
    "network": "network-loss",
    "storage": "storage-loss",
    "corruption": "silent-corruption",
    "numeric": "silent-corruption",
}
_WAYS: dict[str, Way] = {
    "restart-in-place": "restart",
    "replace-from-spares": "replace",
    "shrink": "shrink",
    "wait-for-repair": "wait",
    "rollback": "rollback",
}
_DEFAULT_RESTARTS, _DEFAULT_BARREN_RESTARTS = 100, 3


@dataclass(slots=True)
class Episode:
    """A fault from its first sign until training resumes: all work lost in between is attributed to it."""

    kind: Kind
    reason: str
    rank: int | None = None
    """To blame, as far as it is known."""
    is_certain: bool = True
    """False while a lost peer may still turn out to be dead or to hang."""
    since: float = 0.0
    """When the first sign came, by the clock of the controller."""
    is_told: bool = False
    lost_hosts: list[str] = field(default_factory=list)
    """Host of each worker that is gone."""
    must_roll_back: bool = False
    """Whether what workers hold must not be used."""
    is_final: bool = False
    """Whether the plan wants the run to stop."""


class RestartLimits:
    """Counts restarts, and says when the run stops trying."""

    def __init__(self, policy: CheckpointPolicy | None) -> None:
        limits = policy.restart if policy else None
        self._most = limits.max_restarts if limits else _DEFAULT_RESTARTS
        self._most_barren = limits.max_restarts_without_progress if limits else _DEFAULT_BARREN_RESTARTS
        self._num = self._num_barren = 0
        self._best = 0

    def refusal(self, best: int) -> str | None:
        """Why there is no further restart after a fault; `best` is the largest step that the run has completed."""
        if self._num:
            self._num_barren = 0 if best > self._best else self._num_barren + 1
        self._best = max(best, self._best)
        if self._num >= self._most:
            return f"{self._num} restarts are all that the policy allows"
        if self._num and self._num_barren >= self._most_barren:
            return f"{self._num_barren} restarts in a row reached no new optimizer step"
        if not self._num and not self._most_barren:
            return "the policy allows no restart that reaches no new optimizer step"
        self._num += 1
        return None


def way_back(kind: Kind, policy: CheckpointPolicy | None, wanted: Way | None) -> Way:
    """Reaction to a kind of fault: the user's choice, else the policy's, else a restart."""
    if kind in {"corruption", "numeric"}:
        return "rollback"
    if wanted is not None:
        return wanted
    paths = {path.fault: path.action for path in policy.recovery} if policy else {}
    action = paths.get(_CLASSES[kind]) or paths.get("process-loss")
    return _WAYS[action] if action else "restart"


def shrunk_size(job: Job, num_left: int) -> int | None:
    """The most ranks, of so many that are left, that the plan works with; None where it works with none of them."""
    parallelism, elastic, feedback = job.plan.parallelism, job.plan.batch.elastic, _feedback(job)
    if feedback is not None and feedback.residual_on_resize == "refuse":
        return None
    ranks_of_replica = parallelism.tensor * parallelism.pipeline * parallelism.context
    degrees = [
        degree
        for degree in (elastic.data_degrees if elastic else ())
        if degree * ranks_of_replica <= num_left and degree % parallelism.expert == 0
    ]
    return max(degrees) * ranks_of_replica if degrees else None


def replicas_are_whole(job: Job) -> bool:
    """Whether each rank holds all of the state, so that one survivor is enough; context ranks share sequences alone."""
    parallelism = job.plan.parallelism
    split = max(parallelism.tensor, parallelism.pipeline, parallelism.expert)
    return split == 1 and parallelism.sharding == "none"


def peers_are_exact(job: Job) -> bool:
    """Whether a run that continues from a surviving replica gives the same numbers as an uninterrupted run.

    Random states and residuals are each rank's own, and the step that was broken off has changed them.
    """
    communication = job.plan.communication
    compression = communication.compression if communication else None
    return job.model.dropout == 0 and (compression is None or compression.method == "none")


def _feedback(job: Job) -> Compression | None:
    """Compression that keeps what it does not send; None without it."""
    communication = job.plan.communication
    compression = communication.compression if communication else None
    return compression if compression and compression.method != "none" and compression.error_feedback else None


def unsent(job: Job, lost: Sequence[int], num_before: int, num_after: int) -> str:
    """Handling of residuals where a run continues from the state of survivors; empty where there are none."""
    feedback = _feedback(job)
    if feedback is None:
        return ""
    if num_before != num_after and feedback.residual_on_resize == "reset":
        return "all residuals begin anew, as the plan says for another number of ranks"
    told = ", ".join(map(str, lost))
    return f"what rank {told} had not sent of its gradients is lost, the others keep their residuals" if lost else ""


def newest_replica(left: Mapping[int, Left]) -> tuple[list[int], Left] | None:
    """The workers that are the furthest and hold the same state; None where there are none, or they differ."""
    steps = [answer.step for answer in left.values() if answer.step is not None and answer.digest is not None]
    if not steps:
        return None
    holders = {number: answer for number, answer in left.items() if answer.step == max(steps)}
    first = next(iter(holders.values()))
    if len({answer.digest for answer in holders.values()}) > 1:
        return None
    return sorted(holders), first


def hosts_lost(before: Sequence[str], lost: Sequence[str]) -> list[str]:
    """Hosts of which every rank is gone, where there is more than one host."""
    if len(set(before)) < 2:
        return []
    return [host for host in dict.fromkeys(lost) if before.count(host) == lost.count(host)]
