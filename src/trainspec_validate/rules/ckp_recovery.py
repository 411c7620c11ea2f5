"""Rules on how faults are detected and how a job recovers from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.checkpoint import FaultClass, RecoveryPath, Tier
from trainspec_validate.model.units import base, bytes_, bytes_per_second, percent, seconds
from trainspec_validate.performance.derived.policy import (
    HANG_SIGNALS,
    detecting_layers,
    detection_seconds,
    domain_size,
    durable_seconds,
    outlives_job,
    outlives_node,
)
from trainspec_validate.rules import NotApplicable, Violation, at, at_key, require, rule
from trainspec_validate.rules._policy import (
    STOPPING_FAULTS,
    durable_interval_seconds,
    job_nodes,
    recovery_seconds,
    storage_of,
    total_rate,
)

HEADLINE_SECONDS = 90
HEADLINE_QUANTILE = 0.95
SLACK = 5
TOLERANCE = 0.9


@rule("TS-CKP-038")
def faults_covered(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Faults that every job meets have a recovery path, and every recovery path a layer that starts it."""
    paths = {path.fault: index for index, path in enumerate(checkpoint.recovery)}
    for fault in STOPPING_FAULTS:
        if fault not in paths:
            message = f"no recovery path from {fault}"
            yield Violation(at(checkpoint, "recovery"), message, f"add an entry with fault: {fault}")
    for fault, index in paths.items():
        if not detecting_layers(checkpoint, fault):
            message = f"no layer of detection notices {fault}"
            related = ((at(checkpoint, "recovery", index), "the recovery path that waits for it"),)
            yield Violation(
                at(checkpoint, "detection"), message, f"add {fault} to the faults of a layer", related=related
            )


