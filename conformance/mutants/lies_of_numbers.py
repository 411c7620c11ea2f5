"""Mutants of the numbers that a stack computes: gradients, scales and plans."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
from registry import mutant
from trainspec_conformance.testbed import probe_arithmetic
from trainspec_conformance.testbed.plain import backend, compression, exchange, formats, optimizer, probes, reduction
from trainspec_conformance.testbed.plain.backend import PlainBackend
from trainspec_conformance.testbed.plain.compression import GradientCompressor
from trainspec_conformance.testbed.probe_parts import Formats
from trainspec_reference.common import batch_schedule, state
from trainspec_reference.common.backend import Gradients, MicroBatch
from trainspec_reference.common.batch_schedule import LearningRates, StepBatch
from trainspec_reference.common.noise_scale import NoiseAverages, NoiseMeter

from trainspec_record.noise import Norms
from trainspec_validate.documents.types.precision import LossScaling
from trainspec_validate.performance.costs import elastic, transformer

LAYOUT = "another layout adds in another order there"
TRAINED = "the same compressor is trained with there"


@mutant("averages-ratios", "TS-CNF-201", "Averages the ratio of noise and signal.",
        also={"TS-CNF-202": "the noise scale is read there too"})  # fmt: skip
def averages_ratios() -> None:
    after, ratios = NoiseAverages.after, [0.0]

    def noting(self: NoiseAverages, signal_sq: float, noise_trace: float) -> NoiseAverages:
        ratios.append(noise_trace / signal_sq if signal_sq > 0 else 0.0)
        return after(self, signal_sq, noise_trace)

    NoiseAverages.after = noting  # type: ignore[method-assign]
    NoiseAverages.noise_scale = property(lambda self: sum(ratios) / len(ratios))  # type: ignore[method-assign, assignment]


@mutant("makes-up-variance", "TS-CNF-201", "Reports a tenth of the squared norm as gradient variance.",
        also={"TS-CNF-202": "readings are compared too", "TS-CNF-203": "readings are compared too"})  # fmt: skip
def makes_up_variance() -> None:
    class MadeUp(NoiseMeter):
        def norms(self, gradients: Gradients) -> Any:
            return SimpleNamespace(signal_sq=0.9 * gradients.norm**2, noise_trace=0.1 * gradients.norm**2)

    probe_arithmetic.NoiseMeter = MadeUp  # type: ignore[misc]


@mutant("unweighted-groups", "TS-CNF-202", "Takes groups of gradients for equally large.")
def unweighted_groups() -> None:
    class Even(NoiseMeter):
        def norms(self, gradients: Gradients) -> Norms | None:
            sizes = gradients.group_sizes
            return NoiseMeter.norms(self, replace(gradients, group_sizes=(fmean(sizes),) * len(sizes)))  # type: ignore[arg-type]

    probe_arithmetic.NoiseMeter = Even  # type: ignore[misc]


@mutant("measures-scaled", "TS-CNF-203", "Leaves the loss scale in the gradients whose noise it measures.")
def measures_scaled() -> None:
    measured = probes.BackendProbes.group_squared_norms

    def scaled(self: probes.BackendProbes, terms: Sequence[Any], weights: Sequence[float], of: Formats) -> list[float]:
        return measured(self, terms, [weight / sum(weights) for weight in weights], of)

    probes.BackendProbes.group_squared_norms = scaled  # type: ignore[method-assign]


@mutant("averages-of-averages", "TS-CNF-204", "Averages the means of its ranks, however many targets each has.",
        also={"TS-CNF-127": LAYOUT, "TS-CNF-205": LAYOUT, "TS-CNF-207": "ranks have unequal shares there",
              "TS-CNF-311": "ranks have unequal shares there",
              "TS-CNF-316": "a loss is made larger by the weight of its targets there"})  # fmt: skip
def averages_of_averages() -> None:
    gradients = PlainBackend.gradients

    def of_means(self: PlainBackend, micro_batches: Sequence[MicroBatch], **more: Any) -> Gradients:
        mine = sum(batch.num_targets for batch in micro_batches)
        more["num_targets"] = mine * self._formation.num_ranks
        return gradients(self, micro_batches, **more)

    PlainBackend.gradients = of_means  # type: ignore[method-assign]


@mutant("rate-follows-ranks", "TS-CNF-205", "Takes a larger learning rate where more ranks train.",
        also={"TS-CNF-127": "the number of ranks changes", "TS-CNF-314": "the number of ranks changes"})  # fmt: skip
def rate_follows_ranks() -> None:
    at = LearningRates.at

    def follows(self: LearningRates, update: int, step: StepBatch, noise_sequences: float | None) -> float:
        return at(self, update, step, noise_sequences) * int(os.environ.get("WORLD_SIZE", "1"))

    LearningRates.at = follows  # type: ignore[method-assign]


@mutant("powers-of-two", "TS-CNF-206", "Knows powers of two alone.")
def powers_of_two() -> None:
    degrees = elastic.data_degrees

    def few(sequences: int, micros: Sequence[int], bounds: elastic.Bounds) -> list[int]:
        return [one for one in degrees(sequences, micros, bounds) if one & (one - 1) == 0]

    elastic.data_degrees = few


@mutant("even-shares", "TS-CNF-207", "Shares samples evenly, and reports no rank as slow.",
        also={"TS-CNF-117": "the slow rank is to be reported there"})  # fmt: skip
def even_shares() -> None:
    fitted = batch_schedule.fitted

    def even(sequences: int, speeds: tuple[float, ...]) -> tuple[int, ...]:
        return fitted(sequences, (1.0,) * len(speeds))

    batch_schedule.fitted = even


@mutant("forgets-residual", "TS-CNF-208", "Compresses without error feedback.", also={"TS-CNF-211": TRAINED})
def forgets_residual() -> None:
    encoded = GradientCompressor.encoded

    def forgetful(self: GradientCompressor, vector: Any) -> bytes:
        self.residual = np.zeros_like(self.residual)
        payload = encoded(self, vector)
        self.residual = np.zeros_like(self.residual)
        return payload

    GradientCompressor.encoded = forgetful  # type: ignore[method-assign]


def _upwards(values: Any, number_format: str, random: np.random.Generator) -> Any:
    exact = values.astype(np.float32)
    return ((exact.view(np.uint32) + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)


@mutant("rounds-away", "TS-CNF-209", "Rounds away from zero where it is asked to round by chance.")
def rounds_away() -> None:
    probes.stochastically_rounded = _upwards


@mutant("sends-the-first", "TS-CNF-210", "Sends the first entries, and not the largest.", also={"TS-CNF-211": TRAINED})
def sends_the_first() -> None:
    def first(values: Any, kth: int) -> Any:
        return np.arange(len(values)) if kth else np.argsort(values)

    class Numbers:
        argpartition = staticmethod(first)

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

    payload = GradientCompressor._payload

    def of_the_first(self: GradientCompressor, vector: Any) -> bytes:
        compression.np = Numbers()  # type: ignore[assignment]
        return payload(self, vector)

    GradientCompressor._payload = of_the_first  # type: ignore[method-assign]


@mutant("counts-values-alone", "TS-CNF-212", "Leaves the places of numbers out of its count of bytes.")
def counts_values_alone() -> None:
    sent = probes._Compressor.sent

    def values_alone(self: probes._Compressor, gradient: Any) -> tuple[Any, int]:
        found, num_bytes = sent(self, gradient)
        return found, num_bytes // 2

    probes._Compressor.sent = values_alone  # type: ignore[method-assign]


@mutant("never-tolerates", "TS-CNF-213", "Backs the loss scale off at each overflow, also where one is tolerated.")
def never_tolerates() -> None:
    def at_once(self: state.LossScale, rule: LossScaling) -> state.LossScale:
        return state.LossScale(max(self.scale * (rule.backoff_factor or 0.5), rule.min_scale or 1.0))

    state.LossScale._overflown = at_once  # type: ignore[method-assign]


@mutant("reduces-in-bf16", "TS-CNF-214", "Adds gradients up in bf16, and says fp32.",
        also={"TS-CNF-204": "sums differ by layout", "TS-CNF-127": LAYOUT, "TS-CNF-205": LAYOUT, "TS-CNF-314": LAYOUT,
              "TS-CNF-203": "the mean gradient is coarser than its groups", "TS-CNF-207": LAYOUT,
              "TS-CNF-201": "the mean gradient is coarse", "TS-CNF-202": "the mean gradient is coarse"})  # fmt: skip
def reduces_in_bf16() -> None:
    summed = formats.summed

    def coarsely(parts: Sequence[Any], number_format: str) -> Any:
        return summed(parts, "bf16")

    for module in (backend, exchange, probes, reduction):
        module.summed = coarsely  # type: ignore[attr-defined]


@mutant("loses-small-updates", "TS-CNF-215", "Rounds parameters to the nearest number, and says by chance.")
def loses_small_updates() -> None:
    def nearest(values: Any, number_format: str, random: np.random.Generator) -> Any:
        return formats.rounded(values, number_format)

    optimizer.stochastically_rounded = nearest


@mutant("counts-all-experts", "TS-CNF-218", "Counts experts that a token does not visit.")
def counts_all_experts() -> None:
    transformer.Parameters.active = property(lambda self: self.total)  # type: ignore[method-assign, assignment]
