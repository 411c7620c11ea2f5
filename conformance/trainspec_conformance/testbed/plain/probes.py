"""Shows the arithmetic of the plain backend to a probe."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from trainspec_reference.common.job import Job

from trainspec_conformance.testbed.plain import memory
from trainspec_conformance.testbed.plain.compression import GradientCompressor
from trainspec_conformance.testbed.plain.formats import rounded, stochastically_rounded, summed
from trainspec_conformance.testbed.plain.narrow import narrowed
from trainspec_conformance.testbed.plain.optimizer import stored
from trainspec_conformance.testbed.plain.reduction import group_squared_norm
from trainspec_conformance.testbed.probe_parts import Compressor, Formats, Machine, UnsupportedError
from trainspec_validate.documents.types.communication import Compression
from trainspec_validate.documents.types.precision import LowPrecisionRecipe

Array = npt.NDArray[Any]


_WORK = np.ones((512, 512), np.float32)


class BackendProbes(Machine):
    """As `common.probe_parts.Probes`."""

    def reduced(self, terms: Sequence[Sequence[Array]], formats: Formats) -> Array:
        """As `Probes.reduced`."""
        of_ranks = [
            summed([rounded(term, formats.gradients) for term in of_rank], formats.accumulation) for of_rank in terms
        ]
        return summed(of_ranks, formats.reduction)

    def group_squared_norms(self, terms: Sequence[Array], weights: Sequence[float], formats: Formats) -> list[float]:
        """As `Probes.group_squared_norms`."""
        return [
            group_squared_norm(rounded(term, formats.gradients), weight)
            for term, weight in zip(terms, weights, strict=True)
        ]

    def compressor(self, settings: Compression, shape: tuple[int, ...]) -> Compressor:
        """As `Probes.compressor`."""
        try:
            return _Compressor(GradientCompressor(settings, int(np.prod(shape))))
        except ValueError as error:
            raise UnsupportedError(str(error)) from error

    def rounded(self, values: Array, number_format: str, rounding: str, random: np.random.Generator) -> Array:
        """As `Probes.rounded`."""
        try:
            if rounding == "stochastic":
                return stochastically_rounded(values, number_format, random)
            return rounded(values, number_format)
        except ValueError as error:
            raise UnsupportedError(str(error)) from error

    def updated(self, values: Array, increment: float, number_format: str, rounding: str, seed: int) -> Array:
        """As `Probes.updated`."""
        try:
            return stored(values + np.float32(increment), number_format, rounding, np.random.default_rng(seed))
        except ValueError as error:
            raise UnsupportedError(str(error)) from error

    def narrowed(self, values: Array, recipe: LowPrecisionRecipe) -> tuple[Array, Array]:
        """As `Machine.narrowed`."""
        try:
            return narrowed(values, recipe)
        except ValueError as error:
            raise UnsupportedError(str(error)) from error

    def peak_bytes(self) -> int:
        """As `Machine.peak_bytes`: every array of numpy is counted, and every object of Python."""
        if not tracemalloc.is_tracing():
            tracemalloc.start()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        return peak

    def predicted_bytes(self, job: Job) -> int:
        """As `Machine.predicted_bytes`."""
        return memory.predicted_bytes(job)

    def work(self) -> None:
        """As `Machine.work`."""
        _WORK @ _WORK


class _Compressor:
    def __init__(self, inner: GradientCompressor) -> None:
        self._inner = inner

    def sent(self, gradient: Array) -> tuple[Array, int]:
        """As `Compressor.sent`."""
        payload = self._inner.encoded(gradient.ravel().astype(np.float32))
        self._inner.commit()
        return self._inner.decoded(payload), len(payload)

    @property
    def residual(self) -> Array:
        """As `Compressor.residual`."""
        return self._inner.residual