@rule("TS-CKP-039")
def hang_signal(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A hang is noticed by what stops when work stops."""
    layers = [index for index, layer in enumerate(checkpoint.detection) if "hang" in layer.faults]
    if not layers:
        raise NotApplicable("no layer notices hangs")
    if not any(checkpoint.detection[index].signal in HANG_SIGNALS for index in layers):
        signal = checkpoint.detection[layers[0]].signal
        message = (
            f"a hung rank still gives {signal} signals" if signal else "the signal that shows a hang is not stated"
        )
        if signal == "exit":
            message = "a hung rank does not exit"
        entry = ("detection", layers[0])
        place = at(checkpoint, *entry, "signal") if signal else at_key(checkpoint, *entry)
        yield Violation(place, message, f"watch {' or '.join(HANG_SIGNALS)}")


@rule("TS-CKP-040")
def minimum_time_outs(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A healthy job does not run into the time-outs that notice hangs."""
    step = checkpoint.job.step_seconds_p99 or checkpoint.interval.step_seconds
    blocking = checkpoint.save.blocking_seconds
    normal = {"collective-timeout": blocking}
    if step is not None:
        normal["progress"] = step + blocking
    judged = [(index, layer) for index, layer in enumerate(checkpoint.detection) if layer.signal in normal]
    if not judged:
        raise NotApplicable("no layer watches progress or collectives")
    for index, layer in judged:
        longest = normal[str(layer.signal)]
        if layer.timeout_seconds <= longest:
            what = "a save blocks" if layer.signal == "collective-timeout" else "a step with a save blocks"
            message = (
                f"{layer.layer!r} gives up after {seconds(layer.timeout_seconds)}, while {what} for "
                f"{seconds(longest)} in a healthy job"
            )
            place = at(checkpoint, "detection", index, "timeout_seconds")
            yield Violation(place, message, f"wait longer than {seconds(longest)}")


@rule("TS-CKP-041")
def heartbeat_time_out(checkpoint: CheckpointPolicy, plan: TrainingPlan) -> Iterator[Violation]:
    """A layer that waits for heartbeats waits for two of the plan's."""
    heartbeat = plan.communication.heartbeat_seconds if plan.communication else None
    judged = [(index, layer) for index, layer in enumerate(checkpoint.detection) if layer.signal == "heartbeat"]
    if heartbeat is None or not judged:
        raise NotApplicable("the plan has no heartbeat, or no layer watches one")
    for index, layer in judged:
        if layer.timeout_seconds < 2 * heartbeat:
            message = (
                f"{layer.layer!r} gives up after {seconds(layer.timeout_seconds)} without a heartbeat, "
                f"but the plan sends one every {seconds(heartbeat)}"
            )
            related = ((at(plan, "communication", "heartbeat_seconds"), "the plan's heartbeat"),)
            place = at(checkpoint, "detection", index, "timeout_seconds")
            yield Violation(
                place, message, f"wait for two: timeout_seconds of {base(2 * heartbeat)} or more", related=related
            )


@rule("TS-CKP-057")
def corruption_noticed(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Corruption stays unnoticed for about as long as the first layer that looks for it takes."""
    found = [(layer, index) for index, layer in enumerate(checkpoint.detection) if "silent-corruption" in layer.faults]
    if not found:
        raise NotApplicable("no layer notices silent corruption")
    layer, index = min(found, key=lambda item: item[0].timeout_seconds)
    first, latency = layer.timeout_seconds, checkpoint.retention.error_detection_seconds
    if not TOLERANCE * first <= latency <= SLACK * first:
        message = (
            f"checkpoints are kept for corruption that is noticed within {seconds(latency)}, "
            f"but {layer.layer!r} notices it after {seconds(first)}"
        )
        place = at(checkpoint, "retention", "error_detection_seconds")
        related = ((at(checkpoint, "detection", index, "timeout_seconds"), "the layer's time"),)
        yield Violation(place, message, f"between {base(first)} and {base(SLACK * first)} s", related=related)


@rule("TS-CKP-042")
def lost_accelerator(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Training continues within 90 s of a lost process or accelerator, or a longer step begins within them."""
    judged = False
    step = checkpoint.interval.step_seconds or 0.0
    limit = HEADLINE_SECONDS + (step if step > HEADLINE_SECONDS else 0.0)
    for index, path in enumerate(checkpoint.recovery):
        if path.fault != "process-loss" or path.action not in {"restart-in-place", "replace-from-spares"}:
            continue
        judged = True
        if path.budget_seconds > limit:
            message = f"{seconds(path.budget_seconds)} from a lost process or accelerator to the next step"
            total = recovery_seconds(checkpoint, path)
            long = f", {HEADLINE_SECONDS} s and one step of {seconds(step)}" if limit > HEADLINE_SECONDS else ""
            part, most = _longest_part(checkpoint, path)
            help_text = (
                f"at most {seconds(limit)}{long}; the parts add up to {seconds(total)}, of which {seconds(most)} are "
                f"{part}"
            )
            yield Violation(at(checkpoint, "recovery", index, "budget_seconds"), message, help_text)
        elif path.quantile < HEADLINE_QUANTILE:
            message = f"the budget covers {percent(path.quantile)} of faults"
            help_text = f"state the time that {percent(HEADLINE_QUANTILE)} stay within"
            yield Violation(at(checkpoint, "recovery", index, "quantile"), message, help_text)
    if not judged:
        raise NotApplicable("the job does not recover from a lost process in place or from spares")


def _longest_part(checkpoint: CheckpointPolicy, path: RecoveryPath) -> tuple[str, float]:
    parts = {
        "detection": detection_seconds(checkpoint, path.fault) or 0.0,
        "decision": path.decide_seconds,
        "the restart": path.restart_seconds,
        "the restore": path.restore_seconds,
        "the first step": path.first_step_seconds,
    }
    return max(parts.items(), key=lambda part: part[1])


@rule("TS-CKP-043")
def budget_sum(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Detection and the parts of a recovery fit the budget of their fault."""
    for index, path in enumerate(checkpoint.recovery):
        total = recovery_seconds(checkpoint, path)
        if total > path.budget_seconds:
            detect = detection_seconds(checkpoint, path.fault) or 0.0
            message = (
                f"{path.fault} takes {seconds(total)} (detect {seconds(detect)}, decide "
                f"{seconds(path.decide_seconds)}, restart {seconds(path.restart_seconds)}, restore "
                f"{seconds(path.restore_seconds)}, first step {seconds(path.first_step_seconds)}), more than "
                f"its budget of {seconds(path.budget_seconds)}"
            )
            help_text = f"shorten a part by {seconds(total - path.budget_seconds)}, or write {base(total)}"
            yield Violation(at(checkpoint, "recovery", index, "budget_seconds"), message, help_text)


@rule("TS-CKP-044")
def first_step_time(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The first step after a recovery is no faster than the others."""
    step = require(checkpoint.interval.step_seconds, "the step time is not stated")
    for index, path in enumerate(checkpoint.recovery):
        if path.first_step_seconds < TOLERANCE * step:
            message = f"the first step takes {seconds(path.first_step_seconds)}, but a step takes {seconds(step)}"
            place = at(checkpoint, "recovery", index, "first_step_seconds")
            right = f"{seconds(step)} or more, compilation included, or correct interval.step_seconds"
            yield Violation(place, message, right, related=((at(checkpoint, "interval", "step_seconds"), "a step"),))


def _left_after(fault: FaultClass) -> Callable[[Tier], bool]:
    """Whether a tier can be restored from after a fault."""
    if fault == "node-loss":
        return outlives_node
    if fault == "job-loss":
        return outlives_job
    return lambda tier: domain_size(tier.failure_domain) > domain_size("process")


def _shortest_restore(
    checkpoint: CheckpointPolicy, cluster: ClusterProfile, path: RecoveryPath
) -> tuple[float, float, str] | None:
    """Time, rate and name of the fastest store that is left; None when the rate of one is not known."""
    found = []
    for tier in filter(_left_after(path.fault), checkpoint.tiers):
        target = storage_of(tier, cluster)
        if target is None or target.read_bandwidth_bytes_per_second is None:
            return None
        rate = total_rate(target.read_bandwidth_bytes_per_second, target, job_nodes(checkpoint, cluster))
        if rate:
            found.append((checkpoint.save.size_bytes / rate, rate, target.name))
    return min(found, default=None)


@rule("TS-CKP-045")
def restore_time(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """State is not read faster than its stores can."""
    judged, known = False, {path.fault: path for path in checkpoint.recovery}
    by_fault = {fault: _shortest_restore(checkpoint, cluster, path) for fault, path in known.items()}
    for index, path in enumerate(checkpoint.recovery):
        shortest = by_fault[path.fault]
        if shortest is None or path.restore_from == "peers":
            continue
        judged = True
        if path.restore_seconds < TOLERANCE * shortest[0]:
            message = (
                f"after {path.fault}, {bytes_(checkpoint.save.size_bytes)} are restored in "
                f"{seconds(path.restore_seconds)}, but {shortest[2]!r} gives {bytes_per_second(shortest[1])}"
            )
            place = at(checkpoint, "recovery", index, "restore_seconds")
            yield Violation(place, message, f"{seconds(shortest[0])} or more")
    if not judged:
        raise NotApplicable("the read rate of the stores is not known")


@rule("TS-CKP-046")
def tight_limits(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A budget or promise is not far above what it consists of."""
    for index, path in enumerate(checkpoint.recovery):
        total = recovery_seconds(checkpoint, path)
        if path.budget_seconds > SLACK * total:
            message = (
                f"the budget of {path.fault} is {seconds(path.budget_seconds)}, its parts add up to {seconds(total)}"
            )
            place = at(checkpoint, "recovery", index, "budget_seconds")
            yield Violation(place, message, f"at most {seconds(SLACK * total)}")
    loss = durable_interval_seconds(checkpoint) + durable_seconds(checkpoint)
    if checkpoint.recovery_point_seconds > SLACK * loss:
        message = (
            f"the policy promises a loss of at most {seconds(checkpoint.recovery_point_seconds)}, while its "
            f"saves limit it to {seconds(loss)}"
        )
        yield Violation(at(checkpoint, "recovery_point_seconds"), message, f"at most {seconds(SLACK * loss)}")
