"""Predicts how long a rank computes in an optimizer step, and waits for other pipeline stages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from trainspec_validate.performance.costs.eager import eager_layer_traffic, eager_weight_bytes
from trainspec_validate.performance.costs.kernel_efficiency import (
    MEMORY_FRACTION,
    AttentionKernel,
    Generation,
    attention_fraction,
)
from trainspec_validate.performance.costs.kernel_traffic import (
    LOSS_BYTES_PER_ENTRY,
    LayerTraffic,
    expert_traffic,
    fused_layer_traffic,
    layer_traffic,
    narrowing_traffic,
    weight_traffic,
)
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.stage_memory import stages
from trainspec_validate.performance.costs.step_traffic import rank_parameters
from trainspec_validate.performance.costs.transformer import (
    Shape,
    attention_flops_per_token,
    parameters,
    pipeline_idle_ratio,
)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Constants that were fitted to published runs; `step_errors` has what it leaves unexplained."""

    sustained_matmul: float = 0.8
    """Speed of the matrix products of a training step over the best product measured on the accelerator."""
    sustained_experts: float = 1.0
    """The same of the products of routed experts over those of dense layers."""
    sustained_narrow: float = 1.0
    """The same of products below 16 bits over those of 16 bits."""
    hidden_communication: float = 0.3
    """Share of the time of hidden communication that the step still loses, to memory bandwidth and to waiting."""


CALIBRATION = Calibration()
"""Fitted by `benchmarks/score_step_time.py`, which also prints the errors."""


