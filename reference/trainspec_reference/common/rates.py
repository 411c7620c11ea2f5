"""Computes the learning rate of an optimizer step: warm-up, cosine, and how it follows the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainspec_reference.common.batch_schedule import StepBatch
from trainspec_reference.common.job import Rates
from trainspec_validate.documents.types.batch import Batch
from trainspec_validate.performance.costs import learning_rate


def scheduled(rates: Rates, update: int) -> float:
    """Rate of an update by its number, 1 for the first, at the base batch.

    >>> [scheduled(Rates(peak=1.0, warmup_steps=2, decay_steps=4, final_factor=0.1), update) for update in (1, 2, 3, 9)]
    [0.5, 1.0, 0.55, 0.1]
    """
    if update <= rates.warmup_steps:
        return rates.peak * update / rates.warmup_steps
    if rates.decay_steps is None:
        return rates.peak
    done = min(1.0, (update - rates.warmup_steps) / max(1, rates.decay_steps - rates.warmup_steps))
    return rates.peak * (rates.final_factor + (1 - rates.final_factor) * (1 + math.cos(math.pi * done)) / 2)


@dataclass(frozen=True, slots=True)
class LearningRates:
    """The rate of an update of any batch."""

    rates: Rates
    batch: Batch

    @property
    def base_sequences(self) -> int:
        """Batch at which the factor is 1."""
        rule = self.batch.learning_rate
        if rule is not None and rule.base_global_sequences is not None:
            return rule.base_global_sequences
        return self.batch.ramp[0].global_sequences if self.batch.ramp else self.batch.global_sequences

    def at(self, update: int, step: StepBatch, noise_sequences: float | None) -> float:
        """Rate of an update; `noise_sequences` is the noise scale in sequences, None while it is not known.

        An unknown noise counts as none, at which rules that depend on it change nothing.
        """
        return scheduled(self.rates, update) * self.factor(step, noise_sequences)

    def factor(self, step: StepBatch, noise_sequences: float | None) -> float:
        """Rate of a batch over that of the base batch, by the rule of the plan."""
        rule = self.batch.learning_rate
        if rule is None or rule.rule == "none":
            return 1.0
        if rule.rule == "declared":
            return step.learning_rate_factor or 1.0
        noise = (noise_sequences or 0.0) / self.base_sequences
        return learning_rate.factor(rule.rule, step.global_sequences / self.base_sequences, noise)
