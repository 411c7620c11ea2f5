"""Runs the arithmetic of a backend for a probe."""

# ruff: noqa: N803, N806 - shapes stand in names: S steps, G groups, R ranks, M micro-batches, C copies, E entries

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
from trainspec_reference.common.backend import Gradients
from trainspec_reference.common.noise_scale import NoiseAverages, NoiseMeter

from trainspec_conformance.testbed.probe_arrays import Array, ProbeInputError, Request
from trainspec_conformance.testbed.probe_parts import Formats, Probes, UnsupportedError
from trainspec_validate.documents.types.batch import NoiseScale
from trainspec_validate.documents.types.communication import Compression
from trainspec_validate.documents.types.precision import LowPrecisionRecipe


def noise(request: Request, probes: Probes) -> dict[str, Any]:
    """Signal and noise of groups of gradients, step by step, as the loop reads and averages them."""
    gradients_SGE, sizes = request.array("gradients", 3), request.get("group_sizes", list[int])
    if len(sizes) != gradients_SGE.shape[1] or min(sizes, default=0) < 1:
        raise ProbeInputError(f"{gradients_SGE.shape[1]} groups, but group_sizes is {sizes}")
    meter = _meter(request, len(sizes))
    averages, readings, norms = NoiseAverages(meter.settings.ema_half_life_steps), [], []
    for gradients_GE in gradients_SGE:
        known = _known(request, probes, gradients_GE, tuple(sizes))
        reading = meter.norms(known)
        readings.append(reading)
        norms.append(known.norm)
        averages = averages if reading is None else averages.after(reading.signal_sq, reading.noise_trace)
    return {
        "signal_sq": [reading and reading.signal_sq for reading in readings],
        "noise_trace": [reading and reading.noise_trace for reading in readings],
        "averages": {key: getattr(averages, key) for key in ("signal_sq", "noise_trace", "noise_scale")},
        "norms": request.written(np.array(norms)),
    }


def _meter(request: Request, num_groups: int) -> NoiseMeter:
    settings = NoiseScale(
        noise_unit="token",
        tap="after-unscale-before-clip",
        num_groups=num_groups,
        estimator="size-weighted",
        ema_half_life_steps=request.get("half_life_steps", float),
        bias_corrected=True,
    )
    return NoiseMeter(settings, sequence_length=1, micro_sequences=1)


def _known(request: Request, probes: Probes, gradients_GE: Array, sizes: tuple[int, ...]) -> Gradients:
    """What the loop would know of a step whose groups have these mean gradients."""
    scale = request.get("loss_scale", float, 1.0)
    weights = [scale * size / sum(sizes) for size in sizes]
    formats = Formats(gradients=request.get("gradient_format", str, "fp32"))
    terms = [gradient_E * weight for gradient_E, weight in zip(gradients_GE, weights, strict=True)]
    total_E = probes.reduced([[term] for term in terms], formats) / scale
    return Gradients(
        loss=0.0,
        norm=math.sqrt(float(np.square(total_E, dtype=np.float64).sum())),
        is_finite=bool(np.isfinite(total_E).all()),
        group_sizes=sizes,
        group_squared_norms=tuple(probes.group_squared_norms(terms, weights, formats)),
    )


def compress(request: Request, probes: Probes) -> dict[str, Any]:
    """Parts of a gradient that a compressor sends and keeps in each step."""
    gradients_SE, shape = request.array("gradients", 2), tuple(request.get("shape", list[int]))
    if math.prod(shape) != gradients_SE.shape[1]:
        raise ProbeInputError(f"shape {list(shape)} has not the {gradients_SE.shape[1]} entries of the gradients")
    settings, is_independent = request.record("compression", Compression), request.get("independent", bool, False)
    compressor = probes.compressor(settings, shape)
    sent, wire_bytes = [], []
    for gradient_E in gradients_SE:
        if is_independent:
            compressor = probes.compressor(settings, shape)
        found_E, num_bytes = compressor.sent(gradient_E.reshape(shape))
        sent.append(found_E.ravel())
        wire_bytes.append(num_bytes)
    return {
        "sent": request.written(np.array(sent)),
        "residual": request.written(compressor.residual.ravel()),
        "wire_bytes": wire_bytes,
        "dense_bytes": 4 * gradients_SE.shape[1],
    }


def quantise(request: Request, probes: Probes) -> dict[str, Any]:
    """Values rounded to a format, once or many times by chance."""
    values_E, random = request.array("values", 1), np.random.default_rng(request.get("seed", int, 0))
    number_format, rounding = request.get("format", str), request.get("rounding", str, "nearest")
    if "scaling" in request.values:
        return _narrowed(request, probes, values_E)
    draws = [probes.rounded(values_E, number_format, rounding, random) for _ in range(request.get("num_draws", int, 1))]
    return {"dequantised": request.written(np.array(draws)), "scales": [1.0]}


def _narrowed(request: Request, probes: Probes, values_E: Array) -> dict[str, Any]:
    """Values by a recipe, rounded to nearest: `scales` are those of the blocks, or of all values."""
    recipe = {key: request.values[key] for key in ("format", "scaling", "block_size") if key in request.values}
    if request.get("rounding", str, "nearest") != "nearest" or request.get("num_draws", int, 1) != 1:
        raise UnsupportedError("numbers below 16 bits are rounded to nearest alone")
    try:
        dequantised_E, scales = probes.narrowed(values_E, msgspec.convert(recipe, LowPrecisionRecipe))
    except msgspec.ValidationError as error:
        raise ProbeInputError(str(error)) from error
    return {"dequantised": request.written(dequantised_E[None]), "scales": request.written(scales)}


def reduce(request: Request, probes: Probes) -> dict[str, Any]:
    """Sum of gradients over ranks and micro-batches."""
    terms_RME = request.array("gradients", 3)
    formats = Formats(
        gradients=request.get("gradient_format", str, "fp32"),
        accumulation=request.get("accumulation_format", str, "fp32"),
        reduction=request.get("reduction_format", str, "fp32"),
    )
    return {"sum": request.written(probes.reduced([list(terms_ME) for terms_ME in terms_RME], formats))}


def stochastic_rounding(request: Request, probes: Probes) -> dict[str, Any]:
    """Many copies of one parameter after many small updates."""
    values_C = np.full(request.get("num_copies", int), request.get("start", float), np.float32)
    increment, seed = request.get("increment", float), request.get("seed", int, 0)
    number_format, rounding = request.get("format", str, "bf16"), request.get("rounding", str, "stochastic")
    for step in range(request.get("num_steps", int)):
        values_C = probes.updated(values_C, increment, number_format, rounding, seed + step)
    return {"values": request.written(values_C)}
