"""Shares the positions of a sequence among context ranks, and lets each attend to all of them."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from trainspec_reference.common.sequences import pieces_of


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
