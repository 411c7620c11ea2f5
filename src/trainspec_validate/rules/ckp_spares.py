"""Rules on the nodes of a job, the spares for lost nodes, and the limit of restarts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.model.units import number, seconds
from trainspec_validate.performance.costs import reliability
from trainspec_validate.performance.derived.policy import durable_seconds
from trainspec_validate.rules import NotApplicable, Place, Unresolved, Violation, at, at_key, require, rule
from trainspec_validate.rules._policy import interval_seconds, job_nodes, job_place, mtbf_seconds

SPARE_QUANTILE = 0.99
ANOTHER_NODE = frozenset({"replace-from-spares", "wait-for-repair"})
ACTION_OF_POLICY: Mapping[str, str] = {
    "spares": "replace-from-spares",
    "shrink": "shrink",
    "wait": "wait-for-repair",
}


@rule("TS-CKP-056")
def job_in_cluster(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """The job has, or needs, no more nodes than the cluster."""
    stated, fewest = checkpoint.job.num_nodes, checkpoint.job.min_num_nodes
    if stated is None and fewest is None:
        raise NotApplicable("the policy states no nodes")
    # The groups are counted: a total that contradicts them has a finding of its own.
    there = sum(group.num_nodes for group in cluster.node_groups)
    if stated is not None and stated > there:
        message = f"the job has {number(stated)} nodes, but the cluster {number(there)}"
        related = ((at(cluster, "num_nodes"), "the nodes of the cluster"),)
        yield Violation(at(checkpoint, "job", "num_nodes"), message, f"at most {there}", related=related)
    elif fewest is not None and fewest > there:
        message = f"the job continues with {number(fewest)} nodes or more, but the cluster has {number(there)}"
        yield Violation(at(checkpoint, "job", "min_num_nodes"), message, f"at most {there}")


@rule("TS-CKP-058")
def fewest_nodes(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A job continues with no more nodes than it has."""
    stated, fewest = checkpoint.job.num_nodes, checkpoint.job.min_num_nodes
    if stated is None or fewest is None:
        raise NotApplicable("the policy does not state nodes and fewest nodes")
    if fewest > stated:
        message = f"the job continues with {number(fewest)} nodes or more, but it has {number(stated)}"
        yield Violation(at(checkpoint, "job", "min_num_nodes"), message, f"at most {stated}")


