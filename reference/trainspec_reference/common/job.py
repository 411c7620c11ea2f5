"""Turns plan, cluster and policy into what one run of the trainer does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainspec_validate.documents.types.checkpoint import CheckpointPolicy
from trainspec_validate.documents.types.plan import TrainingPlan

EXTENSION = "org.trainspec.reference"
"""Key under `extensions` of a plan for what the specification leaves free: optimizer, rates, data."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A small network, of one of three families."""

    family: Literal["transformer", "convolution", "state-space"] = "transformer"
    num_layers: int = 4
    hidden_size: int = 128
    num_heads: int = 4
    ffn_hidden_size: int = 512
    """Inner width of a feed-forward network, or of one expert."""
    num_experts: int = 0
    """Experts in place of the feed-forward network of each layer of a `transformer`; 0 for none."""
    num_active_experts: int = 1
    """Experts that a token visits."""
    vocabulary_size: int = 256
    """Tokens, or classes of images."""
    sequence_length: int = 64
    image_size: int = 16
    """Pixels on a side, and `image_channels` channels, for `convolution`."""
    image_channels: int = 3
    dropout: float = 0.0
    """Share of activations set to zero; drawn from the random state of each rank."""

    @property
    def num_targets_per_sample(self) -> int:
        """Targets of a sample that is not cut short."""
        return 1 if self.family == "convolution" else self.sequence_length


@dataclass(frozen=True, slots=True)
class Rates:
    """AdamW and the learning rate: linear warm-up, then a cosine to `final_factor` at `decay_steps`."""

    peak: float = 1e-3
    warmup_steps: int = 0
    decay_steps: int | None = None
    """None keeps the peak."""
    final_factor: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float | None = None


@dataclass(frozen=True, slots=True)
class Data:
    """Synthetic samples: each a pure function of the seed and its id."""

    num_samples: int = 100_000
    """Samples of one epoch; each epoch has its own permutation."""
    seed: int = 1234
    is_shuffled: bool = True
    """False visits the samples of each epoch in the order of their ids."""
    delay_seconds: float = 0.0
    """Injected delay of each batch, for tests of stalls."""


@dataclass(frozen=True, slots=True)
class Job:
    """Definition of one run. `plan` and `policy` are the documents; other fields hold settings that they leave open."""

    plan: TrainingPlan
    policy: CheckpointPolicy | None
    num_steps: int
    seed: int = 0
    """Of the initial weights and of each rank's random state."""
    model: ModelShape = ModelShape()
    rates: Rates = Rates()
    data: Data = Data()
    device: str = "cpu"
    """`cpu`, or `cuda` for an accelerator."""
    evaluation_interval_steps: int | None = None
    replica_check_steps: int | None = None
    """Steps between comparisons of the replicas' state."""
    rebalance_interval_steps: int | None = None
    """Steps between measurements of speed, by which samples are shared; None shares them evenly."""
    min_step_seconds: float = 0.0
    """A step that is quicker sleeps for the rest, so that a test can act in the middle of it."""
