"""Rules on the interval between saves and the facts that it follows from."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.model.units import base, billions, number, percent, seconds
from trainspec_validate.performance.costs import reliability
from trainspec_validate.performance.derived.groups import spanned
from trainspec_validate.performance.derived.plan import job_steps
from trainspec_validate.performance.derived.speed import step_time
from trainspec_validate.performance.derived.trained import num_trained
from trainspec_validate.rules import NotApplicable, Place, Violation, at, at_key, require, rule
from trainspec_validate.rules._machine import job_nodes as job_group
from trainspec_validate.rules._policy import (
    STOPPING_FAULTS,
    exposed_persist_seconds,
    interval_place,
    interval_seconds,
    job_nodes,
    job_place,
    mtbf_seconds,
    protecting_tier,
    recovery_seconds,
    tier_interval_seconds,
)

FORMS_TOLERANCE = 0.1
MTBF_FACTOR = 2.0
PARAMETERS_TOLERANCE = 0.05
_SLIPPED = 900
"""Ratio from which two figures differ by a prefix and not by a choice."""
TIME_FACTOR = 1.25
PART_FACTOR = 4
"""Between the planned time of a policy and all steps, of which it may cover a part; minutes for seconds make 60."""
PUBLISHED_RATES = (2.3, 6.5)
"""Failures per 1000 node-days of two clusters of one operator; arXiv:2410.21680."""
_FAR = 10
"""Ratio from which a failure rate is more likely in another unit than that of another machine."""


@rule("TS-CKP-001")
def interval_declared(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The time between saves follows from the policy."""
    interval, planned = checkpoint.interval, checkpoint.job.planned_seconds
    timed = interval.seconds is not None or interval.steps is not None
    if interval.final_only and timed:
        message = "saves at the end only, and at an interval"
        yield Violation(at(checkpoint, "interval", "final_only"), message, "leave out one of the two")
    elif interval.final_only and planned is None:
        message = "saves at the end only, but the planned time is not stated"
        yield Violation(at(checkpoint, "interval", "final_only"), message, "state job.planned_seconds")
    elif not interval.final_only and not timed:
        message = "the policy has no interval between saves"
        yield Violation(at_key(checkpoint, "interval"), message, "give seconds, or steps with step_seconds")
    elif interval.seconds is None and interval.steps is not None and interval.step_seconds is None:
        message = f"{number(interval.steps)} steps are no time without the time of a step"
        yield Violation(at(checkpoint, "interval", "steps"), message, "give step_seconds, or seconds")


