"""Passes activations between tensor ranks, and between context ranks."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from trainspec_reference.common.ranks import pieces_of

_POSITIONS = 1
"""Axis of the positions."""


@dataclass(frozen=True, slots=True)
class TensorSplit:
    """How the tensor ranks share the activations of a layer; without an axis all functions give what they take.

    Between the matrices that are split each rank holds all positions, or by sequence its own even range of them, in
    which norms, dropout and residuals are then computed (arXiv:2205.05198).
    """

    axis: str | None = None
    """Mesh axis of the tensor ranks; None where they are not split."""
    by_sequence: bool = False

    def enter(self, x_BTD: jax.Array) -> Any:
        """All positions, before matrices that are split by columns; gradients are summed over ranks on the way back."""
        if self.axis is None:
            return x_BTD
        return self._apply(self._gathered, self._summed_range, x_BTD) if self.by_sequence else self._summed_back(x_BTD)

    def leave(self, x_BTD: jax.Array) -> Any:
        """The sum of all ranks' tensors, after matrices that are split by rows; by sequence, its own range of it."""
        if self.axis is None:
            return x_BTD
        if self.by_sequence:
            return self._apply(self._summed_range, self._gathered, x_BTD)
        # Each rank holds the whole gradient of the sum already; the transpose of psum would add them up again.
        return self._apply(self._sum, _same, x_BTD)

    def begin(self, x_BTD: jax.Array) -> Any:
        """This rank's range of positions; what does not divide is padded at the end, where no position looks."""
        if self.axis is None or not self.by_sequence:
            return x_BTD
        padding = -x_BTD.shape[_POSITIONS] % jax.lax.axis_size(self.axis)
        return self._apply(self._own_range, self._gathered, jnp.pad(x_BTD, ((0, 0), (0, padding), (0, 0))))

    def end(self, x_BTD: jax.Array, length: int) -> Any:
        """All positions but the padding; the result is the same on each rank."""
        if self.axis is None or not self.by_sequence:
            return x_BTD
        return self._apply(self._gathered, self._own_range, x_BTD)[:, :length]

    def shared(self, parameter: jax.Array) -> Any:
        """A parameter that every rank applies to its own range: its gradient is the sum over all ranges."""
        return parameter if self.axis is None or not self.by_sequence else self._summed_back(parameter)

    def own_key(self, key: Any) -> Any:
        """A random key for what this rank alone holds."""
        if self.axis is None or not self.by_sequence:
            return key
        return jax.random.fold_in(key, jax.lax.axis_index(self.axis))

    def _summed_back(self, x: jax.Array) -> Any:
        return self._apply(_same, self._sum, x)

    def _apply(self, forward: Callable[[Any], Any], backward: Callable[[Any], Any], x: jax.Array) -> Any:
        @jax.custom_vjp
        def function(x: jax.Array) -> Any:
            return forward(x)

        function.defvjp(lambda x: (forward(x), None), lambda _, gradient: (backward(gradient),))
        return function(x)

    def _sum(self, x: jax.Array) -> Any:
        return jax.lax.psum(x, self.axis)

    def _gathered(self, x_BtD: jax.Array) -> Any:
        return jax.lax.all_gather(x_BtD, self.axis, axis=_POSITIONS, tiled=True)

    def _summed_range(self, x_BTD: jax.Array) -> Any:
        return jax.lax.psum_scatter(x_BTD, self.axis, scatter_dimension=_POSITIONS, tiled=True)

    def _own_range(self, x_BTD: jax.Array) -> Any:
        size = x_BTD.shape[_POSITIONS] // jax.lax.axis_size(self.axis)
        return jax.lax.dynamic_slice_in_dim(x_BTD, jax.lax.axis_index(self.axis) * size, size, _POSITIONS)


WHOLE = TensorSplit()
"""Every rank holds all of a layer."""


def _same(x: jax.Array) -> jax.Array:
    return x


@dataclass(frozen=True, slots=True)
class ContextSplit:
    """How context ranks share each sequence; without an axis a rank holds all of it.

    Each rank gathers the keys and values of all positions. All ranks run one program, so that what a position must not
    see is computed and masked out.
    """

    axis: str | None = None
    """Mesh axis of the context ranks; None where there is one."""
    degree: int = 1

    def rows(self, table_TD: jax.Array, length: int) -> jax.Array:
        """Rows [length, D] of a table of positions, for as many positions as this rank holds."""
        if self.axis is None:
            return table_TD[:length]
        missing = max(0, length * self.degree - len(table_TD))
        rows_tD: jax.Array = jnp.pad(table_TD, ((0, missing), (0, 0)))[self._positions(length)]
        return rows_tD

    def attend(self, q_BtNH: jax.Array, k_BtNH: jax.Array, v_BtNH: jax.Array) -> jax.Array:
        """Causal attention of this rank's positions, to those of all ranks."""
        if self.axis is None:
            is_narrow = q_BtNH.dtype in (jnp.bfloat16, jnp.float16)
            fused: Literal["cudnn"] | None = "cudnn" if is_narrow and jax.default_backend() == "gpu" else None
            return jax.nn.dot_product_attention(q_BtNH, k_BtNH, v_BtNH, is_causal=True, implementation=fused)
        k_BTNH, v_BTNH = self._whole(jnp.stack((k_BtNH, v_BtNH)))
        queries_t, keys_T = self._positions(q_BtNH.shape[1]), jnp.arange(k_BTNH.shape[1])
        mask_11tT = (queries_t[:, None] >= keys_T)[None, None]
        return jax.nn.dot_product_attention(q_BtNH, k_BTNH, v_BTNH, mask=mask_11tT)

    def own_key(self, key: Any) -> Any:
        """A random key for the positions of this rank."""
        return key if self.axis is None else jax.random.fold_in(key, jax.lax.axis_index(self.axis))

    def _whole(self, own_2BtNH: jax.Array) -> jax.Array:
        shares_R2BtNH = jax.lax.all_gather(own_2BtNH, self.axis)
        early_R2BCNH, late_R2BCNH = jnp.split(shares_R2BtNH, 2, axis=3)
        return jnp.concatenate([*early_R2BCNH, *late_R2BCNH[::-1]], axis=2)

    def _positions(self, length: int) -> Any:
        size = length // 2
        pieces_R2 = jnp.array([pieces_of(rank, self.degree) for rank in range(self.degree)])
        own_2 = pieces_R2[jax.lax.axis_index(self.axis)]
        return (own_2[:, None] * size + jnp.arange(size)).reshape(-1)


UNSHARED = ContextSplit()
"""Each rank holds whole sequences."""
