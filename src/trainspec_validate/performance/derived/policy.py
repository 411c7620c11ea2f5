"""Derives figures of a checkpoint policy that it does not state, for rules and stream checks."""

from __future__ import annotations

from functools import lru_cache

from trainspec_validate.documents.types.checkpoint import (
    CheckpointPolicy,
    DetectionLayer,
    FaultClass,
    RecoveryPath,
    Tier,
)
from trainspec_validate.documents.types.cluster import FailureDomain
from trainspec_validate.performance.derived.job import Same

DOMAINS: tuple[FailureDomain, ...] = ("process", "node", "scale-up-domain", "rack", "cluster", "site")
"""Failure domains, smallest first."""
HANG_SIGNALS = ("progress", "collective-timeout")
"""Signals that a rank gives no longer although its process lives."""


def domain_size(domain: FailureDomain) -> int:
    """0 for the smallest domain; a larger one outlives the loss of a smaller one."""
    return DOMAINS.index(domain)


def outlives_node(tier: Tier) -> bool:
    """Whether a copy of this tier is left when any one node is gone."""
    if domain_size(tier.failure_domain) > domain_size("node"):
        return True
    apart = tier.replicas_across is not None and domain_size(tier.replicas_across) >= domain_size("node")
    return tier.num_replicas > 1 and apart


def outlives_job(tier: Tier) -> bool:
    """Whether this tier is left when the nodes of the job are given back."""
    return domain_size(tier.failure_domain) >= domain_size("rack")


def declared_interval_seconds(policy: CheckpointPolicy) -> float | None:
    """Productive time between saves; the planned time of a job that saves at its end only; None where unstated."""
    interval = policy.interval
    if interval.seconds is not None:
        return interval.seconds
    if interval.steps is not None and interval.step_seconds is not None:
        return interval.steps * interval.step_seconds
    return policy.job.planned_seconds if interval.final_only else None


def durable_seconds(policy: CheckpointPolicy) -> float:
    """Time from the start of a save until it protects."""
    if policy.save.mode == "synchronous":
        return policy.save.blocking_seconds
    return policy.save.persist_seconds_p95 or 0.0


def detecting_layers(policy: CheckpointPolicy, fault: FaultClass) -> list[DetectionLayer]:
    """Layers that notice a fault; a hang only by signals that stop when work stops, where there are such."""
    return list(_layers(Same(policy), fault))


@lru_cache(maxsize=64)
def _layers(same: Same[CheckpointPolicy], fault: FaultClass) -> list[DetectionLayer]:
    layers = [layer for layer in same.document.detection if fault in layer.faults]
    fitting = [layer for layer in layers if layer.signal in HANG_SIGNALS]
    return fitting if fault == "hang" and fitting else layers


def detection_seconds(policy: CheckpointPolicy, fault: FaultClass) -> float | None:
    """Longest time until the first layer reports a fault; None when none does."""
    return _detection_seconds(Same(policy), fault)


@lru_cache(maxsize=64)
def _detection_seconds(same: Same[CheckpointPolicy], fault: FaultClass) -> float | None:
    return min((layer.timeout_seconds for layer in _layers(same, fault)), default=None)


def way_back(policy: CheckpointPolicy, fault: FaultClass) -> RecoveryPath | None:
    """How the job recovers from a class of fault; None where the policy does not say."""
    return next((path for path in policy.recovery if path.fault == fault), None)
