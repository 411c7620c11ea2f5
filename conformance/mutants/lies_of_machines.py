"""Mutants of declared training, narrow formats, memory, kernels and energy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from registry import mutant
from trainspec_conformance.testbed import probe_machine, probe_parts, probe_runs
from trainspec_conformance.testbed.plain import memory, narrow
from trainspec_conformance.testbed.plain.backend import PlainBackend
from trainspec_conformance.testbed.plain.compression import GradientCompressor
from trainspec_conformance.testbed.probe_arrays import Request
from trainspec_reference.common import data
from trainspec_reference.common.backend import Weights
from trainspec_reference.common.job import Job

from trainspec_record.node.source import Reading, Source
from trainspec_validate.documents import types as documents

DEVICE_JOULES_PER_SECOND = 400.0


@mutant("shuffles-anyway", "TS-CNF-315", "Shuffles samples that a task wants in order.")
def shuffles_anyway() -> None:
    ids = data.SampleOrder.ids

    def shuffled(self: data.SampleOrder, position: int, count: int) -> tuple[int, ...]:
        return ids(data.SampleOrder(self.num_samples, self.seed), position, count)

    data.SampleOrder.ids = shuffled  # type: ignore[method-assign]


@mutant("clips-by-default", "TS-CNF-316", "Clips gradients at norm 1 where no clipping is declared.")
def clips_by_default() -> None:
    update = PlainBackend.update

    def clipped(self: PlainBackend, learning_rate: float, clip_norm: float | None) -> None:
        update(self, learning_rate, 1.0 if clip_norm is None else clip_norm)

    PlainBackend.update = clipped  # type: ignore[method-assign]


@mutant("trains-without-feedback", "TS-CNF-211", "Forgets in training what its compressor has not sent.")
def trains_without_feedback() -> None:
    build = PlainBackend.build

    def forgetful(self: PlainBackend, weights: Weights) -> None:
        build(self, weights)
        if self._compressor is not None:
            settings = documents.changed(self._compressor._settings, error_feedback=False)
            self._compressor = GradientCompressor(settings, self._compressor.residual.size)

    PlainBackend.build = forgetful  # type: ignore[method-assign]


@mutant("scales-by-tensor", "TS-CNF-216", "Scales each block by the largest magnitude of the whole tensor.")
def scales_by_tensor() -> None:
    of_blocks = narrow._magnitudes

    def of_tensor(blocks_BE: Any) -> Any:  # noqa: N803 - B blocks, E entries
        return np.full(len(blocks_BE), of_blocks(blocks_BE).max())

    narrow._magnitudes = of_tensor


@mutant("predicts-state-alone", "TS-CNF-217", "Leaves what a layer keeps for its backward pass out of predictions.")
def predicts_state_alone() -> None:
    predicted = memory.predicted_bytes

    def state_alone(job: Job) -> int:
        memory._KEPT_OF_LAYER = 0
        return predicted(job)

    memory.predicted_bytes = state_alone


@mutant("keeps-every-gradient", "TS-CNF-222", "Keeps the gradient of each step.")
def keeps_every_gradient() -> None:
    taken, kept = PlainBackend._taken, []

    def keeping(self: PlainBackend) -> Any:
        kept.append(taken(self))
        return kept[-1].copy()

    PlainBackend._taken = keeping  # type: ignore[method-assign]


def _kernel(operation: str, dimensions: list[int], seconds: float) -> dict[str, Any]:
    return {"operation": operation, "dimensions": dimensions, "median_seconds": seconds}


@mutant("unfused-attention", "TS-CNF-220", "Computes attention with all scores in memory, at a tenth of the roofline.")
def unfused_attention() -> None:
    def kernels(self: probe_parts.Machine) -> dict[str, Any]:
        return {
            "format": "bfloat16",
            "num_warmup_runs": 50,
            "num_timed_runs": 100,
            "rooflines": [
                _kernel("roofline-matmul", [8192, 8192, 8192], 1.5e-3),
                _kernel("device-copy", [16384, 8192], 1.4e-4),
            ],
            "kernels": [
                _kernel("matmul", [8192, 4096, 12288], 1.2e-3),
                _kernel("attention", [2, 32, 4096, 128], 13e-3),
                _kernel("normalization", [16384, 8192], 1.8e-4),
                _kernel("activation", [16384, 8192], 1.6e-4),
            ],
        }

    probe_parts.Machine.kernels = kernels  # type: ignore[method-assign]


@mutant("replicates-anyway", "TS-CNF-224", "Takes a plan that shards its state, and keeps whole replicas.")
def replicates_anyway() -> None:
    made = probe_runs.sharded_job

    def whole(request: Request) -> Job:
        return made(Request(request.operation, {**request.values, "sharding": "none"}))

    probe_runs.sharded_job = whole


@mutant("zero-for-missing", "TS-CNF-223", "Writes a power of zero where the meter gave none.")
def zero_for_missing() -> None:
    began = time.monotonic()

    def read() -> Iterator[Reading]:
        passed = time.monotonic() - began
        is_missing = int(passed * 10) % 4 == 0
        watts = 0.0 if is_missing else DEVICE_JOULES_PER_SECOND
        yield Reading({"hw.energy{hw.type=gpu}": passed * DEVICE_JOULES_PER_SECOND, "hw.power{hw.type=gpu}": watts})

    def metered(_: str | None) -> tuple[Source, None]:
        return Source(frozenset({"device"}), read), None

    probe_machine._metered = metered
