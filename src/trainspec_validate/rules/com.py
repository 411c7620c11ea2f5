"""Rules on communication as a whole: library, network, time-outs, averaging."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.base import SoftwareComponent
from trainspec_validate.documents.types.communication import Communication
from trainspec_validate.documents.types.hardware import Nic
from trainspec_validate.model.units import base, bytes_, number, seconds
from trainspec_validate.performance.derived.speed import step_time
from trainspec_validate.rules import NotApplicable, Violation, at, at_key, require, rule
from trainspec_validate.rules._libraries import fitting, runs_on, unknown, vendors
from trainspec_validate.rules._machine import job_nodes, used_fabrics

FORMAT_BYTES = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
HEARTBEATS_IN_TIMEOUT = 2
"""Beats that fit into a time-out, so that a single late one is no alarm."""
LEAST_BUCKET_BYTES = 1e6
"""Below it, the start of a collective costs more than its bytes on every fabric that was measured."""
WATCHDOG = "collective-timeout"


def communication(plan: TrainingPlan) -> Communication:
    """How ranks communicate.

    Raises:
        NotApplicable: the plan does not say.
    """
    return require(plan.communication, "the plan does not declare communication")


def _library(plan: TrainingPlan) -> SoftwareComponent:
    return require(communication(plan).library, "the plan names no collective library")


@rule("TS-COM-033")
def library_of_accelerators(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The library of a plan runs on the accelerators of the cluster."""
    mine = _library(plan)
    makers = require(vendors([job_nodes(plan, cluster).group]), "the maker of the accelerators is not known")
    able = runs_on(mine.name, makers)
    if able is None:
        raise NotApplicable(unknown(mine.name, makers))
    if not able:
        message = f"{mine.name} does not run on accelerators of {' or '.join(sorted(makers))}"
        yield Violation(at(plan, "communication", "library"), message, f"write {fitting(makers)}")


