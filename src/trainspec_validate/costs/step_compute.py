"""The only place that predicts how long a rank computes in an optimizer step, and waits for other pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainspec_validate.costs.kernel_efficiency import MEMORY_FRACTION, AttentionKernel, Generation, attention_fraction
from trainspec_validate.costs.kernel_traffic import LOSS_BYTES_PER_ENTRY, layer_traffic
from trainspec_validate.costs.layout import Layout
from trainspec_validate.costs.stage_memory import stages
from trainspec_validate.costs.step_traffic import rank_parameters
from trainspec_validate.costs.transformer import Shape, attention_flops_per_token, parameters, pipeline_idle_ratio


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was fitted to published runs: two shares, and the spread of what they leave unexplained."""

    sustained_matmul: float = 0.79
    """Speed of the matrix products of a training step over the best product measured on the accelerator."""
    hidden_communication: float = 0.37
    """Share of the time of hidden communication that the step still loses, to memory bandwidth and to waiting."""
    low_factor: float = 0.885
    """10th percentile of measured over predicted time, each dataset predicted from the others and of equal weight."""
    high_factor: float = 1.277
    """90th percentile of the same."""


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
    """Whose measured attention stands for this accelerator, as a fraction of the peak."""
    fused_attention: bool = True
    attention_kernel: AttentionKernel = "flash-2"
    """The fused kernel; ignored where attention is not fused."""
    attention_peak_flops_per_second: float | None = None
    """Dense peak of 16-bit formats, in which attention runs when products are narrower; None means the same peak."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Selective repeats attention where it is not fused: arXiv:2205.05198, section 5."""
    recomputed_share: float | None = None
    """Share of the forward pass that runs twice; None means all of it for full recomputation, else nothing."""
    overlap_gradients: bool = True
    """Whether gradients are reduced during backward passes."""
    overlap_parameters: bool = True
    """Whether weights are gathered during forward passes."""
    overlap_tensor: bool = False
    """Whether messages of tensor ranks are split and hidden behind the products beside them."""
    overlap_input_gradients: bool = False
    """Whether tensor ranks sum the gradients of a layer's inputs while they compute those of its weights."""
    overlap_pipeline: bool = True
    """Whether stages compute while they send and receive."""
    data_stall_seconds: float = 0.0
    """Time that the step waits for input."""
    optimizer_bytes_per_parameter: float = 30.0
    """Read and written by the optimizer; 30 is mixed-precision Adam: gradient, master and two moments of fp32 read,
    three written, weights of 16 bits written."""
    gradient_bytes: float = 4.0
    """Width of a gradient as it is reduced."""
    parameter_bytes: float = 2.0
    """Width of a weight as it is gathered."""

    def __post_init__(self) -> None:
        if min(self.peak_flops_per_second, self.memory_bandwidth_bytes_per_second, self.attention_peak) <= 0:
            raise ValueError("peaks and memory bandwidth are positive")
        if not 0 < self.matmul_fraction <= 1 or not 0 <= self.repeated_share <= 1:
            raise ValueError("matmul_fraction and recomputed_share are shares of 1")
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
    """Seconds of one micro-batch on one rank."""

    forward: float
    backward: float


_EXPERT_BYTES_FORWARD = 2
_EXPERT_BYTES_BACKWARD = 10
"""Bytes that a micro-batch moves for each weight of a rank's experts: read in 16 bits in both passes, its gradient
read and written in 32. A token visits few of them, so that reading them is no small part; counted, not fitted."""


def passes(work: Work, calibration: Calibration = CALIBRATION) -> Passes:
    """Forward and backward seconds of one micro-batch on one rank, on average over pipeline stages.

    Matrix products run at a share of the best measured product, attention at the speed measured for its kernel, and
    what kernels read and write costs its bytes over the memory bandwidth that such kernels reach; the three are added.
    Sources: `kernel_efficiency`, `kernel_traffic`, `transformer`; the share is fitted (`Calibration`).

    >>> gpt = Shape(1, 4096, 32, 32, 128, 16384, 50368)
    >>> work = Work(gpt, Layout(sequence_length=2048), 312e12, 0.869, 2e12, generation="ampere")
    >>> [round(seconds * 1e3) for seconds in (passes(work).forward, passes(work).backward)]
    [10, 18]

    Raises:
        ValueError: the sequence is empty, or more layers have experts than there are layers.
    """
    shape, layout, again = work.shape, work.layout, work.repeated_share
    ranks, tokens = layout.tensor * layout.pipeline, layout.micro_batch_tokens
    counted = parameters(shape)
    matmul = work.peak_flops_per_second * work.matmul_fraction * calibration.sustained_matmul
    kernel: AttentionKernel = work.attention_kernel if work.fused_attention else "unfused"
    fraction = attention_fraction(kernel, work.generation, shape.head_size, layout.sequence_length)
    memory = work.memory_bandwidth_bytes_per_second * MEMORY_FRACTION
    traffic = layer_traffic(shape, layout.tensor, sequence_parallel=layout.sequence_parallel)
    # Seconds of one token on one rank; a third of the operations of attention is forward.
    products = 2 * (counted.attention + counted.active_feed_forward) / (ranks * matmul)
    output = 2 * shape.embedding_parameters / (ranks * matmul)
    flops = attention_flops_per_token(shape, layout.sequence_length, causal=True) / 3
    attention = flops / (ranks * fraction * work.attention_peak)
    layers = shape.num_layers / layout.pipeline / memory
    loss = shape.vocabulary_size * LOSS_BYTES_PER_ENTRY / (ranks * memory)
    scores_again = attention if work.recompute == "selective" and not work.fused_attention else 0.0
    layer_forward = products + attention + traffic.forward * layers
    layer_backward = 2 * (products + attention) + traffic.backward * layers + again * layer_forward + scores_again
    experts = rank_parameters(shape, layout).experts / memory
    forward = tokens * (layer_forward + output + loss / 2) + (1 + again) * _EXPERT_BYTES_FORWARD * experts
    backward = tokens * (layer_backward + 2 * output + loss / 2) + _EXPERT_BYTES_BACKWARD * experts
    fullest = stage_load(shape, layout)
    return Passes(forward * fullest, backward * fullest)


def stage_load(shape: Shape, layout: Layout) -> float:
    """Layers of the fullest pipeline rank over their mean: the others wait for it with every micro-batch.

    The output layer is left out. Published runs were predicted worse with it than without (a mean error of 10.6 % in
    place of 9.3 % over the data sets of benchmarks/score_step_time.py).

    >>> gpt = Shape(10, 4096, 32, 32, 128, 16384, 50368)
    >>> stage_load(gpt, Layout(pipeline=4)), stage_load(gpt, Layout(pipeline=2))
    (1.2, 1.0)

    Raises:
        ValueError: the declared layers do not fit the chunks or the model.
    """
    if layout.pipeline == 1:
        return 1.0
    held = stages(shape, layout.pipeline, layout.num_virtual_stages, layout.stage_layers, layout.schedule)
    loads = [stage.num_dense_layers + stage.num_expert_layers for stage in held]
    return max(loads) * len(loads) / sum(loads)


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
