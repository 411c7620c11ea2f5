"""Rules on the tiers that hold checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile
from trainspec_validate.documents.types.checkpoint import Tier
from trainspec_validate.documents.types.cluster import FailureDomain, StorageTarget
from trainspec_validate.model.suggest import hint
from trainspec_validate.model.units import base, bytes_, number, percent, seconds
from trainspec_validate.performance.costs import reliability
from trainspec_validate.performance.derived.policy import domain_size, outlives_job, outlives_node
from trainspec_validate.rules import NotApplicable, Place, Violation, at, at_key, rule
from trainspec_validate.rules._policy import (
    interval_place,
    interval_seconds,
    job_nodes,
    storage_of,
    tier_interval_seconds,
    tier_kept,
)

FILL_LIMIT = 0.9
_NOT_ONE = "not one fits at 90 % full: name a larger store, or save less"


@rule("TS-CKP-017")
def tier_storage(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """Every tier names a storage target of the cluster."""
    names = [target.name for target in cluster.storage_targets]
    if not names and all(tier.storage is None for tier in checkpoint.tiers):
        raise NotApplicable("no tier names a store and the cluster declares none")
    for index, tier in enumerate(checkpoint.tiers):
        if tier.storage is None:
            message = f"tier {tier.name!r} names no storage target"
            yield Violation(at_key(checkpoint, "tiers", index), message, hint("", names))
        elif tier.storage not in names:
            message = f"{tier.storage!r} is no storage target of {cluster.metadata.name}"
            help_text = hint(tier.storage, names) or "declare it under storage_targets"
            yield Violation(at(checkpoint, "tiers", index, "storage"), message, help_text)


@rule("TS-CKP-018")
def tier_domain(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """A tier does not claim to outlive its store."""
    judged = False
    for index, tier in enumerate(checkpoint.tiers):
        target = storage_of(tier, cluster)
        if target is None:
            continue
        judged = True
        if domain_size(tier.failure_domain) > domain_size(target.failure_domain):
            message = (
                f"tier {tier.name!r} is lost with a {tier.failure_domain}, but its store {target.name!r} "
                f"is lost with a {target.failure_domain} already"
            )
            place = at(cluster, "storage_targets", cluster.storage_targets.index(target), "failure_domain")
            yield Violation(
                at(checkpoint, "tiers", index, "failure_domain"),
                message,
                f"set failure_domain to {target.failure_domain}",
                related=((place, "the store's failure domain"),),
            )
    if not judged:
        raise NotApplicable("no tier is on a storage target of the cluster")


@rule("TS-CKP-019")
def tier_survival(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Some tier outlives any node, and some tier outlives the job."""
    if not any(outlives_node(tier) for tier in checkpoint.tiers):
        message = "every copy is lost with the node that holds it"
        help_text = "add a tier off the nodes, or num_replicas: 2 with replicas_across: node"
        yield Violation(at(checkpoint, "tiers"), message, help_text)
    elif not any(outlives_job(tier) for tier in checkpoint.tiers):
        message = "every copy is lost when the job gives its nodes back"
        help_text = "add a tier whose failure_domain is rack, cluster or site"
        yield Violation(at(checkpoint, "tiers"), message, help_text)