@dataclass(frozen=True, slots=True)
class Work:
    """A training step as one rank sees it; rates are those of a rank.

    Raises:
        ValueError: a rate is not positive, a share is outside 0 to 1, or a time is negative.
    """

    shape: Shape
    layout: Layout
    peak_flops_per_second: float
    """Dense peak in the format of the matrix products."""
    matmul_fraction: float
    """Best measured matrix product over the peak; `kernel_efficiency.matmul_fraction` has published ones."""
    memory_bandwidth_bytes_per_second: float
    """As in the data sheet."""
    generation: Generation = "hopper"
    """Whose measured attention is used for this accelerator, as a fraction of the peak."""
    fused_attention: bool = True
    attention_kernel: AttentionKernel = "flash-2"
    """The fused kernel; ignored where attention is not fused."""
    attention_peak_flops_per_second: float | None = None
    """Dense peak of 16-bit formats, in which attention runs when products are narrower; None means the same peak."""
    narrow: bool = False
    """Whether the products of layers take numbers of fewer than 16 bits."""
    tpu: bool = False
    """Whether the accelerator is a TPU, for which XLA compiles the whole step."""
    output_matmul_fraction: float | None = None
    """`matmul_fraction` in 16 bits, in which the output layer runs when products are narrower; None means the same."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Selective repeats attention where it is not fused: arXiv:2205.05198, section 5; on a TPU also where it is, since
    policies of JAX that keep products keep no other kernel (`checkpoint_dots_with_no_batch_dims`, "minimal" of
    AI-Hypercomputer/maxtext@0042423a:MaxText/layers/models.py)."""
    recomputed_share: float | None = None
    """Share of the forward pass that runs twice; None means all of it for full recomputation, else nothing."""
    overlap_gradients: bool = True
    """Whether gradients are reduced during backward passes."""
    overlap_parameters: bool = True
    """Whether weights are gathered during forward passes."""
    overlap_tensor: bool = False
    """Whether messages of tensor ranks are split and hidden behind neighbouring products."""
    overlap_expert: bool = False
    """Whether messages of expert ranks are hidden behind computation of another micro-batch."""
    overlap_input_gradients: bool = False
    """Whether tensor ranks sum the gradients of a layer's inputs while they compute those of its weights."""
    overlap_pipeline: bool = True
    """Whether stages compute while they send and receive."""
    overlap_warm_up: bool = True
    """Whether they do so while the pipeline fills and drains too, and not in between alone."""
    fused_accumulation: bool = True
    """Whether products add the gradients of micro-batches up themselves, without a kernel of its own."""
    loss_bytes_per_entry: float = LOSS_BYTES_PER_ENTRY
    """Read and written for the loss, for each token and entry of the vocabulary."""
    eager_bytes: int = 0
    """Bytes of a number between layers that run operation by operation; 0 where kernels are fused."""
    data_stall_seconds: float = 0.0
    """Time that the step waits for input."""
    optimizer_bytes_per_parameter: float = 30.0
    """Read and written by the optimizer; 30 is mixed-precision Adam: gradient, master and two moments of fp32 read,
    three written, weights of 16 bits written."""
    gradient_bytes: float = 4.0
    """Width of a gradient as it is reduced."""
    parameter_bytes: float = 2.0
    """Width of a weight as it is gathered."""
    trained_share: float = 1.0
    """Trained over all parameters; the products that give gradients of the others are left out."""

    def __post_init__(self) -> None:
        if min(self.peak_flops_per_second, self.memory_bandwidth_bytes_per_second, self.attention_peak) <= 0:
            raise ValueError("peaks and memory bandwidth are positive")
        shares = (self.matmul_fraction, self.repeated_share, self.trained_share)
        if self.matmul_fraction <= 0 or min(shares) < 0 or max(shares) > 1:
            raise ValueError("matmul_fraction, recomputed_share and trained_share are shares of 1")
        if (
            min(self.data_stall_seconds, self.optimizer_bytes_per_parameter, self.gradient_bytes, self.parameter_bytes)
            < 0
        ):
            raise ValueError("a stall and widths in bytes are not negative")

    @property
    def attention_peak(self) -> float:
        """Dense peak in the format of attention."""
        return self.attention_peak_flops_per_second or self.peak_flops_per_second

    @property
    def repeated_share(self) -> float:
        """Share of the forward pass that runs twice."""
        if self.recomputed_share is not None:
            return self.recomputed_share
        return 1.0 if self.recompute == "full" else 0.0


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of one micro-batch on the pipeline rank that takes longest, for which the others wait."""

    forward: float
    backward: float
    others: tuple[float, float] = (0.0, 0.0)
    """Both passes on the mean of the other ranks."""


_EXPERT_BYTES_READ, _EXPERT_BYTES_ADDED = 2, 8
"""Bytes that a micro-batch moves for each weight of a rank's experts: read in 16 bits in both passes, its gradient
read and written in 32. A token visits few of them, so that reading them is no small part; counted, not fitted."""


def passes(work: Work, calibration: Calibration = CALIBRATION) -> Passes:
    """Forward and backward seconds of one micro-batch on the slowest pipeline rank.

    Matrix products run at a share of the best measured product, attention at the speed measured for its kernel, and
    what kernels read and write costs its bytes over the memory bandwidth that such kernels reach; the three are added.
    The rank with the output layer also has its product and the loss, which tensor ranks split and pipeline ranks do
    not: arXiv:2411.05288. Half of the backward products give gradients of weights, which frozen ones do without, as
    arXiv:2106.09685, section 4.2, measured. Sources: `kernel_efficiency`, `kernel_traffic`, `transformer`; the share
    is fitted (`Calibration`).

    >>> gpt = Shape(1, 4096, 32, 32, 128, 16384, 50368)
    >>> work = Work(gpt, Layout(sequence_length=2048), 312e12, 0.869, 2e12, generation="ampere")
    >>> [round(seconds * 1e3) for seconds in (passes(work).forward, passes(work).backward)]
    [10, 18]

    Raises:
        ValueError: the sequence is empty, more layers have experts than there are layers, or the declared layers do
            not fit the chunks or the model.
    """
    layers, output = _layer_passes(work, calibration), _output_passes(work, calibration)
    slowest, total = (0.0, 0.0), [0.0, 0.0]
    for load in stage_loads(work.shape, work.layout):
        forward, backward = (load.layers * a + load.output * b for a, b in zip(layers, output, strict=True))
        total = [total[0] + load.num_ranks * forward, total[1] + load.num_ranks * backward]
        slowest = max(slowest, (forward, backward), key=sum)
    if work.layout.pipeline == 1:
        return Passes(*slowest)
    forward, backward = ((both - own) / (work.layout.pipeline - 1) for both, own in zip(total, slowest, strict=True))
    return Passes(*slowest, (forward, backward))


def _layer_passes(work: Work, calibration: Calibration) -> tuple[float, float]:
    """Forward and backward seconds of a micro-batch in the layers of one rank, on average over pipeline ranks."""
    shape, layout, again = work.shape, work.layout, work.repeated_share
    ranks, tokens = layout.tensor * layout.pipeline, layout.micro_batch_tokens
    matmul = work.peak_flops_per_second * _sustained(work, calibration, narrow=work.narrow)
    kernel: AttentionKernel = work.attention_kernel if work.fused_attention else "unfused"
    fraction = attention_fraction(kernel, work.generation, shape.head_size, layout.sequence_length)
    memory = work.memory_bandwidth_bytes_per_second * MEMORY_FRACTION
    traffic = _traffic(work)
    # Seconds of one token on one rank; a third of the operations of attention is forward.
    products = 2 * _product_parameters(shape, calibration) / (ranks * matmul)
    flops = attention_flops_per_token(shape, layout.sequence_length, causal=True) / 3
    attention = flops / (ranks * fraction * work.attention_peak)
    layers = shape.num_layers / layout.pipeline / memory
    attention_again = attention if work.recompute == "selective" and (work.tpu or not work.fused_attention) else 0.0
    forward = products + attention + traffic.forward * layers
    repeated = again * (forward - 2 * _unread_parameters(work) / (ranks * matmul))
    backward = (1 + work.trained_share) * products + 2 * attention
    backward += traffic.backward * layers + repeated + attention_again
    held = rank_parameters(shape, layout)
    weights = weight_traffic(
        layout,
        work.gradient_bytes,
        work.parameter_bytes,
        fused_accumulation=work.fused_accumulation,
        trained_share=work.trained_share,
    )
    moved_forward = (1 + again) * _EXPERT_BYTES_READ * held.experts + weights.forward * held.dense
    moved_backward = (_EXPERT_BYTES_READ + work.trained_share * _EXPERT_BYTES_ADDED) * held.experts
    moved_backward += weights.backward * held.dense
    if work.eager_bytes:
        cast = eager_weight_bytes(work.eager_bytes) * held.dense
        moved_forward, moved_backward = moved_forward + (1 + again) * cast, moved_backward + cast
    return tokens * forward + moved_forward / memory, tokens * backward + moved_backward / memory


def _unread_parameters(work: Work) -> float:
    """Parameters whose product a recomputed forward pass leaves out, since no gradient reads what it puts out.

    Those of the last product of a layer without experts, where a compiler sees the whole step: `remat_dce` in
    jax-ml/jax@492e159a:jax/_src/ad_checkpoint.py. Routers read what experts put out.
    """
    shape = work.shape
    dense = shape.num_layers - shape.num_expert_layers
    return dense * shape.hidden_size * shape.ffn_hidden_size if work.tpu else 0.0


def _sustained(work: Work, calibration: Calibration, *, narrow: bool) -> float:
    """Speed of matrix products in a step over the dense peak."""
    narrowed = calibration.sustained_narrow if narrow else 1.0
    fraction = work.matmul_fraction
    if work.narrow and not narrow and work.output_matmul_fraction is not None:
        fraction = work.output_matmul_fraction
    return fraction * calibration.sustained_matmul * narrowed


def _product_parameters(shape: Shape, calibration: Calibration) -> float:
    """Parameters of the layers that a token visits, those of routed experts by the time that they take."""
    counted = parameters(shape)
    matrices = 3 if shape.gated_ffn else 2
    routed = shape.num_expert_layers * shape.num_active_experts * matrices * shape.hidden_size
    experts = routed * shape.expert_hidden_size
    dense = counted.attention + counted.active_feed_forward - experts
    return dense + experts / calibration.sustained_experts


def _traffic(work: Work) -> LayerTraffic:
    """Bytes of one token and layer that kernels without products move."""
    shape, layout = work.shape, work.layout
    if work.eager_bytes:
        return eager_layer_traffic(shape, work.eager_bytes, layout.tensor)
    count = fused_layer_traffic if work.tpu else layer_traffic
    parts = [count(shape, layout.tensor, sequence_parallel=layout.sequence_parallel)]
    if shape.num_experts:
        parts.append(expert_traffic(shape, layout.tensor if layout.sequence_parallel else 1))
    if work.narrow:
        parts.append(narrowing_traffic(shape, layout.tensor))
    return LayerTraffic(sum(part.forward for part in parts), sum(part.backward for part in parts))


def _output_passes(work: Work, calibration: Calibration) -> tuple[float, float]:
    """The same of the output layer and the loss."""
    shape, layout = work.shape, work.layout
    ranks, tokens = layout.tensor * layout.pipeline, layout.micro_batch_tokens
    peak = work.attention_peak if work.narrow else work.peak_flops_per_second
    matmul = peak * _sustained(work, calibration, narrow=False)
    memory = work.memory_bandwidth_bytes_per_second * MEMORY_FRACTION
    product = 2 * shape.embedding_parameters / (ranks * matmul)
    loss = shape.vocabulary_size * work.loss_bytes_per_entry / (ranks * memory)
    return tokens * (product + loss / 2), tokens * ((1 + work.trained_share) * product + loss / 2)


@dataclass(frozen=True, slots=True)
class StageLoad:
    """Share of a pipeline rank in the layers and the output layer, over the mean of all ranks."""

    layers: float
    output: float
    num_ranks: int
    """Pipeline ranks with this load."""


def stage_loads(shape: Shape, layout: Layout) -> tuple[StageLoad, ...]:
    """The different loads of pipeline ranks.

    >>> gpt = Shape(10, 4096, 32, 32, 128, 16384, 50368)
    >>> [(load.layers, load.output, load.num_ranks) for load in stage_loads(gpt, Layout(pipeline=4))]
    [(1.2, 0.0, 2), (0.8, 0.0, 1), (0.8, 4.0, 1)]

    Raises:
        ValueError: the declared layers do not fit the chunks or the model.
    """
    if layout.pipeline == 1:
        return (StageLoad(1.0, 1.0, 1),)
    return _stage_loads(shape, layout.pipeline, layout.num_virtual_stages, layout.stage_layers, layout.schedule)


@lru_cache(maxsize=4096)
def _stage_loads(
    shape: Shape, pipeline: int, chunks: int, stage_layers: tuple[int, ...], schedule: str
) -> tuple[StageLoad, ...]:
    held = stages(shape, pipeline, chunks, stage_layers, schedule)
    pairs = Counter((stage.num_dense_layers + stage.num_expert_layers, stage.output_tables) for stage in held)
    layers = sum(count * number for (count, _), number in pairs.items())
    outputs = sum(count * number for (_, count), number in pairs.items())
    return tuple(
        StageLoad(count * pipeline / layers, output * pipeline / outputs, number)
        for (count, output), number in pairs.items()
    )


def idle_ratio(layout: Layout) -> float:
    """Idle time of a rank over its busy time, by the pipeline schedule of the layout.

    1F1B and GPipe `(p - 1) / m`, interleaved `(p - 1) / (v m)`: arXiv:2104.04473, section 2.2. Zero-bubble counts as
    ZB1P, a third of 1F1B when forward, input and weight passes take equal time, and DualPipe as `(p/2 - 1)` of two
    thirds of a micro-batch when paired passes save nothing: deepseek-ai/DualPipe@89f5de17:README.md. Others as 1F1B.

    >>> idle_ratio(Layout(pipeline=8, num_micro_batches=16, schedule="zero-bubble"))
    0.14583333333333334
    """
    p, m = layout.pipeline, layout.num_micro_batches
    if layout.schedule == "zero-bubble":
        return pipeline_idle_ratio(p, m) / 3
    if layout.schedule == "dual-pipe":
        return max(0.0, p / 2 - 1) * 2 / 3 / m
    return pipeline_idle_ratio(p, m, layout.num_virtual_stages)


def steady_share(layout: Layout) -> float:
    """Share of the passes of a rank, on average over ranks, that one forward and one backward pass take in turn.

    Before, the interleaved schedule takes `(v - 1) p + 2 (p - 1 - i)` forward passes on rank i, and all of them where
    there are as many micro-batches as stages; afterwards, it takes as many backward passes:
    NVIDIA/Megatron-LM@bc000690:megatron/core/pipeline_parallel/schedules.py. Until NVIDIA/Megatron-LM@4295be1a
    (November 2024), messages of these passes had nothing to hide behind.

    >>> steady_share(Layout(pipeline=4, num_virtual_stages=3, num_micro_batches=16, schedule="interleaved-1f1b"))
    0.7708333333333334
    """
    p, v, m = layout.pipeline, layout.num_virtual_stages, layout.num_micro_batches
    if v > 1 and m == p:
        return 0.0
    before = (v - 1) * p + (p - 1) if v > 1 else (p - 1) / 2
    return max(0.0, 1 - before / (v * m))
