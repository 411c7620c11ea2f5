"""Rules on memory that need a prediction on a machine: peak against capacity, host traffic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan, is_given
from trainspec_validate.model.units import bytes_, bytes_per_second, number, seconds
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.derived import machine as machines
from trainspec_validate.performance.derived.state import state_bytes_per_rank
from trainspec_validate.performance.forecast.outlook import Settings, memory_of_stage
from trainspec_validate.performance.forecast.predict import Prediction
from trainspec_validate.rules import NotApplicable, Uncovered, Unresolved, Violation, at, rule
from trainspec_validate.rules._forecast import SLOWEST, prediction_of, timed_prediction_of
from trainspec_validate.rules._lean_memory import ERROR, MEASURE, UNMEASURED, lean_memory, leanest, needed_bytes
from trainspec_validate.rules._machine import at_machine, machine_of
from trainspec_validate.rules._records import memory_of


@rule("TS-MEM-020")
def predicted_fit(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The predicted memory of a rank, in a plan without a peak of its own, fits on its accelerator."""
    memory = memory_of(plan)
    if memory.unified_memory != "none" or is_given(memory.predicted_peak_bytes):
        raise NotApplicable("the plan states a peak, or tensors may spill into memory shared with the host")
    machine = machine_of(plan, cluster)
    predicted, spare = prediction_of(plan, cluster, frozen=True), memory.reserve_bytes or 0
    if state_bytes_per_rank(plan) + spare > predicted.machine.memory_bytes:
        raise NotApplicable("not even the state fits")
    if predicted.memory is None:
        reason = "gives a pipeline schedule that has no formula for memory"
        raise Unresolved(
            at(plan, "parallelism", "schedule"), reason, "state predicted_peak_bytes, as measured in one step"
        )
    lean = replace(predicted, layout=leanest(plan, predicted.layout))
    stage, found = lean_memory(lean.model, lean.layout, lean.settings)
    least, capacity = needed_bytes(found, spare), predicted.machine.memory_bytes
    if least > capacity:
        parts = {
            "weights": found.weights,
            "gradients": found.gradients,
            "optimizer state": found.optimizer,
            "activations": found.activations,
        }
        text, tensors = ", ".join(f"{bytes_(size)} {what}" for what, size in parts.items()), sum(parts.values())
        other = least - tensors / (1 + ERROR)
        yield Violation(
            at(plan, "memory", "activation_policy"),
            f"a rank of stage {stage} is predicted to need {bytes_(least)} or more, and has {bytes_(capacity)}: {text}"
            f"; {bytes_(tensors)} over {1 + ERROR:g}, the most by which predictions exceed measured peaks, and "
            f"{bytes_(other)} for buffers, contexts and fragmentation",
            _smaller(lean, spare),
            related=((at_machine(machine, "accelerator"), "the accelerator"),),
        )
    elif plan.model.experts:
        raise Uncovered(at(plan, "model", "experts"), UNMEASURED, MEASURE)
    elif predicted.memory[1].total > capacity:
        raise _between(plan, predicted, spare, (least, predicted.memory[1].total))


def _between(plan: TrainingPlan, predicted: Prediction, spare: float, needs: tuple[float, float]) -> Unresolved:
    """The reason not to judge a plan that fits by the lean reading, the first of its needs, and not as predicted."""
    least, likely = needs
    _, stated = lean_memory(predicted.model, predicted.layout, predicted.settings)
    most, capacity = needed_bytes(stated, spare), predicted.machine.memory_bytes
    if most > capacity:
        reason = (
            f"does not state whether tensor ranks divide the tokens: a rank has {bytes_(capacity)}, and needs "
            f"{bytes_(least)} where they do and {bytes_(most)} where they do not"
        )
        return Unresolved(at(plan, "parallelism"), reason, "state sequence: true or false")
    reason = (
        f"is predicted to need {bytes_(likely)} of the {bytes_(capacity)} of a rank, and "
        f"{bytes_(least)} if its code keeps no more than the formulas"
    )
    place = at(plan, "memory", "activation_policy")
    return Unresolved(place, reason, "measure one step, and state predicted_peak_bytes")


def _smaller(predicted: Prediction, reserve: float) -> str:
    """The first change with which the rank fits by the lean reading and by the prediction, with what it then needs."""
    capacity = predicted.machine.memory_bytes
    for text, layout, settings in _choices(predicted.layout, predicted.settings):
        try:
            _, found = lean_memory(predicted.model, layout, settings)
            _, whole = memory_of_stage(predicted.model, layout, settings)
        except ValueError:
            continue
        least = needed_bytes(found, reserve)
        if least <= capacity and whole.total <= capacity:
            return f"{text}: {bytes_(least)}"
    return "split the model over more ranks: neither recomputation nor smaller micro-batches nor sharding suffices"


def _choices(layout: Layout, settings: Settings) -> Iterator[tuple[str, Layout, Settings]]:
    if settings.recompute == "none":
        yield "set activation_policy: selective", layout, replace(settings, recompute="selective")
    if layout.tensor > 1 and not layout.sequence_parallel:
        yield "set sequence: true", replace(layout, sequence_parallel=True), settings
    if layout.micro_sequences > 1:
        fewer, steps = layout.micro_sequences // 2, layout.num_micro_batches * 2
        smaller = replace(layout, micro_sequences=fewer, num_micro_batches=steps)
        yield f"set micro_sequences: {fewer} and accumulation_steps: {steps}", smaller, settings
    if settings.recompute != "full":
        yield "set activation_policy: full", layout, replace(settings, recompute="full")
    for stage, name in ((1, "optimizer"), (2, "gradients"), (3, "parameters")):
        if stage > layout.sharding_stage:
            yield f"set sharding: {name}", replace(layout, sharding_stage=stage), settings
            yield (
                f"set sharding: {name} and activation_policy: full",
                replace(layout, sharding_stage=stage),
                replace(settings, recompute="full"),
            )


@rule("TS-MEM-022")
def host_traffic_predicted(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Where no step time is stated, what crosses the host link in a step fits into the predicted one."""
    memory = memory_of(plan)
    flows: list[tuple[tuple[str | int, ...], float | None, int]] = [
        (("offload", i, "bytes_per_step"), o.bytes_per_step, 2) for i, o in enumerate(memory.offload)
    ]
    flows.append((("input_bytes_per_step",), memory.input_bytes_per_step, 1))
    known = [(place, flow, ways) for place, flow, ways in flows if flow is not None]
    machine = machine_of(plan, cluster)
    rate = machine.host_bytes_per_second_per_rank
    if not known or rate is None or machines.step_seconds(plan) is not None:
        raise NotApplicable("no traffic over a known host link is stated, or the plan states the time of a step")
    step = timed_prediction_of(plan, cluster, on_device=True).outlook.step.seconds
    busy = sum(flow / ways for _, flow, ways in known) / rate
    if busy > step * SLOWEST:
        place, flow, _ = max(known, key=lambda item: item[1] / item[2])
        yield Violation(
            at(plan, "memory", *place),
            f"the stated traffic keeps the host link of {bytes_per_second(rate)} busy for {seconds(busy)}, and a step "
            f"is predicted to take {seconds(step)}; {bytes_(flow)} of it is this flow",
            f"move less in each step: {bytes_(rate * step)} each way hide behind it, {number(round(busy / step, 2))} "
            "times less",
            related=((at_machine(machine, "host_link"), "the link"),),
        )