@rule("TS-CKP-020")
def replicas_apart(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Copies are in different failure domains."""
    replicated = [
        (index, tier)
        for index, tier in enumerate(checkpoint.tiers)
        if tier.num_replicas > 1 or tier.replicas_across is not None
    ]
    if not replicated:
        raise NotApplicable("no tier holds several copies")
    for index, tier in replicated:
        across, nodes = tier.replicas_across, checkpoint.job.num_nodes
        if across is None:
            message = f"nothing keeps the {tier.num_replicas} copies of tier {tier.name!r} apart"
            help_text = f"set replicas_across to {tier.failure_domain} or a larger domain"
            yield Violation(at(checkpoint, "tiers", index, "num_replicas"), message, help_text)
        elif tier.num_replicas == 1:
            message = f"tier {tier.name!r} spreads its copies across domains ({across}), but it has one copy"
            help_text = "set num_replicas to 2 or more, or leave out replicas_across"
            yield Violation(at(checkpoint, "tiers", index, "replicas_across"), message, help_text)
        elif domain_size(across) < domain_size(tier.failure_domain):
            message = f"copies apart by {across} are lost together with one {tier.failure_domain}"
            help_text = f"set replicas_across to {tier.failure_domain} or a larger domain"
            yield Violation(at(checkpoint, "tiers", index, "replicas_across"), message, help_text)
        elif nodes and domain_size(across) >= domain_size("node") and tier.num_replicas > nodes:
            message = f"{tier.num_replicas} copies cannot be on different nodes of {nodes}"
            yield Violation(at(checkpoint, "tiers", index, "num_replicas"), message, f"at most {nodes}")


@rule("TS-CKP-021")
def tier_intervals(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Inner tiers are at least as fresh as outer ones, and the freshest has the policy's interval."""
    interval = interval_seconds(checkpoint)
    tiers = [(tier_interval_seconds(checkpoint, tier), tier) for tier in checkpoint.tiers]
    freshest = min(own for own, _ in tiers)
    by_domain: dict[FailureDomain, float] = {}
    for own, tier in tiers:
        by_domain[tier.failure_domain] = min(own, by_domain.get(tier.failure_domain, own))
    for index, (own, tier) in enumerate(tiers):
        outer = [time for domain, time in by_domain.items() if domain_size(domain) > domain_size(tier.failure_domain)]
        place = at(checkpoint, "tiers", index, "interval_seconds")
        if own < 0.9 * interval:
            message = f"tier {tier.name!r} is saved every {seconds(own)}, but saves are {seconds(interval)} apart"
            yield Violation(place, message, f"write {base(interval)} or more, or a shorter policy interval")
        elif outer and own > min(outer):
            message = (
                f"tier {tier.name!r} is saved every {seconds(own)}, less often than a tier of a larger "
                f"domain ({seconds(min(outer))}), so it never holds the newest copy"
            )
            place = place if tier.interval_seconds is not None else interval_place(checkpoint)
            yield Violation(place, message, f"save it every {seconds(min(outer))} or more often")
    if freshest > 1.1 * interval:
        message = f"saves are {seconds(interval)} apart, but no tier takes more than one every {seconds(freshest)}"
        help_text = f"give one tier this interval, or write {base(freshest)}"
        yield Violation(interval_place(checkpoint), message, help_text)


def _kept_place(checkpoint: CheckpointPolicy, index: int) -> Place:
    if checkpoint.tiers[index].num_kept is None:
        return at(checkpoint, "retention", "num_kept")
    return at(checkpoint, "tiers", index, "num_kept")


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a policy keeps on one store, by its tiers."""

    target: StorageTarget
    place: Place
    tiers: list[int]
    held: dict[int, int]
    """Checkpoints by tier, with those that are being written."""
    free_bytes: float
    needed_bytes: float
    copies: int
    extra_bytes: float
    """Bytes by which the fullest stripe target exceeds its even share, for all targets."""

    @property
    def uneven_bytes(self) -> float:
        """Bytes that the store would hold if each stripe target were as full as the fullest."""
        return self.needed_bytes + self.extra_bytes

    def violation(self, checkpoint: CheckpointPolicy, limit: str, remedy: str) -> Violation:
        """What is too much for the store, and how few checkpoints are not."""
        save, in_flight = checkpoint.save, _in_flight(checkpoint)
        is_share = self.target.scope == "node"
        share = f" ({bytes_(self.needed_bytes / self.copies)} on each node)" if is_share else ""
        kinds = [_held(checkpoint.tiers[index], num, in_flight) for index, num in self.held.items()]
        message = (
            f"{self.target.name!r} has {bytes_(self.free_bytes)}{limit}, and needs {bytes_(self.needed_bytes)}: "
            f"checkpoints of {bytes_(save.size_bytes)}{share}, {' and '.join(kinds)}"
        )
        place = _kept_place(checkpoint, self.tiers[-1])
        return Violation(place, message, remedy, related=((self.place, "the store"),))


def _in_flight(checkpoint: CheckpointPolicy) -> int:
    return checkpoint.save.max_in_flight if checkpoint.save.mode == "asynchronous" else 1


def _stored(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> list[_Stored]:
    """The stores of known size that tiers are on.

    Raises:
        NotApplicable: there is none.
    """
    save, nodes, found = checkpoint.save, job_nodes(checkpoint, cluster), []
    by_target: dict[str | None, list[int]] = {}
    for index, tier in enumerate(checkpoint.tiers):
        by_target.setdefault(tier.storage, []).append(index)
    for target_index, target in enumerate(cluster.storage_targets):
        tiers = by_target.get(target.name, [])
        free = target.capacity_bytes if target.free_bytes is None else target.free_bytes
        if not tiers or free is None:
            continue
        held = {index: tier_kept(checkpoint, checkpoint.tiers[index]) + _in_flight(checkpoint) for index in tiers}
        copies = sum(num * checkpoint.tiers[index].num_replicas for index, num in held.items())
        needed = copies * save.size_bytes / (nodes if target.scope == "node" else 1)
        # An even spread over stripe targets still puts one writer's file more on one of them.
        stripes, file_bytes = target.num_stripe_targets or 1, save.size_bytes / (save.num_writers or nodes)
        extra = stripes * file_bytes if stripes > 1 else 0.0
        place = at(cluster, "storage_targets", target_index)
        found.append(_Stored(target, place, tiers, held, free, needed, copies, extra))
    if not found:
        raise NotApplicable("no tier is on a storage target with a size")
    return found


@rule("TS-CKP-022")
def storage_fits(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """Kept checkpoints and the one that is being written fit on each store."""
    for stored in _stored(checkpoint, cluster):
        if stored.needed_bytes > stored.free_bytes:
            yield stored.violation(checkpoint, "", _fewer(checkpoint, stored))


@rule("TS-CKP-113")
def storage_reserve(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """A tenth of each store, and of its fullest stripe target, stays free; what does not fit is TS-CKP-022."""
    for stored in _stored(checkpoint, cluster):
        if stored.needed_bytes <= stored.free_bytes < stored.uneven_bytes / FILL_LIMIT:
            yield stored.violation(checkpoint, ", to be 90 % full", _fewer(checkpoint, stored))


def _held(tier: Tier, held: int, in_flight: int) -> str:
    """What a tier keeps on a store, in words."""
    times = f", {tier.num_replicas} times each" if tier.num_replicas > 1 else ""
    return f"{number(held - in_flight)} kept by tier {tier.name!r} and {number(in_flight)} being written{times}"


def _fewer(checkpoint: CheckpointPolicy, stored: _Stored) -> str:
    """How many checkpoints the last tier of a store can keep."""
    if stored.free_bytes <= 0:
        return _NOT_ONE
    each, extra = stored.needed_bytes / stored.copies / stored.free_bytes, stored.extra_bytes / stored.free_bytes
    spare, filled = int((FILL_LIMIT - extra) / each) - stored.copies, stored.copies * each + extra
    tier = checkpoint.tiers[stored.tiers[-1]]
    more = spare // tier.num_replicas
    kept = tier_kept(checkpoint, tier) + more
    if kept < 1:
        return _NOT_ONE
    full = percent(filled + more * tier.num_replicas * each)
    return (
        f"let tier {tier.name!r} keep {number(kept)} at most, which fill {full} with what is being written, or name a "
        "larger store"
    )


@rule("TS-CKP-023")
def checkpoints_kept(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A checkpoint from before the oldest unnoticed corruption is still there."""
    if checkpoint.interval.final_only:
        raise NotApplicable("the job saves at its end only")
    latency, step = checkpoint.retention.error_detection_seconds, checkpoint.interval.step_seconds
    latency_place = at(checkpoint, "retention", "error_detection_seconds")
    if step is not None and latency < step:
        message = f"corruption noticed within {seconds(latency)}, before the step of {seconds(step)} has ended"
        yield Violation(latency_place, message, f"at least one step: {number(step)}")
        return
    outer = [
        ((tier_kept(checkpoint, tier) - 1) * tier_interval_seconds(checkpoint, tier), index)
        for index, tier in enumerate(checkpoint.tiers)
        if outlives_job(tier)
    ]
    if not outer:
        raise NotApplicable("no tier outlives the job")
    index = max(outer)[1]
    tier = checkpoint.tiers[index]
    kept = tier_kept(checkpoint, tier)
    interval = tier_interval_seconds(checkpoint, tier)
    needed, back = reliability.snapshots_to_keep(latency, interval), (kept - 1) * interval
    if kept < needed:
        message = (
            f"keeping {number(kept)} checkpoints reaches back {seconds(back)}, "
            f"but corruption can go unnoticed for {seconds(latency)}"
        )
        help_text = f"keep {needed} or more"
        yield Violation(_kept_place(checkpoint, index), message, help_text, related=((latency_place, "the latency"),))
    elif all(tier_kept(checkpoint, tier) < checkpoint.retention.num_kept for tier in checkpoint.tiers):
        message = f"{number(checkpoint.retention.num_kept)} checkpoints are kept, but no tier keeps as many"
        most = max(tier_kept(checkpoint, tier) for tier in checkpoint.tiers)
        yield Violation(at(checkpoint, "retention", "num_kept"), message, f"write {base(most)}")
    yield from _unused_number(checkpoint)


def _unused_number(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A number of the policy below those of all tiers, each of which states its own: none keeps so few."""
    own, kept = [tier.num_kept for tier in checkpoint.tiers], checkpoint.retention.num_kept
    stated = [number_kept for number_kept in own if number_kept is not None]
    if len(stated) == len(own) and kept < min(stated):
        most = max(stated)
        index = stated.index(most)
        yield Violation(
            at(checkpoint, "retention", "num_kept"),
            f"{number(kept)} checkpoints are kept, but no tier keeps so few: {checkpoint.tiers[index].name!r} keeps "
            f"{number(most)}",
            f"write {base(most)}, or correct num_kept of the tiers",
            related=((at(checkpoint, "tiers", index, "num_kept"), "the tier"),),
        )