@rule("TS-CKP-002")
def interval_forms(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Steps times step time is the interval in seconds."""
    interval = checkpoint.interval
    if interval.seconds is None or interval.steps is None or interval.step_seconds is None:
        raise NotApplicable("the interval is not given both in seconds and in steps with a step time")
    product = interval.steps * interval.step_seconds
    if abs(product - interval.seconds) > FORMS_TOLERANCE * interval.seconds:
        message = (
            f"{number(interval.steps)} steps of {seconds(interval.step_seconds)} are {seconds(product)}, "
            f"but the interval is {seconds(interval.seconds)}"
        )
        steps = max(1, round(interval.seconds / interval.step_seconds))
        each = interval.seconds / interval.steps
        help_text = f"write seconds: {base(product)}, or steps: {base(steps)}, or step_seconds: {base(each)}"
        yield Violation(at(checkpoint, "interval", "seconds"), message, help_text)


@rule("TS-CKP-003")
def failure_rate_known(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """The job's failures are counted, or follow from those of the nodes."""
    if checkpoint.job.mean_time_between_failures_seconds is None and cluster.reliability is None:
        message = "neither the policy nor the cluster says how often the job fails"
        help_text = "declare the cluster's reliability, or job.mean_time_between_failures_seconds"
        yield Violation(job_place(checkpoint, "mean_time_between_failures_seconds"), message, help_text)


@rule("TS-CKP-004")
def failure_rate_consistent(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """A measured time between failures is near the one that the node rate gives."""
    declared = checkpoint.job.mean_time_between_failures_seconds
    if declared is None or cluster.reliability is None:
        raise NotApplicable("no measured time between failures next to a node failure rate")
    nodes, rate = job_nodes(checkpoint, cluster), cluster.reliability.failures_per_1000_node_days
    expected = reliability.job_mtbf_seconds(nodes, rate)
    near = expected / MTBF_FACTOR <= declared <= expected * MTBF_FACTOR
    if not near and not checkpoint.job.mean_time_between_failures_reason:
        message = (
            f"{seconds(declared)} between failures, but {number(nodes)} nodes with {number(rate)} failures "
            f"per 1000 node-days give {seconds(expected)}"
        )
        help_text = (
            f"expected {seconds(expected / MTBF_FACTOR)} to {seconds(expected * MTBF_FACTOR)}; "
            "else say why in mean_time_between_failures_reason"
        )
        place = at(checkpoint, "job", "mean_time_between_failures_seconds")
        rate_place = at(cluster, "reliability", "failures_per_1000_node_days")
        yield Violation(place, message, help_text, related=((rate_place, "the node failure rate"),))


def _best_interval(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> float:
    return reliability.recommended_interval(
        checkpoint.save.blocking_seconds,
        mtbf_seconds(checkpoint, cluster),
        exposed_persist_seconds(checkpoint),
    )


def _reasons(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> str:
    return (
        f"saves that block {seconds(checkpoint.save.blocking_seconds)} and "
        f"{seconds(mtbf_seconds(checkpoint, cluster))} between failures"
    )


def _or_the_rate(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> str:
    """More advice where the best interval follows from a failure rate of nodes that is far from published ones."""
    known = cluster.reliability
    if known is None or checkpoint.job.mean_time_between_failures_seconds is not None:
        return ""
    rate, (low, high) = known.failures_per_1000_node_days, PUBLISHED_RATES
    if low / _FAR <= rate <= high * _FAR:
        return ""
    return f"; or correct the cluster's {number(rate)} failures per 1000 node-days: published are {low} to {high}"


def _protected(checkpoint: CheckpointPolicy) -> tuple[float, Place]:
    """Work between copies that outlive a node, and where that is written."""
    index = protecting_tier(checkpoint)
    if index is None or checkpoint.tiers[index].interval_seconds is None:
        return interval_seconds(checkpoint), interval_place(checkpoint)
    protected = tier_interval_seconds(checkpoint, checkpoint.tiers[index])
    if protected <= interval_seconds(checkpoint):
        return interval_seconds(checkpoint), interval_place(checkpoint)
    return protected, at(checkpoint, "tiers", index, "interval_seconds")


@rule("TS-CKP-005")
def interval_not_too_long(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """At most twice the best interval passes between copies that outlive a node."""
    best = _best_interval(checkpoint, cluster)
    protected, place = _protected(checkpoint)
    _, longest = reliability.interval_window(best)
    if protected > longest:
        message = (
            f"{seconds(protected)} between saves is {number(round(protected / best, 1))} times the best "
            f"interval for {_reasons(checkpoint, cluster)}"
        )
        help_text = f"save every {seconds(best)}, at the least every {seconds(longest)}"
        yield Violation(place, message, help_text + _or_the_rate(checkpoint, cluster))


@rule("TS-CKP-006")
def interval_not_too_short(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """At least half the best interval passes between saves."""
    if checkpoint.interval.final_only:
        raise NotApplicable("the job saves at its end only")
    best = _best_interval(checkpoint, cluster)
    interval = interval_seconds(checkpoint)
    shortest, _ = reliability.interval_window(best)
    if interval < shortest:
        message = (
            f"{seconds(interval)} between saves is {percent(interval / best)} of the best interval for "
            f"{_reasons(checkpoint, cluster)}"
        )
        help_text = (
            f"save every {seconds(best)}, at the most every {seconds(shortest)}{_or_the_rate(checkpoint, cluster)}"
        )
        yield Violation(interval_place(checkpoint), message, help_text)


@rule("TS-CKP-061")
def saves_before_failures(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A job saves more often than it fails."""
    between = require(checkpoint.job.mean_time_between_failures_seconds, "no measured time between failures")
    interval = interval_seconds(checkpoint)
    if interval > between:
        message = f"a failure every {seconds(between)}, but a save every {seconds(interval)} only"
        help_text = f"save more often than every {seconds(between)}; or the time between failures is in another unit"
        yield Violation(at(checkpoint, "job", "mean_time_between_failures_seconds"), message, help_text)


@rule("TS-CKP-007")
def short_job(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """A job no longer than the best interval saves at its end only, a longer one does not."""
    planned = require(checkpoint.job.planned_seconds, "the planned time is not stated")
    best = _best_interval(checkpoint, cluster)
    num_saves = reliability.saves_of_job(planned, best)
    if checkpoint.interval.final_only and planned > best:
        message = f"saves at its end only, but {seconds(planned)} is longer than the best interval {seconds(best)}"
        help_text = f"make {num_saves} saves, {seconds(planned / num_saves)} apart"
        yield Violation(at(checkpoint, "interval", "final_only"), message, help_text)
    elif not checkpoint.interval.final_only and (interval := interval_seconds(checkpoint)) > planned:
        message = f"the job ends after {seconds(planned)}, before its first save at {seconds(interval)}"
        help_text = f"make {num_saves} saves, {seconds(planned / num_saves)} apart"
        if num_saves == 1:
            help_text = f"set final_only: true, as the best interval is {seconds(best)}"
        yield Violation(interval_place(checkpoint), message, help_text)


@rule("TS-CKP-008")
def effective_time(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """The share of time that makes lasting progress reaches its target."""
    target = require(checkpoint.effective_training_time_target, "no target is declared")
    mtbf, persist = mtbf_seconds(checkpoint, cluster), exposed_persist_seconds(checkpoint)
    recovery = max(
        (recovery_seconds(checkpoint, path) for path in checkpoint.recovery if path.fault in STOPPING_FAULTS),
        default=0.0,
    )
    protected, _ = _protected(checkpoint)
    blocking = checkpoint.save.blocking_seconds * protected / interval_seconds(checkpoint)
    shares = reliability.time_shares(protected, blocking, mtbf, recovery, persist)
    if shares.effective < target:
        best = _best_interval(checkpoint, cluster)
        reach = reliability.effective_training_time_ratio(
            best, checkpoint.save.blocking_seconds, mtbf, recovery, persist
        )
        message = (
            f"{percent(shares.effective)} of the time makes lasting progress, below the target of "
            f"{percent(target)}: saves take {percent(shares.save)}, lost work {percent(shares.lost_work)}, "
            f"recovery {percent(shares.recovery)}"
        )
        enough = "which is enough" if reach >= target else "so saves or recovery have to become shorter"
        help_text = f"with saves every {seconds(best)} it is {percent(reach)}, {enough}"
        yield Violation(at(checkpoint, "effective_training_time_target"), message, help_text)


@rule("TS-CKP-009")
def job_size(checkpoint: CheckpointPolicy, plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The policy counts as many nodes as the plan uses."""
    parts = spanned(plan, cluster) or ((job_group(plan, cluster), plan.parallelism.num_accelerators),)
    wanted = sum(math.ceil(num_ranks / nodes.ranks_per_node) for nodes, num_ranks in parts)
    stated = checkpoint.job.num_nodes
    if any(num_ranks > nodes.num_ranks for nodes, num_ranks in parts) and (len(parts) > 1 or not stated):
        raise NotApplicable("the cluster has no room for the ranks of the plan")
    sizes = " and ".join(dict.fromkeys(str(nodes.ranks_per_node) for nodes, _ in parts))
    ranks = at(plan, "parallelism", "num_accelerators")
    if (stated or cluster.num_nodes) != wanted:
        whose = "the policy counts" if stated else "without num_nodes, the policy counts the cluster's"
        message = (
            f"{whose} {number(stated or cluster.num_nodes)} nodes, but the plan's "
            f"{number(plan.parallelism.num_accelerators)} ranks take {number(wanted)} nodes of {sizes}"
        )
        counted = stated or cluster.num_nodes
        fitting = counted * parts[0][0].ranks_per_node if len(parts) == 1 and counted <= cluster.num_nodes else 0
        remedies = [f"set job.num_nodes to {wanted}"] if wanted <= cluster.num_nodes else []
        remedies += [f"plan for the {number(fitting)} ranks of {number(counted)} nodes"] if fitting else []
        help_text = ", or ".join(remedies) or "correct the nodes of the policy, or the ranks of the plan"
        yield Violation(job_place(checkpoint, "num_nodes"), message, help_text, related=((ranks, "those of the plan"),))


@rule("TS-CKP-010")
def plan_figures(checkpoint: CheckpointPolicy, plan: TrainingPlan) -> Iterator[Violation]:
    """Parameters, planned time and step time are those of the plan."""
    pairs = require(list(_shared_figures(checkpoint, plan)), "policy and plan state no figure in common")
    for place, other, what, own, planned, factor in pairs:
        if not planned / factor <= own <= planned * factor:
            shown = billions if what == "parameters" else seconds
            message = f"{what}: {shown(own)}, but the plan has {shown(planned)}"
            yield Violation(place, message, _agree(what, own, planned), related=((other, "the plan's"),))


def _agree(what: str, own: float, planned: float) -> str:
    """What would be right; a thousandfold difference is a slipped unit, on a side that only the author knows."""
    if max(own, planned) >= _SLIPPED * min(own, planned):
        return f"one of the two has a slipped unit: give the {what} as they are, in both"
    return f"write {base(planned)}, or correct the plan"


def _shared_figures(
    checkpoint: CheckpointPolicy, plan: TrainingPlan
) -> Iterator[tuple[Place, Place, str, float, float, float]]:
    parameters, planned = checkpoint.save.num_parameters, checkpoint.job.planned_seconds
    if parameters is not None:
        places = at(checkpoint, "save", "num_parameters"), at(plan, "model", "num_parameters")
        # A save of a job with frozen parameters may hold the trained ones alone.
        counts = (plan.model.num_parameters, num_trained(plan))
        nearest = min(counts, key=lambda count: abs(math.log(count / parameters)))
        yield *places, "parameters", parameters, nearest, 1 + PARAMETERS_TOLERANCE
    job = plan.job
    if planned is not None and job and job.planned_seconds is not None:
        places = at(checkpoint, "job", "planned_seconds"), at(plan, "job", "planned_seconds")
        yield *places, "planned time", planned, job.planned_seconds, TIME_FACTOR
    step, place = checkpoint.interval.step_seconds, at(checkpoint, "interval", "step_seconds")
    if step is not None and (stated := step_time(plan)):
        other = at(plan, "performance", stated.key)
        nearest = min(max(step, stated.low), stated.high)
        yield place, other, "step time", step, nearest, TIME_FACTOR
    elif step is not None and job and job.planned_seconds is not None and job.num_steps is not None:
        other = at(plan, "job", "num_steps")
        yield place, other, "step time", step, job.planned_seconds / job.num_steps, TIME_FACTOR


@rule("TS-CKP-104")
def planned_steps(checkpoint: CheckpointPolicy, plan: TrainingPlan) -> Iterator[Violation]:
    """The planned time is about that of the steps of a plan that states none; a policy may cover a part of a run."""
    planned, job = checkpoint.job.planned_seconds, plan.job
    if planned is None or (job and job.planned_seconds is not None):
        raise NotApplicable("the policy states no planned time, or the plan states its own")
    stated = step_time(plan)
    step = (stated.seconds if stated else None) or checkpoint.interval.step_seconds
    steps = job_steps(plan)
    if step is None or steps is None:
        raise NotApplicable("the steps of the job or the time of one are not known")
    whole = steps * step
    if not whole / PART_FACTOR <= planned <= whole * PART_FACTOR:
        yield Violation(
            at(checkpoint, "job", "planned_seconds"),
            f"the planned time is {seconds(planned)}, but {number(round(steps))} steps of {seconds(step)} are "
            f"{seconds(whole)}",
            f"correct the planned time, the steps of the job or the time of one: {seconds(planned)} fit "
            f"{number(round(planned / step))} such steps, or steps of {seconds(planned / steps)}",
            related=((at(plan, "job"), "the job of the plan"),),
        )


@rule("TS-CKP-011")
def step_tail(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The 99th percentile of the step time is not below its median."""
    median, tail = checkpoint.interval.step_seconds, checkpoint.job.step_seconds_p99
    if median is None or tail is None:
        raise NotApplicable("no median next to a 99th percentile of the step time")
    if tail < median:
        message = (
            f"step_seconds_p99, which 99 of 100 steps do not exceed, is {seconds(tail)}, less than the median of "
            f"{seconds(median)} in interval.step_seconds"
        )
        help_text = f"write {base(median)} or more, or correct interval.step_seconds"
        related = ((at(checkpoint, "interval", "step_seconds"), "the median"),)
        yield Violation(at(checkpoint, "job", "step_seconds_p99"), message, help_text, related=related)
