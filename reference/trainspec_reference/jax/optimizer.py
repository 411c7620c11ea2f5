"""The only place that applies AdamW: decoupled weight decay on parameters of two axes or more."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from trainspec_reference.common.job import Rates
from trainspec_reference.jax.arithmetic import Formats

Moments = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
"""Parameters, first and second moment, and the count of updates."""


def adamw(rates: Rates, formats: Formats) -> Callable[..., Moments]:
    """One update of any part of the parameters, since AdamW works entry by entry.

    The function takes parameters, moments, count, gradient, the mask of decayed entries, learning rate, and the
    factor of clipping.
    """
    adam = optax.scale_by_adam(rates.beta1, rates.beta2, rates.epsilon)

    def update(
        parameters_S: jax.Array,
        first_S: jax.Array,
        second_S: jax.Array,
        count: jax.Array,
        gradient_S: jax.Array,
        is_decayed_S: jax.Array,
        learning_rate: Any,
        clip_factor: Any,
    ) -> Moments:
        wide = formats.wide
        before = optax.ScaleByAdamState(count=count, mu=first_S.astype(wide), nu=second_S.astype(wide))
        direction_S, after = adam.update(gradient_S.astype(wide) * clip_factor, before)
        kept_S = parameters_S.astype(wide) * jnp.where(is_decayed_S, 1 - learning_rate * rates.weight_decay, 1)
        changed_S = (kept_S - learning_rate * direction_S).astype(formats.parameters)
        return changed_S, after.mu.astype(formats.optimizer), after.nu.astype(formats.optimizer), after.count

    return update
