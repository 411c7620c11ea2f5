"""The optimizer of a training plan: its state of each parameter, gradient clipping, and the learning-rate schedule."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import Count, CountOrZero, Parameters, Record, Tokens
from trainspec_validate.documents.types.precision import StateFormat

OptimizerName = Literal["adam", "adamw", "muon", "adafactor", "shampoo", "soap", "sgd", "lion", "other"]
ScheduleKind = Literal[
    "constant", "linear", "cosine", "polynomial", "inverse-square-root", "warmup-stable-decay", "step", "other"
]
Moments = Annotated[tuple[StateFormat, ...], Meta(max_length=8)]


class AuxiliaryOptimizer(Record, frozen=True, kw_only=True):
    """Optimizer of the parameters that the main optimizer leaves out, such as AdamW for embeddings under Muon."""

    name: OptimizerName
    """Optimizer that updates the parameters; it decides how many moments are kept."""
    num_parameters: Parameters
    """Parameters that it updates."""
    moments: Moments | None = None
    """Number format of each moment; absent means as many as usual, in `precision.optimizer_state`."""


class GradientClipping(Record, frozen=True, kw_only=True):
    """How large gradients are bounded before the update."""

    kind: Literal["global-norm", "local-norm", "value"]
    """Quantity that is bounded: the L2 norm over all parameters, the norm over the part that a rank holds, or each
    entry."""
    threshold: Annotated[float, Meta(gt=0, le=1e6)]
    """Largest norm or absolute value, after the loss scale is taken out."""


class LearningRateSchedule(Record, frozen=True, kw_only=True):
    """Learning rate over the job; lengths are in optimizer steps or in tokens."""

    kind: ScheduleKind
    """Form after warm-up; `warmup-stable-decay` is constant until the decay begins, `step` falls at milestones."""
    peak: Annotated[float, Meta(gt=0, le=100)]
    """Largest learning rate."""
    final: Annotated[float, Meta(ge=0, le=100)] | None = None
    """Learning rate at the end of the decay."""
    warmup_steps: CountOrZero | None = None
    """Optimizer steps from the first rate to the peak."""
    warmup_tokens: Tokens | None = None
    """Tokens from the first rate to the peak."""
    decay_steps: Count | None = None
    """Optimizer steps of the decay; absent means all after warm-up."""
    decay_tokens: Tokens | None = None
    """Tokens of the decay; absent means all after warm-up."""
    total_steps: Count | None = None
    """Optimizer steps that the schedule is made for, warm-up included."""
    total_tokens: Tokens | None = None
    """Tokens that the schedule is made for, warm-up included."""


class Optimizer(Record, frozen=True, kw_only=True):
    """How gradients become updates, and what is kept between steps besides the parameters and master weights."""

    name: OptimizerName
    """Name of the algorithm; master weights are declared as `precision.master_parameters`."""
    moments: Moments | None = None
    """Number format of each moment, a tensor with one number for each parameter, the first moment first; absent means
    as many as usual for the algorithm, in `precision.optimizer_state`."""
    factor_format: StateFormat = "fp32"
    """Number format of what is kept for rows and columns: factored moments of Adafactor, preconditioners of Shampoo
    and SOAP."""
    max_preconditioner_size: Count | None = None
    """Largest side of a preconditioner: Shampoo cuts larger matrices into blocks, SOAP has none for larger sides;
    absent means 1,024 for Shampoo and 10,000 for SOAP."""
    bytes_per_parameter: Annotated[float, Meta(ge=0, le=256, extra_json_schema={"x-unit": "By"})] | None = None
    """Optimizer state of one trained parameter before sharding, master weights left out; absent means as the formats
    and the algorithm imply."""
    auxiliary: AuxiliaryOptimizer | None = None
    """Optimizer of the remaining parameters."""
    clipping: GradientClipping | None = None
    """Gradient clipping; absent means that the plan does not say."""
    learning_rate: LearningRateSchedule | None = None
    """Learning-rate schedule; `batch.learning_rate` says how the rate follows the batch."""
