"""Writes a training plan and its policy from a choice, with the reason for each figure next to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainspec_validate.documents.commented import as_text, body, figure, head
from trainspec_validate.documents.types import plain
from trainspec_validate.model.units import bytes_, bytes_per_second, number, percent, seconds
from trainspec_validate.performance.costs.step_errors import NO_RUN
from trainspec_validate.performance.forecast.facts import is_tpu
from trainspec_validate.performance.forecast.spans import axis_spans
from trainspec_validate.performance.topology.networks import Traffic, crossed
from trainspec_validate.planner.explain import SHARDINGS, choices_of, reasons
from trainspec_validate.planner.request import Request
from trainspec_validate.planner.safety import Names, collective_seconds, num_steps, planned_seconds, policy_figures
from trainspec_validate.planner.search import Ranking, Scored
from trainspec_validate.planner.space import OFFLOADED
from trainspec_validate.planner.starter import checkpoint
from trainspec_validate.planner.starter.plan import TIMEOUT_SECONDS

Lines = list[tuple[str, str]]
_ASYNCHRONOUS_COPIES = 2


def document(
    request: Request, scored: Scored, names: Names, reasons: Mapping[str, str], timeout: tuple[float, str]
) -> str:
    """The plan as commented YAML, with the time-out of collectives and the reason for it."""
    layout = scored.choice.layout
    lines: Lines = [
        ("metadata:", ""),
        (f"  name: {as_text(names.plan)}", "replace"),
        (f"cluster: {names.cluster_reference}", "the profile that this plan is for"),
    ]
    if len(request.cluster.node_groups) > 1 and not request.takes_all_groups:
        lines.append((f"node_group: {as_text(request.nodes.group.name)}", "chosen"))
    if framework := request.goal.framework:
        version = f", version: {as_text(framework.version)}" if framework.version else ""
        lines.append(
            (f"framework: {{name: {as_text(framework.name)}{version}}}", "chosen: predictions take its kernels")
        )
    lines += [
        *_section(
            "model",
            plain(request.model),
            {"num_parameters": "catalog: the figures of the model, unless they came from a plan"},
        ),
        *_adapters(request),
        *_parallelism(request, scored, reasons),
        *_batch(request, scored, reasons),
        *_section("precision", _precision(request), {}),
        *_communication(request, scored, timeout),
        *_memory(request, scored, reasons),
        *_job(request, scored),
        *([] if scored.untimed else _performance(request, scored)),
    ]
    step = "the time of a step is not predicted" if scored.untimed else f"{scored.seconds:.3g} s for a step, predicted"
    title = f"{request.model.name} on {layout.num_ranks} ranks: {step}."
    return head("TrainingPlan", title, chosen=True) + body(lines)


def _adapters(request: Request) -> Lines:
    if request.adapters is None:
        return []
    facts = request.goal.model
    count = figure(float(round(facts.trained_share * facts.num_parameters)))
    lora = _section("lora", plain(request.adapters.lora), {"rank": "of the plan"})
    return [*lora, (f"num_parameters_trained: {count}", "derived: of the adapters")]


def _precision(request: Request) -> dict[str, Any]:
    found = plain(request.precision)
    if request.adapters and request.adapters.frozen_parameters:
        found["frozen_parameters"] = request.adapters.frozen_parameters
    return found


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return figure(value)
    return as_text(value) if isinstance(value, str) else str(value)


def _section(name: str, values: Mapping[str, Any], comments: Mapping[str, str], indent: str = "") -> Lines:
    lines: Lines = [(f"{indent}{name}:", "")]
    for key, value in values.items():
        if isinstance(value, dict):
            lines += _section(key, value, {}, f"{indent}  ")
        elif isinstance(value, list | tuple):
            lines.append((f"{indent}  {key}: [{', '.join(_scalar(item) for item in value)}]", comments.get(key, "")))
        else:
            lines.append((f"{indent}  {key}: {_scalar(value)}", comments.get(key, "")))
    return lines


def _parallelism(request: Request, scored: Scored, reasons: Mapping[str, str]) -> Lines:
    layout = scored.choice.layout
    lines: Lines = [
        ("parallelism:", ""),
        (f"  num_accelerators: {layout.num_ranks}", "chosen: ranks of the job"),
        (f"  data: {layout.data}", "derived: what the other degrees leave"),
        (f"  tensor: {layout.tensor}", f"chosen: {reasons['tensor']}"),
        (f"  pipeline: {layout.pipeline}", f"chosen: {reasons['pipeline']}"),
        (f"  context: {layout.context}", f"chosen: {reasons['context']}"),
    ]
    if layout.context > 1:
        lines.append(("  context_method: all-gather", "chosen: the method that the prediction counts"))
    if request.model.experts:
        lines += [
            (f"  expert: {layout.expert}", f"chosen: {reasons['expert']}"),
            (f"  expert_tensor: {layout.expert_tensor_degree}", "chosen"),
        ]
    if layout.tensor > 1:
        lines.append(("  sequence: true", "chosen: it saves memory for the same bytes on the wire"))
    if layout.pipeline > 1:
        lines.append((f"  schedule: {layout.schedule}", "chosen"))
        if layout.num_virtual_stages > 1:
            words = f"chosen: {reasons['num_virtual_stages']}"
            lines.append((f"  num_virtual_stages: {layout.num_virtual_stages}", words))
        if layout.stage_layers:
            split = ", ".join(str(count) for count in layout.stage_layers)
            lines.append((f"  stage_layers: [{split}]", "derived: fewest layers next to embedding and output"))
    if layout.data * layout.context > 1:
        lines.append((f"  sharding: {SHARDINGS[layout.sharding_stage]}", f"chosen: {reasons['sharding']}"))
        if layout.sharding_stage and layout.sharding_degree and layout.sharding_degree < layout.data:
            lines.append((f"  sharding_degree: {layout.num_shards}", f"chosen: {reasons['sharding_degree']}"))
    order = ", ".join(scored.choice.order)
    lines.append((f"  order: [{order}]", f"chosen: {reasons['order']}"))
    return [*lines, *_placements(request, scored), ("  rank_order: topology", "chosen")]


def _placements(request: Request, scored: Scored) -> Lines:
    layout, topology = scored.choice.layout, request.goal.machine.topology
    lines: Lines = []
    if layout.tensor > 1:
        lines.append(("    - {axis: tensor, within: scale-up-domain}", "chosen"))
    for axis, degree in (("data", layout.data), ("pipeline", layout.pipeline)):
        if degree > 1 and topology.fabric is not None:
            why = _narrow_tiers(request, scored) if axis == "data" else ""
            reason = f', reason: "{why}"' if why else ""
            lines.append((f"    - {{axis: {axis}, within: fabric{reason}}}", "" if why else "chosen"))
    return [("  placements:", ""), *lines] if lines and request.nodes.group.scale_up else []


def _narrow_tiers(request: Request, scored: Scored) -> str:
    """Why data groups may cross tiers that are oversubscribed: what the ring of a group has there all the same."""
    topology = request.goal.machine.topology
    spans = axis_spans(scored.choice.layout, scored.choice.order)
    if topology.fabric is None or "data" not in spans:
        return ""
    full = topology.fabric.bandwidth_bytes_per_second
    narrow = [
        crossing
        for crossing in crossed(topology, Traffic(spans["data"]))
        if crossing.block.leave_bytes_per_second and crossing.block.leave_bytes_per_second < full
    ]
    if not narrow:
        return ""
    rate = min(full, *(crossing.rank_bytes_per_second or full for crossing in narrow))
    names = " and ".join(crossing.block.name for crossing in narrow)
    return (
        f"in the order of the topology a ring sends {percent(round(narrow[-1].share, 4))} of its traffic out of "
        f"{names} blocks, which leaves each rank {bytes_per_second(rate)} of {bytes_per_second(full)}"
    )


def _batch(request: Request, scored: Scored, reasons: Mapping[str, str]) -> Lines:
    layout, goal = scored.choice.layout, request.goal
    tokens = goal.global_sequences * goal.sequence_length
    return [
        ("batch:", ""),
        (f"  global_sequences: {goal.global_sequences}", "chosen"),
        (f"  micro_sequences: {layout.micro_sequences}", f"chosen: {reasons['micro_sequences']}"),
        (f"  accumulation_steps: {layout.num_micro_batches}", "derived: batch over data ranks and micro-batch"),
        (f"  global_tokens: {tokens}", "derived: sequences times their length"),
        ("  loss_reduction: global-token-mean", "replace"),
        ("  learning_rate: {rule: none}", "replace"),
    ]


def _communication(request: Request, scored: Scored, timeout: tuple[float, str]) -> Lines:
    software = request.cluster.software
    library = software.collective_library if software else None
    lines: Lines = [("communication:", "")]
    if library:
        pinned = f", version: {as_text(library.version)}" if library.version else ""
        lines.append((f"  library: {{name: {as_text(library.name)}{pinned}}}", "as in the profile"))
    choices = choices_of(request, scored)
    if choices:
        lines.append(("  collectives:", ""))
        lines += choices
    lines += [
        ("  overlap_gradients: true", "chosen"),
        ("  overlap_parameters: true", "chosen"),
        (f"  timeout_seconds: {timeout[0]:g}", timeout[1]),
        ("  gradient_averaging: divide-after", "replace"),
    ]
    if request.fabric is not None and scored.choice.layout.num_ranks > request.nodes.ranks_per_node:
        lines.append((f"  fabric: {as_text(request.fabric.name)}", "the fabric of the profile"))
    return lines


def _memory(request: Request, scored: Scored, reasons: Mapping[str, str]) -> Lines:
    state = request.goal.model.state
    allocated, tpu = scored.memory.allocator, is_tpu(request.goal.machine.accelerator)
    share = percent(round(allocated / request.goal.machine.memory_bytes, 3))
    per_parameter = "derived: from the formats above"
    lines: Lines = [
        ("memory:", ""),
        (f"  activation_policy: {scored.choice.recompute}", f"chosen: {reasons['activation_policy']}"),
        *_offload(scored),
        *([] if request.adapters else [(f"  state_bytes_per_parameter: {state.total:g}", per_parameter)]),
        (
            f"  predicted_peak_bytes: {figure(float(f'{allocated:.4g}'))}",
            f"derived: stage {scored.stage} is the fullest, {share} of a rank's memory; measure it",
        ),
        ("  peak_view: allocator", "what the prediction counts; the reserve is for contexts and collectives"),
        (f"  reserve_bytes: {figure(request.goal.reserve_bytes)}", "chosen"),
        ("  allocator: arena", "XLA plans all of it") if tpu else ("  allocator: framework-default", "replace"),
        (f"  prefetch_depth: {_ASYNCHRONOUS_COPIES}", "replace"),
        ("  pinned_input: true", "replace"),
        ("  asynchronous_copies: true", "replace"),
    ]
    return lines


def _offload(scored: Scored) -> Lines:
    moved = OFFLOADED[scored.choice.offload]
    if not moved:
        return []
    words = f"chosen: nothing fits without; together {bytes_(scored.host_bytes)} of host memory for a rank"
    entries = [f"    - {{what: {what}, target: host, fraction: 1}}" for what in moved]
    return [("  offload:", ""), *((entry, words if place == 0 else "") for place, entry in enumerate(entries))]


def _job(request: Request, scored: Scored) -> Lines:
    steps, goal = num_steps(request), request.goal
    tokens = float(steps * goal.global_sequences * goal.sequence_length)
    return [
        ("telemetry:", ""),
        ("  profile: core", "replace"),
        ("  step_interval: 1", "replace"),
        ("  device_interval_seconds: 10", "replace"),
        ("job:", ""),
        (f"  num_steps: {steps}", "derived: tokens over those of a step"),
        (f"  num_tokens: {figure(tokens)}", "derived: steps times tokens of a step"),
        *([] if scored.untimed else [_planned(request, scored)]),
        ("  seed: 1234", "replace"),
    ]


def _planned(request: Request, scored: Scored) -> tuple[str, str]:
    words = "derived: steps and a twentieth more; time lost to failures comes on top"
    return f"  planned_seconds: {figure(planned_seconds(request, scored))}", words


def _performance(request: Request, scored: Scored) -> Lines:
    outlook, step = scored.outlook, scored.outlook.step
    band = NO_RUN
    if outlook.band:
        low, high = step.seconds * outlook.band.low, step.seconds * outlook.band.high
        band = f"{low:.3g} to {high:.3g} s for eight of ten measured runs of this kind"
    measured = "measured" if outlook.matmul_measured else "assumed"
    lines = [
        ("performance:", ""),
        ("  kind: predicted", "replace by measured"),
        (f"  step_seconds: {step.seconds:.4g}", f"derived: {band}"),
    ]
    if request.adapters:  # no convention counts the operations of a job with frozen parameters
        return lines
    return [
        *lines,
        ("  flops_convention: 6n-causal-attention", "chosen"),
        (
            f"  model_flops_utilisation: {_down(outlook.utilisation)}",
            f"derived: rests on {measured} rates of matrix products",
        ),
        (f"  peak_flops_per_second: {figure(outlook.peak_flops_per_second)}", "of the profile or the catalog"),
        (f"  peak_format: {outlook.peak_format}", ""),
    ]


def _down(value: float) -> str:
    """Four digits, rounded down, so that a rounded figure never claims more than was predicted."""
    return f"{math.floor(value * 1e4) / 1e4:g}"


PLAN_FILE, POLICY_FILE = "plan.yaml", "checkpoint.yaml"
MOST_STEPS, MOST_SECONDS = 10**8, 1e9
"""Values that `job.num_steps` and `job.planned_seconds` of a plan can state."""


def too_long(request: Request, scored: Scored) -> str | None:
    """Why documents cannot state the length of a job, and what to change; None where they can."""
    steps, time = num_steps(request), 0.0 if scored.untimed else planned_seconds(request, scored)
    if steps <= MOST_STEPS and time <= MOST_SECONDS:
        return None
    each = "" if scored.untimed else f" of {seconds(scored.seconds)}"
    job = f"{number(request.num_tokens)} tokens are {number(steps)} steps{each}"
    most = f"a plan states {number(MOST_STEPS)} steps and {number(MOST_SECONDS // 86400)} days at most"
    return f"{job}; {most}: use fewer --tokens, or more --global-sequences or --num-ranks"


def documents(
    request: Request, ranking: Ranking, scored: Scored, cluster_reference: str, *, by_name: bool = False
) -> dict[str, str]:
    """Text of the plan and of its checkpoint policy, by file name; of a plan without a predicted step, no policy.

    The reference to the profile is given as YAML writes it on one line, for example `{file: cluster.yaml}`. The policy
    refers to the plan by its file, or by its name alone.
    """
    name = f"{request.model.name}-on-{request.cluster.metadata.name}"[:120]
    names = Names(
        plan=name,
        policy=f"{name}-policy",
        cluster_reference=cluster_reference,
        plan_reference=f"{{{'' if by_name else f'file: {PLAN_FILE}, '}name: {as_text(name)}}}",
    )
    why = reasons(ranking, scored)
    if scored.untimed:
        least = (float(TIMEOUT_SECONDS), "replace: outlasts a first set-up; let it outlast three steps and a save too")
        return {PLAN_FILE: document(request, scored, names, why, least)}
    figures = policy_figures(request, scored, names)
    longest = collective_seconds(scored.outlook.step.seconds, figures.blocking_seconds)
    timeout = (longest, "derived: outlasts three steps, a save, and a first set-up")
    return {
        PLAN_FILE: document(request, scored, names, why, timeout),
        POLICY_FILE: checkpoint.document(figures),
    }