@rule("TS-COM-001")
def collective_library(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The library of a plan is the library of the cluster, in the same version if both state one."""
    mine = _library(plan)
    theirs = cluster.software.collective_library if cluster.software else None
    place, makers = at(plan, "communication", "library"), vendors(cluster.node_groups)
    if makers is not None and runs_on(mine.name, makers) is False:
        raise NotApplicable(f"{mine.name} does not run on the accelerators of the cluster, which TS-COM-033 reports")
    if theirs is None:
        raise NotApplicable("the cluster names no collective library")
    related = ((at(cluster, "software", "collective_library"), f"{theirs.name} {theirs.version or ''}".strip()),)
    if mine.name.casefold() != theirs.name.casefold():
        message = f"the plan is made for {mine.name}, but the cluster has {theirs.name}"
        wrong = runs_on(theirs.name, makers) is False
        right = (
            f"correct the library of the cluster, whose accelerators run {mine.name}"
            if wrong
            else f"write {theirs.name}, or correct the library of the cluster"
        )
        yield Violation(place, message, right, related=related)
    elif mine.version is None or theirs.version is None:
        raise NotApplicable(f"{'the plan' if mine.version is None else 'the cluster'} states no version of {mine.name}")
    elif mine.version != theirs.version:
        message = f"the plan names {mine.name} {mine.version}, but the cluster has {theirs.version}"
        yield Violation(place, message, f"set version to {theirs.version}", related=related)


@rule("TS-COM-002")
def network_names(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The fabric and NICs that a plan uses exist, carry collectives, and belong together."""
    mine = communication(plan)
    if mine.fabric is None and not mine.nic_names:
        raise NotApplicable("the plan names neither fabric nor NICs")
    names = [fabric.name for fabric in cluster.fabrics]
    if mine.fabric is not None and mine.fabric not in names:
        yield Violation(
            at(plan, "communication", "fabric"),
            f"cluster {cluster.metadata.name} has no fabric {mine.fabric!r}",
            f"one of: {', '.join(names)}" if names else f"declare {mine.fabric} in fabrics of the cluster; it has none",
        )
    nodes = job_nodes(plan, cluster)
    nics = {nic.name: nic for nic in nodes.group.nics}
    for index, name in enumerate(mine.nic_names):
        problem = _nic_problem(nics.get(name), nodes.group.name, mine.fabric, names)
        if problem:
            yield Violation(
                at(plan, "communication", "nic_names", index),
                f"NIC {name} {problem}",
                f"compute NICs of {nodes.group.name!r}: "
                + (", ".join(nic.name for nic in nics.values() if nic.role == "compute") or "none"),
            )


def _nic_problem(nic: Nic | None, group: str, fabric: str | None, fabrics: list[str]) -> str:
    if nic is None:
        return f"is unknown to node group {group!r}"
    if nic.role != "compute":
        return f"has the role {nic.role}, so collectives would share it with other traffic"
    if fabric in fabrics and nic.fabric in fabrics and nic.fabric != fabric:
        return f"is plugged into {nic.fabric}, but the plan uses {fabric}"
    return ""


@rule("TS-COM-003")
def timeout_after_failover(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """A collective outlives the failover of its fabric."""
    timeout = communication(plan).timeout_seconds
    fabrics = used_fabrics(plan, cluster, job_nodes(plan, cluster))
    times = {index: fabric.failover_seconds for index, fabric in fabrics if fabric.failover_seconds is not None}
    if timeout is None or not times:
        raise NotApplicable("no collective time-out, or no failover time of the job's fabric")
    index, failover = max(times.items(), key=lambda item: item[1])
    if timeout <= failover:
        yield Violation(
            at(plan, "communication", "timeout_seconds"),
            f"collectives are given up after {seconds(timeout)}, but {cluster.fabrics[index].name} takes "
            f"{seconds(failover)} to carry traffic again after a lost link",
            f"set it above {base(failover)}, so that a lost link is not a lost job",
            related=((at(cluster, "fabrics", index, "failover_seconds"), seconds(failover)),),
        )


@rule("TS-COM-004")
def timeout_agrees(plan: TrainingPlan, policy: CheckpointPolicy) -> Iterator[Violation]:
    """Plan and policy give one time-out of collectives."""
    timeout = communication(plan).timeout_seconds
    layers = [(index, layer) for index, layer in enumerate(policy.detection) if layer.signal == WATCHDOG]
    if timeout is None or not layers:
        raise NotApplicable(f"no collective time-out, or no detection layer with the signal {WATCHDOG}")
    for index, layer in layers:
        if abs(layer.timeout_seconds - timeout) > 1e-6 * timeout:
            yield Violation(
                at(plan, "communication", "timeout_seconds"),
                f"collectives are given up after {seconds(timeout)}, but the policy counts on "
                f"{seconds(layer.timeout_seconds)}",
                _one_timeout(plan, timeout, layer.timeout_seconds),
                related=((at(policy, "detection", index, "timeout_seconds"), seconds(layer.timeout_seconds)),),
            )


def _one_timeout(plan: TrainingPlan, planned: float, detected: float) -> str:
    """Which of two time-outs to keep: the policy's, unless a step takes longer than that."""
    step = step_time(plan)
    if step is None or detected >= step.high:
        return f"set both to {base(detected)}"
    longer = f"a step takes {seconds(step.high)}, so {seconds(detected)} is too short"
    return f"{longer}: set both to {base(planned)}" if planned >= step.high else f"{longer}, and so is the other"


@rule("TS-COM-005")
def heartbeat(plan: TrainingPlan) -> Iterator[Violation]:
    """Several heartbeats fit into a time-out."""
    mine = communication(plan)
    if mine.heartbeat_seconds is None or mine.timeout_seconds is None:
        raise NotApplicable("no heartbeat or no collective time-out")
    if mine.heartbeat_seconds * HEARTBEATS_IN_TIMEOUT > mine.timeout_seconds:
        yield Violation(
            at(plan, "communication", "heartbeat_seconds"),
            f"a heartbeat every {seconds(mine.heartbeat_seconds)} says nothing within a time-out of "
            f"{seconds(mine.timeout_seconds)}",
            f"set it to at most {base(mine.timeout_seconds / HEARTBEATS_IN_TIMEOUT)}",
        )


@rule("TS-COM-030")
def timeout_outlasts_step(plan: TrainingPlan) -> Iterator[Violation]:
    """Collectives are not given up within one step."""
    timeout = communication(plan).timeout_seconds
    stated = step_time(plan)
    if timeout is None or stated is None:
        raise NotApplicable("no collective time-out, or no time of a step")
    if timeout < (step := stated.low):
        yield Violation(
            at(plan, "communication", "timeout_seconds"),
            f"collectives are given up after {seconds(timeout)}, but a step takes {seconds(step)}",
            f"set it to at least {base(step)}, and above any pause of a healthy job, such as a blocking save",
            related=((at(plan, "performance", stated.key), "the step"),),
        )


@rule("TS-COM-011")
def overlap_declared(plan: TrainingPlan) -> Iterator[Violation]:
    """A plan with several data ranks says what overlaps with computation."""
    mine = communication(plan)
    if plan.parallelism.data == 1:
        raise NotApplicable("the plan has one data rank")
    missing = [] if mine.overlap_gradients is not None else ["overlap_gradients"]
    if plan.parallelism.sharding != "none" and mine.overlap_parameters is None:
        missing.append("overlap_parameters")
    if missing:
        yield Violation(
            at_key(plan, "communication"),
            f"{plan.parallelism.data} data ranks exchange gradients, but {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not stated",
            "state true or false: a step time cannot be predicted without it",
        )


@rule("TS-COM-012")
def bucket_size(plan: TrainingPlan) -> Iterator[Violation]:
    """Buckets are large enough to pay and small enough to overlap."""
    mine, p = communication(plan), plan.parallelism
    if mine.bucket_bytes is None or p.data == 1:
        raise NotApplicable("no bucket size, or one data rank")
    place = at(plan, "communication", "bucket_bytes")
    precision = plan.precision
    width = FORMAT_BYTES[precision.accumulation or precision.gradients]
    gradients = plan.model.num_parameters * width / (p.tensor * p.pipeline)
    if mine.bucket_bytes < min(LEAST_BUCKET_BYTES, gradients):
        yield Violation(
            place,
            f"buckets of {bytes_(mine.bucket_bytes)} spend more time on starting than on sending",
            f"use at least {bytes_(LEAST_BUCKET_BYTES)}; 25 MB to 200 MB are common",
        )
    elif mine.overlap_gradients and mine.bucket_bytes > gradients:
        yield Violation(
            place,
            f"a bucket of {bytes_(mine.bucket_bytes)} holds all {bytes_(gradients)} of a rank's gradients: "
            "nothing is sent until the backward pass is over",
            f"use a fraction of {bytes_(gradients)}, or set overlap_gradients: false",
        )


@rule("TS-COM-013")
def weighted_averaging(plan: TrainingPlan) -> Iterator[Violation]:
    """Uneven shares of the batch are averaged by weight."""
    shares = plan.batch.worker_shares
    sizes = {share.sequences_per_rank for share in shares}
    if len(sizes) < 2:
        raise NotApplicable("every data rank takes the same share of the batch")
    mine = communication(plan)
    if mine.gradient_averaging != "weighted":
        low, high = min(sizes), max(sizes)
        key = ("communication",) if mine.gradient_averaging is None else ("communication", "gradient_averaging")
        yield Violation(
            at(plan, *key) if len(key) > 1 else at_key(plan, *key),
            f"ranks take {number(low)} to {number(high)} sequences, but their gradients count alike, so a "
            f"sequence on a slow rank weighs {high / low:.3g} times one on a fast rank",
            "set gradient_averaging: weighted",
            related=((at(plan, "batch", "worker_shares"), "uneven shares"),),
        )


@rule("TS-COM-014")
def half_precision_sum(plan: TrainingPlan) -> Iterator[Violation]:
    """Sums in fp16 are divided before they are taken."""
    mine = communication(plan)
    data, compression = plan.parallelism.data, mine.compression
    in_half = plan.precision.reduction == "fp16" or (compression is not None and compression.method == "fp16")
    if not in_half or data == 1:
        raise NotApplicable("no gradients are summed in fp16")
    if mine.gradient_averaging == "divide-after":
        yield Violation(
            at(plan, "communication", "gradient_averaging"),
            f"the sum of {data} fp16 gradients overflows where their mean exceeds {number(round(65504 / data))}",
            "set gradient_averaging: divide-before",
        )
