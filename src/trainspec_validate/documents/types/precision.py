"""Declares number formats, loss scaling, low-precision recipes and kernel floors."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import Bytes, Count, CountOrZero, Fraction, Name, Record, Text

WideFormat = Literal["fp64", "fp32", "tf32", "bf16", "fp16"]
StateFormat = Literal["fp64", "fp32", "bf16", "fp16", "fp8", "int8"]
FrozenFormat = Literal["fp64", "fp32", "bf16", "fp16", "fp8", "int8", "nf4", "int4", "fp4"]


class LossScaling(Record, frozen=True, kw_only=True):
    """How small gradients are kept above the smallest fp16 number."""

    mode: Literal["none", "static", "dynamic"]
    """`dynamic` grows and backs off with overflows."""
    initial_scale: Annotated[float, Meta(gt=0, le=2**64)] | None = None
    """First scale, a power of two."""
    growth_factor: Annotated[float, Meta(gt=1, le=65536)] | None = None
    """Factor after `growth_interval_steps` steps without overflow."""
    backoff_factor: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """Factor after an overflow."""
    growth_interval_steps: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Steps without overflow before the scale grows."""
    min_scale: Annotated[float, Meta(gt=0, le=2**64)] | None = None
    """Value below which the loss scale does not fall, however many steps overflow."""
    hysteresis_steps: CountOrZero | None = None
    """Overflows that are tolerated before the scale backs off."""


class LowPrecisionRecipe(Record, frozen=True, kw_only=True):
    """How matrix products run below 16 bits."""

    format: Literal["fp8-hybrid", "fp8-e4m3", "fp8-e5m2", "fp8-block", "mxfp8", "nvfp4", "mxfp4", "int8"]
    """Number format; `fp8-hybrid` is E4M3 forward and E5M2 backward."""
    scaling: Literal["delayed", "current", "block"] | None = None
    """Where scale factors come from."""
    block_size: Annotated[int, Meta(ge=1, le=65536)] | None = None
    """Elements that share one scale."""
    amax_history_steps: Annotated[int, Meta(ge=1, le=16_384)] | None = None
    """Steps of history, for delayed scaling."""
    amax_scope: Literal["group", "rank"] | None = None
    """Whether the largest magnitude is agreed over the group or kept by each rank."""
    high_precision_layers: tuple[Name, ...] = ()
    """Layers that stay at the compute format."""
    scaling_state_checkpointed: bool | None = None
    """True when scale factors and histories are part of the checkpoint."""
    gradient_rounding: Literal["nearest", "stochastic"] | None = None
    """How gradients become numbers of the low-precision format."""


class Precision(Record, frozen=True, kw_only=True):
    """Number format of each class of tensor."""

    compute: WideFormat
    """Activations and operands of matrix products where the recipe does not say otherwise."""
    parameters: StateFormat
    """Parameters as the forward pass reads them."""
    frozen_parameters: FrozenFormat | None = None
    """Parameters that receive no gradients, where some are frozen; absent means as `parameters`."""
    master_parameters: StateFormat | None = None
    """Copy that the optimizer updates; absent means none."""
    gradients: StateFormat
    """Gradients as the backward pass writes them."""
    accumulation: StateFormat | None = None
    """Sum over micro-batches; absent means the gradients' format."""
    reduction: StateFormat
    """Sum over data ranks."""
    optimizer_state: StateFormat | None = None
    """Moments of the optimizer; absent means fp32. `optimizer.moments` gives each moment its own format."""
    num_optimizer_moments: Annotated[int, Meta(ge=0, le=8)] | None = None
    """Moments that the optimizer keeps of each parameter: 2 for Adam, 1 for momentum or Lion, 0 for none; absent means
    as usual for `optimizer.name`, and 2 without an optimizer section."""
    parameter_rounding: Literal["nearest", "stochastic"] = "nearest"
    """How updated parameters become numbers of their format."""
    loss_scaling: LossScaling | None = None
    """Loss scaling; fp16 needs it."""
    recipe: LowPrecisionRecipe | None = None
    """Matrix products below 16 bits."""
    high_precision_operations: tuple[
        Literal[
            "softmax",
            "normalization",
            "loss",
            "embedding",
            "output-head",
            "router",
            "attention",
            "optimizer",
            "reduction",
        ],
        ...,
    ] = ()
    """Operations that run in fp32 whatever the compute format is."""
    reduction_error: Fraction | None = None
    """Measured relative L2 error of the reduced gradient, where the reduction is below fp32."""
    nonfinite_action: Literal["skip-step", "rollback", "stop", "ignore"] | None = None
    """Action when a gradient is not finite."""
    deterministic: bool | None = None
    """True when kernels are chosen for bitwise repeatability."""


class KernelFloor(Record, frozen=True, kw_only=True):
    """The least efficiency that a kernel must show, as a share of a roofline measured in the same run."""

    operation: Literal["matmul", "attention", "normalization", "activation", "host-to-device-copy", "step"]
    """Operation that is measured."""
    implementation: Name | None = None
    """Library or kernel that computes the operation, such as `flash-attention-3`."""
    fused: bool | None = None
    """True when the operation runs as one kernel."""
    floor: Fraction
    """Least share of the roofline."""
    denominator: Literal["same-run-matmul", "same-run-device-copy", "negotiated-link-rate", "vendor-peak"]
    """Roofline that the share refers to."""
    num_warmup_runs: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    """Runs before timing."""
    num_timed_runs: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    """Runs whose times enter the measurement, after the warm-up."""
    dimensions: tuple[Count, ...] = ()
    """Shape that is measured: rows, inner, columns for a product; batch, heads, sequence, head size for attention."""
    workspace_bytes: Bytes | None = None
    """Scratch memory of the kernel."""
    note: Text | None = None
    """Why a floor differs from the specification's."""
