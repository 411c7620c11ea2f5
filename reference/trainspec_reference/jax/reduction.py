"""Sums vectors over the copies: in one call, or inside each host first."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from trainspec_reference.jax.mesh import COPY_AXES, LOCAL_AXES


def summed(vector_N: jax.Array, algorithm: str) -> Any:
    """Sum over the copies by the algorithm, the same on each; inside of a mapped function."""
    return _by_hosts(vector_N) if algorithm == "hierarchical" else jax.lax.psum(vector_N, COPY_AXES)


def _by_hosts(vector_N: jax.Array) -> Any:
    """Reduce-scatter inside the host, all-reduce between hosts, all-gather inside the host."""
    size, local = vector_N.size, int(jax.lax.axis_size(LOCAL_AXES))
    padded_N = jnp.pad(vector_N, (0, -size % local))
    share_M = jax.lax.psum_scatter(padded_N, LOCAL_AXES, scatter_dimension=0, tiled=True)
    return jax.lax.all_gather(jax.lax.psum(share_M, "host"), LOCAL_AXES, tiled=True)[:size]
