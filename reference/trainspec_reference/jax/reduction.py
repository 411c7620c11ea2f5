"""Sums vectors over the copies: in one call, round a ring, up a tree, or by hosts first."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from trainspec_reference.jax.mesh import COPY_AXES, LOCAL_AXES
from trainspec_validate.documents.types.communication import Communication

Sum = Callable[[jax.Array], Any]
"""Sum over the copies of a vector that each of them holds; the same on each."""


def algorithm_of(communication: Communication | None, num_bytes: int) -> str:
    """The plan's choice for an all-reduce of gradients of that size.

    Raises:
        ValueError: the plan names one that this trainer does not have.
    """
    if communication is None:
        return "automatic"
    for choice in communication.collectives:
        if choice.operation != "all-reduce" or choice.axis != "data":
            continue
        if choice.min_bytes <= num_bytes and (choice.max_bytes is None or num_bytes < choice.max_bytes):
            if choice.algorithm not in _SUMS:
                raise ValueError(f"all-reduce by {choice.algorithm} is not offered with JAX: one of {', '.join(_SUMS)}")
            return choice.algorithm
    return "hierarchical" if communication.hierarchical_reduction else "automatic"


def summed(vector_N: jax.Array, algorithm: str) -> Any:
    """Sum over the copies by the algorithm; inside of a mapped function."""
    return _SUMS[algorithm](vector_N)


def num_ranks() -> int:
    """Ranks of the mesh that hold the same parameters; inside of a mapped function."""
    return int(jax.lax.axis_size(COPY_AXES))


def _at_once(vector_N: jax.Array) -> Any:
    return jax.lax.psum(vector_N, COPY_AXES)


def _by_hosts(vector_N: jax.Array) -> Any:
    """Reduce-scatter inside the host, all-reduce between hosts, all-gather inside the host."""
    size, local = vector_N.size, int(jax.lax.axis_size(LOCAL_AXES))
    padded_N = jnp.pad(vector_N, (0, -size % local))
    share_M = jax.lax.psum_scatter(padded_N, LOCAL_AXES, scatter_dimension=0, tiled=True)
    return jax.lax.all_gather(jax.lax.psum(share_M, "host"), LOCAL_AXES, tiled=True)[:size]


def _round_a_ring(vector_N: jax.Array) -> jax.Array:
    """Reduce-scatter and all-gather, each in one step less than there are ranks; every step moves one share."""
    ranks, size = num_ranks(), vector_N.size
    onwards = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    own = jax.lax.axis_index(COPY_AXES)
    shares_RM = jnp.pad(vector_N, (0, -size % ranks)).reshape(ranks, -1)
    for step in range(ranks - 1):
        received_M = jax.lax.ppermute(shares_RM[(own - step) % ranks], COPY_AXES, onwards)
        shares_RM = shares_RM.at[(own - step - 1) % ranks].add(received_M)
    for step in range(ranks - 1):
        received_M = jax.lax.ppermute(shares_RM[(own + 1 - step) % ranks], COPY_AXES, onwards)
        shares_RM = shares_RM.at[(own - step) % ranks].set(received_M)
    return shares_RM.reshape(-1)[:size]


def _up_a_tree(vector_N: jax.Array) -> jax.Array:
    """Sum up a binomial tree to rank 0, and back down; twice the logarithm of the ranks in steps."""
    ranks, own = num_ranks(), jax.lax.axis_index(COPY_AXES)
    distances = [2**level for level in range((ranks - 1).bit_length())]
    for distance in distances:
        pairs = [(rank + distance, rank) for rank in range(0, ranks - distance, 2 * distance)]
        vector_N = vector_N + jax.lax.ppermute(vector_N, COPY_AXES, pairs)
    for distance in reversed(distances):
        pairs = [(rank, rank + distance) for rank in range(0, ranks - distance, 2 * distance)]
        received_N = jax.lax.ppermute(vector_N, COPY_AXES, pairs)
        vector_N = jnp.where(own % (2 * distance) == distance, received_N, vector_N)
    return vector_N


_SUMS: dict[str, Sum] = {
    "automatic": _at_once,
    "direct": _at_once,
    "ring": _round_a_ring,
    "tree": _up_a_tree,
    "hierarchical": _by_hosts,
}
