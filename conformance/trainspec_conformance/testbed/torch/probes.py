"""Shows the arithmetic of the PyTorch backend to a probe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]
from trainspec_reference.common.job import Job
from trainspec_reference.torch.compression import Feedback, make_compressor
from trainspec_reference.torch.exchange import make_buckets
from trainspec_reference.torch.flat import FlatBuffers
from trainspec_reference.torch.parts import Region
from trainspec_reference.torch.precision import DTYPES
from trainspec_reference.torch.state import squared_norm

from trainspec_conformance.testbed import resident
from trainspec_conformance.testbed.probe_parts import Compressor, Formats, Machine, UnsupportedError
from trainspec_conformance.testbed.torch import floors, memory, narrow
from trainspec_validate.documents.types.communication import Compression
from trainspec_validate.documents.types.precision import LowPrecisionRecipe

Array = npt.NDArray[Any]


class BackendProbes(Machine):
    """As `common.probe_parts.Probes`."""

    def __init__(self) -> None:
        self._live: memory.LiveTensors | None = None
        """Counts from the first question on to the end of the process."""

    def reduced(self, terms: Sequence[Sequence[Array]], formats: Formats) -> Array:
        """As `Probes.reduced`; gradients are added up, over micro-batches and ranks, in the parameters' format."""
        wide = _dtype(formats.accumulation)
        if {formats.accumulation, formats.reduction} - {"fp32", "fp64"} or formats.accumulation != formats.reduction:
            raise UnsupportedError("gradients are added up in fp32, or in fp64, over micro-batches and ranks alike")
        total = torch.zeros(len(terms[0][0]), dtype=wide)
        for of_rank in terms:
            gradient = torch.zeros_like(total)
            for term in of_rank:
                gradient += torch.as_tensor(term).to(_dtype(formats.gradients))
            total += gradient
        return np.asarray(total.numpy())

    def group_squared_norms(self, terms: Sequence[Array], weights: Sequence[float], formats: Formats) -> list[float]:
        """As `Probes.group_squared_norms`."""
        gradients = [torch.as_tensor(term).to(_dtype(formats.gradients)).float() for term in terms]
        return [
            float(squared_norm([gradient])) / weight**2 for gradient, weight in zip(gradients, weights, strict=True)
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
        return np.asarray(torch.as_tensor(values).to(_dtype(number_format)).double().numpy())

    def updated(self, values: Array, increment: float, number_format: str, rounding: str, seed: int) -> Array:  # noqa: ARG002
        """As `Probes.updated`."""
        if number_format not in ("fp32", "fp64") or rounding != "nearest":
            raise UnsupportedError("parameters are updated in fp32 or fp64, rounded to nearest")
        return np.asarray((torch.as_tensor(values).to(_dtype(number_format)) + increment).numpy())

    def narrowed(self, values: Array, recipe: LowPrecisionRecipe) -> tuple[Array, Array]:
        """As `Machine.narrowed`, by what the matrices of layers go through in `NarrowBackend`."""
        try:
            found, scales = narrow.narrowed(torch.tensor(values, dtype=torch.float32), recipe)
        except ValueError as error:
            raise UnsupportedError(str(error)) from error
        return np.asarray(found), np.asarray(scales)

    def peak_bytes(self) -> int:
        """As `Machine.peak_bytes`: tensors are counted, as the allocator of a host counts nothing."""
        if self._live is None:
            self._live = memory.LiveTensors()
            self._live.__enter__()  # type: ignore[no-untyped-call]
        return self._live.take_peak()

    def predicted_bytes(self, job: Job) -> int:
        """As `Machine.predicted_bytes`: the tensors of a step, and the process as it is before its first."""
        tensors = memory.predicted_bytes(job)
        return tensors + resident.resident_bytes()

    def kernels(self) -> dict[str, Any]:
        """As `Machine.kernels`."""
        if not torch.cuda.is_available():
            raise UnsupportedError("kernels are measured on an accelerator, and this machine has none")
        return floors.measure(torch.device("cuda"))

    def device_uuid(self) -> str | None:
        """As `Machine.device_uuid`."""
        return f"GPU-{torch.cuda.get_device_properties().uuid}" if torch.cuda.is_available() else None

    def work(self) -> None:
        """As `Machine.work`."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        side = 8192 if device.type == "cuda" else 512
        values = torch.ones((side, side), device=device)
        (values @ values).sum().item()


class _Compressor:
    """One tensor's exchange, in a formation of one rank: what it receives is what it sent."""

    def __init__(self, settings: Compression, shape: tuple[int, ...]) -> None:
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        region = Region("tensor", shape, (0,) * len(shape), shape, is_owned=True)
        flat, self._num_updates = FlatBuffers({"tensor": nn.Parameter(torch.zeros(shape))}, {"tensor": region}), 0
        flat.renew_gradients()
        (self._bucket,) = make_buckets(flat, float("inf"))
        self._feedback = Feedback(settings, flat, lambda: self._num_updates)
        self._feedback.compressor = make_compressor(settings, flat, dist.group.WORLD)  # type: ignore[arg-type]
        self._num_entries = self._bucket.spans[0].stop

    def sent(self, gradient: Array) -> tuple[Array, int]:
        """As `Compressor.sent`."""
        self._bucket.gradient.copy_(torch.as_tensor(gradient).flatten())
        self._feedback.reduce(self._bucket, lambda _: None)
        self._feedback.commit()
        self._num_updates += 1
        compressor = self._feedback.compressor
        return self._bucket.gradient.numpy().copy(), compressor.num_sent_bytes if compressor else 0

    @property
    def residual(self) -> Array:
        """As `Compressor.residual`."""
        return self._feedback.residual[: self._num_entries].numpy().copy()


def _dtype(number_format: str) -> torch.dtype:
    try:
        return DTYPES[number_format]
    except KeyError:
        raise UnsupportedError(f"{number_format} is none of {', '.join(DTYPES)}") from None
