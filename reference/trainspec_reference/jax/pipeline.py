"""Runs micro-batches through the stages of a pipeline: GPipe, as JAX differentiates it.

All stages run one program, in which a tick lets each stage compute one micro-batch and hand it to the next stage. The
backward pass is the derivative of that loop, so that it begins when the last forward pass has ended (GPipe,
arXiv:1811.06965): what the activation policy keeps is kept of all micro-batches. In the ticks that fill and empty the
pipeline a stage computes as well, and what comes out counts nothing.
"""

# ruff: noqa: N803 - shapes stand in names: M micro-batches

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from trainspec_reference.jax.mesh import PIPELINE_AXIS
from trainspec_reference.jax.models.parts import Family, Network


def loss_sum(family: Family, network: Network, inputs_M: Any, targets_M: Any, keys_M: Any) -> Any:
    """Sum of the loss over the counted targets of all micro-batches, on the last stage; 0 on the others."""
    stage, wide = jax.lax.axis_index(PIPELINE_AXIS), network.formats.wide
    num_stages, num_batches = network.num_stages, targets_M.shape[0]
    onwards = [(number, number + 1) for number in range(num_stages - 1)]
    length = inputs_M.shape[2]
    embedded = jax.eval_shape(lambda: family.begin(network, inputs_M[0]))
    entered = jax.eval_shape(lambda: network.tensor.begin(family.begin(network, inputs_M[0])))

    def tick(received: Any, time: Any) -> tuple[Any, Any]:
        number = time - stage
        is_there = (number >= 0) & (number < num_batches)
        number = jnp.clip(number, 0, num_batches - 1)
        own = replace(network, stage=stage, key=None if keys_M is None else keys_M[number])

        def begun() -> Any:
            return family.begin(own, inputs_M[number])

        # Conditions differ between stages: nothing in a branch may meet other ranks.
        x = jax.lax.cond(stage == 0, begun, lambda: jnp.zeros(embedded.shape, embedded.dtype))
        x = jnp.where(stage == 0, own.tensor.begin(x), received)
        x = own.through_layers(family, x)

        # Without recomputation all stages would keep room for logits, which are larger than all else.
        @jax.checkpoint
        def ended(x: Any) -> Any:
            return family.end(own, x, targets_M[number]).astype(wide)

        is_last = stage == num_stages - 1
        loss = jax.lax.cond(is_last & is_there, ended, lambda _: jnp.zeros((), wide), own.tensor.end(x, length))
        return jax.lax.ppermute(x, PIPELINE_AXIS, onwards), loss

    nothing = jnp.zeros(entered.shape, entered.dtype)
    _, losses = jax.lax.scan(tick, nothing, jnp.arange(num_batches + num_stages - 1))
    return jnp.sum(losses)
