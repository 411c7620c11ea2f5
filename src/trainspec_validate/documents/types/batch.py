"""Declares batches: size, schedule, controller, elasticity, and the noise scale behind them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import (
    Count,
    Degree,
    Fraction,
    Record,
    SequenceCount,
    StepTokens,
    Text,
    Tokens,
)

_ELASTIC_LISTS = {"x-requirement": "TS-BAT-017"}
_NOISE_SETTINGS = {"x-requirement": "TS-BAT-022"}


class BatchStage(Record, frozen=True, kw_only=True):
    """One step of a batch ramp."""

    from_tokens: Tokens
    """Tokens seen when this stage begins."""
    global_sequences: SequenceCount
    """Sequences of one optimizer step."""
    sequence_length: Count | None = None
    """Tokens of one sequence in this stage; absent means the model's."""
    global_tokens: StepTokens | None = None
    """Tokens of one optimizer step."""
    learning_rate_factor: Annotated[float, Meta(gt=0, le=1000)] | None = None
    """Learning rate of this stage divided by that of the first."""
    transition: Literal["step", "linear"] = "step"
    """Whether the batch jumps to this stage or grows linearly until the next."""


class LearningRateRule(Record, frozen=True, kw_only=True):
    """How the learning rate follows the batch."""

    rule: Literal["none", "linear", "square-root", "adascale", "adam-square-root", "declared"]
    """Factor as a function of batch growth; `declared` takes the factors of the ramp."""
    base_global_sequences: SequenceCount | None = None
    """Batch at which the learning rate was tuned."""


class BatchController(Record, frozen=True, kw_only=True):
    """A controller that changes the batch while training."""

    signal: Literal["gradient-noise-scale", "norm-test", "loss", "throughput", "other"]
    """Signal that it reads."""
    min_global_sequences: SequenceCount
    """Smallest batch that it may choose."""
    max_global_sequences: SequenceCount
    """Largest batch that it may choose."""
    interval_steps: Count
    """Optimizer steps between decisions."""
    changes_at: Literal["optimizer-step", "micro-batch"] = "optimizer-step"
    """Boundary at which a change takes effect."""
    max_growth_factor: Annotated[float, Meta(ge=1, le=1000)] | None = None
    """Largest growth in one decision."""
    critical_batch_evidence: Text | None = None
    """How the critical batch was measured, since the noise scale alone is not the critical batch."""


class NoiseScale(Record, frozen=True, kw_only=True):
    """How gradient noise is estimated; readings compare only when all of this agrees."""

    noise_unit: Annotated[Literal["token", "sequence", "micro-batch"], Meta(extra_json_schema=_NOISE_SETTINGS)]
    """Unit of one sample of noise."""
    tap: Annotated[
        Literal[
            "after-unscale-before-clip",
            "after-clip",
            "before-unscale",
            "after-compression",
            "after-preconditioning",
        ],
        Meta(extra_json_schema=_NOISE_SETTINGS),
    ]
    """Point of the step at which gradients are read."""
    num_groups: Annotated[int, Meta(ge=1, le=1_000_000, extra_json_schema=_NOISE_SETTINGS)]
    """Independent gradient groups: data ranks times micro-batches kept apart."""
    group_sizes: Literal["equal", "uneven"] = "equal"
    """Whether the groups hold equal numbers of noise units."""
    estimator: Annotated[Literal["size-weighted", "unweighted"], Meta(extra_json_schema=_NOISE_SETTINGS)]
    """Whether group norms are weighted by group size."""
    ema_half_life_steps: Annotated[float, Meta(ge=1, le=1e7, extra_json_schema=_NOISE_SETTINGS)]
    """Half-life of the moving averages, in optimizer steps."""
    bias_corrected: Annotated[bool, Meta(extra_json_schema=_NOISE_SETTINGS)]
    """Whether the averages are corrected for their start."""
    ratio_of: Literal["averages", "samples"] = "averages"
    """Whether the noise scale is a ratio of averages or an average of ratios."""
    accumulation_format: Literal["fp32", "fp64", "bf16", "fp16"] = "fp32"
    """Number format of the squared norms."""


class ElasticBatch(Record, frozen=True, kw_only=True):
    """World sizes that the job may change to while the global batch stays."""

    data_degrees: Annotated[tuple[Degree, ...], Meta(min_length=1, extra_json_schema=_ELASTIC_LISTS)]
    """Data-parallel degrees that the job may run with."""
    micro_sequences: Annotated[tuple[Count, ...], Meta(min_length=1, extra_json_schema=_ELASTIC_LISTS)]
    """Micro-batches that fit in memory."""
    runtime_digest: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    """Digest of the copy of this section that the training process reads."""
    scheduler_digest: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    """Digest of the copy that the scheduler reads."""


class WorkerShare(Record, frozen=True, kw_only=True):
    """Share of the batch that one class of workers takes."""

    num_data_ranks: Degree
    """Data ranks in this class."""
    sequences_per_rank: SequenceCount
    """Sequences that each of them takes in one optimizer step."""
    gradient_weight: Fraction | None = None
    """Weight of each rank's gradient in the global mean."""


class Batch(Record, frozen=True, kw_only=True):
    """How much data one optimizer step takes."""

    global_sequences: SequenceCount
    """Sequences of one optimizer step."""
    micro_sequences: SequenceCount
    """Sequences that one data rank processes at once."""
    accumulation_steps: Count
    """Micro-batches of one data rank in one optimizer step."""
    global_tokens: StepTokens | None = None
    """Tokens of one optimizer step."""
    worker_shares: tuple[WorkerShare, ...] = ()
    """Uneven shares of the batch; absent means equal."""
    loss_reduction: Literal["global-token-mean", "mean-of-micro-batch-means", "sum", "global-sequence-mean"] = (
        "global-token-mean"
    )
    """How losses of micro-batches and ranks become one loss."""
    ramp: tuple[BatchStage, ...] = ()
    """Batch by tokens seen."""
    controller: BatchController | None = None
    """Dynamic batch."""
    learning_rate: LearningRateRule | None = None
    """How the learning rate follows the batch."""
    elastic: ElasticBatch | None = None
    """World sizes that the job may change to."""
    noise_scale: NoiseScale | None = None
    """How gradient noise is estimated."""
    variable_length: bool = False
    """True when micro-batches hold different numbers of tokens."""
    critical_global_tokens: Annotated[float, Meta(ge=1, le=1e12, extra_json_schema={"x-unit": "{token}"})] | None = None
    """Measured critical batch in tokens."""
