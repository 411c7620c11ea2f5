"""Holds the state that a trainer needs to continue, apart from tensors: a few numbers in JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from trainspec_reference.common.loss_scale import LossScale
from trainspec_reference.common.noise_scale import NoiseAverages
from trainspec_validate.documents.types.plan import TrainingPlan

DEFAULT_HALF_LIFE_STEPS = 100.0


@dataclass(frozen=True, slots=True)
class TrainerState:
    """Where a run stands after an update; equal on every rank."""

    step: int = 0
    """Updates completed."""
    num_samples: int = 0
    """Samples consumed, of skipped steps too: the position in the order of samples."""
    num_tokens: int = 0
    """Targets of these samples."""
    num_skipped: int = 0
    """Steps without an update."""
    num_skipped_in_a_row: int = 0
    loss_scale: LossScale = field(default_factory=LossScale)
    global_sequences: int | None = None
    """Batch that a controller has chosen; None where nothing has."""
    noise: NoiseAverages = field(default_factory=lambda: NoiseAverages(DEFAULT_HALF_LIFE_STEPS))
    shares: tuple[int, ...] = ()
    """Samples of each data rank in a step, where measured speeds decide; empty for even shares."""
    counters: dict[str, float] = field(default_factory=dict)
    """What the recorder has counted, on the rank that writes of the job."""

    def to_json(self) -> bytes:
        """The state as one line of JSON; numbers come back exactly."""
        return msgspec.json.encode(self)

    @staticmethod
    def first(plan: TrainingPlan) -> TrainerState:
        """The state of a run that begins."""
        settings = plan.batch.noise_scale
        half_life = settings.ema_half_life_steps if settings else DEFAULT_HALF_LIFE_STEPS
        scale = LossScale.first(plan.precision.loss_scaling)
        return TrainerState(loss_scale=scale, noise=NoiseAverages(half_life))

    @staticmethod
    def from_json(text: bytes) -> TrainerState:
        """The state that `to_json` wrote.

        Raises:
            ValueError: the text is no such state; the message names the field.
        """
        return msgspec.json.decode(text, type=TrainerState)

    def plain(self) -> dict[str, Any]:
        """The state as plain values, for messages between processes."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found
