"""Judges the memory plan: state, peak, reserve, offload and micro-batches in flight."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.memory import Memory
from trainspec_validate.model.units import bytes_, number, seconds
from trainspec_validate.performance.costs.memory import (
    FORMAT_BYTES,
    ModelState,
    attention_score_bytes,
    micro_batches_in_flight,
)
from trainspec_validate.performance.derived import machine as machines
from trainspec_validate.performance.derived.optimizer import optimizer_state
from trainspec_validate.performance.derived.state import offloaded_share, state_bytes_per_rank, state_with
from trainspec_validate.performance.derived.trained import num_trained
from trainspec_validate.rules import NotApplicable, Uncovered, Unresolved, Violation, at, at_key, require, rule
from trainspec_validate.rules._machine import at_machine, machine_of, memory_unknown
from trainspec_validate.rules._records import memory_of

GIB = 2**30
LEAST_RESERVE = 3 * GIB
STATE_TOLERANCE = 0.25
LONG_SEQUENCE = 4096


def _states(plan: TrainingPlan) -> Iterator[ModelState]:
    """The states that the formats allow, the plain reading first."""
    p = plan.precision
    sums = [p.accumulation] if p.accumulation and p.accumulation != p.gradients else []
    for gradients in [*sums, p.gradients]:
        state = state_with(plan, gradients)
        yield state
        held_once = p.master_parameters == p.parameters or plan.parallelism.sharding == "parameters"
        if p.master_parameters and held_once:
            yield ModelState(0, state.master, state.gradients, state.moments)
    for gradients in sums:
        state = state_with(plan, gradients)
        both = state.gradients + FORMAT_BYTES[p.gradients]
        yield ModelState(state.weights, state.master, both, state.moments)


@rule("TS-MEM-001")
def state_bytes(plan: TrainingPlan) -> Iterator[Violation]:
    """The bytes of one parameter are those of its formats."""
    stated = require(memory_of(plan).state_bytes_per_parameter, "the plan states no bytes of state per parameter")
    kept = optimizer_state(plan.optimizer, plan.precision, plan.model, num_trained(plan))
    if kept.unknown is not None:
        raise Unresolved(at(plan, "optimizer"), f"does not give {kept.unknown}", "add what is known")
    states = list(_states(plan))
    if all(abs(stated - state.total) > STATE_TOLERANCE for state in states):
        s, named = states[0], "optimizer state" if plan.optimizer else "moments"
        yield Violation(
            at(plan, "memory", "state_bytes_per_parameter"),
            f"the state is stated as {number(stated)} bytes per parameter, but the formats of precision come "
            f"to {number(round(s.total, 3))}: {number(s.weights)} weights + {number(s.master)} master + "
            f"{number(s.gradients)} gradients + {number(round(s.moments, 3))} {named}",
            f"set state_bytes_per_parameter to {number(round(s.total, 3))}, or correct the formats",
            related=((at(plan, "precision"), "the formats"),),
        )


@rule("TS-MEM-002")
def state_fits(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The sharded state and the reserve fit."""
    machine = machine_of(plan, cluster)
    memory = plan.memory
    if memory and memory.unified_memory != "none":
        raise NotApplicable("state may spill into memory shared with the host")
    if machine.memory_bytes_per_rank is None:
        raise memory_unknown(machine)
    spare = (memory.reserve_bytes if memory else None) or 0
    least = state_bytes_per_rank(plan)
    capacity = machine.memory_bytes_per_rank
    if least + spare > capacity:
        kept = f", and {bytes_(spare)} are kept free" if spare else ""
        alone = least > capacity
        yield Violation(
            at(plan, "model", "num_parameters") if alone else at(plan, "memory", "reserve_bytes"),
            f"the sharded state takes at least {bytes_(least)} of the fullest rank{kept}, but a rank has "
            f"{bytes_(capacity)}",
            "shard over more ranks, shard more of the state, or offload"
            if alone
            else f"keep {bytes_(capacity - least)} free at most, or shard the state over more ranks",
            related=(
                (at(plan, "parallelism"), "the degrees"),
                (at_machine(machine, "accelerator"), "the accelerator"),
            ),
        )


def _peak(plan: TrainingPlan) -> tuple[Memory, float]:
    memory = memory_of(plan)
    peak = _stated_peak(memory)
    if peak is None:
        raise NotApplicable("the plan predicts no peak")
    return memory, peak


def _stated_peak(memory: Memory) -> float | None:
    """The predicted peak; a rule that asks only whether there is one comes to no verdict where that is unknown."""
    return None if memory.predicted_peak_bytes is None else float(memory.predicted_peak_bytes)


