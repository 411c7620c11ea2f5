"""Writes the starter of a training plan."""

from __future__ import annotations

from trainspec_validate.documents.commented import body, figure, head
from trainspec_validate.planner.starter import cluster
from trainspec_validate.planner.starter.sizing import (
    RESERVE_BYTES,
    STATE_BYTES,
    Sizes,
)

NAME = "my-plan"
TIMEOUT_SECONDS = 600
"""Time-out of collectives that outlasts a first set-up: rendezvous, connections between all ranks, compilation. It is
the default of PyTorch for NCCL: pytorch/pytorch@v2.7.0:torch/distributed/constants.py, default_pg_nccl_timeout."""
Lines = list[tuple[str, str]]


def document(sizes: Sizes) -> str:
    """A dense transformer, as large as the memory allows."""
    lines: Lines = [
        ("metadata:", ""),
        (f"  name: {NAME}", "replace"),
        (f"cluster: {{name: {cluster.NAME}}}", "the profile that this plan is for"),
        *_model(sizes),
        *_parallelism(sizes),
        *_batch(sizes),
        *_precision(sizes),
        *_communication(sizes),
        *_memory(sizes),
        *_job(sizes),
    ]
    preset = sizes.layout.preset
    billions = f"{preset.num_parameters / 1e9:.3g} billion parameters"
    return head("TrainingPlan", f"{billions} on {sizes.world} ranks.") + body(lines)


def _model(sizes: Sizes) -> Lines:
    preset = sizes.layout.preset
    lines: Lines = [
        ("model:", ""),
        (f"  name: {preset.name}", "replace"),
        ("  family: dense-transformer", "replace"),
        (f"  num_parameters: {figure(preset.num_parameters)}", "derived: from the shape below"),
        (f"  num_layers: {preset.num_layers}", "replace"),
        (f"  hidden_size: {preset.hidden}", "replace"),
        (f"  num_attention_heads: {preset.num_heads}", "replace"),
        (f"  num_key_value_heads: {preset.num_groups}", "replace"),
        (f"  ffn_hidden_size: {preset.ffn}", "replace"),
        ("  gated_ffn: true", "replace"),
        (f"  vocabulary_size: {preset.vocabulary}", "replace"),
    ]
    if preset.tied:
        lines.append(("  tied_embeddings: true", "replace"))
    return [
        *lines,
        (f"  sequence_length: {sizes.layout.sequence}", "replace"),
        ("  attention: grouped-query", "replace"),
    ]


def _parallelism(sizes: Sizes) -> Lines:
    layout = sizes.layout
    lines: Lines = [
        ("parallelism:", ""),
        (f"  num_accelerators: {sizes.world}", "derived: ranks, data times tensor"),
        (f"  data: {layout.data}", "replace"),
        (f"  tensor: {layout.tensor}", "replace"),
    ]
    if layout.tensor > 1:
        lines.append(("  sequence: true", "replace"))
    if layout.data > 1:
        lines.append((f"  sharding: {layout.sharding}", "replace"))
    placements: Lines = []
    if layout.tensor > 1:
        placements.append(("    - {axis: tensor, within: scale-up-domain}", "replace"))
    if layout.data > 1:
        placements.append(("    - {axis: data, within: fabric}", "replace"))
    if placements:
        lines += [("  placements:", ""), *placements]
    return [*lines, ("  rank_order: topology", "replace")]


def _batch(sizes: Sizes) -> Lines:
    tokens = sizes.global_sequences * sizes.layout.sequence
    return [
        ("batch:", ""),
        (f"  global_sequences: {sizes.global_sequences}", "derived: data x micro-batch x accumulation"),
        ("  micro_sequences: 1", "replace"),
        (f"  accumulation_steps: {sizes.accumulation_steps}", "replace"),
        (f"  global_tokens: {tokens}", "derived: sequences times their length"),
        ("  loss_reduction: global-token-mean", "replace"),
        ("  learning_rate: {rule: none}", "replace"),
    ]


def _precision(sizes: Sizes) -> Lines:
    narrow = sizes.build.format
    lines: Lines = [
        ("precision:", ""),
        (f"  compute: {narrow}", "replace"),
        (f"  parameters: {narrow}", "replace"),
        ("  master_parameters: fp32", "replace"),
        ("  gradients: fp32", "replace"),
        ("  accumulation: fp32", "replace"),
        ("  reduction: fp32", "replace"),
        ("  optimizer_state: fp32", "replace"),
        ("  high_precision_operations: [softmax, normalization, loss, reduction]", "replace"),
        ("  nonfinite_action: skip-step", "replace"),
    ]
    if narrow == "fp16":
        lines += [
            ("  loss_scaling:", "fp16 needs it"),
            ("    mode: dynamic", "replace"),
            ("    initial_scale: 65536", "replace"),
            ("    growth_factor: 2", "replace"),
            ("    backoff_factor: 0.5", "replace"),
            ("    growth_interval_steps: 2000", "replace"),
        ]
    return lines


def _communication(sizes: Sizes) -> Lines:
    lines: Lines = [
        ("communication:", ""),
        (f"  library: {{name: {sizes.build.library}}}", "replace: add the exact version"),
        ("  overlap_gradients: true", "replace"),
        ("  overlap_parameters: true", "replace"),
        (f"  timeout_seconds: {TIMEOUT_SECONDS}", "replace: longer than any step and a first set-up"),
        ("  gradient_averaging: divide-after", "replace"),
    ]
    if sizes.num_nodes > 1:
        lines.append(("  fabric: backend", "the fabric of the profile"))
    return lines


def _memory(sizes: Sizes) -> Lines:
    layout = sizes.layout
    peak = figure(float(f"{layout.peak_bytes:.3g}"))
    lines: Lines = [
        ("memory:", ""),
        (f"  activation_policy: {layout.recompute}", "replace"),
        (f"  state_bytes_per_parameter: {STATE_BYTES}", "derived: from the formats above"),
        (f"  predicted_peak_bytes: {peak}", "derived: state, gathered layers, activations; measure it"),
        ("  peak_view: allocator", "replace"),
    ]
    if sizes.has_reserve:
        lines.append((f"  reserve_bytes: {figure(RESERVE_BYTES)}", "replace"))
        lines.append(("  allocator: framework-default", "replace"))
    else:
        lines.append(("  allocator: arena", "replace"))
    return [
        *lines,
        ("  prefetch_depth: 2", "replace"),
        ("  pinned_input: true", "replace"),
        ("  asynchronous_copies: true", "replace"),
    ]


def _job(sizes: Sizes) -> Lines:
    tokens = sizes.num_steps * sizes.global_sequences * sizes.layout.sequence
    share = f"{sizes.build.utilisation:.0%}"
    return [
        ("telemetry:", ""),
        ("  profile: core", "replace"),
        ("  step_interval: 1", "replace"),
        ("  device_interval_seconds: 10", "replace"),
        ("job:", ""),
        (f"  num_steps: {sizes.num_steps}", f"derived: steps in {sizes.planned_seconds / 86400:.3g} days"),
        (f"  num_tokens: {figure(tokens)}", "derived: steps times tokens of a step"),
        (f"  planned_seconds: {figure(sizes.planned_seconds)}", "replace"),
        ("  seed: 1234", "replace"),
        ("performance:", ""),
        ("  kind: predicted", "replace by measured"),
        (
            f"  step_seconds: {sizes.step_seconds:g}",
            f"derived: 6 operations per parameter and token at {share} of the peak",
        ),
    ]
