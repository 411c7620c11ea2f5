"""Relates a batch to the critical batch: steps against samples, published laws, a recommendation.

A batch, a noise scale and a critical batch of one call share one unit: tokens, sequences or micro-batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

ZHANG_SEQUENCE_TOKENS = 512
"""Tokens of one sequence in the runs behind the laws of arXiv:2410.21676 (hlzhang109/critical-batch-size@c5b509d:
configs/critical-bs)."""


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} is {value}, wanted a finite number above 0")


def steps_ratio(batch: float, noise_scale: float) -> float:
    """Optimizer steps over the fewest possible, at a fixed batch.

    Source: arXiv:1812.06162, section 2.3.

    >>> steps_ratio(250, 1000), steps_ratio(4000, 1000)
    (5.0, 1.25)

    Raises:
        ValueError: an argument is not a finite number above 0.
    """
    _positive(batch=batch, noise_scale=noise_scale)
    return 1 + noise_scale / batch


def samples_ratio(batch: float, noise_scale: float) -> float:
    """Samples (or tokens) over the fewest possible, at a fixed batch.

    Source: arXiv:1812.06162, section 2.3.

    >>> samples_ratio(250, 1000), samples_ratio(4000, 1000)
    (1.25, 5.0)

    Raises:
        ValueError: an argument is not a finite number above 0.
    """
    _positive(batch=batch, noise_scale=noise_scale)
    return 1 + batch / noise_scale


def samples_for_steps(steps: float, least_steps: float, least_samples: float, gain: float = 1.0) -> float:
    """Samples that a run of `steps` takes: (S / least S - 1) (E / least E - 1) = gain.

    `gain` is 1 for a fixed batch, and `adaptive_gain` for one that follows the noise.
    Source: arXiv:1812.06162, equation 2.11 and appendix D.

    >>> samples_for_steps(steps=20_000, least_steps=10_000, least_samples=1e7)
    20000000.0

    Raises:
        ValueError: an argument is not above 0, or there are no more steps than the fewest possible.
    """
    _positive(steps=steps, least_steps=least_steps, least_samples=least_samples, gain=gain)
    if steps <= least_steps:
        raise ValueError(f"{steps:g} steps, but no batch does with {least_steps:g} or fewer")
    return least_samples * (1 + gain / (steps / least_steps - 1))


def critical_batch_of_limits(least_steps: float, least_samples: float) -> float:
    """The critical batch: the fewest samples over the fewest steps; there a run takes twice either.

    Source: arXiv:1812.06162, equation 2.12.

    >>> critical_batch_of_limits(10_000, 1e7)
    1000.0

    Raises:
        ValueError: an argument is not above 0.
    """
    _positive(least_steps=least_steps, least_samples=least_samples)
    return least_samples / least_steps


def batch_for_samples_ratio(samples_over_least: float, critical: float) -> float:
    """The largest batch that takes at most this many times the fewest samples.

    A run that may spend a fifth more tokens than the least stays at a fifth of the critical batch:

    >>> round(batch_for_samples_ratio(1.2, 4096))
    819

    Raises:
        ValueError: the ratio is not above 1, or the critical batch is not above 0.
    """
    _positive(excess=samples_over_least - 1, critical=critical)
    return (samples_over_least - 1) * critical


def adaptive_batch(noise_scale: float, samples_per_step: float) -> float:
    """The batch that costs least when one step is worth `samples_per_step` samples: sqrt(r * noise scale).

    It is where the derivative of (B + noise) + r (1 + noise / B) vanishes. Source: arXiv:1812.06162, appendix D.

    >>> adaptive_batch(noise_scale=4000, samples_per_step=1000)
    2000.0

    Raises:
        ValueError: an argument is not above 0.
    """
    _positive(noise_scale=noise_scale, samples_per_step=samples_per_step)
    return math.sqrt(noise_scale * samples_per_step)


def adaptive_gain(noise_scales: Sequence[float], progress: Sequence[float] | None = None) -> float:
    """Product of step and sample overheads of the best adaptive batch; 1 for a constant noise scale, else less.

    Each noise scale holds for its share of `progress` (equal shares when None), counted in steps of a batch without
    noise. It is mean(sqrt(noise))^2 / mean(noise). Source: arXiv:1812.06162, appendix D. A noise scale that jumps
    from 100 to 900 half-way:

    >>> adaptive_gain([100, 900])
    0.8

    Raises:
        ValueError: no noise scale, numbers that are not above 0, or lengths that differ.
    """
    shares = [1.0] * len(noise_scales) if progress is None else list(progress)
    if not noise_scales or len(shares) != len(noise_scales):
        raise ValueError("wanted one or more noise scales, and as many shares of progress")
    _positive(noise_scale=min(noise_scales), progress=min(shares))
    total = math.fsum(shares)
    root = math.fsum(s * math.sqrt(n) for s, n in zip(shares, noise_scales, strict=True)) / total
    return root**2 / (math.fsum(s * n for s, n in zip(shares, noise_scales, strict=True)) / total)


@dataclass(frozen=True, slots=True)
class LawValue:
    """Result of a published law, in tokens, and whether its input is in the range of the fit."""

    tokens: float
    in_range: bool


def kaplan_critical_batch(loss_nats_per_token: float) -> LawValue:
    """Critical batch in tokens at a loss in nats per token: 2e8 / L^4.76, with the definition of least E over least S.

    Fitted on decoder-only language models of up to 1.5 billion parameters trained with Adam. The range of losses, 2 to
    10, is ours: what such models pass through while they learn.
    Source: arXiv:2001.08361, section 5.1.

    >>> round(kaplan_critical_batch(2.5).tokens / 1e6, 2)
    2.55

    Raises:
        ValueError: the loss is not above 0.
    """
    _positive(loss_nats_per_token=loss_nats_per_token)
    return LawValue(2e8 / loss_nats_per_token**4.76, 2 <= loss_nats_per_token <= 10)


def zhang_data_critical_batch(num_tokens: float) -> LawValue:
    """Critical batch in tokens of a run over `num_tokens`: 22.91 D^0.47 sequences of 512 tokens, D in millions.

    Here the critical batch is the largest with at most a fifth more steps than linear scaling. The units are those of
    the authors' fit (hlzhang109/critical-batch-size@c5b509d:plots/chinchilla.ipynb): 93.2 N^0.468 sequences for N
    million parameters with 20 tokens each, which is 22.9 D^0.468. Fitted on models of 85 million to 1.2 billion
    parameters, so on about 1.7 to 24 billion tokens at 20 per parameter, with Adam. Source: arXiv:2410.21676.

    >>> round(zhang_data_critical_batch(3.02e9).tokens / 512)
    990

    Raises:
        ValueError: the tokens are not above 0.
    """
    _positive(num_tokens=num_tokens)
    return LawValue(22.91 * (num_tokens / 1e6) ** 0.47 * ZHANG_SEQUENCE_TOKENS, 1.7e9 <= num_tokens <= 24e9)


def zhang_size_critical_batch(num_parameters: float) -> LawValue:
    """Critical batch in tokens of a model trained on a fixed number of tokens: 621.34 N^0.087 sequences of 512.

    N is in millions, as D in `zhang_data_critical_batch`. Fitted on 85 million to 1.2 billion parameters with Adam,
    about 3 billion tokens each. Source: arXiv:2410.21676.

    >>> round(zhang_size_critical_batch(151e6).tokens / 512)
    961

    Raises:
        ValueError: the parameters are not above 0.
    """
    _positive(num_parameters=num_parameters)
    sequences = 621.34 * (num_parameters / 1e6) ** 0.087
    return LawValue(sequences * ZHANG_SEQUENCE_TOKENS, 85e6 <= num_parameters <= 1.2e9)


def bergsma_critical_batch(num_tokens: float, measured_tokens: float, measured_critical: float) -> LawValue:
    """Critical batch of a run over `num_tokens`, from one that was measured: it grows as tokens^0.47.

    Only the exponent is used, so the unit is that of the measured batch. Fitted (R2 0.940) on 111 million to
    3.3 billion parameters with AdamW. The range is a factor of 100 either way, ours; a law without a factor reaches
    only as far as its runs. Source: arXiv:2505.13738.

    >>> round(bergsma_critical_batch(16e9, 1e9, 1e6).tokens / 1e6, 2)
    3.68

    Raises:
        ValueError: an argument is not above 0.
    """
    return _power_law(num_tokens, measured_tokens, measured_critical, 0.47)


def bergsma_best_batch(num_tokens: float, measured_tokens: float, measured_best: float) -> LawValue:
    """Batch of the lowest loss of a run over `num_tokens`, from one that was measured: it grows as tokens^0.38.

    Range and source as `bergsma_critical_batch`, R2 0.984.

    >>> round(bergsma_best_batch(16e9, 1e9, 1e6).tokens / 1e6, 2)
    2.87

    Raises:
        ValueError: an argument is not above 0.
    """
    return _power_law(num_tokens, measured_tokens, measured_best, 0.38)


def _power_law(num_tokens: float, measured_tokens: float, measured: float, exponent: float) -> LawValue:
    _positive(num_tokens=num_tokens, measured_tokens=measured_tokens, measured=measured)
    growth = num_tokens / measured_tokens
    return LawValue(measured * growth**exponent, 0.01 <= growth <= 100)


@dataclass(frozen=True, slots=True)
class BatchAdvice:
    """A batch within bounds, what it costs, and which bound held it."""

    batch: int
    steps_ratio: float
    samples_ratio: float
    bound: str
    """`none`, `smallest` or `largest`."""


def recommend_batch(wanted: float, critical: float, smallest: int, largest: int, multiple_of: int = 1) -> BatchAdvice:
    """The multiple nearest to the target batch, in ratio, within the bounds, with its cost.

    `wanted` is for example `adaptive_batch` or the critical batch itself; `multiple_of` is data ranks times
    micro-batch. A critical batch of 3,000 sequences on 128 data ranks:

    >>> recommend_batch(3000, 3000, smallest=256, largest=2048, multiple_of=128)
    BatchAdvice(batch=2048, steps_ratio=2.46484375, samples_ratio=1.6826666666666665, bound='largest')

    Raises:
        ValueError: a number is not above 0, or no multiple is within the bounds.
    """
    _positive(wanted=wanted, critical=critical, smallest=smallest, multiple_of=multiple_of)
    low, high = -(-smallest // multiple_of) * multiple_of, largest // multiple_of * multiple_of
    if low > high:
        raise ValueError(f"no multiple of {multiple_of} is between {smallest} and {largest}")
    below = max(multiple_of, math.floor(wanted / multiple_of) * multiple_of)
    # Costs are those of ratios, so the middle between two multiples is the geometric one.
    nearest = below if wanted * wanted <= below * (below + multiple_of) else below + multiple_of
    batch = min(max(nearest, low), high)
    bound = "none" if batch == nearest else "smallest" if batch > nearest else "largest"
    return BatchAdvice(batch, steps_ratio(batch, critical), samples_ratio(batch, critical), bound)
