"""Rules on state that is restored from other ranks, and on corruption that only screening of nodes finds."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.checkpoint import FaultClass
from trainspec_validate.model.units import base, number, seconds
from trainspec_validate.rules import NotApplicable, Violation, at, rule

NO_PEERS: tuple[FaultClass, ...] = ("job-loss", "silent-corruption")
"""Faults after which no rank holds good state."""


def _from_peers(checkpoint: CheckpointPolicy) -> list[tuple[int, FaultClass]]:
    found = [(i, path.fault) for i, path in enumerate(checkpoint.recovery) if path.restore_from == "peers"]
    if not found:
        raise NotApplicable("no recovery path restores from peers")
    return found


@rule("TS-CKP-106")
def peer_copies(checkpoint: CheckpointPolicy, plan: TrainingPlan) -> Iterator[Violation]:
    """State that is restored from peers is held by two ranks or more."""
    paths, degrees = _from_peers(checkpoint), plan.parallelism
    # Groups of local updates hold other parameters than each other, so that peers are those of one group.
    data = degrees.data // (plan.synchrony.num_groups or 1)
    if degrees.sharding == "none":
        copies, how = data, f"{number(data)} data ranks hold a copy each"
    else:
        holders = data * degrees.context
        shards = degrees.sharding_degree or holders
        copies = holders // shards
        how = f"sharding of the {degrees.sharding} is over {number(shards)} of {number(holders)} ranks"
    if copies < 2:
        for index, fault in paths:
            yield Violation(
                at(checkpoint, "recovery", index, "restore_from"),
                f"after {fault}, no other rank holds the state of a lost one: {how}",
                "shard over half of the ranks or fewer, or restore from a tier with copies in memory",
                related=((at(plan, "parallelism"), how),),
            )


@rule("TS-CKP-107")
def faults_without_peers(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Peers are no source of state where they are gone or share the damage."""
    for index, fault in _from_peers(checkpoint):
        if fault in NO_PEERS:
            why = "no rank is left" if fault == "job-loss" else "all replicas have taken the corrupted gradients"
            message = f"after {fault}, state is restored from peers, but {why}"
            yield Violation(at(checkpoint, "recovery", index, "restore_from"), message, "restore_from: checkpoint")


@rule("TS-CKP-108")
def screened_corruption(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """Checkpoints outlast the time between two tests where nothing else finds corruption."""
    screening = cluster.reliability.screening if cluster.reliability else None
    if screening is None:
        raise NotApplicable("the cluster declares no screening")
    if any("silent-corruption" in layer.faults for layer in checkpoint.detection):
        raise NotApplicable("a layer of detection notices silent corruption")
    kept = checkpoint.retention.error_detection_seconds
    if kept < screening.interval_seconds:
        yield Violation(
            at(checkpoint, "retention", "error_detection_seconds"),
            f"checkpoints are kept for corruption that is noticed within {seconds(kept)}, but a node is tested every "
            f"{seconds(screening.interval_seconds)} and no layer looks for it between",
            f"{base(screening.interval_seconds)} or more, or a layer of detection with fault silent-corruption",
            related=((at(cluster, "reliability", "screening", "interval_seconds"), "the schedule of tests"),),
        )
