"""Rules on the cost of a save, the step time it rests on, and the work that a fault may lose."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.model.units import base, bytes_, bytes_per_second, flops_per_second, number, percent, seconds
from trainspec_validate.performance.derived.cluster import ranks_per_node
from trainspec_validate.performance.derived.groups import most_together
from trainspec_validate.performance.derived.machine import step_seconds
from trainspec_validate.performance.derived.policy import durable_seconds
from trainspec_validate.performance.derived.speed import least_flops_per_step, peak_of_rank, step_time
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, at_key, require, rule
from trainspec_validate.rules._forecast import FASTEST, SLOWEST, timed_prediction_of
from trainspec_validate.rules._groups import check_group
from trainspec_validate.rules._policy import durable_interval_seconds, job_nodes, storage_of, total_rate

BYTES_PER_PARAMETER = (12.0, 14.0)
WEIGHT_BYTES = 2.0
"""Of a weight in 16 bits: a state with an optimizer has more."""
_COPIES = ("model", "ema-weights", "outer-optimizer")
"""Items of state that hold a value for each parameter."""
SIZE_RANGE = (0.8, 1.5)
RATE_TOLERANCE = 0.9
UNIT_SLIP = 1000
TAIL_FACTOR = 5
WRITER_TOLERANCE = 1.25
WRITER_FACTOR = 7


@rule("TS-CKP-012")
def checkpoint_size(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The size is parameters times bytes of one parameter."""
    save = checkpoint.save
    if save.num_parameters is None:
        raise NotApplicable("the number of parameters is not stated")
    if save.bytes_per_parameter is None:
        raise NotApplicable("the bytes of one parameter are not stated")
    yield from _size(checkpoint, save.bytes_per_parameter, save.bytes_per_parameter)


def _size(checkpoint: CheckpointPolicy, low: float, high: float) -> Iterator[Violation]:
    """A size that parameters of `low` to `high` bytes do not have."""
    save = checkpoint.save
    if save.num_parameters is None:
        return
    smallest, largest = (
        save.num_parameters * low * SIZE_RANGE[0],
        save.num_parameters * high * SIZE_RANGE[1],
    )
    if not smallest <= save.size_bytes <= largest:
        stated = "" if save.bytes_per_parameter is None else f", not {number(save.bytes_per_parameter)}"
        message = (
            f"{bytes_(save.size_bytes)} for {number(save.num_parameters / 1e9)} billion parameters is "
            f"{number(float(f'{save.size_bytes / save.num_parameters:.3g}'))} bytes each{stated}"
        )
        help_text = f"expected {bytes_(smallest)} to {bytes_(largest)}"
        yield Violation(at(checkpoint, "save", "size_bytes"), message, help_text)


