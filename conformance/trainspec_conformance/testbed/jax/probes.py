"""Shows the arithmetic of the JAX backend to a probe."""

# ruff: noqa: N803, N806 - shapes stand in names: R ranks, N entries

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import AxisType, Mesh, PartitionSpec
from trainspec_reference.common.job import Job
from trainspec_reference.jax import compression
from trainspec_reference.jax.arithmetic import FORMATS, squared_norm
from trainspec_reference.jax.compression import Carried
from trainspec_reference.jax.exchange import summed
from trainspec_reference.jax.mesh import COPY_AXES

from trainspec_conformance.testbed.jax import narrow
from trainspec_conformance.testbed.jax.memory import ProgramMemory, predicted_bytes
from trainspec_conformance.testbed.probe_parts import Compressor, Formats, Machine, UnsupportedError
from trainspec_validate.documents.types.communication import Compression
from trainspec_validate.documents.types.precision import LowPrecisionRecipe

Array = npt.NDArray[Any]
_WIDE = ("fp32", "fp64")
_COLLECTIVES = ("psum", "all_gather", "all_to_all", "reduce_scatter", "ppermute")
MAX_RANKS = 16


class BackendProbes(Machine):
    """As `common.probe_parts.Probes`; ranks are devices of this process, over which the trainer's collectives run."""

    def __init__(self) -> None:
        self._memory: ProgramMemory | None = None
        """Counts from the first question on to the end of the process."""
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_x64", True)
        with contextlib.suppress(RuntimeError):  # JAX runs already, with the devices that it has
            jax.config.update("jax_num_cpu_devices", MAX_RANKS)

    def reduced(self, terms: Sequence[Sequence[Array]], formats: Formats) -> Array:
        """As `Probes.reduced`; gradients are added up over micro-batches in fp32, or in fp64."""
        if formats.accumulation not in _WIDE:
            raise UnsupportedError("gradients are added up over micro-batches in fp32, or in fp64")
        wide, narrow, own = _dtype(formats.accumulation), _dtype(formats.reduction), _dtype(formats.gradients)
        sums = []
        for of_rank in terms:
            total = jnp.zeros(len(of_rank[0]), wide)
            for term in of_rank:
                total = total + jnp.asarray(term).astype(own).astype(wide)
            sums.append(total)
        return np.asarray(_over_ranks(_sum(narrow, wide), len(sums))(jnp.stack(sums))[0])

    def group_squared_norms(self, terms: Sequence[Array], weights: Sequence[float], formats: Formats) -> list[float]:
        """As `Probes.group_squared_norms`."""
        own, wide = _dtype(formats.gradients), jnp.float32
        return [
            float(squared_norm(jnp.asarray(term).astype(own).astype(wide), wide)) / weight**2
            for term, weight in zip(terms, weights, strict=True)
        ]

    def compressor(self, settings: Compression, shape: tuple[int, ...]) -> Compressor:
        """As `Probes.compressor`."""
        try:
            return _Compressor(settings, shape)
        except ValueError as error:
            raise UnsupportedError(str(error)) from error

    def rounded(self, values: Array, number_format: str, rounding: str, random: np.random.Generator) -> Array:  # noqa: ARG002
        """As `Probes.rounded`."""
        if rounding != "nearest":
            raise UnsupportedError(f"{rounding} rounding is not here")
        return np.asarray(jnp.asarray(values).astype(_dtype(number_format)).astype(jnp.float64))

    def updated(self, values: Array, increment: float, number_format: str, rounding: str, seed: int) -> Array:  # noqa: ARG002
        """As `Probes.updated`."""
        if rounding != "nearest":
            raise UnsupportedError("parameters are rounded to nearest")
        changed = jnp.asarray(values, jnp.float32) + jnp.float32(increment)
        return np.asarray(changed.astype(_dtype(number_format)).astype(jnp.float32))

    def narrowed(self, values: Array, recipe: LowPrecisionRecipe) -> tuple[Array, Array]:
        """As `Machine.narrowed`, by what the matrices of layers go through in `NarrowBackend`."""
        try:
            found, scales = narrow.narrowed(jnp.asarray(values, dtype=jnp.float32), recipe)
        except ValueError as error:
            raise UnsupportedError(str(error)) from error
        return np.asarray(found), np.asarray(scales)

    def peak_bytes(self) -> int:
        """As `Machine.peak_bytes`: what lives is counted, with what XLA allocates for each program that runs."""
        if self._memory is None:
            self._memory = ProgramMemory()
            self._memory.begin()
        return self._memory.take_peak()

    def predicted_bytes(self, job: Job) -> int:
        """As `Machine.predicted_bytes`."""
        return predicted_bytes(job)

    def work(self) -> None:
        """As `Machine.work`."""
        values = jnp.ones((512, 512), jnp.float32)
        (values @ values).block_until_ready()