@rule("TS-MEM-003")
def peak_holds_state(plan: TrainingPlan) -> Iterator[Violation]:
    """The predicted peak is no less than the state."""
    _, peak = _peak(plan)
    least = state_bytes_per_rank(plan)
    if peak < least:
        yield Violation(
            at(plan, "memory", "predicted_peak_bytes"),
            f"the peak is {bytes_(peak)}, but the sharded state alone takes at least {bytes_(least)}",
            f"predict {bytes_(least)} and the activations on top",
        )


@rule("TS-MEM-004")
def peak_fits(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The predicted peak and the reserve fit on the accelerator."""
    memory, peak = _peak(plan)
    machine = machine_of(plan, cluster)
    capacity = machine.memory_bytes_per_rank
    if memory.unified_memory != "none":
        raise NotApplicable("memory is shared with the host")
    if capacity is None:
        raise memory_unknown(machine)
    spare = memory.reserve_bytes or 0
    if peak + spare > capacity:
        yield Violation(
            at(plan, "memory", "predicted_peak_bytes"),
            f"peak {bytes_(peak)} + reserve {bytes_(spare)} is {bytes_(peak + spare)}, but a rank has "
            f"{bytes_(capacity)}",
            f"bring the peak to {bytes_(capacity - spare)} or below",
            related=((at_machine(machine, "accelerator"), "the accelerator"),),
        )


@rule("TS-MEM-005")
def reserve(plan: TrainingPlan) -> Iterator[Violation]:
    """Enough memory stays free for what no framework counts."""
    memory = memory_of(plan)
    if memory.reserve_bytes is None and _stated_peak(memory) is None:
        raise NotApplicable("the plan predicts no peak and states no reserve")
    if memory.allocator == "arena":
        raise NotApplicable("one arena holds everything")
    if memory.reserve_bytes is None:
        yield Violation(at_key(plan, "memory"), "no reserve is stated", f"set reserve_bytes to {LEAST_RESERVE} or more")
    elif memory.reserve_bytes < LEAST_RESERVE:
        yield Violation(
            at(plan, "memory", "reserve_bytes"),
            f"the reserve is {bytes_(memory.reserve_bytes)}",
            f"contexts and communication need 1.5 to 4 GiB: reserve {LEAST_RESERVE} bytes (3 GiB) or more",
        )


@rule("TS-MEM-006")
def peak_view(plan: TrainingPlan) -> Iterator[Violation]:
    """A peak says who saw it."""
    memory, _ = _peak(plan)
    if memory.peak_view is None:
        yield Violation(
            at(plan, "memory", "predicted_peak_bytes"),
            "the peak does not say whether the allocator or the device reports it",
            "set peak_view to allocator or device",
        )


@rule("TS-MEM-007")
def activation_policy(plan: TrainingPlan) -> Iterator[Violation]:
    """Unfused attention over long sequences is recomputed."""
    memory, model = memory_of(plan), plan.model
    unfused = any(k.operation == "attention" and k.fused is False for k in plan.kernels)
    sequence, heads = model.sequence_length, model.num_attention_heads
    if not unfused or not heads or not sequence or sequence < LONG_SEQUENCE:
        raise NotApplicable(f"no unfused attention over {LONG_SEQUENCE} tokens or more")
    if memory.activation_policy == "none":
        degrees = plan.parallelism
        score = attention_score_bytes(heads, sequence, plan.batch.micro_sequences)
        score /= degrees.tensor * degrees.context
        yield Violation(
            at(plan, "memory", "activation_policy"),
            f"nothing is recomputed, and each layer keeps {bytes_(score)} of attention scores on a rank",
            "set activation_policy to selective, or fuse attention",
        )


@rule("TS-MEM-008")
def in_flight(plan: TrainingPlan) -> Iterator[Violation]:
    """The number of live micro-batches is that of the schedule."""
    stated = memory_of(plan).micro_batches_in_flight
    degrees, steps = plan.parallelism, plan.batch.accumulation_steps
    expected = micro_batches_in_flight(degrees.schedule or "none", degrees.pipeline, steps, degrees.num_virtual_stages)
    if stated is None:
        raise NotApplicable("no number of micro-batches in flight is stated")
    if expected is None:
        reason = f"gives parallelism.schedule: {degrees.schedule}, which has no formula for micro-batches in flight"
        place = at(plan, "parallelism", "schedule")
        if degrees.schedule not in {None, "none", "other"}:
            raise Uncovered(place, reason)
        raise Unresolved(place, reason, "name a schedule that is listed, where one fits")
    if stated != expected:
        yield Violation(
            at(plan, "memory", "micro_batches_in_flight"),
            f"{stated} micro-batches live on the first stage, but {degrees.schedule or 'no pipeline'} with "
            f"{degrees.pipeline} stages and {steps} micro-batches keeps {expected}",
            f"set micro_batches_in_flight to {expected}",
        )


@rule("TS-MEM-009")
def offload_shares(plan: TrainingPlan) -> Iterator[Violation]:
    """Shares of one class of tensor add up to at most one."""
    memory = memory_of(plan)
    entries = require(sorted(enumerate(memory.offload), key=lambda entry: entry[1].what), "nothing is offloaded")
    for what, group in groupby(entries, key=lambda entry: entry[1].what):
        last = list(group)[-1][0]
        total = offloaded_share(plan, what)
        if total > 1 + 1e-9:
            yield Violation(
                at(plan, "memory", "offload", last, "fraction"),
                f"{number(total)} of the {what} leave the device",
                f"let the shares of {what} add up to 1 at most",
            )


@rule("TS-MEM-031")
def activation_offload(plan: TrainingPlan) -> Iterator[Violation]:
    """The list of what is offloaded has activations where the activation policy is to offload them."""
    if memory_of(plan).activation_policy != "offload":
        raise NotApplicable("the activation policy is not offload")
    if not offloaded_share(plan, "activations"):
        yield Violation(
            at(plan, "memory", "activation_policy"),
            "activation_policy is offload, and no activations are listed under offload",
            "list activations under offload with the share that leaves, or say what is recomputed: none, selective "
            "or full",
        )


@rule("TS-MEM-010")
def offload_capacity(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Tensors that leave the device have a place to go to."""
    memory, machine = memory_of(plan), machine_of(plan, cluster)
    if not memory.offload:
        raise NotApplicable("nothing is offloaded")
    disks = [s for s in cluster.storage_targets if s.kind == "local-disk" and s.scope == "node"]
    host = machine.group.host.memory_bytes if machine.group.host else None
    room = {"host": host, "local-disk": sum(s.free_bytes or s.capacity_bytes or 0 for s in disks) or None}
    first = {entry.target: index for index, entry in reversed(list(enumerate(memory.offload)))}
    for target, index in first.items():
        whole = state_bytes_per_rank(plan, offloaded_to=target)
        needed = whole * min(machine.num_ranks_per_node, plan.parallelism.num_accelerators)
        place = at(plan, "memory", "offload", index, "target")
        if target == "local-disk" and not disks:
            message = f"state is offloaded to local disk, but {cluster.metadata.name} declares none"
            yield Violation(place, message, "declare the disk of a node under storage_targets, or use host")
        elif (limit := room[target]) is not None and needed > limit:
            yield Violation(
                place,
                f"the ranks of one node offload at least {bytes_(needed)}, but its {target} holds {bytes_(limit)}",
                "offload less, or shard the state over more ranks",
            )


def _link(plan: TrainingPlan, cluster: ClusterProfile) -> tuple[machines.Machine, float, float]:
    machine = machine_of(plan, cluster)
    rate, step = machine.host_bytes_per_second_per_rank, machines.step_seconds(plan)
    if rate is None or step is None:
        raise NotApplicable("the host link or the step time is not known")
    return machine, rate, step


@rule("TS-MEM-011")
def host_traffic(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Bytes that cross the host link in a step fit into the step."""
    memory = memory_of(plan)
    machine, rate, step = _link(plan, cluster)
    flows: list[tuple[tuple[str | int, ...], float | None, int]] = [
        (("offload", i, "bytes_per_step"), o.bytes_per_step, 2) for i, o in enumerate(memory.offload)
    ]
    flows.append((("input_bytes_per_step",), memory.input_bytes_per_step, 1))
    known = [(place, flow, ways) for place, flow, ways in flows if flow is not None]
    if not known:
        raise NotApplicable("no traffic over the host link is stated")
    busy = sum(flow / ways for _, flow, ways in known) / rate
    if busy > step:
        place, flow, _ = max(known, key=lambda item: item[1] / item[2])
        yield Violation(
            at(plan, "memory", *place),
            f"the stated traffic keeps the host link busy for {seconds(busy)} of a step of {seconds(step)}; "
            f"{bytes_(flow)} of it is this flow",
            f"move less in each step; the link carries {bytes_(rate * step)} each way in that time",
            related=((at_machine(machine, "host_link"), "the link"),),
        )
