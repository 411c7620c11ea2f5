"""Applies AdamW: decoupled weight decay on parameters of two axes or more."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from trainspec_reference.common.job import Rates
from trainspec_reference.jax.arithmetic import Formats


class Trained(NamedTuple):
    """What an update changes: parameters, first and second moment, and the count of updates."""

    parameters: Any
    first: Any
    second: Any
    count: Any


class Rate(NamedTuple):
    """Learning rate, and the factor that clipping multiplies the gradient with."""

    learning: Any
    clip_factor: Any


def adamw(rates: Rates, formats: Formats) -> Callable[[Trained, Any, Any, Rate], Trained]:
    """One update of any part of the parameters, since AdamW works entry by entry.

    The function takes what is trained, the gradient, the mask of entries that decay, and the rate.
    """
    adam, wide = optax.scale_by_adam(rates.beta1, rates.beta2, rates.epsilon), formats.wide

    def update(held: Trained, gradient_S: Any, is_decayed_S: Any, rate: Rate) -> Trained:
        before = optax.ScaleByAdamState(held.count, held.first.astype(wide), held.second.astype(wide))
        direction_S, after = adam.update(gradient_S.astype(wide) * rate.clip_factor, before)
        decay_S = jnp.where(is_decayed_S, 1 - rate.learning * rates.weight_decay, 1)
        parameters_S = held.parameters.astype(wide) * decay_S - rate.learning * direction_S
        moments = after.mu.astype(formats.optimizer), after.nu.astype(formats.optimizer)
        return Trained(parameters_S.astype(formats.parameters), *moments, after.count)

    return update
