"""Compresses gradients before they are sent, and keeps the residual for the next step."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from trainspec_reference.jax.layout import Shape
from trainspec_reference.jax.mesh import COPY_AXES
from trainspec_validate.documents.types.communication import Compression

METHODS = ("none", "bf16", "fp16", "top-k", "power-sgd")
_CASTS = {"bf16": jnp.bfloat16, "fp16": jnp.float16}
_DEFAULT_DENSITY = 0.01
_DEFAULT_RANK = 4

Sent = tuple[jax.Array, jax.Array, jax.Array]
"""Sum over the data ranks of what each has sent, what this rank has sent of it, and the next basis."""


class Carried(NamedTuple):
    """State that one step of compression passes to the next one."""

    residual: Any
    """Error-feedback residual of this rank: gradients that it has not sent yet."""
    basis: Any
    """Right factors of PowerSGD."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A parameter that is sent as two thin factors: its place in the vector, and its axes as a matrix."""

    begin: int
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Compressor:
    """One method with its settings, for vectors of one layout.

    Raises:
        ValueError: the plan asks for a method that this trainer does not have.
    """

    plan: Compression
    shapes: Mapping[str, Shape]
    """Parameters in their order in the vector."""

    def __post_init__(self) -> None:
        if self.plan.method not in METHODS:
            raise ValueError(f"compression by {self.plan.method} is not offered: one of {', '.join(METHODS)}")

    @property
    def rank(self) -> int:
        """Columns of a factor."""
        return self.plan.rank or _DEFAULT_RANK

    def first_basis(self, seed: int) -> npt.NDArray[np.float32]:
        """Right factors to begin with, equal on every rank; one spare entry, since an array of none has no blocks."""
        is_used = self.plan.method == "power-sgd"
        size = 1 + sum(matrix.columns * self.rank for matrix in self._matrices() if is_used)
        return np.random.default_rng(seed).standard_normal(size, dtype=np.float32)

    def send(self, vector_N: jax.Array, basis: jax.Array, total: Callable[[jax.Array], jax.Array]) -> Sent:
        """Exchange a compressed vector; `total` adds a dense one up over the data ranks."""
        match self.plan.method:
            case "bf16" | "fp16":
                of = jnp.finfo(_CASTS[self.plan.method])  # type: ignore[no-untyped-call]
                # Of a conversion and its way back XLA may leave out both, and the residual would be zero.
                narrow_N = jax.lax.reduce_precision(vector_N, of.nexp, of.nmant)
                return total(narrow_N.astype(of.dtype)).astype(vector_N.dtype), narrow_N, basis
            case "top-k":
                return *self._largest(vector_N), basis
            case "power-sgd":
                return self._factors(vector_N, basis, total)
            case _:
                return total(vector_N), vector_N, basis

    def exchange(self, vector_N: jax.Array, carried: Carried, starts: Any, total: Callable[[jax.Array], Any]) -> Any:
        """Sum of what the ranks send, and what is carried to the next step.

        Nothing is lost: what is sent and the residual that stays add up to the gradient and the residual before it.
        Until `starts` is true the vector goes as it is.
        """
        if self.plan.error_feedback:
            vector_N = vector_N + carried.residual

        def dense() -> Sent:
            return total(vector_N), vector_N, carried.basis

        def compressed() -> Sent:
            return self.send(vector_N, carried.basis, total)

        whole_N, sent_N, basis = jax.lax.cond(starts, compressed, dense)
        residual_N = vector_N - sent_N if self.plan.error_feedback else carried.residual
        return whole_N, Carried(residual_N, basis)

    def _largest(self, vector_N: jax.Array) -> tuple[jax.Array, jax.Array]:
        count = max(1, math.ceil((self.plan.density or _DEFAULT_DENSITY) * vector_N.size))
        _, places_K = jax.lax.top_k(jnp.abs(vector_N), count)
        entries_K = vector_N[places_K]
        all_places = jax.lax.all_gather(places_K, COPY_AXES, tiled=True)
        all_entries = jax.lax.all_gather(entries_K, COPY_AXES, tiled=True)
        nothing_N = jnp.zeros_like(vector_N)
        return nothing_N.at[all_places].add(all_entries), nothing_N.at[places_K].set(entries_K)

    def _factors(self, vector_N: jax.Array, basis: jax.Array, total: Callable[[jax.Array], jax.Array]) -> Sent:
        """One step of a power iteration for each matrix; vectors travel whole. Source: arXiv:1905.13727."""
        whole, sent, bases, offset = total(self._without_matrices(vector_N)), vector_N, [], 0
        for matrix in self._matrices():
            place = slice(matrix.begin, matrix.begin + matrix.rows * matrix.columns)
            own_MN = vector_N[place].reshape(matrix.rows, matrix.columns)
            right_NR = basis[offset : offset + matrix.columns * self.rank].reshape(matrix.columns, self.rank)
            left_MR, _ = jnp.linalg.qr(total((own_MN @ right_NR).reshape(-1)).reshape(matrix.rows, self.rank))
            own_right_NR = own_MN.T @ left_MR
            sum_right_NR = total(own_right_NR.reshape(-1)).reshape(own_right_NR.shape)
            whole = whole.at[place].set((left_MR @ sum_right_NR.T).reshape(-1))
            sent = sent.at[place].set((left_MR @ own_right_NR.T).reshape(-1))
            bases.append(sum_right_NR.reshape(-1))
            offset += matrix.columns * self.rank
        return whole, sent, jnp.concatenate([*bases, basis[offset:]])

    def _without_matrices(self, vector_N: jax.Array) -> jax.Array:
        for matrix in self._matrices():
            vector_N = vector_N.at[matrix.begin : matrix.begin + matrix.rows * matrix.columns].set(0)
        return vector_N

    def _matrices(self) -> list[Matrix]:
        found, begin = [], 0
        for shape in self.shapes.values():
            rows, columns = math.prod(shape[:-1]), shape[-1]
            if len(shape) > 1 and 2 * self.rank * (rows + columns) < rows * columns:
                found.append(Matrix(begin, rows, columns))
            begin += math.prod(shape)
        return found
