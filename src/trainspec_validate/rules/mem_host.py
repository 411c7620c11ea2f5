"""Judges the flow between host and device: traffic, pinned memory, prefetch, loaders."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.model.units import bytes_, number
from trainspec_validate.performance.derived.state import least_state
from trainspec_validate.performance.derived.trained import num_trained
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, rule
from trainspec_validate.rules._machine import at_machine, machine_of
from trainspec_validate.rules._records import memory_of

LEAST_TOKEN_BYTES, MOST_TOKEN_BYTES = 2, 64
STAGED_SHARE = 0.9
COHERENT = ("nvlink-c2c", "infinity-fabric", "coherent")


@rule("TS-MEM-012")
def offload_volume(plan: TrainingPlan) -> Iterator[Violation]:
    """The stated traffic of offload carries at least what the share of state needs."""
    memory = memory_of(plan)
    entries = [(i, o) for i, o in enumerate(memory.offload) if o.what != "activations"]
    stated = [(i, o, o.bytes_per_step) for i, o in entries if o.bytes_per_step is not None]
    if not stated:
        raise NotApplicable("no traffic of offloaded state is stated")
    state, total = least_state(plan), plan.model.num_parameters
    trained = num_trained(plan) / plan.parallelism.num_accelerators
    passes = {
        "optimizer": state.gradients * trained + state.weights * trained,
        "gradients": state.gradients * trained,
        "parameters": state.weights * total / plan.parallelism.num_accelerators,
    }
    for index, entry, traffic in stated:
        least = passes[entry.what] * entry.fraction
        if traffic < least:
            yield Violation(
                at(plan, "memory", "offload", index, "bytes_per_step"),
                f"{bytes_(traffic)} cross the link in a step, but a share of "
                f"{number(entry.fraction)} of the {entry.what} needs {bytes_(least)} at least",
                "state the traffic of one whole step, both directions together",
            )


@rule("TS-MEM-013")
def pinned_memory(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Page-locked memory of the ranks fits into the host."""
    memory, machine = memory_of(plan), machine_of(plan, cluster)
    host = machine.group.host.memory_bytes if machine.group.host else None
    if memory.pinned_host_bytes is None or host is None:
        raise NotApplicable("pinned memory or host memory is not stated")
    ranks = min(machine.num_ranks_per_node, plan.parallelism.num_accelerators)
    if memory.pinned_host_bytes * ranks > 0.9 * host:
        yield Violation(
            at(plan, "memory", "pinned_host_bytes"),
            f"{ranks} ranks pin {bytes_(memory.pinned_host_bytes)} each, "
            f"{bytes_(memory.pinned_host_bytes * ranks)} of {bytes_(host)} of host memory",
            f"pin {bytes_(0.9 * host / ranks)} per rank at most",
            related=((at_machine(machine, "host", "memory_bytes"), "host memory"),),
        )


