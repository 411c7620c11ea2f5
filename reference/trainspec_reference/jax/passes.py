"""Runs micro-batches forward and backward on one rank, and through the stages of a pipeline."""

# ruff: noqa: N803, N806 - shapes stand in names: M micro-batches

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from trainspec_reference.common.job import Job
from trainspec_reference.jax.arithmetic import Formats, squared_norm
from trainspec_reference.jax.layout import ROOT, Layout, unit_name
from trainspec_reference.jax.mesh import CONTEXT_AXIS, COPY_AXES, PART_AXES, PIPELINE_AXIS, TENSOR_AXIS
from trainspec_reference.jax.models import family_of
from trainspec_reference.jax.models.parts import GATHERED, Family, Network, Parameters
from trainspec_reference.jax.models.splits import UNSHARED, ContextSplit, TensorSplit


def pipelined_loss_sum(family: Family, network: Network, inputs_M: Any, targets_M: Any, keys_M: Any) -> Any:
    """Sum of the loss over the counted targets of all micro-batches, on the last stage of a pipeline; 0 on the others.

    All stages run one program, in whose ticks each computes one micro-batch and hands it to the next stage; what comes
    out of those that fill and empty the pipeline counts nothing. The backward pass is the derivative of that loop: it
    begins after the last forward pass (GPipe, arXiv:1811.06965), so that all micro-batches keep their activations.
    """
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


class Sums(NamedTuple):
    """Running sums over the micro-batches of a rank."""

    gradient: Any
    loss: Any


class Batch(NamedTuple):
    """A micro-batch, and what its random numbers come from: the run's key, the data rank, and its own number.

    With a pipeline it is several of them, and inputs, targets and numbers have an axis for them.
    """

    inputs: Any
    targets: Any
    key: Any
    rank: Any
    index: Any


@dataclass(frozen=True, slots=True)
class Passes:
    """The computation of one micro-batch, as functions of one rank's values."""

    job: Job
    layout: Layout
    formats: Formats
    num_tensor: int
    num_context: int
    shares_parameters: bool

    @property
    def _num_stages(self) -> int:
        return self.layout.num_stages

    def backward(self, *, measured: bool) -> Callable[..., Any]:
        """A function that adds the gradient and loss of a micro-batch to the sums of those before it.

        It takes parameters, sums, micro-batch, the weight of a target, and the weights of entries in a norm. It gives
        the new sums, and the squared norm of the micro-batch's own gradient, which is 0 where it is not measured.
        Where parameters are sharded, the gradient of other ranks is in the sums already.
        """
        wide = self.formats.wide

        def run(parameters: Any, sums: Sums, batch: Batch, weight: Any, norm_weights_WS: Any) -> tuple[Sums, Any]:
            def weighted(parameters: Any) -> Any:
                return self._loss(parameters, batch) * weight

            if self.shares_parameters and not measured:
                loss, own_S = jax.value_and_grad(weighted)(parameters)
                return Sums(sums.gradient + own_S.astype(wide), sums.loss + loss), jnp.zeros((), wide)
            loss, tree = jax.value_and_grad(weighted)(self._whole(parameters))
            loss, tree = self._over_stages(loss, tree)
            gradient = self.layout.join(tree, jnp).astype(wide)
            squares = self._squares(gradient, norm_weights_WS) if measured else jnp.zeros((), wide)
            if self.shares_parameters:
                gradient = jax.lax.psum_scatter(gradient, COPY_AXES, scatter_dimension=0)
            return Sums(sums.gradient + gradient, sums.loss + loss), squares

        return run

    def forward(self, parameters: Any, loss: Any, batch: Batch, weight: Any) -> Any:
        """Loss so far with this micro-batch's added."""
        tree = parameters if self.shares_parameters else self._whole(parameters)
        own, _ = self._over_stages(self._loss(tree, batch._replace(key=None)), {})
        return loss + own * weight

    def _whole(self, parameters: Any) -> dict[str, Any]:
        if self.shares_parameters:
            parameters = jax.lax.all_gather(parameters, COPY_AXES)
        elif self._num_stages > 1:  # so that the gradients of all micro-batches are added up in the wide format
            parameters = parameters.astype(self.formats.wide)
        return self.layout.divide(parameters)

    def _loss(self, parameters: Any, batch: Batch) -> Any:
        has_dropout = batch.key is not None and self.job.model.dropout > 0
        key = jax.random.fold_in(batch.key, batch.rank) if has_dropout else None
        network, family = self._network(parameters), family_of(self.job.model)
        if self._num_stages > 1:
            keys_M = None if key is None else jax.vmap(partial(jax.random.fold_in, key))(batch.index)
            return pipelined_loss_sum(family, network, batch.inputs, batch.targets, keys_M)
        key = None if key is None else jax.random.fold_in(key, batch.index)
        return family.loss_sum(replace(network, key=key), batch.inputs, batch.targets)

    def _over_stages(self, loss: Any, tree: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        """The loss on all stages, and gradients of what all stages hold summed over them."""
        if self._num_stages == 1:
            return loss, tree
        shared = {name: value for name, value in tree.items() if unit_name(name) == ROOT}
        loss, shared = jax.lax.psum((loss, shared), PIPELINE_AXIS)
        return loss, {**tree, **shared}

    def _network(self, parameters: Any) -> Network:
        is_shard = not isinstance(parameters, Mapping)
        memory = self.job.plan.memory
        policy = memory.activation_policy if memory is not None else "none"
        return Network(
            self.job.model,
            self.formats,
            self._gathered(parameters) if is_shard else _reader(parameters, self.formats.parameters),
            activation_policy=policy,
            context=ContextSplit(CONTEXT_AXIS, self.num_context) if self.num_context > 1 else UNSHARED,
            tensor=TensorSplit(TENSOR_AXIS if self.num_tensor > 1 else None, bool(self.job.plan.parallelism.sequence)),
            shares_layers=is_shard,
            num_stages=self._num_stages,
        )

    def _gathered(self, shard_S: Any) -> Callable[[str], Parameters]:
        units = {unit.name: unit for unit in self.layout.units}

        def read(name: str) -> Parameters:
            unit = units[name]
            own = shard_S[self.layout.columns(unit)]
            whole = jax.lax.all_gather(own, COPY_AXES, tiled=True)
            return unit.split(checkpoint_name(whole, GATHERED))

        return read

    def _squares(self, matrix_WS: jax.Array, norm_weights_WS: jax.Array) -> Any:
        if self.num_context > 1:  # of whole sequences
            matrix_WS = jax.lax.psum(matrix_WS, CONTEXT_AXIS)
        if self.num_tensor * self._num_stages == 1:
            return squared_norm(matrix_WS, self.formats.wide)
        return jax.lax.psum(squared_norm(matrix_WS, self.formats.wide, norm_weights_WS), PART_AXES)


def _reader(tree: Parameters, number_format: Any) -> Callable[[str], Parameters]:
    def read(unit: str) -> Parameters:
        return {name: value.astype(number_format) for name, value in tree.items() if unit_name(name) == unit}

    return read
