"""Computes the learning of a made run: loss, gradients and schedule as functions of the step alone."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from .shape import Shape

WARMUP_STEPS = 20
PEAK_LEARNING_RATE = 3e-4
CLIP_NORM = 1.0
PADDING_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Learned:
    """State of training after one step; the same however often the step is executed."""

    loss: float
    largest_loss: float
    learning_rate: float
    signal: float
    """Squared norm of the true gradient."""
    noise_scale: float
    """Tokens."""
    norm: float
    num_clipped: int
    """Clipped optimizer steps so far."""
    num_filled_tokens: int
    """Tokens so far that are no padding."""

    @property
    def variance(self) -> float:
        """Trace of the covariance of the gradient of one token."""
        return self.signal * self.noise_scale


def learn(shape: Shape) -> list[Learned]:
    """What every step leaves behind; the first entry is the state before any."""
    source = random.Random(f"{shape.seed}/learning")
    found = [Learned(11.76, 11.8, 0.0, 1.0, 2e5, 1.5, 0, 0)]
    for number in range(1, shape.num_steps + 1):
        before = found[-1]
        loss = 2.4 + 9.3 / (1 + number / 25) ** 0.8 + source.gauss(0, 0.02)
        signal = 0.6 / (1 + number / 30) * math.exp(source.gauss(0, 0.03))
        noise_scale = 2e5 * (1 + number / 200) * math.exp(source.gauss(0, 0.03))
        norm = math.sqrt(signal * (1 + noise_scale / shape.batch_tokens)) * math.exp(source.gauss(0, 0.01))
        filled = round(shape.batch_tokens * (1 - PADDING_SHARE * source.uniform(0.8, 1.2)))
        found.append(
            Learned(
                loss,
                loss + abs(source.gauss(0.03, 0.01)),
                learning_rate(number, shape.num_steps),
                signal,
                noise_scale,
                norm,
                before.num_clipped + (norm > CLIP_NORM),
                before.num_filled_tokens + filled,
            )
        )
    return found


def learning_rate(number: int, num_steps: int) -> float:
    """Linear warm-up, then half a cosine down to a tenth."""
    if number <= WARMUP_STEPS:
        return PEAK_LEARNING_RATE * number / WARMUP_STEPS
    share = (number - WARMUP_STEPS) / max(1, num_steps - WARMUP_STEPS)
    return PEAK_LEARNING_RATE * (0.1 + 0.45 * (1 + math.cos(math.pi * share)))
