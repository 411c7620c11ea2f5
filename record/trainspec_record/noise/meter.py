"""Writes gradient noise into a stream, with the attributes that give a reading its meaning."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainspec_record.catalog import attributes, metrics
from trainspec_record.guard import never_raises, tell_once
from trainspec_record.noise.estimate import LEAST_STEPS, Averages, Interval, Norms, Reading

if TYPE_CHECKING:
    from trainspec_record.recording import Run
    from trainspec_record.silent import SilentRun

MOST_STEPS = 20
"""Readings after which the first log comes even where so short a half-life gives no interval."""
TAP = "after-unscale-before-clip"


@dataclass(frozen=True)
class NoiseSettings:
    """How gradient noise is estimated; `run(declared=settings.declared)` says so in the stream."""

    noise_unit: str
    """`token`, `sequence` or `micro-batch`."""
    group_sizes: Sequence[int]
    """Noise units of each group of a step: micro-batches of all data ranks, or data ranks."""
    half_life_steps: float = 100.0
    """Optimizer steps after which a reading counts half."""
    every: int = 1
    """Optimizer steps from one reading to the next."""
    loss_reduction: str | None = None
    """As in a training plan, where `run` is not given."""
    parameter_scope: str = "all"
    accumulation_format: str = "fp64"
    """Number format that squares are added up in; JAX has `fp32` where 64 bits are not switched on."""

    @property
    def declared(self) -> dict[str, Any]:
        """Attributes of the head of the stream."""
        sizes = sorted(set(self.group_sizes))
        told = {
            attributes.GRADIENT_NOISE_UNIT: self.noise_unit,
            attributes.GRADIENT_NUM_GROUPS: len(self.group_sizes),
            attributes.GRADIENT_GROUP_SIZES: list(self.group_sizes) if len(sizes) > 1 else sizes,
            attributes.GRADIENT_ESTIMATOR: "size-weighted",
            attributes.GRADIENT_EMA_HALF_LIFE_STEPS: self.half_life_steps,
            attributes.GRADIENT_BIAS_CORRECTED: True,
            attributes.GRADIENT_TAP: TAP,
            attributes.GRADIENT_PARAMETER_SCOPE: self.parameter_scope,
            attributes.GRADIENT_ACCUMULATION_FORMAT: self.accumulation_format,
            attributes.LOSS_REDUCTION: self.loss_reduction,
        }
        return {attribute.name: value for attribute, value in told.items() if value is not None}


class NoiseMeter:
    """Averages the noise of steps, and logs it now and then."""

    def __init__(self, settings: NoiseSettings, run: Run | SilentRun, *, interval_seconds: float = 60.0) -> None:
        self.settings = settings
        self.num_left_out = 0
        """Optimizer steps that gave no reading, since a norm was not finite, or could not be."""
        self._run, self._interval_seconds = run, interval_seconds
        self._averages = Averages(settings.half_life_steps, settings.every)
        self._due: float | None = None

    @property
    def is_on(self) -> bool:
        """Whether something is recorded, so that measuring is worth it."""
        return self._run.is_active

    @property
    def reading(self) -> Reading | None:
        """The averages up to now; None before the first update."""
        return self._averages.reading()

    @never_raises(None)
    def add(self, norms: Norms) -> None:
        """Norms of one step; a log follows where one is due. An optimizer step that overflowed is left out."""
        problem = norms.problem
        if problem is not None:
            self.num_left_out += 1
            tell_once(f"gradient noise of a step is left out: {problem}")
            return
        self._averages.add(norms)
        now = time.monotonic()
        is_first = self._due is None and (
            self._averages.num_effective >= LEAST_STEPS or self._averages.num_readings >= MOST_STEPS
        )
        if is_first or (self._due is not None and now >= self._due):
            self._due = now + self._interval_seconds
            self.log()

    @never_raises(None)
    def log(self) -> None:
        """Log the averages of this moment."""
        reading = self.reading
        if reading is not None:
            for metric, value, interval in _values(reading):
                told = {attributes.GRADIENT_CI95.name: list(interval)} if interval is not None else None
                self._run.log({metric: value}, attributes=told)


def _values(reading: Reading) -> Iterator[tuple[str, float, Interval | None]]:
    """Each metric with its value and its interval."""
    noise, of_noise = reading.noise_trace, reading.noise_interval
    yield metrics.GRADIENT_VARIANCE.name, noise, of_noise
    yield metrics.GRADIENT_SIGNAL.name, reading.signal_sq, reading.signal_interval
    if reading.noise_scale is not None and reading.noise_scale >= 0 and reading.scale_interval is not None:
        yield metrics.GRADIENT_NOISE_SCALE.name, reading.noise_scale, reading.scale_interval
    shares = {
        metrics.GRADIENT_APPLIED_VARIANCE: reading.applied_variance,
        metrics.GRADIENT_NORM_TEST: reading.norm_test,
    }
    for metric, value in shares.items():
        if value is not None:
            factor = value / noise if noise else 0.0
            yield metric.name, value, (of_noise[0] * factor, of_noise[1] * factor) if of_noise is not None else None
