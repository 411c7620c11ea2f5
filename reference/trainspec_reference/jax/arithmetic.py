"""Gives each class of tensor its number format, from the plan's precision."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from trainspec_validate.documents.types.precision import Precision

FORMATS: dict[str, Any] = {
    "fp64": jnp.float64,
    "fp32": jnp.float32,
    "tf32": jnp.float32,
    "bf16": jnp.bfloat16,
    "fp16": jnp.float16,
}


@dataclass(frozen=True, slots=True)
class Formats:
    """Number formats of the classes of tensor; norms, softmax, the loss and the residual stream stay wide.

    Raises:
        ValueError: the plan asks for a format that this trainer does not have.
    """

    compute: Any
    """Operands of matrix products and convolutions."""
    wide: Any
    """Norms, softmax, loss and sums."""
    parameters: Any
    """Parameters as the optimizer updates them."""
    optimizer: Any
    """Moments."""
    reduction: Any
    """Sum over data ranks."""

    @staticmethod
    def of(precision: Precision) -> Formats:
        """Formats of a plan."""
        if precision.recipe is not None:
            raise ValueError(f"products in {precision.recipe.format} are not offered")
        wanted = {
            "compute": precision.compute,
            "parameters": precision.master_parameters or precision.parameters,
            "optimizer": precision.optimizer_state or "fp32",
            "reduction": precision.reduction,
        }
        for name, word in wanted.items():
            if word not in FORMATS:
                raise ValueError(f"{name} in {word} is not offered: one of {', '.join(FORMATS)}")
        wide = jnp.float64 if precision.compute == "fp64" else jnp.float32
        return Formats(**{name: FORMATS[word] for name, word in wanted.items()}, wide=wide)

    def product(self, left: jax.Array, right: jax.Array) -> jax.Array:
        """Matrix product in the compute format."""
        return left.astype(self.compute) @ right.astype(self.compute)

    def projected(self, left: jax.Array, matrix: jax.Array) -> jax.Array:
        """Product with a matrix of a layer."""
        return self.product(left, matrix)


def configure(precision: Precision, device: str) -> None:
    """Settings of the process that formats and device need, before JAX computes anything."""
    # State is stored from the host's memory, so that a device needs the platform of the host beside its own.
    jax.config.update("jax_platforms", device if device == "cpu" else f"{device},cpu")
    # A worker that is started anew needs memory of the device before the one that it replaces has given its own back.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if precision.deterministic and device != "cpu":
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()  # read with the first device
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_enable_x64", precision.compute == "fp64")
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if precision.compute == "tf32" else "highest")


def squared_norm(entries: jax.Array, wide: Any, weights: jax.Array | None = None) -> jax.Array:
    """Sum of squares, each weighted, in two stages, so that the error of a long sum stays small."""
    squares = jnp.square(entries.reshape(-1).astype(wide))
    if weights is not None:
        squares = squares * weights.reshape(-1)
    return jnp.sum(jnp.sum(jnp.pad(squares, (0, -squares.size % 1024)).reshape(-1, 1024), axis=1))
