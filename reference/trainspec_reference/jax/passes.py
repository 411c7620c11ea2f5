"""The only place that runs a micro-batch forward and backward on one rank."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from trainspec_reference.common.job import Job
from trainspec_reference.jax.arithmetic import Formats, squared_norm
from trainspec_reference.jax.layout import Layout
from trainspec_reference.jax.mesh import DATA_AXES, TENSOR_AXIS
from trainspec_reference.jax.models import loss_of
from trainspec_reference.jax.models.parts import GATHERED, Network, Parameters


@dataclass(frozen=True, slots=True)
class Passes:
    """The computation of one micro-batch, as functions of one rank's values."""

    job: Job
    layout: Layout
    formats: Formats
    num_tensor: int
    shares_parameters: bool

    def backward(self, *, measured: bool) -> Callable[..., Any]:
        """Function of parameters, gradient and loss so far, inputs, targets, random key, this data rank, the number
        of the micro-batch, the weight of a target, and the weights in a norm.

        It gives the gradient and loss with this micro-batch's added, and the squared norm of its own gradient, which
        is 0 where it is not measured. Where parameters are sharded, the gradient of other ranks is in it already.
        """

        def run(
            parameters: Any, gradient: Any, loss: Any, inputs: Any, targets: Any, key: Any, rank: Any, index: Any,
            weight: Any, norm_weights_WS: Any,
        ) -> Any:  # fmt: skip
            own_key = jax.random.fold_in(jax.random.fold_in(key, rank), index)

            def weighted(parameters: Any) -> jax.Array:
                return self._loss(parameters, inputs, targets, own_key) * weight

            if self.shares_parameters and not measured:
                added, own = jax.value_and_grad(weighted)(parameters)
                return gradient + own.astype(self.formats.wide), loss + added, jnp.zeros((), self.formats.wide)
            tree = self._whole(parameters)
            added, tree_gradient = jax.value_and_grad(weighted)(tree)
            matrix_WS = self.layout.join(tree_gradient, jnp).astype(self.formats.wide)
            squares = self._squares(matrix_WS, norm_weights_WS) if measured else jnp.zeros((), self.formats.wide)
            if self.shares_parameters:
                matrix_WS = jax.lax.psum_scatter(matrix_WS, DATA_AXES, scatter_dimension=0)
            return gradient + matrix_WS, loss + added, squares

        return run

    def forward(self, parameters: Any, loss: Any, inputs: Any, targets: Any, weight: Any) -> jax.Array:
        """Loss so far with this micro-batch's added."""
        tree = parameters if self.shares_parameters else self._whole(parameters)
        return loss + self._loss(tree, inputs, targets, None) * weight

    def _whole(self, parameters: Any) -> dict[str, Any]:
        if self.shares_parameters:
            parameters = jax.lax.all_gather(parameters, DATA_AXES)
        return self.layout.divide(parameters)

    def _loss(self, parameters: Any, inputs: Any, targets: Any, key: Any) -> jax.Array:
        is_shard = not isinstance(parameters, Mapping)
        memory = self.job.plan.memory
        policy = memory.activation_policy if memory is not None else "none"
        network = Network(
            self.job.model,
            self.formats,
            self._gathered(parameters) if is_shard else _reader(parameters),
            key if self.job.model.dropout else None,
            policy,
            TENSOR_AXIS if self.num_tensor > 1 else None,
            is_shard,
        )
        return loss_of(self.job.model)(network, inputs, targets)

    def _gathered(self, shard_S: Any) -> Callable[[str], Parameters]:
        units = {unit.name: unit for unit in self.layout.units}

        def read(name: str) -> Parameters:
            unit = units[name]
            own = shard_S[self.layout.columns(unit)]
            whole = jax.lax.all_gather(own, DATA_AXES, tiled=True)
            return unit.split(checkpoint_name(whole, GATHERED))

        return read

    def _squares(self, matrix_WS: jax.Array, norm_weights_WS: jax.Array) -> jax.Array:
        if self.num_tensor == 1:
            return squared_norm(matrix_WS, self.formats.wide)
        own = squared_norm(matrix_WS * jnp.sqrt(norm_weights_WS), self.formats.wide)
        return jax.lax.psum(own, TENSOR_AXIS)


def _reader(tree: Parameters) -> Callable[[str], Parameters]:
    def read(unit: str) -> Parameters:
        if unit == "root":
            return tree
        return {name: value for name, value in tree.items() if name.startswith(f"{unit}/")}

    return read
