"""Rules on the size of a batch, the controllers that change it, and elasticity."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.model.units import number
from trainspec_validate.performance.derived.plan import node_groups, num_ranks, tokens_per_step
from trainspec_validate.rules import NotApplicable, Violation, at, require, rule
from trainspec_validate.rules._groups import check_group

WEIGHT_TOLERANCE = 1e-6


@rule("TS-BAT-001")
def batch_identity(plan: TrainingPlan) -> Iterator[Violation]:
    """The batch is data ranks times micro-batch times accumulation."""
    b, data = plan.batch, plan.parallelism.data
    if b.worker_shares:
        raise NotApplicable("the batch is shared unevenly")
    product = data * b.micro_sequences * b.accumulation_steps
    if product == b.global_sequences:
        return
    rest = data * b.micro_sequences
    wanted = f", or accumulation_steps to {b.global_sequences // rest}" if b.global_sequences % rest == 0 else ""
    yield Violation(
        at(plan, "batch", "global_sequences"),
        f"data {data} x micro-batch {b.micro_sequences} x accumulation {b.accumulation_steps} is "
        f"{number(product)}, but the batch has {number(b.global_sequences)} sequences",
        f"set global_sequences to {product}{wanted}",
        related=((at(plan, "parallelism", "data"), f"{data} data ranks"),),
    )


@rule("TS-BAT-002")
def batch_tokens(plan: TrainingPlan) -> Iterator[Violation]:
    """Tokens of a step are sequences times their length, or fewer where lengths vary."""
    b, length = plan.batch, plan.model.sequence_length
    if b.global_tokens is None or length is None:
        raise NotApplicable("the plan does not give both tokens of a step and the sequence length")
    product = b.global_sequences * length
    fits = b.global_tokens <= product if b.variable_length else b.global_tokens == product
    if not fits:
        most = "at most " if b.variable_length else ""
        yield Violation(
            at(plan, "batch", "global_tokens"),
            f"{number(b.global_sequences)} sequences of {number(length)} tokens are {most}{number(product)}, "
            f"but global_tokens is {number(b.global_tokens)}",
            f"set global_tokens to {product}",
        )


@rule("TS-BAT-003")
def worker_shares(plan: TrainingPlan) -> Iterator[Violation]:
    """Uneven shares cover all data ranks and add up to the batch."""
    b, data = plan.batch, plan.parallelism.data
    if not b.worker_shares:
        raise NotApplicable("the batch is shared evenly")
    place = at(plan, "batch", "worker_shares")
    ranks = sum(share.num_data_ranks for share in b.worker_shares)
    if ranks != data:
        message = f"the shares cover {number(ranks)} data ranks, but the job has {number(data)}"
        yield Violation(place, message, f"cover {data} ranks")
    total = sum(share.num_data_ranks * share.sequences_per_rank for share in b.worker_shares)
    if total != b.global_sequences:
        message = f"the shares add up to {number(total)} sequences of {number(b.global_sequences)}"
        yield Violation(place, message, f"make the sum {b.global_sequences}")
    largest = max(share.sequences_per_rank for share in b.worker_shares)
    steps = ceil(largest / b.micro_sequences)
    if steps != b.accumulation_steps:
        yield Violation(
            at(plan, "batch", "accumulation_steps"),
            f"the largest share of {largest} sequences takes {steps} micro-batches of {b.micro_sequences}, "
            f"but accumulation_steps is {b.accumulation_steps}",
            f"set accumulation_steps to {steps}",
        )


@rule("TS-BAT-004")
def worker_weights(plan: TrainingPlan) -> Iterator[Violation]:
    """The gradient of each rank weighs as much as its share of the batch."""
    b = plan.batch
    if all(share.gradient_weight is None for share in b.worker_shares):
        raise NotApplicable("no gradient weights are given")
    total = sum(share.num_data_ranks * share.sequences_per_rank for share in b.worker_shares)
    for position, share in enumerate(b.worker_shares):
        wanted = share.sequences_per_rank / total
        place = at(plan, "batch", "worker_shares", position)
        if share.gradient_weight is None:
            message = "other shares give a gradient weight, this one does not"
            yield Violation(place, message, f"set gradient_weight to {wanted:.6g}")
        elif abs(share.gradient_weight - wanted) > WEIGHT_TOLERANCE:
            yield Violation(
                at(plan, "batch", "worker_shares", position, "gradient_weight"),
                f"each rank takes {share.sequences_per_rank} of {number(total)} sequences, "
                f"but its gradient weighs {share.gradient_weight:g}",
                f"set gradient_weight to {wanted:.7g}; all weights of all ranks then add up to 1",
            )


@rule("TS-BAT-005")
def loss_reduction(plan: TrainingPlan) -> Iterator[Violation]:
    """Micro-batches of different size are not averaged as equals."""
    b = plan.batch
    sizes = {share.sequences_per_rank for share in b.worker_shares}
    if not b.variable_length and len(sizes) < 2:
        raise NotApplicable("all micro-batches hold equally many tokens")
    if b.loss_reduction == "mean-of-micro-batch-means":
        why = "micro-batches vary in length" if b.variable_length else "ranks take unequal shares"
        yield Violation(
            at(plan, "batch", "loss_reduction"),
            f"{why}, but the loss is the mean of their means",
            "divide the sum of losses by the tokens of the whole step: global-token-mean",
        )


@rule("TS-BAT-006")
def critical_batch(plan: TrainingPlan) -> Iterator[Violation]:
    """A batch above the measured critical batch buys few steps with many tokens."""
    b, tokens = plan.batch, tokens_per_step(plan)
    if b.critical_global_tokens is None or tokens is None:
        raise NotApplicable("no critical batch was measured")
    if tokens > b.critical_global_tokens:
        ratio = tokens / b.critical_global_tokens
        key = "global_tokens" if b.global_tokens else "global_sequences"
        yield Violation(
            at(plan, "batch", key),
            f"a step of {number(tokens)} tokens is {ratio:.3g} times the critical batch of "
            f"{number(b.critical_global_tokens)}: it takes {1 + ratio:.3g} times the fewest tokens",
            f"stay at or below {number(b.critical_global_tokens)} tokens, or measure again later in the run",
        )


@rule("TS-BAT-014")
def controller_bounds(plan: TrainingPlan) -> Iterator[Violation]:
    """The bounds of a controller contain every batch that the plan names."""
    b = plan.batch
    if b.controller is None:
        raise NotApplicable("no controller changes the batch")
    low, high = b.controller.min_global_sequences, b.controller.max_global_sequences
    data = plan.parallelism.data
    named = [("batch", b.global_sequences)]
    named += [(f"stage {i} of the ramp", stage.global_sequences) for i, stage in enumerate(b.ramp)]
    for words, size in named:
        if size < low or size > high:
            yield Violation(
                at(
                    plan,
                    "batch",
                    "controller",
                    "min_global_sequences" if size < low else "max_global_sequences",
                ),
                f"the {words} of {number(size)} sequences is outside of {number(low)} to {number(high)}",
                "widen the bounds, or correct the batch",
            )
    for key, value in (("min_global_sequences", low), ("max_global_sequences", high)):
        if not b.worker_shares and value % data:
            yield Violation(
                at(plan, "batch", "controller", key),
                f"{number(value)} sequences do not divide over {data} data ranks",
                f"use a multiple of {data}",
            )


@rule("TS-BAT-015")
def controller_boundary(plan: TrainingPlan) -> Iterator[Violation]:
    """A batch changes between optimizer steps, and within the job."""
    controller = require(plan.batch.controller, "no controller changes the batch")
    if controller.changes_at != "optimizer-step":
        yield Violation(
            at(plan, "batch", "controller", "changes_at"),
            "the batch changes in the middle of an accumulation",
            "set changes_at: optimizer-step",
        )
    steps = plan.job.num_steps if plan.job else None
    if steps and controller.interval_steps > steps:
        yield Violation(
            at(plan, "batch", "controller", "interval_steps"),
            f"a decision every {number(controller.interval_steps)} steps never comes in {number(steps)}",
            f"decide within {number(steps)} steps",
        )


@rule("TS-BAT-016")
def controller_evidence(plan: TrainingPlan) -> Iterator[Violation]:
    """A controller that reads the noise scale knows where the critical batch is."""
    b = plan.batch
    controller = b.controller
    if controller is None or controller.signal != "gradient-noise-scale":
        raise NotApplicable("no controller reads the noise scale")
    place = at(plan, "batch", "controller", "signal")
    if b.noise_scale is None:
        message = "the controller reads the noise scale, but the plan does not say how it is estimated"
        yield Violation(place, message, "add batch.noise_scale")
    tokens = plan.model.sequence_length
    largest = controller.max_global_sequences * tokens if tokens else None
    capped = b.critical_global_tokens and largest and largest <= b.critical_global_tokens
    if controller.critical_batch_evidence is None and not capped:
        cap = f"{number(largest)} tokens" if largest else f"{number(controller.max_global_sequences)} sequences"
        yield Violation(
            at(plan, "batch", "controller", "max_global_sequences"),
            f"the noise scale can drive the batch to {cap}, and no measured critical batch bounds it",
            "say under critical_batch_evidence how it was measured, or keep max_global_sequences below it",
        )


@rule("TS-BAT-018")
def elastic_degrees(plan: TrainingPlan) -> Iterator[Violation]:
    """Every data degree that an elastic job may take reaches the same batch."""
    elastic, batch = plan.batch.elastic, plan.batch.global_sequences
    if elastic is None:
        raise NotApplicable("the job is not elastic")
    for position, degree in enumerate(elastic.data_degrees):
        if not any(batch % (degree * micro) == 0 for micro in elastic.micro_sequences):
            sizes = ", ".join(str(micro) for micro in elastic.micro_sequences)
            yield Violation(
                at(plan, "batch", "elastic", "data_degrees", position),
                f"no micro-batch of {sizes} makes {number(batch)} sequences from {degree} data ranks",
                f"leave {degree} out, or add a micro-batch with which it divides {batch}",
            )

    for position, micro in enumerate(elastic.micro_sequences):
        if not any(batch % (degree * micro) == 0 for degree in elastic.data_degrees):
            yield Violation(
                at(plan, "batch", "elastic", "micro_sequences", position),
                f"micro-batches of {number(micro)} make {number(batch)} sequences with no data degree",
                "leave it out, or add a data degree with which it divides the batch",
            )


@rule("TS-BAT-019")
def elastic_current(plan: TrainingPlan) -> Iterator[Violation]:
    """The layout that the job starts with is one of those that it may change to."""
    elastic = require(plan.batch.elastic, "the job is not elastic")
    if plan.parallelism.data not in elastic.data_degrees:
        listed = ", ".join(str(degree) for degree in elastic.data_degrees)
        yield Violation(
            at(plan, "batch", "elastic", "data_degrees"),
            f"the job starts with data {plan.parallelism.data}, but may run with {listed}",
            f"add {plan.parallelism.data}",
        )
    if plan.batch.micro_sequences not in elastic.micro_sequences:
        listed = ", ".join(str(micro) for micro in elastic.micro_sequences)
        yield Violation(
            at(plan, "batch", "elastic", "micro_sequences"),
            f"the job starts with micro-batches of {plan.batch.micro_sequences}, but may use {listed}",
            f"add {plan.batch.micro_sequences}",
        )


@rule("TS-BAT-020")
def elastic_digests(plan: TrainingPlan) -> Iterator[Violation]:
    """Scheduler and training process read the same elastic section."""
    elastic = plan.batch.elastic
    if elastic is None or (elastic.runtime_digest is None and elastic.scheduler_digest is None):
        raise NotApplicable("no digests of an elastic section are given")
    if elastic.runtime_digest != elastic.scheduler_digest:
        key = "scheduler_digest" if elastic.scheduler_digest else "runtime_digest"
        lone = elastic.runtime_digest is None or elastic.scheduler_digest is None
        yield Violation(
            at(plan, "batch", "elastic", key),
            "there is one digest, and nothing to compare it with" if lone else "the two copies differ",
            "give both digests, of the same bytes",
        )


@rule("TS-BAT-021")
def elastic_fits(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The cluster has a place for the largest world size that an elastic job may take."""
    elastic, p = plan.batch.elastic, plan.parallelism
    if elastic is None:
        raise NotApplicable("the job is not elastic")
    check_group(plan, cluster)
    groups = node_groups(plan, cluster)
    offered, rest = num_ranks(groups), p.tensor * p.pipeline * p.context
    for position, degree in enumerate(elastic.data_degrees):
        if degree * rest > offered:
            yield Violation(
                at(plan, "batch", "elastic", "data_degrees", position),
                f"data {degree} needs {number(degree * rest)} ranks, but the cluster has {number(offered)}",
                f"at most data {offered // rest} fits",
            )