class _Compressor:
    """One tensor's exchange, in a formation of one rank: what it receives is what it sent."""

    def __init__(self, settings: Compression, shape: tuple[int, ...]) -> None:
        self._exchange, self._num_bytes, first = _exchange(settings, shape)
        self._carried = jax.tree.map(lambda one: one[None], first)

    def sent(self, gradient: Array) -> tuple[Array, int]:
        """As `Compressor.sent`; bytes are those of what is handed to collective operations."""
        whole_RN, self._carried = self._exchange(jnp.asarray(gradient.reshape(1, -1), jnp.float32), self._carried)
        return np.asarray(whole_RN[0]), self._num_bytes

    @property
    def residual(self) -> Array:
        """As `Compressor.residual`."""
        return np.asarray(self._carried.residual[0])


@cache
def _exchange(settings: Compression, shape: tuple[int, ...]) -> tuple[Callable[..., Any], int, Carried]:
    """The exchange of a tensor on one rank, its bytes, and what is carried into its first step."""
    inner = compression.Compressor(settings, {"tensor": shape})
    nothing_N = jnp.zeros(math.prod(shape), jnp.float32)
    first = Carried(nothing_N, jnp.asarray(inner.first_basis(0)))

    def run(vector_N: jax.Array, carried: Carried) -> Any:
        return inner.exchange(vector_N, carried, jnp.bool_(True), _total)

    def send(vector_N: jax.Array) -> Any:
        return inner.send(vector_N, first.basis, _total)

    return _over_ranks(run, 1), _handed_bytes(send, nothing_N), first


@cache
def _sum(narrow: Any, wide: Any) -> Callable[[jax.Array], Any]:
    return lambda own_N: summed(own_N.astype(narrow), "automatic").astype(wide)


def _total(vector_N: jax.Array) -> Any:
    return summed(vector_N, "automatic")


@cache
def _over_ranks(body: Callable[..., Any], num_ranks: int) -> Callable[..., Any]:
    """The body as a function of the rows of all ranks."""
    if num_ranks > len(jax.devices()):
        raise UnsupportedError(f"{num_ranks} ranks are more than the {len(jax.devices())} devices of this process")
    mesh = Mesh(np.array(jax.devices()[:num_ranks]).reshape(1, -1, 1), COPY_AXES, axis_types=(AxisType.Auto,) * 3)

    def rows(*blocks: Any) -> Any:
        found = body(*jax.tree.map(lambda block: block[0], blocks))
        return jax.tree.map(lambda value: value[None], found)

    spec = PartitionSpec(COPY_AXES)
    return jax.jit(jax.shard_map(rows, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))


def _handed_bytes(body: Callable[..., Any], *values: Any) -> int:
    """Bytes of all operands of collective operations."""
    traced = jax.make_jaxpr(body, axis_env=[(axis, 1) for axis in COPY_AXES])(*values)
    return sum(
        int(operand.aval.size) * operand.aval.dtype.itemsize
        for equation in traced.jaxpr.eqns
        if equation.primitive.name in _COLLECTIVES
        for operand in equation.invars
    )


def _dtype(number_format: str) -> Any:
    try:
        return FORMATS[number_format]
    except KeyError:
        raise UnsupportedError(f"{number_format} is none of {', '.join(FORMATS)}") from None
