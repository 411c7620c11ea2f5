"""Holds the state that a trainer needs to continue, apart from tensors: a few numbers, the loss scale among them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from trainspec_reference.common.noise_scale import NoiseAverages
from trainspec_validate.documents.types.plan import TrainingPlan
from trainspec_validate.documents.types.precision import LossScaling

MAX_SCALE = 2.0**64
DEFAULT_INITIAL_SCALE = 2.0**16
DEFAULT_GROWTH_INTERVAL_STEPS = 2000


@dataclass(frozen=True, slots=True)
class LossScale:
    """The scale of the next step; `after` returns that of the step after it.

    Growth follows so many steps in a row without overflow. An overflow starts that count again, and backs the scale
    off once as many overflows as are tolerated have passed since it last grew.
    Source: NVIDIA/Megatron-LM@d98e8a64:megatron/core/optimizer/grad_scaler.py, whose hysteresis is one more than the
    overflows that are tolerated.

    >>> scale = LossScale(1024.0)
    >>> rule = LossScaling(mode="dynamic", growth_factor=2, backoff_factor=0.5, growth_interval_steps=2)
    >>> scale.after(rule, is_finite=False).scale, scale.after(rule, is_finite=True).after(rule, is_finite=True).scale
    (512.0, 2048.0)
    """

    scale: float = 1.0
    num_good_steps: int = 0
    """Steps without overflow since the last overflow or growth."""
    num_tolerated: int = 0
    """Overflows since the scale last grew, up to those that are tolerated."""

    @staticmethod
    def first(rule: LossScaling | None) -> LossScale:
        """The scale of the first step of a run; 1 where the loss is not scaled."""
        if rule is None or rule.mode == "none":
            return LossScale()
        return LossScale(rule.initial_scale or DEFAULT_INITIAL_SCALE)

    def after(self, rule: LossScaling | None, *, is_finite: bool) -> LossScale:
        """The machine after a step whose gradient was finite, or was not and is left out."""
        if rule is None or rule.mode != "dynamic":
            return self
        if not is_finite:
            return self._overflown(rule)
        if self.num_good_steps + 1 < (rule.growth_interval_steps or DEFAULT_GROWTH_INTERVAL_STEPS):
            return replace(self, num_good_steps=self.num_good_steps + 1)
        return LossScale(min(self.scale * (rule.growth_factor or 2.0), MAX_SCALE))

    def _overflown(self, rule: LossScaling) -> LossScale:
        if self.num_tolerated < (rule.hysteresis_steps or 0):
            return replace(self, num_good_steps=0, num_tolerated=self.num_tolerated + 1)
        lowered = max(self.scale * (rule.backoff_factor or 0.5), rule.min_scale or 1.0)
        return replace(self, scale=min(self.scale, lowered), num_good_steps=0)


DEFAULT_HALF_LIFE_STEPS = 100.0


@dataclass(frozen=True, slots=True)
class TrainerState:
    """State of a run after an optimizer step; equal on every rank."""

    step: int = 0
    """Optimizer steps completed."""
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
    """Counts of the recorder, on the rank that records the job."""

    def to_json(self) -> bytes:
        """The state as one line of JSON; numbers are restored exactly."""
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
