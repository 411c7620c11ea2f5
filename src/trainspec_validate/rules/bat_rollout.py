"""Rules on rollouts of reinforcement learning, and on the checkpoint that a job starts from."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.data import Rollout
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.model.units import number
from trainspec_validate.performance.derived.cluster import total
from trainspec_validate.performance.derived.plan import node_groups, num_ranks
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, require, rule


def _rollout(plan: TrainingPlan) -> Rollout:
    return require(plan.rollout, "the plan generates no samples")


@rule("TS-BAT-046")
def rollout_batch(plan: TrainingPlan) -> Iterator[Violation]:
    """The responses of a rollout are the sequences that its steps train on."""
    own, batch = _rollout(plan), plan.batch.global_sequences
    if own.num_updates is None:
        raise NotApplicable("the plan does not state the steps of a rollout")
    if plan.batch.ramp:
        raise NotApplicable("the batch grows, so that rollouts differ")
    generated = own.num_prompts * own.num_responses_per_prompt * own.num_passes
    trained = batch * own.num_updates
    if generated != trained:
        passes = f" x {own.num_passes} passes" if own.num_passes > 1 else ""
        whole, rest = divmod(generated, batch)
        wanted = f"set num_updates to {whole}" if not rest else f"a multiple of {number(batch)} responses"
        yield Violation(
            at(plan, "rollout", "num_updates"),
            f"{number(own.num_prompts)} prompts x {number(own.num_responses_per_prompt)} responses{passes} are "
            f"{number(generated)}, but {number(own.num_updates)} updates train on {number(trained)} sequences",
            wanted,
            related=((at(plan, "batch", "global_sequences"), "sequences of one step"),),
        )


@rule("TS-BAT-047")
def rollout_staleness(plan: TrainingPlan) -> Iterator[Violation]:
    """The last step on a rollout is as many steps late as there are steps before it."""
    own = _rollout(plan)
    if own.max_staleness_steps is None or own.num_updates is None:
        raise NotApplicable("the plan does not state both the steps of a rollout and the largest staleness")
    least = own.num_updates - 1
    if own.max_staleness_steps < least:
        yield Violation(
            at(plan, "rollout", "max_staleness_steps"),
            f"the last of {number(own.num_updates)} updates trains on responses that are {number(least)} steps old, "
            f"but the largest staleness is {number(own.max_staleness_steps)}",
            f"{least} or more, or fewer optimizer steps for a rollout",
        )


@rule("TS-BAT-048")
def staleness_stated(plan: TrainingPlan) -> Iterator[Violation]:
    """Where generation runs next to training, the plan says how old responses can be."""
    own = _rollout(plan)
    if not own.num_accelerators:
        raise NotApplicable("generation and training take turns on the accelerators of the job")
    if own.max_staleness_steps is None:
        yield Violation(
            at(plan, "rollout", "num_accelerators"),
            f"{number(own.num_accelerators)} accelerators generate while others train, but the plan does not say how "
            "old responses can be",
            "state max_staleness_steps",
        )


@rule("TS-BAT-049")
def rollout_room(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Accelerators that generate have a place next to those that train."""
    own = _rollout(plan)
    if not own.num_accelerators:
        raise NotApplicable("generation and training take turns on the accelerators of the job")
    wanted = own.node_group or plan.node_group
    groups = [group for group in cluster.node_groups if wanted in {None, group.name}]
    if not groups:
        reason = f"names a node group {wanted!r}, which cluster {cluster.metadata.name} does not have"
        raise Unresolved(
            at(plan, *(["rollout"] if own.node_group else []), "node_group"), reason, "name one of the cluster"
        )
    there = sum(total(group) for group in groups)
    training = _fewest_in(groups, plan, cluster)
    if own.num_accelerators + training > there:
        yield Violation(
            at(plan, "rollout", "num_accelerators"),
            f"{number(own.num_accelerators)} accelerators generate"
            + (f" and {number(training)} train" if training else "")
            + f", but {cluster.metadata.name} has {number(there)}",
            f"at most {max(0, there - training)}",
            related=((at(cluster, "node_groups"), f"{number(there)} accelerators"),),
        )


def _fewest_in(groups: list[NodeGroup], plan: TrainingPlan, cluster: ClusterProfile) -> int:
    """The fewest accelerators of some groups that training needs, next to all of the others that it may run on."""
    own = node_groups(plan, cluster)
    left = plan.parallelism.num_accelerators - num_ranks(tuple(group for group in own if group not in groups))
    if not own or left <= 0:
        return 0
    shared = sorted((group for group in own if group in groups), key=_ranks_per_accelerator, reverse=True)
    fewest = 0
    for group in shared:
        used = min(total(group), -(-left // _ranks_per_accelerator(group)))
        fewest, left = fewest + used, left - used * _ranks_per_accelerator(group)
        if left <= 0:
            return fewest
    return fewest + -(-left // _ranks_per_accelerator(shared[0])) if shared else 0


def _ranks_per_accelerator(group: NodeGroup) -> int:
    return group.accelerator.num_ranks_per_accelerator


@rule("TS-BAT-050")
def initial_checkpoint(plan: TrainingPlan) -> Iterator[Violation]:
    """The checkpoint that a job starts from is identified by what it holds."""
    start = require(plan.initial_checkpoint, "the plan names no checkpoint that the job starts from")
    if start.save_id is None and start.digest is None:
        yield Violation(
            at(plan, "initial_checkpoint", "reference"),
            "the checkpoint is named by its place alone, where another one can be later",
            "add its save_id, or its digest as sha256:<64 hexadecimal digits>",
        )
