"""Turns the gradients of all data ranks into the one that each of them applies, by collectives of JAX."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trainspec_reference.jax.arithmetic import Formats, squared_norm
from trainspec_reference.jax.compression import Carried, Compressor
from trainspec_reference.jax.layout import Layout
from trainspec_reference.jax.mesh import COPY_AXES, LOCAL_AXES, PART_AXES
from trainspec_reference.jax.passes import Sums


def summed(vector_N: jax.Array, algorithm: str) -> Any:
    """Sum over the copies by the algorithm, the same on each; inside of a mapped function."""
    return _by_hosts(vector_N) if algorithm == "hierarchical" else jax.lax.psum(vector_N, COPY_AXES)


def _by_hosts(vector_N: jax.Array) -> Any:
    """Reduce-scatter inside the host, all-reduce between hosts, all-gather inside the host."""
    size, local = vector_N.size, int(jax.lax.axis_size(LOCAL_AXES))
    padded_N = jnp.pad(vector_N, (0, -size % local))
    share_M = jax.lax.psum_scatter(padded_N, LOCAL_AXES, scatter_dimension=0, tiled=True)
    return jax.lax.all_gather(jax.lax.psum(share_M, "host"), LOCAL_AXES, tiled=True)[:size]


class Exchanged(NamedTuple):
    """Results on a rank after the exchange."""

    gradient: Any
    """Of this rank's row."""
    loss: Any
    norm: Any
    num_not_finite: Any
    """Entries that are not finite, of all ranks."""
    carried: Carried


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange of one step, as functions of one rank's values."""

    layout: Layout
    formats: Formats
    num_parts: int
    """Ranks of one replica."""
    algorithm: str
    compressor: Compressor | None
    shares_parameters: bool
    start_step: int
    """Optimizer steps before which nothing is compressed."""

    def run(self, sums: Sums, carried: Carried, count: Any, loss_scale: Any, norm_weights_WS: Any) -> Exchanged:
        """The exchange, after `count` updates."""
        gradient = sums.gradient / loss_scale
        if self.shares_parameters:
            own_S = gradient
        else:
            own_S, carried = self._reduced(gradient, carried, count >= self.start_step)
        bad = jnp.sum(~jnp.isfinite(own_S)).astype(jnp.float32)
        if self.num_parts > 1:
            row = jax.lax.axis_index(COPY_AXES) if self.layout.num_shards > 1 else 0
            squares = squared_norm(own_S, self.formats.wide, norm_weights_WS[row])
            squares, bad = jax.lax.psum((squares, bad), PART_AXES)
        else:
            squares = squared_norm(own_S, self.formats.wide)
        if self.layout.num_shards > 1:
            squares, bad = jax.lax.psum((squares, bad), COPY_AXES)
        loss = jax.lax.psum(sums.loss, COPY_AXES) / loss_scale
        return Exchanged(own_S, loss, jnp.sqrt(squares), bad, carried)

    def _reduced(self, gradient_WS: Any, carried: Carried, starts: Any) -> tuple[Any, Carried]:
        wide, narrow = self.formats.wide, self.formats.reduction
        is_sharded = self.layout.num_shards > 1
        if is_sharded and self.compressor is None and self.algorithm == "automatic":
            own_S = jax.lax.psum_scatter(gradient_WS.astype(narrow), COPY_AXES, scatter_dimension=0)
            return own_S.astype(wide), carried

        def total(vector: jax.Array) -> Any:
            format_of_sum = narrow if vector.dtype == wide else vector.dtype
            return summed(vector.astype(format_of_sum), self.algorithm).astype(vector.dtype)

        vector_N = gradient_WS.reshape(-1)
        if self.compressor is None:
            whole_N = total(vector_N)
        else:
            whole_N, carried = self.compressor.exchange(vector_N, carried, starts, total)
        whole_WS = whole_N.reshape(gradient_WS.shape)
        return whole_WS[jax.lax.axis_index(COPY_AXES)] if is_sharded else whole_WS[0], carried