@rule("TS-CKP-013")
def asynchronous_fits(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Saves under way become durable before there are more of them than allowed."""
    save = checkpoint.save
    if save.mode == "synchronous":
        raise NotApplicable("saves are synchronous")
    if save.persist_seconds_p95 is None:
        message = "asynchronous saves without the time until they are durable"
        yield Violation(at_key(checkpoint, "save"), message, "state persist_seconds_p95, as measured")
        return
    interval = durable_interval_seconds(checkpoint)
    if interval * save.max_in_flight < save.persist_seconds_p95:
        needed = -int(-save.persist_seconds_p95 // interval)
        message = (
            f"a save takes {seconds(save.persist_seconds_p95)} to become durable, but with one every "
            f"{seconds(interval)} only {number(save.max_in_flight)} may be under way"
        )
        help_text = f"save at most every {seconds(save.persist_seconds_p95)}, or allow {needed} at once"
        yield Violation(at(checkpoint, "save", "persist_seconds_p95"), message, help_text)


@rule("TS-CKP-105")
def staged_saves(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """Copies of the saves that may be under way fit into host memory."""
    save, nodes = checkpoint.save, job_nodes(checkpoint, cluster)
    if save.mode == "synchronous":
        raise NotApplicable("saves are synchronous")
    groups = [group for group in cluster.node_groups if group.num_nodes >= nodes] or cluster.node_groups
    sizes = [group.host.memory_bytes if group.host else None for group in groups]
    if any(size is None for size in sizes):
        raise NotApplicable("the host memory of the nodes is not stated")
    offers = [(size or 0, group.num_nodes) for size, group in zip(sizes, groups, strict=True)]
    host, share = most_together(offers, nodes) / nodes, save.size_bytes / nodes
    if save.max_in_flight * share > host:
        yield Violation(
            at(checkpoint, "save", "max_in_flight" if save.max_in_flight > 1 else "size_bytes"),
            f"{number(save.max_in_flight)} asynchronous save{'s' if save.max_in_flight > 1 else ''} may be under way, "
            f"each with {bytes_(share)} on a node, which has {bytes_(host)} of host memory",
            f"set max_in_flight to {int(host / share)} or less"
            if host >= share
            else "save from more nodes, or in parts",
        )


def _fastest_store(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> tuple[float, float] | None:
    """Shortest time in which the stores of any tier take one checkpoint, and their rate."""
    found = []
    for tier in checkpoint.tiers:
        target = storage_of(tier, cluster)
        if target:
            rate = total_rate(target.write_bandwidth_bytes_per_second, target, job_nodes(checkpoint, cluster))
            if rate:
                found.append((checkpoint.save.size_bytes * tier.num_replicas / rate, rate))
    return min(found, default=None)


@rule("TS-CKP-014")
def save_time(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """A save takes as long as its bytes need."""
    save = checkpoint.save
    store = require(_fastest_store(checkpoint, cluster), "the write rate of the stores is not stated")
    shortest, why = store[0], f"the store takes {bytes_per_second(store[1])}"
    key = "blocking_seconds" if save.mode == "synchronous" else "persist_seconds_p95"
    declared = durable_seconds(checkpoint)
    if declared == 0:
        raise NotApplicable("the time until a save is durable is not stated")
    place = at(checkpoint, "save", key)
    if declared < RATE_TOLERANCE * shortest:
        message = f"{bytes_(save.size_bytes)} cannot be durable in {seconds(declared)}: {why}"
        yield Violation(place, message, f"expected {seconds(shortest)} or more")


@rule("TS-CKP-064")
def save_plausible(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """Times and sizes of saves are not a slip of a unit away from what is usual."""
    save, declared, store = checkpoint.save, durable_seconds(checkpoint), _fastest_store(checkpoint, cluster)
    sized = save.num_parameters is not None or save.bytes_per_parameter is not None
    steps = (checkpoint.interval.step_seconds, checkpoint.job.step_seconds_p99)
    if not sized and None in steps and (store is None or declared == 0):
        raise NotApplicable("no parameters or their bytes, no two step times, and no persist time with a store's rate")
    if store is not None and declared > UNIT_SLIP * store[0]:
        key = "blocking_seconds" if save.mode == "synchronous" else "persist_seconds_p95"
        message = (
            f"{bytes_(save.size_bytes)} durable after {seconds(declared)}, although the store takes "
            f"{bytes_per_second(store[1])}"
        )
        help_text = f"the bytes need {seconds(store[0])}; a thousand times as much is a slip of a unit"
        yield Violation(at(checkpoint, "save", key), message, help_text)
    if save.bytes_per_parameter is None:
        yield from _size(checkpoint, *BYTES_PER_PARAMETER)
    else:
        yield from _too_few_bytes(checkpoint, save.bytes_per_parameter)
    yield from _tail(checkpoint)


def _too_few_bytes(checkpoint: CheckpointPolicy, stated: float) -> Iterator[Violation]:
    """Fewer bytes of a parameter than the copies of it in the state have in 16 bits, and the optimizer beyond them."""
    copies = [item for item in checkpoint.state.items if item in _COPIES]
    least, has_optimizer = WEIGHT_BYTES * len(copies), "optimizer" in checkpoint.state.items
    if stated > least or (stated == least and not has_optimizer) or not (has_optimizer or len(copies) > 1):
        return
    optimizer = ", and state.items names the optimizer too" if has_optimizer else ""
    held = f"{', '.join(copies)} alone {'takes' if len(copies) == 1 else 'take'} {number(least)} in 16 bits"
    message = f"{number(stated)} bytes for each parameter, of which {held}{optimizer}"
    help_text = "add what the optimizer keeps: 12 to 14 bytes in all with Adam and weights in 32 bits"
    if not has_optimizer:
        help_text = f"write {number(least)} or more, or take what is not saved out of state.items"
    yield Violation(at(checkpoint, "save", "bytes_per_parameter"), message, help_text)


def _tail(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A 99th percentile that is too far above the median step."""
    save = checkpoint.save
    median, tail = checkpoint.interval.step_seconds, checkpoint.job.step_seconds_p99
    if median is None or tail is None:
        return
    longest = TAIL_FACTOR * median + save.blocking_seconds
    if tail > longest:
        message = (
            f"step_seconds_p99, which 99 of 100 steps do not exceed, is {seconds(tail)}, more than {TAIL_FACTOR:g} "
            f"times the median of {seconds(median)} in interval.step_seconds and the stall of a save"
        )
        help_text = f"write {base(median)} to {base(longest)}, in seconds, or correct interval.step_seconds"
        yield Violation(at(checkpoint, "job", "step_seconds_p99"), message, help_text)


@rule("TS-CKP-059")
def writer_time(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """A save takes about as long as its writers need for its bytes."""
    save, declared = checkpoint.save, durable_seconds(checkpoint)
    if not (save.num_writers and save.writer_bandwidth_bytes_per_second and declared):
        raise NotApplicable("the writers, their rate or the time until a save is durable is not stated")
    rate = save.num_writers * save.writer_bandwidth_bytes_per_second
    shortest = save.size_bytes / rate
    if not RATE_TOLERANCE * shortest <= declared <= WRITER_FACTOR * shortest:
        key = "blocking_seconds" if save.mode == "synchronous" else "persist_seconds_p95"
        message = (
            f"{bytes_(save.size_bytes)} are durable after {seconds(declared)}, but {number(save.num_writers)} writers "
            f"with {bytes_per_second(rate)} together need {seconds(shortest)}"
        )
        help_text = f"expected {seconds(shortest)} to {seconds(WRITER_FACTOR * shortest)}"
        yield Violation(at(checkpoint, "save", key), message, help_text)


@rule("TS-CKP-015")
def writers(checkpoint: CheckpointPolicy, cluster: ClusterProfile) -> Iterator[Violation]:
    """There are at most as many writers as ranks, and together they are no faster than the store."""
    save = checkpoint.save
    if save.num_writers is None:
        raise NotApplicable("the number of writers is not stated")
    nodes = job_nodes(checkpoint, cluster)
    # The job cannot be on a group with too few nodes; of the others the policy does not say which.
    groups = [group for group in cluster.node_groups if group.num_nodes >= nodes] or cluster.node_groups
    ranks = int(most_together([(ranks_per_node(group), group.num_nodes) for group in groups], nodes))
    if save.num_writers > ranks:
        message = f"{number(save.num_writers)} ranks write, but the job has at most {number(ranks)}"
        yield Violation(at(checkpoint, "save", "num_writers"), message, f"at most {base(ranks)}")
    store = _fastest_store(checkpoint, cluster)
    if store is None or save.writer_bandwidth_bytes_per_second is None:
        return
    together = save.num_writers * save.writer_bandwidth_bytes_per_second
    if together > WRITER_TOLERANCE * store[1]:
        each = bytes_per_second(save.writer_bandwidth_bytes_per_second)
        message = (
            f"{number(save.num_writers)} writers of {each} bring {bytes_per_second(together)}, "
            f"but the store takes {bytes_per_second(store[1])}"
        )
        help_text = f"measure while all write: at most {bytes_per_second(store[1] / save.num_writers)} each"
        yield Violation(at(checkpoint, "save", "writer_bandwidth_bytes_per_second"), message, help_text)


@rule("TS-CKP-016")
def recovery_point(checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The promised loss covers an interval and the time until its save protects."""
    interval, durable = durable_interval_seconds(checkpoint), durable_seconds(checkpoint)
    if checkpoint.recovery_point_seconds < interval + durable:
        message = (
            f"a fault costs up to {seconds(interval + durable)} of work ({seconds(interval)} between saves "
            f"that outlive the job, {seconds(durable)} until one is durable), more than the "
            f"{seconds(checkpoint.recovery_point_seconds)} promised"
        )
        help_text = f"promise {base(interval + durable)} seconds or more, or save more often"
        yield Violation(at(checkpoint, "recovery_point_seconds"), message, help_text)


@rule("TS-CKP-112")
def policy_step_within_peak(
    checkpoint: CheckpointPolicy, plan: TrainingPlan, cluster: ClusterProfile
) -> Iterator[Violation]:
    """Where the plan states no speed, the step of the policy takes no more operations than accelerators can do."""
    step = checkpoint.interval.step_seconds
    if step is None or step_time(plan) is not None:
        raise NotApplicable("the policy states no step time, or the plan states a speed")
    if plan.batch.ramp or plan.batch.controller:
        raise NotApplicable("the batch changes, and the policy does not say of which one its step is")
    check_group(plan, cluster)
    operations, peak = least_flops_per_step(plan), peak_of_rank(plan, cluster)
    if operations is None or peak is None:
        what = "operations of a step are not counted" if operations is None else "peak in its format is not known"
        place = at(checkpoint, "interval", "step_seconds")
        raise Unresolved(place, f"states the time of a step, but the {what}", "state it")
    done = operations / plan.parallelism.num_accelerators / step
    if done > peak:
        yield Violation(
            at(checkpoint, "interval", "step_seconds"),
            f"a step of {seconds(step)} takes {flops_per_second(done)} of each rank, {percent(done / peak)} of the "
            f"peak of {flops_per_second(peak)}",
            f"a step takes at least {seconds(step * done / peak)}, more with any loss; check units and counts",
            related=((at(plan, "batch"), "the batch of a step"), (at(cluster, "node_groups"), "its accelerators")),
        )


def _is_beyond_peak(step: float, plan: TrainingPlan, cluster: ClusterProfile) -> bool:
    if step_time(plan) is not None or plan.batch.ramp or plan.batch.controller:
        return False
    operations, peak = least_flops_per_step(plan), peak_of_rank(plan, cluster)
    return bool(operations and peak and operations / plan.parallelism.num_accelerators / step > peak)


@rule("TS-CKP-062")
def step_predicted(checkpoint: CheckpointPolicy, plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Where the plan states no step time, that of the policy is about the predicted one."""
    step = checkpoint.interval.step_seconds
    if step is None or step_seconds(plan) is not None:
        raise NotApplicable("the policy states no step time, or the plan states one")
    if _is_beyond_peak(step, plan, cluster):
        raise NotApplicable("the step is beyond the peak, which TS-CKP-112 reports")
    predicted = timed_prediction_of(plan, cluster).outlook.step.seconds
    if not FASTEST * predicted <= step <= SLOWEST * predicted:
        spacing = checkpoint.interval.steps
        real = f": {number(spacing)} steps are {seconds(spacing * predicted)}" if spacing else ""
        yield Violation(
            at(checkpoint, "interval", "step_seconds"),
            f"a step is said to take {seconds(step)}, but {seconds(predicted)} is predicted{real}",
            f"between {base(FASTEST * predicted)} and {base(SLOWEST * predicted)} s",
            related=((at(plan, "parallelism"), "the layout of the plan"),),
        )


@rule("TS-CKP-063")
def first_step_predicted(
    checkpoint: CheckpointPolicy, plan: TrainingPlan, cluster: ClusterProfile
) -> Iterator[Violation]:
    """Where no step time is stated, the first step after a recovery takes as long as a step is predicted to."""
    if checkpoint.interval.step_seconds is not None:
        raise NotApplicable("the policy states the time of a step")
    if not checkpoint.recovery:
        raise NotApplicable("the policy has no recovery path")
    predicted = timed_prediction_of(plan, cluster).outlook.step.seconds
    for index, path in enumerate(checkpoint.recovery):
        if path.first_step_seconds < FASTEST * predicted:
            short = predicted - path.first_step_seconds
            yield Violation(
                at(checkpoint, "recovery", index, "first_step_seconds"),
                f"the first step after {path.fault} takes {seconds(path.first_step_seconds)}, but a step is predicted "
                f"to take {seconds(predicted)}",
                f"{seconds(predicted)} or more, compilation included; a budget of {seconds(path.budget_seconds)} then "
                f"grows to {base(path.budget_seconds + short)} s",
            )
