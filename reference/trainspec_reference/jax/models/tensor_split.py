"""Passes activations between tensor ranks: whole on each rank, or split along the sequence."""

# ruff: noqa: N803 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

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
        """All positions but the padding; each rank goes on with the same."""
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