@rule("TS-CKP-047")
def replacement_ready(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """Spares exist where they are counted on, and the restart waits for the new node."""
    known = cluster.reliability
    waits = {
        "replace-from-spares": known.spare_start_seconds if known else None,
        "wait-for-repair": known.replacement_seconds if known else None,
    }
    paths = [(index, path) for index, path in enumerate(checkpoint.recovery) if path.action in waits]
    if not paths:
        raise NotApplicable("no recovery path needs another node")
    is_open = is_judged = False
    for index, path in paths:
        wait, is_from_spares = waits[path.action], path.action == "replace-from-spares"
        is_open |= is_from_spares and (known is None or known.num_spare_nodes is None)
        is_judged |= wait is not None
        if is_from_spares and known and known.num_spare_nodes == 0:
            message = f"{path.fault} is met with spares, but the cluster has no spare nodes"
            help_text = "correct reliability.num_spare_nodes, or take another action"
            is_judged = True
            yield Violation(at(checkpoint, "recovery", index, "action"), message, help_text)
        elif wait is not None and path.restart_seconds < wait:
            what = "a spare joins" if is_from_spares else "the node is replaced"
            message = f"processes run after {seconds(path.restart_seconds)}, but {what} after {seconds(wait)}"
            place = at(checkpoint, "recovery", index, "restart_seconds")
            related = ((at(cluster, "reliability"), "the cluster's times"),)
            yield Violation(place, message, f"{seconds(wait)} or more", related=related)
    if is_open:
        reason = "does not give reliability.num_spare_nodes, and a recovery path takes a spare"
        raise Unresolved(
            at_key(cluster, "reliability"), reason, "write the number of spare nodes, or take another action"
        )
    if not is_judged:
        raise NotApplicable("the cluster does not say how long another node takes")


@rule("TS-CKP-060")
def replacement_takes_longer(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Another node takes at least as long to get going as the old ones."""
    in_place = [path for path in checkpoint.recovery if path.action == "restart-in-place"]
    others = [(i, path) for i, path in enumerate(checkpoint.recovery) if path.action in ANOTHER_NODE]
    if not in_place or not others:
        raise NotApplicable("not both restarts in place and replacements are declared")
    shortest = {key: min(getattr(path, key) for path in in_place) for key in ("decide_seconds", "restart_seconds")}
    for index, path in others:
        for key, least in shortest.items():
            own = getattr(path, key)
            if own < least:
                message = f"{path.action} takes {seconds(own)} where a restart in place takes {seconds(least)}"
                place = at(checkpoint, "recovery", index, key)
                yield Violation(place, message, f"{seconds(least)} or more, the other node included")


@rule("TS-CKP-048")
def spares_sufficient(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """Spares last while lost nodes are repaired."""
    known, fewest = cluster.reliability, checkpoint.job.min_num_nodes
    paths = [index for index, path in enumerate(checkpoint.recovery) if path.action == "replace-from-spares"]
    nodes = job_nodes(checkpoint, cluster)
    shrinks = checkpoint.spare_policy == "shrink" and fewest is not None and fewest < nodes
    if known is None or not known.num_spare_nodes or known.replacement_seconds is None or not paths or shrinks:
        raise NotApplicable("no spares with a repair time replace lost nodes")
    needed = reliability.spare_nodes(
        nodes, known.failures_per_1000_node_days, known.replacement_seconds, SPARE_QUANTILE
    )
    if known.num_spare_nodes < needed:
        message = (
            f"{number(known.num_spare_nodes)} spares for {number(nodes)} nodes with "
            f"{number(known.failures_per_1000_node_days)} failures per 1000 node-days and "
            f"{seconds(known.replacement_seconds)} of repair run out more often than once in a hundred times"
        )
        help_text = f"keep {number(needed)} spares, repair faster, or let the job shrink"
        related = ((at(checkpoint, "recovery", paths[0], "action"), "what needs spares"),)
        yield Violation(at(cluster, "reliability", "num_spare_nodes"), message, help_text, related=related)


@rule("TS-CKP-049")
def spare_policy(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The spare policy for a lost node does what its recovery path does."""
    actions = [path.action for path in checkpoint.recovery if path.fault == "node-loss"]
    if checkpoint.spare_policy is None or not actions:
        raise NotApplicable("no spare policy next to a recovery path from node-loss")
    wanted = ACTION_OF_POLICY[checkpoint.spare_policy]
    if wanted not in actions:
        message = f"the spare policy is {checkpoint.spare_policy}, but the recovery path from node-loss is {actions[0]}"
        yield Violation(at(checkpoint, "spare_policy"), message, _one_policy(checkpoint.spare_policy, actions[0]))


def _one_policy(policy: str, action: str) -> str:
    """What makes a spare policy and the action of the recovery path agree."""
    fitting = [name for name, does in ACTION_OF_POLICY.items() if does == action]
    other = f", or set spare_policy: {fitting[0]}" if fitting else ""
    return f"set the action to {ACTION_OF_POLICY[policy]}{other}"


@rule("TS-CKP-050")
def shrink_possible(checkpoint: CheckpointPolicy, plan: TrainingPlan) -> Iterator[Violation]:
    """A job that shrinks has a plan for fewer nodes."""
    nodes, fewest = checkpoint.job.num_nodes, checkpoint.job.min_num_nodes
    shrinks = checkpoint.spare_policy == "shrink" or any(path.action == "shrink" for path in checkpoint.recovery)
    fewer = nodes is not None and fewest is not None and fewest < nodes
    if not shrinks and not fewer:
        raise NotApplicable("the job does not shrink")
    place = job_place(checkpoint, "min_num_nodes")
    elastic = plan.batch.elastic
    if fewest is None or nodes is None or not fewer:
        message = "the job shrinks, but the policy does not say from how many nodes to how few"
        yield Violation(place, message, "set job.num_nodes and a smaller job.min_num_nodes")
    elif elastic is None:
        message = f"{number(fewest)} of {number(nodes)} nodes are enough, but the plan has no batch for fewer ranks"
        related = ((at(plan, "batch"), "the plan's batch"),)
        yield Violation(place, message, f"declare batch.elastic, or set min_num_nodes to {nodes}", related=related)
    else:
        degree = min(elastic.data_degrees)
        needed = math.ceil(nodes * degree / plan.parallelism.data)
        if needed > fewest:
            message = (
                f"{number(fewest)} nodes are enough, but the plan's smallest data degree {degree} of "
                f"{plan.parallelism.data} needs {number(needed)}"
            )
            related = ((at(plan, "batch", "elastic", "data_degrees"), "the plan's degrees"),)
            yield Violation(place, message, f"set min_num_nodes to {needed}, or add a smaller degree", related=related)


@rule("TS-CKP-052")
def no_progress_limit(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A job that makes no progress stops after at most three restarts."""
    limit = checkpoint.restart.max_restarts_without_progress
    if not 1 <= limit <= 3:
        message = f"{number(limit)} restarts in a row without a new step"
        yield Violation(at(checkpoint, "restart", "max_restarts_without_progress"), message, "1 to 3")


@rule("TS-CKP-103")
def restarts_suffice(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """The limit of restarts is not below the failures that the planned time brings."""
    planned = require(checkpoint.job.planned_seconds, "the planned time is not stated")
    yield from _too_few_restarts(checkpoint, cluster, planned, job_place(checkpoint, "planned_seconds"))


@rule("TS-CKP-110")
def restarts_suffice_plan(
    checkpoint: CheckpointPolicy, plan: TrainingPlan, cluster: ClusterProfile
) -> Iterator[Violation]:
    """The same by the planned time of the plan, where the policy states none."""
    planned = plan.job.planned_seconds if plan.job else None
    if planned is None or checkpoint.job.planned_seconds is not None:
        raise NotApplicable("the policy states the planned time, or the plan does not")
    yield from _too_few_restarts(checkpoint, cluster, planned, at(plan, "job", "planned_seconds"))


def _too_few_restarts(
    checkpoint: CheckpointPolicy, cluster: ClusterProfile, planned: float, place: Place
) -> Iterator[Violation]:
    limit, between = checkpoint.restart.max_restarts, mtbf_seconds(checkpoint, cluster)
    if interval_seconds(checkpoint) > between:
        raise NotApplicable("the job fails more often than it saves")
    expected = planned / between
    if limit < round(expected):
        message = f"{number(limit)} restarts, but {expected:.3g} failures are expected in {seconds(planned)}"
        related = ((place, f"one failure in {seconds(between)}"),)
        yield Violation(
            at(checkpoint, "restart", "max_restarts"), message, f"{math.ceil(expected)} or more", related=related
        )


@rule("TS-CKP-053")
def preemption_declared(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A notice that a policy lives with is declared."""
    grace = require(checkpoint.grace, "preemption is not mentioned")
    if grace.preemptible:
        for key in ("notice_seconds", "poll_seconds"):
            if getattr(grace, key) is None:
                message = f"nodes can be taken away, but {key} is not stated"
                yield Violation(at_key(checkpoint, "grace"), message, f"state {key}")
    elif grace.counts_on_checkpoint:
        message = "the policy counts on a save within the notice of a platform that gives none"
        place = at(checkpoint, "grace", "counts_on_checkpoint")
        yield Violation(place, message, "set preemptible: true, or do not count on it")


@rule("TS-CKP-054")
def grace_fits(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A save that is counted on fits into the notice."""
    grace, save = checkpoint.grace, checkpoint.save
    if grace is None or not grace.counts_on_checkpoint or grace.notice_seconds is None:
        raise NotApplicable("the policy does not count on a save within a notice")
    step = checkpoint.job.step_seconds_p99 or checkpoint.interval.step_seconds or 0.0
    in_flight = durable_seconds(checkpoint) if save.mode == "asynchronous" and save.max_in_flight == 1 else 0.0
    own = save.blocking_seconds + (durable_seconds(checkpoint) if save.mode == "asynchronous" else 0.0)
    total = (grace.poll_seconds or 0.0) + step + in_flight + own
    if total > grace.notice_seconds:
        message = (
            f"the notice is {seconds(grace.notice_seconds)}, but seeing it "
            f"({seconds(grace.poll_seconds or 0.0)}), "
            f"ending the step ({seconds(step)}), the save under way ({seconds(in_flight)}) and a new one "
            f"({seconds(own)}) take {seconds(total)}"
        )
        help_text = "set counts_on_checkpoint: false, and let the interval limit the loss"
        yield Violation(at(checkpoint, "grace", "notice_seconds"), message, help_text)
