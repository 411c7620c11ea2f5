"""Holds the parts that the networks share: reading of layers, norms, dropout and loss."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from trainspec_reference.common.job import ModelShape
from trainspec_reference.jax.arithmetic import Formats
from trainspec_reference.jax.models.splits import UNSHARED, WHOLE, ContextSplit, TensorSplit

NORM_EPSILON = 1e-5
GATHERED = "gathered"
"""Name of gathered shards in a computation, by which they are left out of what the backward pass keeps."""

Parameters = Mapping[str, jax.Array]


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of network: the part before its layers, one layer, and the part behind them."""

    layers: str
    """First word of the names of layers."""
    begin: Callable[[Network, jax.Array], jax.Array]
    """Hidden states of a micro-batch's inputs."""
    block: Callable[[Network, Parameters, jax.Array, Any], jax.Array]
    """Hidden states behind a layer; it takes the layer's parameters without their prefix, and a random key."""
    end: Callable[[Network, jax.Array, jax.Array], jax.Array]
    """Sum of the loss over the counted targets, from hidden states behind the last layer."""

    def loss_sum(self, network: Network, inputs: jax.Array, targets: jax.Array) -> jax.Array:
        """Sum of the loss over the counted targets of one micro-batch: inputs and targets as `MicroBatch` has them."""
        x = self.begin(network, inputs)
        x = network.tensor.end(network.through_layers(self, network.tensor.begin(x)), x.shape[1])
        return self.end(network, x, targets)


@dataclass(frozen=True, slots=True)
class Network:
    """One forward pass: where parameters come from, and how activations are kept."""

    shape: ModelShape
    formats: Formats
    read: Callable[[str], Parameters]
    """Parameters of a unit by name; with sharding this is where they are gathered."""
    key: jax.Array | None = None
    """Random key of dropout; None leaves it out."""
    activation_policy: str = "none"
    """Activation checkpointing (recomputation) in the backward pass: none, selective, full."""
    tensor: TensorSplit = WHOLE
    """How activations pass between the tensor ranks."""
    context: ContextSplit = UNSHARED
    """How context ranks share sequences."""
    shares_layers: bool = False
    """Whether layers are gathered from shards, and gathered anew in the backward pass."""
    stage: Any = 0
    """Number of this rank's stage of a pipeline."""
    num_stages: int = 1

    def through_layers(self, family: Family, x: Any) -> Any:
        """Run x through the layers of this rank's stage."""
        num_layers = self.shape.num_layers // self.num_stages
        for number in range(num_layers):
            layer = self._kept(f"{family.layers}/{number}", partial(family.block, self))
            x = layer(x, self._key_of(self.stage * num_layers + number))
        return x

    def dropped(self, x: jax.Array, key: Any) -> jax.Array:
        """Dropout as the job asks."""
        if key is None or not self.shape.dropout:
            return x
        keeps = jax.random.bernoulli(key, 1 - self.shape.dropout, x.shape)
        return jnp.where(keeps, x / (1 - self.shape.dropout), 0).astype(x.dtype)

    def joined(self, x: jax.Array) -> jax.Array:
        """Sum of the parts of all tensor ranks, in the wide format."""
        total: jax.Array = self.tensor.leave(x.astype(self.formats.wide))
        return total

    def norm(self, x_BTD: jax.Array, scale_D: jax.Array, bias_D: jax.Array) -> jax.Array:
        """Norm of the positions that this rank holds."""
        return layer_norm(x_BTD, self.tensor.shared(scale_D), self.tensor.shared(bias_D), self.formats.wide)

    def _key_of(self, index: Any) -> Any:
        return (
            None if self.key is None else jax.random.fold_in(self.context.own_key(self.tensor.own_key(self.key)), index)
        )

    def _kept(self, unit: str, body: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        def run(x: jax.Array, key: Any) -> jax.Array:
            own = {name.removeprefix(f"{unit}/"): value for name, value in self.read(unit).items()}
            return body(own, x, key)

        policies = jax.checkpoint_policies
        if self.activation_policy == "full":
            return jax.checkpoint(run)
        if self.activation_policy == "selective":
            return jax.checkpoint(run, policy=policies.dots_with_no_batch_dims_saveable)
        if self.shares_layers:
            return jax.checkpoint(run, policy=policies.save_anything_except_these_names(GATHERED))
        return run


def layer_norm(x_BTD: jax.Array, scale_D: jax.Array, bias_D: jax.Array, wide: Any) -> jax.Array:
    """Norm over the last axis, in the wide format; XLA fuses it to one kernel."""
    x_BTD = x_BTD.astype(wide)
    mean = x_BTD.mean(-1, keepdims=True)
    variance = jnp.square(x_BTD - mean).mean(-1, keepdims=True)
    return (x_BTD - mean) * jax.lax.rsqrt(variance + NORM_EPSILON) * scale_D.astype(wide) + bias_D.astype(wide)


def cross_entropy(logits_BTV: jax.Array, targets_BT: jax.Array, wide: Any) -> jax.Array:
    """Sum over the targets that are counted, which are those from 0 up."""
    is_counted = targets_BT >= 0
    losses = optax.softmax_cross_entropy_with_integer_labels(logits_BTV.astype(wide), jnp.maximum(targets_BT, 0))
    return jnp.sum(jnp.where(is_counted, losses, 0))
