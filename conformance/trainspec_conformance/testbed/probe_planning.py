"""Answers a probe with the plans of the trainer: world sizes, shares and operations."""

from __future__ import annotations

from typing import Any

from trainspec_reference.common import batch_schedule
from trainspec_reference.common.telemetry import flops_per_token

from trainspec_conformance.testbed.probe_arrays import ProbeInputError, Request
from trainspec_conformance.testbed.probe_parts import UnsupportedError
from trainspec_validate.documents.types.batch import Batch, ElasticBatch
from trainspec_validate.documents.types.model import Model
from trainspec_validate.performance.costs import elastic as solver
from trainspec_validate.performance.costs import transformer
from trainspec_validate.performance.derived.plan import shape_of


def elastic(request: Request) -> dict[str, Any]:
    """World sizes at which a batch can be had exactly, or the shares of workers by their speeds."""
    sequences = request.get("global_sequences", int)
    try:
        if "speeds" in request.values:
            return {"shares": list(batch_schedule.fitted(sequences, tuple(request.get("speeds", list[float]))))}
        micros = request.get("micro_sequences", list[int])
        bounds = solver.Bounds(
            request.get("min_accelerators", int),
            request.get("max_accelerators", int),
            request.get("model_parallel", int, 1),
            request.get("ranks_per_node", int, 1),
        )
        degrees = solver.data_degrees(sequences, micros, bounds)
    except ValueError as error:
        raise ProbeInputError(str(error)) from error
    chosen = [_scale(sequences, micros, degree, bounds.model_parallel) for degree in degrees]
    return {"world_sizes": [scale["world_size"] for scale in chosen], "scales": chosen}


def _scale(sequences: int, micros: list[int], degree: int, model_parallel: int) -> dict[str, int]:
    """How the loop runs a batch on so many data ranks."""
    allowed = ElasticBatch(data_degrees=(degree,), micro_sequences=tuple(micros))
    batch = Batch(global_sequences=sequences, micro_sequences=micros[0], accumulation_steps=1, elastic=allowed)
    micro = batch_schedule.micro_sequences(batch, sequences, degree)
    share = batch_schedule.shares(batch, sequences, degree)[0]
    return {
        "world_size": degree * model_parallel,
        "data": degree,
        "micro_sequences": micro,
        "accumulation_steps": share // micro,
    }


def flops(request: Request) -> dict[str, Any]:
    """Operations of one token, forward and backward, as telemetry counts them."""
    model, convention = request.record("model", Model), request.get("convention", str)
    shape, length = shape_of(model), request.get("sequence_length", int, model.sequence_length or 0)
    if shape is None:
        raise UnsupportedError("operations are counted of transformers whose shape is complete")
    try:
        per_token = flops_per_token(model, convention, length)
    except ValueError as error:
        raise UnsupportedError(str(error)) from error
    counted = transformer.parameters(shape)
    return {"flops_per_token": per_token, "num_parameters": counted.total, "num_active_parameters": counted.active}