@rule("TS-MEM-019")
def staging_memory(plan: TrainingPlan, checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """Page-locked memory of a rank holds its share of an asynchronous save."""
    pinned, save = memory_of(plan).pinned_host_bytes, checkpoint.save
    if pinned is None or save.mode == "synchronous":
        raise NotApplicable("pinned memory is not stated, or saves are synchronous")
    share = save.size_bytes / plan.parallelism.num_accelerators
    if pinned < STAGED_SHARE * share:
        yield Violation(
            at(plan, "memory", "pinned_host_bytes"),
            f"a rank pins {bytes_(pinned)}, but its share of an asynchronous save is {bytes_(share)}",
            f"pin {bytes_(share)} or more, so that the copy off the device overlaps with training",
            related=((at(checkpoint, "save", "size_bytes"), "one save of all ranks"),),
        )


@rule("TS-MEM-014")
def prefetch(plan: TrainingPlan) -> Iterator[Violation]:
    """Copies that overlap with computation have something to copy, from memory that stays where it is."""
    memory = memory_of(plan)
    if not memory.asynchronous_copies:
        raise NotApplicable("no copy overlaps with computation")
    if memory.prefetch_depth == 0:
        message = "copies overlap with computation, but no batch is prefetched"
        yield Violation(at(plan, "memory", "prefetch_depth"), message, "set prefetch_depth to 1 or more")
    if memory.pinned_input is False:
        message = "copies overlap with computation, but input is not page-locked, so each copy waits"
        yield Violation(at(plan, "memory", "pinned_input"), message, "set pinned_input to true")
    lacks = [key for key in ("prefetch_depth", "pinned_input") if getattr(memory, key) is None]
    if lacks:
        reason = f"has asynchronous copies and does not give {' and '.join(lacks)}"
        raise Unresolved(at(plan, "memory", "asynchronous_copies"), reason, "add what is known")


@rule("TS-MEM-015")
def unified_memory(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Coherent shared memory needs a coherent link."""
    memory, machine = memory_of(plan), machine_of(plan, cluster)
    link = machine.group.host_link
    if memory.unified_memory != "coherent" or link is None or link.technology == "other":
        raise NotApplicable("no coherent memory is used, or the host link is not known")
    if link.technology not in COHERENT:
        yield Violation(
            at(plan, "memory", "unified_memory"),
            f"the plan counts on coherent memory, but host and accelerator are joined by {link.technology}",
            "set unified_memory to none or managed",
            related=((at_machine(machine, "host_link", "technology"), "the host link"),),
        )


@rule("TS-MEM-016")
def loader_workers(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Each input worker has a core."""
    memory, machine = memory_of(plan), machine_of(plan, cluster)
    cores = machine.group.host.num_cores if machine.group.host else None
    if memory.num_loader_workers is None or cores is None:
        raise NotApplicable("loader workers or cores are not stated")
    ranks = min(machine.num_ranks_per_node, plan.parallelism.num_accelerators)
    total = memory.num_loader_workers * ranks
    if total > cores:
        yield Violation(
            at(plan, "memory", "num_loader_workers"),
            f"{memory.num_loader_workers} workers of {ranks} ranks are {total} processes on {cores} cores",
            f"use {cores // ranks} workers per rank at most, or share one loader per host",
            related=((at_machine(machine, "host", "num_cores"), "cores"),),
        )


@rule("TS-MEM-017")
def kernel_workspace(plan: TrainingPlan) -> Iterator[Violation]:
    """Scratch memory of kernels fits into the reserve."""
    spare = plan.memory.reserve_bytes if plan.memory else None
    stated = [(i, k.workspace_bytes) for i, k in enumerate(plan.kernels) if k.workspace_bytes is not None]
    if spare is None or not stated:
        raise NotApplicable("no workspace is stated, or no reserve")
    for index, workspace in stated:
        if workspace > spare:
            yield Violation(
                at(plan, "kernels", index, "workspace_bytes"),
                f"the kernel takes {bytes_(workspace)} of scratch memory, the reserve is {bytes_(spare)}",
                f"reserve {bytes_(workspace)} or more, or choose a kernel with less",
                related=((at(plan, "memory", "reserve_bytes"), "the reserve"),),
            )


@rule("TS-MEM-018")
def input_bytes(plan: TrainingPlan) -> Iterator[Violation]:
    """The input of a rank is a few bytes for each of its tokens."""
    stated, tokens = memory_of(plan).input_bytes_per_step, plan.batch.global_tokens
    if not stated or not tokens or not plan.model.vocabulary_size:
        raise NotApplicable("the plan states no input bytes, or no tokens")
    each = stated * plan.parallelism.data * plan.parallelism.context / tokens
    if not LEAST_TOKEN_BYTES <= each <= MOST_TOKEN_BYTES:
        yield Violation(
            at(plan, "memory", "input_bytes_per_step"),
            f"a rank copies {bytes_(stated)} of input in a step, {number(each)} bytes for each of its tokens",
            "ids, labels, positions and masks of a token take 2 to 64 bytes",
        )
