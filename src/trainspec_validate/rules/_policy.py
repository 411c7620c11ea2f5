"""Gives a rule figures of a checkpoint policy: intervals, the tier that protects, places, rates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile
from trainspec_validate.documents.types.checkpoint import FaultClass, JobFacts, RecoveryPath, Tier
from trainspec_validate.documents.types.cluster import StorageTarget
from trainspec_validate.performance.costs.reliability import job_mtbf_seconds
from trainspec_validate.performance.derived.job import Same
from trainspec_validate.performance.derived.policy import (
    declared_interval_seconds,
    detection_seconds,
    durable_seconds,
    outlives_job,
    outlives_node,
)
from trainspec_validate.rules import NotApplicable, Place, at, at_key

STOPPING_FAULTS: tuple[FaultClass, ...] = ("process-loss", "hang", "node-loss")
"""Faults that every job meets."""


def interval_seconds(policy: CheckpointPolicy) -> float:
    """Productive time between saves; the planned time of a job that saves at its end only."""
    found = declared_interval_seconds(policy)
    if found is not None:
        return found
    raise NotApplicable("no interval in seconds")


def interval_place(policy: CheckpointPolicy) -> Place:
    """Where the interval is written."""
    for key in ("seconds", "steps", "final_only"):
        if getattr(policy.interval, key):
            return at(policy, "interval", key)
    return at_key(policy, "interval")


def tier_interval_seconds(policy: CheckpointPolicy, tier: Tier) -> float:
    """Time between saves that reach a tier."""
    return interval_seconds(policy) if tier.interval_seconds is None else tier.interval_seconds


def tier_kept(policy: CheckpointPolicy, tier: Tier) -> int:
    """Checkpoints kept in a tier."""
    return policy.retention.num_kept if tier.num_kept is None else tier.num_kept


def protecting_tier(policy: CheckpointPolicy) -> int | None:
    """Index of the tier that a job restarts from when a node is lost: the newest copy that is left."""
    found = [index for index, tier in enumerate(policy.tiers) if outlives_node(tier)]

    def age(index: int) -> tuple[float, bool]:
        tier = policy.tiers[index]
        return tier_interval_seconds(policy, tier), not outlives_job(tier)

    return min(found, key=age, default=None)


def durable_interval_seconds(policy: CheckpointPolicy) -> float:
    """Time between saves that outlive the job."""
    intervals = [tier_interval_seconds(policy, tier) for tier in policy.tiers if outlives_job(tier)]
    return min(intervals) if intervals else interval_seconds(policy)


def exposed_persist_seconds(policy: CheckpointPolicy) -> float:
    """Time that an asynchronous save to the protecting tier stays undone; inner tiers hold theirs at once."""
    index = protecting_tier(policy)
    inner = index is not None and not outlives_job(policy.tiers[index])
    return 0.0 if inner or policy.save.mode == "synchronous" else durable_seconds(policy)


def job_place(policy: CheckpointPolicy, key: str) -> Place:
    """Where a fact of the job is written, or where it belongs."""
    if getattr(policy.job, key) is not None:
        return at(policy, "job", key)
    return at_key(policy, "job") if policy.job != JobFacts() else at_key(policy, "interval")


def job_nodes(policy: CheckpointPolicy, cluster: ClusterProfile) -> int:
    """Nodes of the job, by the policy, else all of the cluster."""
    return policy.job.num_nodes or cluster.num_nodes


def mtbf_seconds(policy: CheckpointPolicy, cluster: ClusterProfile) -> float:
    """Mean time between failures of the job: as measured, else by the failure rate of its nodes."""
    declared = policy.job.mean_time_between_failures_seconds
    if declared is not None:
        return declared
    if cluster.reliability is None:
        raise NotApplicable("no failure rate")
    rate = cluster.reliability.failures_per_1000_node_days
    return job_mtbf_seconds(job_nodes(policy, cluster), rate)


def storage_of(tier: Tier, cluster: ClusterProfile) -> StorageTarget | None:
    """The storage target that a tier names, if the cluster has it."""
    return _storage(Same(cluster)).get(tier.storage) if tier.storage is not None else None


@lru_cache(maxsize=8)
def _storage(same: Same[ClusterProfile]) -> Mapping[str, StorageTarget]:
    """The storage targets, the first of each name."""
    return {target.name: target for target in reversed(same.document.storage_targets)}


def total_rate(rate: float | None, target: StorageTarget, num_nodes: int) -> float | None:
    """Rate of a target for the whole job: the stores of all nodes together where each node has its own."""
    if rate is None:
        return None
    return rate * num_nodes if target.scope == "node" else rate


def recovery_seconds(policy: CheckpointPolicy, path: RecoveryPath) -> float:
    """Time from a fault to the first completed step: the sum of the parts of a path."""
    parts = path.decide_seconds + path.restart_seconds + path.restore_seconds + path.first_step_seconds
    return (detection_seconds(policy, path.fault) or 0.0) + parts
